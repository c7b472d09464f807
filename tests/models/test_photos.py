"""Photos: what their features are by plain loops, which kinds are learned, and when mirrored copies count."""

import numpy as np
import pytest

from pate_jax.errors import PateError
from pate_jax.models import photos

FEW = {"kinds": 4, "size": 3, "cells": 2}


def drawn(count=60, seed=0):
    """Clouds of colours, which look the same mirrored."""
    random = np.random.default_rng(seed)
    seen = random.random((count, 9, 10, 3))
    return (seen + np.roll(seen, 1, 2) + np.roll(seen, -1, 2)).astype(np.float32) / 3


def leaning(count=60, seed=0):
    """Waves that all lean to one side, as letters do."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[:9, :10]
    waves = np.sin(1.3 * (x + y)[None, :, :, None] + random.uniform(0, 6, (count, 1, 1, 3)))
    return (waves + 0.5 * random.normal(size=waves.shape)).astype(np.float32)


@pytest.fixture(scope="module")
def known():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(photos, "_SAMPLE", 4000)
        return photos.learn(drawn(), **FEW)


def by_loops(known, photo, size, cells):
    """The features of one photo, patch by patch, in double precision; its copy is really mirrored."""
    filters, offset = np.asarray(known.filters[0], np.float64), np.asarray(known.offset, np.float64)
    kinds, down, across = len(offset), photo.shape[0] - size + 1, photo.shape[1] - size + 1
    sums = np.zeros((kinds, cells, cells))
    copies = [photo, photo[:, ::-1]][: len(known.filters)]
    for copy in copies:
        for row in range(down):
            for column in range(across):
                patch = copy[row : row + size, column : column + size].astype(np.float64).ravel()
                patch -= patch.mean()
                answer = patch / np.sqrt((patch**2).mean() + float(known.flat)) @ filters - offset
                cell = row * cells // down, column * cells // across
                sums[:, *cell] += np.maximum(answer - float(known.threshold), 0)
    return np.sqrt(sums / len(copies)).ravel()


def one_sided(known):
    return known._replace(filters=known.filters[:1], within=(known.within[:1] > 0).astype(np.float32))


@pytest.mark.parametrize("sides", [1, 2])
def test_features_are_what_plain_loops_give(known, sides):
    known = known if sides == 2 else one_sided(known)
    for photo in drawn(3, seed=4):
        found = photos.features(known, photo[None])[0]
        np.testing.assert_allclose(found, by_loops(known, photo, 3, 2), atol=2e-4)


def test_a_mirrored_photo_is_the_same_vector(known):
    seen = drawn(5, seed=1)
    assert len(known.filters) == 2
    np.testing.assert_allclose(
        photos.features(known, seen[:, :, ::-1]), photos.features(known, seen), atol=1e-4
    )


@pytest.mark.parametrize("count", [1, 37, 100, 101])
def test_no_photo_changes_a_bit_of_anothers_features(known, count):
    pool = drawn(230, seed=2)
    alone = photos.features(known, pool[5:6])
    among = photos.features(known, np.concatenate([drawn(count, seed=3), pool[5:]]))[count]
    np.testing.assert_array_equal(alone[0], among)


def test_kinds_follow_from_the_pool_and_the_seed(monkeypatch):
    monkeypatch.setattr(photos, "_SAMPLE", 2000)
    one, same, other = (photos.learn(drawn(), seed=seed, **FEW) for seed in (0, 0, 1))
    for left, right in zip(one, same, strict=True):
        np.testing.assert_array_equal(left, right)
    assert (one.filters != other.filters).any()


def test_mirrored_copies_count_where_public_photos_look_the_same_mirrored(known):
    assert len(known.filters) == 2
    assert not photos.tells_mirrored(one_sided(known), drawn(400, seed=5))
    assert photos.tells_mirrored(one_sided(known), leaning(400))
    assert len(photos.learn(leaning(), **FEW).filters) == 1


def test_more_photos_have_fewer_kinds_and_none_too_few():
    shape = (32, 32, 3)
    found = [photos.kinds_for(number, shape) for number in (100, 10_000, 60_000, 10**6, 10**9)]
    assert found == sorted(found, reverse=True) and found[-1] == 100
    assert photos.kinds_for(60_000, (128, 128, 3)) < photos.kinds_for(60_000, shape)


def test_flat_photos_have_features_too(known):
    assert np.isfinite(photos.features(known, np.full((2, 9, 10, 3), 0.5, np.float32))).all()


def test_what_cannot_be_photos_is_refused(known):
    with pytest.raises(PateError, match="0 patches of the public photos are not flat"):
        photos.learn(np.zeros((5, 9, 10, 3), np.float32), **FEW)
    with pytest.raises(PateError, match=r"the public photos are \[0, 9, 10, 3\]"):
        photos.learn(drawn(0), **FEW)
    with pytest.raises(PateError, match="photos of 9 x 9 pixels do not fit"):
        photos.features(known, drawn(2)[:, :, :9])
