"""Data by name, and what every dataset must satisfy whatever it came from."""

import dataclasses

import jax
import numpy as np
import pytest

from pate_jax import data
from pate_jax.data import Dataset, Part, Preprocessing, dataset
from pate_jax.errors import PateError


def make(**changes) -> Dataset:
    def part(records: int, prefix: str) -> Part:
        inputs = np.arange(records * 3, dtype=np.float32).reshape(records, 3)
        ids = np.array([f"{prefix}{number}" for number in range(records)])
        return Part(inputs, np.arange(records, dtype=np.int32) % 2, ids)

    plain = Dataset(
        name="toy",
        kind="table",
        private=part(7, "a"),
        public=part(5, "b"),
        test=part(4, "c"),
        classes=2,
        class_names=("no", "yes"),
        preprocessing=Preprocessing((0.0,), (1.0,)),
        synthetic=True,
        description="toy",
    )
    return dataclasses.replace(plain, **changes)


def test_strokes_are_the_default():
    found = data.load(size=12, public_size=4, test_size=3)
    assert (found.name, found.classes, found.synthetic) == ("strokes", 10, True)
    assert [len(part.inputs) for part in (found.private, found.public, found.test)] == [12, 4, 3]


def test_glyphs_by_name():
    found = data.load("glyphs", size=12, public_size=4, test_size=3, classes=9, difficulty=0.5)
    assert (found.name, found.classes) == ("glyphs", 9)
    assert "difficulty 0.5" in found.description


def test_every_name_is_listed():
    assert data.NAMES == ("strokes", "glyphs", "mnist", "fashion_mnist", "svhn", "cifar10", "adult")


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("strokes", {"classes": 5}, "classes=5 is for glyphs"),
        ("mnist", {"size": 100}, "size=100 is for the synthetic sets strokes and glyphs"),
        ("adult", {"difficulty": 2.0}, "difficulty=2.0 is for the synth"),
        ("glyphs", {"size": 0}, "size=0 must be at least 1"),
        ("strokes", {"manual_dir": "archives"}, "manual_dir='archives' holds archives"),
    ],
)
def test_options_that_do_not_fit(name, options, said):
    with pytest.raises(PateError, match=said):
        data.load(name, **options)


def test_a_good_dataset_passes_and_a_part_can_be_missing():
    good = make()
    assert dataset.check(good) is good
    assert dataset.check(make(test=None, public=make().public._replace(labels=None)))
    assert good.input_shape == (3,)


def test_take_keeps_rows_together():
    part = make().private._replace(users=np.array(list("uvwxyza")))
    chosen = part.take([5, 2])
    assert chosen.ids.tolist() == ["a5", "a2"]
    assert chosen.labels.tolist() == [1, 0]
    assert chosen.users.tolist() == ["z", "w"]
    assert chosen.inputs[:, 0].tolist() == [15, 6]


def spoil(column, value, part="private"):
    return {part: getattr(make(), part)._replace(**{column: value})}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"classes": 1}, "classes=1 must be at least 2"),
        ({"classes": 3}, "2 class names are given for classes=3"),
        (spoil("labels", None), "private has no labels"),
        (spoil("labels", np.full(7, 2)), "private label 2 at row 0"),
        (spoil("labels", np.zeros(6, np.int32)), "private has 6 labels for 7 inputs"),
        (spoil("inputs", np.zeros((7, 4), np.float32)), "private inputs have shape (4,)"),
        (spoil("inputs", np.zeros((7, 3, 3), np.float32)), "private inputs have shape (7, 3, 3)"),
        (
            spoil("inputs", np.full((5, 3), np.inf, np.float32), "public"),
            "public inputs hold NaN or infinity",
        ),
        (spoil("inputs", np.zeros((0, 3), np.float32), "test"), "test holds no records"),
        (spoil("ids", np.array(list("abcabcd"))), "private has the id 'a' 2 times"),
        (spoil("users", np.array(["u"])), "private has 1 users"),
    ],
)
def test_a_bad_dataset_is_one_sentence(changes, said):
    with pytest.raises(PateError) as caught:
        dataset.check(make(**changes))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_preprocessing_is_the_same_in_numpy_and_under_jit():
    scale = Preprocessing((1.0, 2.0, 3.0), (2.0, 4.0, 8.0))
    inputs = np.array([[3, 6, 11], [1, 2, 3]], np.uint8)
    assert scale.apply(inputs).tolist() == [[1, 1, 1], [0, 0, 0]]
    jitted = jax.jit(scale.apply)(inputs)
    assert jitted.dtype == scale.apply(inputs).dtype == np.float32
    assert np.array_equal(jitted, scale.apply(inputs))


@pytest.mark.parametrize(
    ("offset", "scale"),
    [((0.0,), (0.0,)), ((0.0, 1.0), (1.0,)), ((float("nan"),), (1.0,)), ((0.0,), (float("inf"),))],
)
def test_preprocessing_refuses_what_cannot_scale(offset, scale):
    with pytest.raises(PateError, match="scale"):
        Preprocessing(offset, scale)
