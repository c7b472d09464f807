"""Repeated queries: asked once, found again, and near ones all found."""

import numpy as np
import pytest

from pate_jax import aggregate
from pate_jax.aggregate import noise
from pate_jax.data import duplicates
from pate_jax.errors import PateError
from pate_jax.mechanisms import GNMax

INPUTS = np.random.default_rng(0).normal(size=(40, 3, 2)).astype(np.float32)


def test_equal_inputs_are_asked_once_and_share_an_answer():
    rows = np.array([5, 7, 5, 5, 9, 7])
    unique = duplicates.unique_queries(INPUTS[rows])
    assert unique.first_rows.tolist() == [0, 1, 4]
    assert unique.inverse.tolist() == [0, 1, 0, 0, 2, 1]
    votes = np.tile([[5, 5]], (3, 1))
    answers = aggregate.answer(GNMax(9.0), votes, key=noise.seeded_key(0)).labels[unique.inverse]
    assert answers[0] == answers[2] == answers[3] and answers[1] == answers[5]


def test_digests_tell_type_shape_and_content_apart():
    a = np.zeros((1, 4), np.float32)
    different = [a, a.astype(np.int32), a.reshape(1, 2, 2), a + 1]
    assert len({duplicates.digests(one)[0] for one in different}) == 4
    zeros = np.zeros((4, 1), np.float32).T
    assert duplicates.digests(a) == duplicates.digests(-a) == duplicates.digests(zeros)


def test_repeats_are_found_among_stored_answers():
    stored = duplicates.digests(INPUTS[10:20])
    assert np.flatnonzero(duplicates.repeats(INPUTS, stored)).tolist() == list(range(10, 20))
    assert not duplicates.repeats(INPUTS, []).any()


@pytest.mark.parametrize("size", [1, 3, 200])
@pytest.mark.parametrize("distance", [0.05, 0.3, 1.2])
def test_near_duplicates_are_those_that_all_pairs_show(size, distance):
    generator = np.random.default_rng(size)
    inputs = generator.normal(size=(240, size))
    inputs[120:160] = inputs[:40] + generator.normal(size=(40, size)) * 0.03
    inputs[200] = inputs[0]
    found = duplicates.near_duplicates(inputs, distance)
    flat = inputs.astype(np.float32).astype(np.float64)
    apart = np.sqrt(((flat[:, None] - flat[None]) ** 2).mean(2))
    expected = np.argwhere(np.triu((apart <= distance) & (apart > 0), 1))
    assert len(expected) and found.pairs.tolist() == expected.tolist()
    np.testing.assert_allclose(found.distances, apart[tuple(expected.T)])


def test_the_scale_and_offset_of_the_inputs_do_not_matter():
    images = np.random.default_rng(1).integers(100, 140, (300, 8, 8, 1)).astype(np.uint8)
    images[7] = images[290]
    images[7, 3, 3] += 1
    assert duplicates.near_duplicates(images, 0.2).pairs.tolist() == [[7, 290]]
    assert duplicates.near_duplicates(images[:0], 0.2).pairs.shape == (0, 2)
    assert duplicates.near_duplicates(images[:1], 0.2).pairs.shape == (0, 2)


def test_bad_input_is_named(monkeypatch):
    with pytest.raises(PateError, match="distance=0"):
        duplicates.near_duplicates(INPUTS, 0)
    with pytest.raises(PateError, match="NaN"):
        duplicates.near_duplicates(np.full((3, 2), np.nan), 1.0)
    with pytest.raises(PateError, match=r"\(40,\)"):
        duplicates.digests(INPUTS[:, 0, 0])
    monkeypatch.setattr(duplicates, "_LARGEST", 10)
    with pytest.raises(PateError, match="over 10 pairs"):
        duplicates.near_duplicates(INPUTS, 100.0)
