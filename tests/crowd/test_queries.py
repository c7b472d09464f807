"""Queries that neighbours vote at: shortcuts change no number."""

import numpy as np
import pytest

from pate_jax.crowd import neighbours, rehearsal
from pate_jax.crowd.neighbours import Queries
from pate_jax.crowd.vectors import Scaling


@pytest.fixture(scope="module")
def pool():
    return np.random.default_rng(0).integers(-900, 900, (700, 5))


def balanced_over_all(pool, chosen, squares):
    """Handicaps by the distances of every input to every query, in every turn."""
    gaps = squares - 2.0 * (pool @ chosen.T)
    two = np.sort(gaps, axis=1)[:, :2]
    handicaps = np.zeros(len(chosen))
    for _ in range(neighbours._TURNS):
        there = np.bincount((gaps + handicaps).argmin(1), minlength=len(chosen))
        rise = np.log((there + 1) / (len(pool) / len(chosen) + 1))
        handicaps += neighbours._PACE * np.median(two[:, -1] - two[:, 0]) * rise
    return handicaps


@pytest.mark.parametrize(("some", "at_once"), [(2, 300), (8, 1 << 20), (64, 1 << 20)])
def test_balancing_among_a_few_queries_is_balancing_among_all(pool, monkeypatch, some, at_once):
    monkeypatch.setattr(neighbours, "_SOME", some)
    monkeypatch.setattr(neighbours, "_AT_ONCE", at_once)
    chosen = pool[:40]
    squares = (chosen**2).sum(1)
    found = neighbours._balance(pool, chosen, squares)
    np.testing.assert_array_equal(found, balanced_over_all(pool, chosen, squares))
    assert np.abs(found).max() > 0


def test_one_query_needs_no_balance(pool):
    assert neighbours._balance(pool, pool[:1], (pool[:1] ** 2).sum(1)).tolist() == pytest.approx(
        [0], abs=1e-9
    )


def test_likeness_is_the_mean_over_all_pairs(pool, monkeypatch):
    monkeypatch.setattr(neighbours, "_AT_ONCE", 300)
    chosen = Queries(np.arange(9), pool[:9].T.astype(np.float32), np.zeros(9), Scaling(np.ones(5), 4000, 0))
    gaps = ((pool[:, None] - pool[:9]) ** 2).sum(2)
    plain = 1 - np.sort(gaps, axis=1)[:, :3].mean(0) / gaps.mean()
    np.testing.assert_allclose(neighbours.likeness(chosen, pool, 3), plain, rtol=1e-12)


def test_what_queries_say_is_carried_on_by_least_squares(pool):
    random = np.random.default_rng(1)
    chosen = Queries(np.arange(9), pool[:9].T.astype(np.float32), np.zeros(9), Scaling(np.ones(5), 4000, 0))
    gaps, said = ((pool[9:20, None] - pool[:9]) ** 2).sum(2), random.normal(size=(9, 3))
    apart = ((pool[:9, None] - pool[:9]) ** 2).sum(2)
    alike = np.exp(-apart / np.median(apart)) + rehearsal._SHARED * np.eye(9)
    plain = np.exp(-gaps / np.median(apart)) @ np.linalg.inv(alike) @ said
    np.testing.assert_allclose(rehearsal._carrier(chosen, gaps)(said), plain, rtol=1e-9)
