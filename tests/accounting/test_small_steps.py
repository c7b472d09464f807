"""Many small steps: never below exact compositions, adaptive ones too, and close where steps are many."""

import functools
import math

import numpy as np
import pytest
from scipy.special import gammaln, ndtr

from pate_jax.accounting import composition, data_independent
from pate_jax.accounting.data_independent import WorstCase
from pate_jax.mechanisms import GNMax, LNMax

ORDERS = data_independent.ORDERS


def curve(pairs):
    """The Renyi curve of the worst of some pairs of laws, in both directions."""
    found = []
    for p, q in pairs:
        for one, other in ((p, q), (q, p)):
            powers = ORDERS[:, None] * np.log(one) + (1 - ORDERS[:, None]) * np.log(other)
            found.append(np.log(np.exp(powers).sum(axis=1)) / (ORDERS - 1))
    return np.maximum(np.max(found, axis=0), 0)


def spent(p, q, times, epsilon):
    """The exact hockey-stick divergence of a law of three outcomes that is drawn so often."""
    i, j = (part.ravel() for part in np.meshgrid(np.arange(times + 1), np.arange(times + 1)))
    i, j = i[i + j <= times], j[i + j <= times]
    counts = np.stack([i, j, times - i - j], axis=1)
    ways = gammaln(times + 1) - gammaln(counts + 1).sum(axis=1)
    first, second = ways + counts @ np.log(p), ways + counts @ np.log(q)
    return np.maximum(np.exp(first) - np.exp(epsilon + second), 0).sum()


def test_the_gaussian_mechanism_needs_little_more_than_itself():
    for rho, queries, most in ((4e-4, 500, 1.05), (0.02, 30, 1.25)):
        truth = composition.gaussian_epsilon(math.sqrt(2 * rho * queries), 1e-5)
        assert truth <= data_independent.epsilon(ORDERS, rho * ORDERS, queries, 1e-5) <= most * truth


@pytest.mark.parametrize("seed", range(2))
def test_compositions_of_three_outcomes_are_covered(seed):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet([2, 2, 0.5])
    q = p * np.exp(rng.normal(scale=0.1, size=3) * [1, 1, 4])
    q /= q.sum()
    for times, delta in ((3, 1e-3), (80, 1e-5)):
        found = data_independent.epsilon(ORDERS, curve([(p, q)]), times, delta)
        assert max(spent(p, q, times, found), spent(q, p, times, found)) <= delta


def test_whoever_chooses_each_pair_after_what_was_seen_spends_no_more():
    pairs = [
        (np.array([0.5, 0.5]), np.array([0.45, 0.55])),
        (np.array([0.1, 0.9]), np.array([0.075, 0.925])),
        (np.array([0.02, 0.98]), np.array([0.01, 0.99])),
    ]
    both = pairs + [(q, p) for p, q in pairs]

    @functools.cache
    def worst(left, epsilon):
        if left == 0:
            return max(-math.expm1(epsilon), 0.0)
        return max(
            sum(p[j] * worst(left - 1, round(epsilon - math.log(p[j] / q[j]), 9)) for j in (0, 1))
            for p, q in both
        )

    for left, delta in ((1, 0.01), (4, 0.01), (6, 1e-3)):
        found = data_independent.epsilon(ORDERS, curve(pairs), left, delta)
        assert worst(left, found) <= delta


def published(mechanism, queries):
    """The data-independent figure of so many queries to 250 teachers about 10 classes."""
    return WorstCase(mechanism, [250], 10).figure(np.array([queries]), 1e-5).epsilon.epsilon


@pytest.mark.parametrize(("scale", "queries", "most"), [(40.0, 500, 2.66), (60.0, 50, 0.51)])
def test_gaussian_answers_lie_just_above_the_worst_two_classes(scale, queries, most):
    """The pair of an even race of two classes, drawn so often, is a lower limit."""
    found = published(GNMax(scale), queries)
    p = float(ndtr(1 / (math.sqrt(2) * scale)))
    law = np.array([p, (1 - p) * (1 - 1e-12), (1 - p) * 1e-12])
    other = np.array([1 - p, p * (1 - 1e-12), p * 1e-12])
    least = found
    while spent(law, other, queries, least) < 1e-5:
        least -= 0.005
    assert 0.87 * found < least < found <= most


def test_other_noise_gains_and_what_costs_too_much_claims_nothing():
    assert published(LNMax(20.0), 1000) < 7.6
    assert math.isinf(data_independent.epsilon(ORDERS, np.full(len(ORDERS), np.inf), 5, 1e-5))
    assert math.isinf(data_independent.epsilon(ORDERS, 50 * ORDERS, 5, 1e-5))
