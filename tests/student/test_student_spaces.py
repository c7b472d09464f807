"""A student as a space, and a choice of queries in any space."""

from functools import partial

import jax
import numpy as np
import pytest
import tiny_teachers as tiny

from pate_jax import models, student
from pate_jax.data import Preprocessing
from pate_jax.errors import PateError
from pate_jax.models import patches, spaces
from pate_jax.models.spaces import space
from pate_jax.student import PublicInputs, Student, selection
from pate_jax.student import spaces as trained

RANDOM = np.random.default_rng(7)
POOL = (RANDOM.normal(size=(90, 6)) * [5, 4, 3, 2, 1, 1]).astype(np.float32)
SCALE = Preprocessing((0.5,), (2.0,))


def a_student():
    net = models.build("table", input_shape=(6,), classes=3, hidden=(9, 4))
    return Student(tiny.weights(net), net.description, SCALE, ("a", "b", "c"), dtype="float32")


def test_a_student_is_the_space_of_what_its_last_layer_reads(tmp_path):
    learned = a_student()
    made = student.space(learned, POOL)
    assert made.description()[:2] == ("student", 4)
    flowing = SCALE.apply(POOL)
    for layer in ("dense0", "dense1"):
        weights = learned.parameters[layer]
        flowing = np.maximum(flowing @ weights["kernel"] + weights["bias"], 0)
    np.testing.assert_allclose(made.front(POOL), flowing, atol=1e-5)
    learned.save(tmp_path)
    assert student.space(Student.load(tmp_path), POOL).description() == made.description()
    assert student.space(learned, POOL, directions=1).description().directions == 1


def test_a_space_takes_what_its_student_takes():
    with pytest.raises(PateError, match="this student takes"):
        student.space(a_student(), POOL[:, :5])


def test_kinds_that_need_no_training_are_those_of_public_inputs():
    public = PublicInputs(POOL, SCALE, 3, ("a", "b", "c"))
    for kind in ("identity", "columns"):
        made = trained.learn(kind, public, key=jax.random.key(0), directions=2)
        assert made.description() == spaces.learn(kind, POOL, SCALE, directions=2).description()
    with pytest.raises(PateError, match="needs images"):
        trained.learn("contrast", public, key=jax.random.key(0))


@pytest.mark.parametrize("kind", ["identity", "columns", "patches"])
@pytest.mark.parametrize("sample", [40, 1000])
def test_a_space_and_its_pool_are_learned_at_once_and_each_input_is_looked_at_once(monkeypatch, kind, sample):
    """The directions are learned from a sample of the pool, which is not looked at again."""
    monkeypatch.setattr(space, "_POOL", sample)
    monkeypatch.setattr(patches, "learn", partial(patches.learn, kinds=12, cells=3))
    pool = RANDOM.random((90, 6, 6, 1)).astype(np.float32) if kind == "patches" else POOL
    public, seen, look = PublicInputs(pool, SCALE, 3, ("a", "b", "c")), [], space.features

    def counted(front, inputs, first=0):
        seen.append(len(inputs))
        return look(front, inputs, first)

    made = trained.learn(kind, public, key=jax.random.key(0))
    monkeypatch.setattr(space, "features", counted)
    found, coordinates = trained.learned(kind, public, key=jax.random.key(0))
    assert sum(seen) == 90
    assert found.description() == made.description()
    np.testing.assert_array_equal(coordinates, made.coordinates(pool))


def test_queries_are_chosen_in_the_space_that_is_given():
    """Two far columns decide by themselves; a space that sees the third only spreads queries along it."""
    points = np.concatenate([POOL[:, :2] * 100, np.repeat([0.0, 1, 2], 30)[:, None]], 1).astype(np.float32)
    seen = spaces.learn("identity", points[:, 2:])._replace(front=Third())
    for key in (b"a", b"b", b"c"):
        assert sorted(points[selection.select("kmeans", points, 3, key=key, space=seen), 2]) == [0, 1, 2]


class Third:
    """A front that sees one column."""

    kind = "identity"

    def __call__(self, inputs):
        return np.asarray(inputs[:, 2:], np.float32)
