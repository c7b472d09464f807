"""Near-duplicates: measured as plain loops do, and moved images are near where others are not."""

import numpy as np
import pytest

from pate_jax.data import overlap
from pate_jax.data.dataset import AS_STORED, Preprocessing


def drawn(count, seed=0):
    """Bright strokes on black images."""
    random, images = np.random.default_rng(seed), np.zeros((count, 16, 16, 1), np.uint8)
    images[:, 5:11, 5:11] = random.integers(0, 256, (count, 6, 6, 1))
    return images


def plain(image):
    """The amplitudes of an image by the definition of the transform."""
    turns = np.exp(-2j * np.pi * np.outer(np.arange(16), np.arange(16)) / 16)
    return np.abs(turns @ image[:, :, 0] @ turns)[:, :9].ravel()


def test_distances_and_the_typical_one_are_those_of_plain_loops():
    images, scaling = drawn(30), Preprocessing((10.0,), (50.0,))
    places = np.stack([plain((image.astype(np.float32) - 10) / 50) for image in images])
    np.testing.assert_allclose(overlap.coordinates(images, scaling), places, rtol=1e-6, atol=1e-5)
    sample = places[np.random.default_rng(0).permutation(30)[:7]]
    gaps = np.sqrt(((sample[:, None] - sample) ** 2).sum(2)) + np.diag(np.full(7, np.inf))
    assert overlap.ruler(images, scaling).typical == pytest.approx(np.median(gaps.min(1)), rel=1e-6)


@pytest.mark.parametrize("distance", [0.3, 1.0, 1.7])
def test_rows_are_kept_as_one_loop_keeps_them(distance, monkeypatch):
    monkeypatch.setattr(overlap, "_BLOCK", 16)
    random = np.random.default_rng(3)
    points, before = random.normal(size=(90, 2)), random.normal(size=(5, 2))
    kept = []
    for row, point in enumerate(points):
        others = np.concatenate([before, points[kept]])
        if np.sqrt(((others - point) ** 2).sum(1)).min() >= distance * 0.4:
            kept.append(row)
    ruler = overlap.Ruler(AS_STORED, 0.4)
    assert 0 < len(kept) < 90
    assert ruler.apart(points, distance, before).tolist() == kept
    assert ruler.apart(points[:0], distance).tolist() == []


def test_an_image_moved_by_a_pixel_or_changed_in_the_last_digit_is_near_and_others_are_not():
    images = drawn(40)
    ruler = overlap.ruler(images, Preprocessing((0.0,), (255.0,)))
    assert ruler.near(images) == 0
    moved = np.roll(images, (1, -1), axis=(1, 2))
    changed = images + (images < 255)
    assert ruler.near(np.concatenate([images, moved])) == ruler.near(np.concatenate([images, changed])) == 40
    raw = images.reshape(40, -1).astype(float)
    beyond = np.sqrt(((raw - moved.reshape(40, -1)) ** 2).sum(1))
    nearest = overlap.ruler(raw, AS_STORED).typical
    assert np.median(beyond) > 0.5 * nearest  # pixels alone would not have seen it


def test_what_was_asked_before_counts():
    points, ruler = np.arange(6.0)[:, None], overlap.Ruler(AS_STORED, 1.0)
    assert ruler.apart(points + 0.1, 0.5, before=points[2:4]).tolist() == [0, 1, 4, 5]


def test_a_pool_that_holds_everything_twice_has_about_the_same_typical_distance():
    points = np.random.default_rng(5).normal(size=(500, 3))
    twice = np.concatenate([points, points + 1e-6])
    once, both = (overlap.ruler(pool, AS_STORED).typical for pool in (points, twice))
    assert 0.7 < both / once < 1.3


def test_equal_inputs_or_one_have_no_typical_distance():
    for few in (np.ones((5, 3)), np.ones((1, 3))):
        assert overlap.ruler(few, AS_STORED) == overlap.Ruler(AS_STORED, 0.0)
