"""Synthetic characters: each record depends on its own number, the classes can be told apart."""

import numpy as np
import pytest

from pate_jax.data import synthetic
from pate_jax.data.synthetic import Stream
from pate_jax.errors import PateError


@pytest.fixture(scope="module")
def strokes():
    return synthetic.strokes(3000, public_size=400, test_size=300)


def test_shapes_types_and_ids(strokes):
    assert strokes.private.inputs.shape == (3000, 28, 28, 1)
    assert strokes.public.inputs.shape == (400, 28, 28, 1)
    assert strokes.test.inputs.shape == (300, 28, 28, 1)
    assert strokes.private.inputs.dtype == np.uint8
    assert strokes.private.labels.dtype == np.int32
    assert strokes.private.ids[[0, 2999]].tolist() == ["strokes-private-0", "strokes-private-2999"]
    assert strokes.public.ids[0] == "strokes-public-0"
    assert strokes.synthetic
    assert "synthetic" in strokes.description
    assert strokes.class_names == tuple("0123456789")


def test_a_record_depends_on_its_number_alone(strokes):
    fewer = synthetic.strokes(1601, public_size=7, test_size=1)  # also: not a multiple of the chunk
    assert np.array_equal(fewer.private.inputs, strokes.private.inputs[:1601])
    assert np.array_equal(fewer.private.labels, strokes.private.labels[:1601])
    assert np.array_equal(fewer.public.inputs, strokes.public.inputs[:7])
    font = synthetic.digits()
    alone, label = synthetic.draw(font, Stream("strokes-private", np.array([1234])), 1.0)
    assert np.array_equal(alone[0], strokes.private.inputs[1234, :, :, 0])
    assert label[0] == strokes.private.labels[1234]


def test_the_same_pixels_as_ever(strokes):
    """Sums of a few images: the set must not change between versions without notice."""
    sums = strokes.private.inputs[:4].reshape(4, -1).sum(1, dtype=int)
    assert strokes.private.labels[:8].tolist() == GOLDEN_LABELS
    assert np.abs(sums - GOLDEN_SUMS).max() <= 30  # floating point may differ from machine to machine


GOLDEN_LABELS = [9, 8, 4, 7, 1, 0, 3, 2]
GOLDEN_SUMS = np.array([32728, 38154, 30331, 22764])


def test_parts_share_no_image(strokes):
    pictures = [
        {image.tobytes() for image in part.inputs} for part in (strokes.private, strokes.public, strokes.test)
    ]
    assert [len(part) for part in pictures] == [3000, 400, 300]
    assert len(set.union(*pictures)) == 3700


def test_classes_are_about_equal(strokes):
    counts = np.bincount(strokes.private.labels, minlength=10)
    assert abs(counts - 300).max() < 6 * np.sqrt(300 * 0.9)


def nearest_mean_accuracy(dataset) -> float:
    def features(part):
        return part.inputs.reshape(len(part.inputs), -1).astype(np.float32)

    inputs = features(dataset.private)
    means = np.stack([inputs[dataset.private.labels == c].mean(0) for c in range(dataset.classes)])
    distances = ((features(dataset.test)[:, None] - means) ** 2).sum(2)
    return float((distances.argmin(1) == dataset.test.labels).mean())


def test_difficulty_is_a_knob():
    easy, usual, hard = (
        nearest_mean_accuracy(synthetic.strokes(1500, public_size=1, test_size=300, difficulty=level))
        for level in (0.3, 1.0, 2.0)
    )
    assert easy > usual > hard
    assert easy > 0.9
    assert usual > 0.5
    assert hard < usual - 0.1


def test_without_difficulty_there_is_no_grain():
    data = synthetic.strokes(300, public_size=1, test_size=1, difficulty=0.0)
    assert (data.private.inputs[:, :3] == 0).all()
    assert data.private.inputs.max() == 255


def test_glyphs_are_as_many_as_asked_for_and_distinct():
    data = synthetic.glyphs(2000, classes=23, public_size=11, test_size=300, difficulty=0.6)
    assert data.classes == len(data.class_names) == 23
    assert set(data.private.labels.tolist()) == set(range(23))
    assert nearest_mean_accuracy(data) > 0.8


def test_more_glyph_classes_leave_the_first_ones_alone():
    few, many = synthetic.made_up(12), synthetic.made_up(40)
    assert np.array_equal(few.points, many.points[:12])
    assert np.array_equal(few.curves, many.curves[:12])


def test_a_hundred_and_fifty_glyphs_by_default():
    assert synthetic.glyphs(1, public_size=1, test_size=1).classes == 150


def test_brush_marks_run_along_the_strokes():
    font = synthetic.digits()
    marks = font.curves @ font.points
    assert np.allclose(font.curves.sum(2), 1, atol=1e-5)
    one = marks[font.first[1]]  # the plain 1: a straight line down
    assert np.allclose(one[:, 0], 0.5, atol=1e-6)
    assert np.allclose(np.diff(one[:, 1]), font.spacing[font.first[1]], atol=1e-5)


def test_stream_numbers_are_uniform_and_normal():
    stream = Stream("test", np.arange(20_000))
    uniform, normal = stream.uniform(3), stream.normal(5)
    assert abs(uniform.mean() - 0.5) < 0.01
    assert uniform.min() >= 0
    assert uniform.max() < 1
    assert abs(normal.mean()) < 0.02
    assert abs(normal.std() - 1) < 0.02
    assert abs(np.corrcoef(normal.T)[np.triu_indices(5, 1)]).max() < 0.04
    assert abs(np.corrcoef(uniform[:-1, 0], uniform[1:, 0])[0, 1]) < 0.04
    draws = stream.integers(7)
    assert np.bincount(draws.astype(int), minlength=7).min() > 2500


def test_streams_of_other_names_differ():
    assert not np.array_equal(Stream("a", np.arange(9)).bits(2), Stream("b", np.arange(9)).bits(2))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"size": 0}, "size=0 must be at least 1"),
        ({"size": 5, "public_size": 0}, "public_size=0"),
        ({"size": 5, "test_size": -3}, "test_size=-3"),
        ({"size": 5, "difficulty": 9.0}, "difficulty=9.0 must be from 0 to 3"),
        ({"size": 5, "difficulty": float("nan")}, "difficulty=nan"),
    ],
)
def test_bad_options_are_one_sentence(options, said):
    with pytest.raises(PateError, match=said):
        synthetic.strokes(**options)


@pytest.mark.parametrize("classes", [1, 1001])
def test_bad_numbers_of_glyphs(classes):
    with pytest.raises(PateError, match=f"classes={classes} must be from 2 to 1000"):
        synthetic.glyphs(10, classes=classes)


@pytest.mark.long
def test_sixty_thousand_strokes():
    assert len(synthetic.strokes().private.inputs) == 60_000
