"""The entries of a linear net are coordinates, to the bit, and a constant; teachers' nets suit their data."""

import dataclasses

import jax
import numpy as np
import pytest

from pate_jax import data, models
from pate_jax.ensemble import TeacherConfig
from pate_jax.errors import PateError
from pate_jax.models import linear, spaces
from pate_jax.runs import inputs as run_inputs
from pate_jax.student import spaces as trained

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


@pytest.mark.parametrize(("kind", "wanted"), [("image", "patches"), ("table", "columns")])
def test_the_space_of_linear_teachers_suits_the_kind_of_data(kind, wanted, monkeypatch):
    asked, front_of = [], trained.front_of

    def pretended(name, *given, **more):
        asked.append(name)
        return front_of("identity", *given, **more)

    monkeypatch.setattr(trained, "front_of", pretended)
    inputs = POOL[:, 2:6].astype(np.float32).reshape((300, 2, 2, 1) if kind == "image" else (300, 4))
    model = run_inputs.teachers_net(TeacherConfig(net="linear"), a_set(kind, inputs))
    assert asked == [wanted]
    assert model.description["name"] == "linear"
    assert model.description["input_shape"] == list(inputs.shape[1:])
    entries = model.front(inputs[:2]).shape[1]
    assert entries == model.description["entries"]
    assert entries == 5 if kind == "table" else entries > 5  # images are likened to public ones


def with_features(front=None):
    """A set of tables whose records have features of another width beside their inputs, and a config."""
    made = a_set("table", POOL[:, :4].astype(np.float32))
    part = made.private._replace(features=(POOL[:, 1:4] / 4).astype(np.float32))
    return TeacherConfig(net="linear", front=front), dataclasses.replace(made, private=part, public=part)


@pytest.mark.parametrize(("front", "width"), [(None, 3), ("encoder", 3), ("identity", 4)])
def test_linear_teachers_look_at_features_where_there_are_any(front, width):
    config, made = with_features(front)
    assert run_inputs.seen_by(config, made).private.inputs.shape == (300, width)
    model = run_inputs.teachers_net(config, made)
    assert model.description["input_shape"] == [width]
    assert model.front(run_inputs.seen_by(config, made).public.inputs).shape[0] == 300


def test_an_encoder_of_the_owners_makes_the_entries_of_linear_teachers():
    config, made = with_features("numpy:square")
    model = run_inputs.teachers_net(config, made)
    squares = spaces.learn("encoder", made.public.inputs, encoder="numpy:square")
    assert np.array_equal(model.front(POOL[:9, :4]), linear.Entries(squares)(POOL[:9, :4]))


def test_a_front_is_for_linear_teachers_and_is_a_space():
    with pytest.raises(PateError, match="front='columns' is a space of linear teachers"):
        TeacherConfig(net="mlp", front="columns")
    with pytest.raises(PateError, match="front='column' must be one of"):
        TeacherConfig(net="linear", front="column")
    config, made = with_features("encoder")
    bare = dataclasses.replace(made, private=made.private._replace(features=None))
    with pytest.raises(PateError, match="the records have no features"):
        run_inputs.seen_by(config, bare)
