"""The entries of a linear net are coordinates, to the bit, and a constant; teachers' nets suit their data."""

import jax
import numpy as np
import pytest

from pate_jax import data, models
from pate_jax.ensemble import TeacherConfig
from pate_jax.errors import PateError
from pate_jax.models import linear, spaces
from pate_jax.runs import inputs as run_inputs

POOL = np.random.default_rng(3).normal(size=(300, 7)) * [9, 5, 3, 2, 1, 1, 0.1] + 4
SPACE = spaces.learn("identity", POOL)


def test_entries_are_coordinates_divided_by_a_power_of_two_and_a_constant():
    found = linear.Entries(SPACE)(POOL)
    coordinates = SPACE.coordinates(POOL)
    ratio = np.abs(coordinates[0, 0] / found[0, 0])
    assert np.log2(ratio) == round(np.log2(ratio))
    assert np.array_equal(found[:, :-1].astype(np.float64) * ratio, coordinates)
    assert (found[:, -1] == np.float32(0.2)).all()
    assert 0.5 < np.sqrt((found[:, :-1] ** 2).sum(1).mean()) < 1.5


def test_a_record_has_the_same_entries_in_any_company():
    entries = linear.Entries(SPACE)
    assert np.array_equal(entries(POOL)[17:18], entries(POOL[17:18]))


def test_an_untrained_net_answers_one_class():
    model = models.on_space(SPACE, input_shape=(7,), classes=11)
    logits = model.apply(model.init(jax.random.key(2)), linear.Entries(SPACE)(POOL))
    assert logits.shape == (300, 11)
    assert len(np.unique(np.argmax(logits, 1))) == 1
    with pytest.raises(PateError, match="classes=1 must be at least 2"):
        models.on_space(SPACE, input_shape=(7,), classes=1)


def a_set(kind, inputs):
    part = data.Part(inputs, np.arange(len(inputs)) % 3, np.arange(len(inputs)).astype(str))
    names, scale = ("a", "b", "c"), data.Preprocessing((0.0,), (255.0,))
    return data.Dataset("made up", kind, part, part, None, 3, names, scale, True, "made up")


@pytest.mark.parametrize(("kind", "wanted"), [("image", "patches"), ("table", "identity")])
def test_the_space_of_linear_teachers_suits_the_kind_of_data(kind, wanted, monkeypatch):
    asked, learn = [], spaces.learn
    monkeypatch.setattr(spaces, "learn", lambda name, *given: asked.append(name) or learn("identity", *given))
    inputs = POOL[:, 2:6].astype(np.float32).reshape((300, 2, 2, 1) if kind == "image" else (300, 4))
    model = run_inputs.teachers_net(TeacherConfig(net="linear"), a_set(kind, inputs))
    assert asked == [wanted]
    assert model.description["name"] == "linear"
    assert model.description["input_shape"] == list(inputs.shape[1:])
    assert model.front(inputs[:2]).shape == (2, model.description["entries"]) == (2, 5)
