"""GNMax against mpmath and the published goldens; strong consensus at every scale."""

import itertools
import json
from pathlib import Path

import mp_bounds
import mpmath as mp
import numpy as np
import pytest

from pate_jax.accounting import exact
from pate_jax.accounting.bounds import noisy_max
from pate_jax.mechanisms import GNMax

DIGITS = mp_bounds.DIGITS

GOLDENS = Path(__file__).parents[2] / "../shared/data/goldens.json"
VOTES = [
    [250, 0],
    [126, 124],
    [240, 3, 3, 2, 2],
    [90, 80, 80],
    [125, 125],
    [5000, 0, 0],
    [200, 10, 10, 10, 10, 5, 5],
    [1, 0],
    [60, 40, 30, 20, 10],
    [3, 2, 1],
]
SIGMAS = [0.5, 2.0, 9.0, 40.0, 333.0]
ORDERS = [1.001, 1.5, 2.0, 7.5, 30.0, 500.0]


@pytest.mark.parametrize(("votes", "sigma"), list(itertools.product(VOTES, SIGMAS)))
def test_q_and_theorem_6_equal_mpmath(votes, sigma):
    q = mp_bounds.gnmax_q(votes, sigma)
    assert mp_bounds.close(noisy_max.gaussian_log_q(np.array([votes]), sigma)[0], mp.log(q), rel=1e-13)
    found = noisy_max.published(np.array([votes]), sigma, np.array(ORDERS))[0]
    for value, order in zip(found, ORDERS, strict=True):
        assert mp_bounds.close(value, mp_bounds.theorem6(q, sigma, order), rel=1e-9)


@pytest.mark.parametrize("sigma", np.geomspace(1e-3, 1e6, 19))
@pytest.mark.parametrize("teachers", [1, 7, 250, 5000])
def test_unanimous_votes_give_a_figure_at_every_scale(sigma, teachers):
    votes = np.zeros((1, 4), dtype=int)
    votes[0, 2] = teachers
    orders = np.array([1.001, 2.0, 20.0, 1000.0])
    found = noisy_max.published(votes, sigma, orders)
    assert np.all(np.isfinite(found)) and np.all(found >= 0)
    assert np.all(found <= orders / sigma / sigma)


def test_log1mexp_equals_mpmath():
    for x in [-1e-300, -1e-18, -1e-3, -0.6931, -0.6932, -5.0, -800.0]:
        wanted = mp.log(1 - mp.exp(mp.mpf(x))) if x > -700 else -mp.exp(mp.mpf(x))
        assert mp_bounds.close(noisy_max.log1mexp(np.array(x)), wanted, rel=1e-14, absolute=1e-320)


def test_published_goldens():
    if not GOLDENS.exists():
        pytest.skip("no shared data here")
    goldens = json.loads(GOLDENS.read_text())["per_query"]
    for name, entry in goldens.items():
        votes = np.load(GOLDENS.parent / f"votes/published_{name}_250.npz")["votes"][entry["rows"]]
        for sigma, log_q, rdp in zip(entry["sigmas"], entry["logq"], entry["rdp"], strict=True):
            np.testing.assert_allclose(noisy_max.gaussian_log_q(votes, sigma), log_q, rtol=1e-9)
            np.testing.assert_allclose(
                noisy_max.published(votes, sigma, np.array(entry["orders"])), rdp, rtol=1e-9
            )


@pytest.mark.parametrize(("teachers", "classes"), [(12, 2), (7, 3), (5, 4)])
@pytest.mark.parametrize("sigma", [0.8, 2.0, 6.0])
def test_theorem_6_bounds_its_own_direction_on_every_histogram(teachers, classes, sigma):
    """And not the other one: where the reverse divergence is larger, the test says so."""
    every = itertools.product(range(teachers + 1), repeat=classes)
    votes = np.array([counts for counts in every if sum(counts) == teachers])
    logs = exact.probabilities(GNMax(sigma), votes)
    apart = np.abs(votes[:, None] - votes[None]).sum(axis=2)
    here, there = np.nonzero(apart == 2)
    reversed_is_larger = 0
    for order in (1.5, 3.0, 10.0):
        bound = noisy_max.published(votes, sigma, np.array([order]))[:, 0]
        terms = order * logs[here] + (1 - order) * logs[there]
        divergence = np.logaddexp.reduce(terms, axis=1) / (order - 1)
        assert np.all(divergence <= bound[here] * (1 + 1e-9) + 1e-13)
        reversed_is_larger += np.sum(divergence > bound[there] * (1 + 1e-6) + 1e-12)
    assert reversed_is_larger > 0 or sigma > 0.8
