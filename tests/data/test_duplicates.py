"""Repeated queries: asked once, and found again."""

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


def test_bad_input_is_named():
    with pytest.raises(PateError, match=r"\(40,\)"):
        duplicates.digests(INPUTS[:, 0, 0])
