"""Gaussian-DP and pure-DP composition against mpmath and against every outcome written out."""

import itertools

import mpmath as mp
import numpy as np
import pytest

from pate_jax.accounting import composition
from pate_jax.mechanisms import ConfidentGNMax, DiscreteGaussianMax, GumbelMax, LNMax


def gaussian_delta(mu, epsilon):
    mu, epsilon = mp.mpf(mu), mp.mpf(epsilon)

    def phi(x):
        return mp.erfc(-x / mp.sqrt(2)) / 2

    return phi(mu / 2 - epsilon / mu) - mp.exp(epsilon) * phi(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize("mu", [0.003, 0.1, 1.0, 4.0, 60.0, 3000.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.05])
def test_gaussian_epsilon_is_the_smallest(mu, delta):
    found = composition.gaussian_epsilon(mu, delta)
    assert gaussian_delta(mu, found) <= delta * (1 + 1e-12)
    if found > 0:
        assert gaussian_delta(mu, found * (1 - 1e-6)) > delta


def test_gaussian_epsilon_survives_any_mu():
    for mu in np.geomspace(1e-9, 1e9, 37):
        found = composition.gaussian_epsilon(float(mu), 1e-5)
        assert np.isfinite(found) and found >= 0
    assert composition.gaussian_epsilon(0.0, 1e-5) == 0


@pytest.mark.parametrize(
    "steps", [[(0.3, 1)], [(0.3, 6)], [(2.0, 5)], [(0.5, 4), (0.11, 3)], [(3.0, 2), (1e-4, 4)]]
)
@pytest.mark.parametrize("delta", [1e-9, 1e-3, 0.2])
def test_pure_composition_equals_all_outcomes(steps, delta):
    single = [epsilon for epsilon, count in steps for _ in range(count)]
    outcomes = []
    for signs in itertools.product([1, -1], repeat=len(single)):
        weight = mp.mpf(1)
        for sign, epsilon in zip(signs, single, strict=True):
            weight *= 1 / (1 + mp.exp(-sign * mp.mpf(epsilon)))
        outcomes.append((weight, sum(mp.mpf(e) * s for e, s in zip(single, signs, strict=True))))

    def exact_delta(epsilon):
        return sum(w * (1 - mp.exp(epsilon - loss)) for w, loss in outcomes if loss > epsilon)

    found = composition.pure_epsilon(steps, delta)
    assert exact_delta(found) <= delta
    if found > 1e-6:
        assert exact_delta(found * (1 - 1e-5)) > delta * (1 - 1e-6)


def test_pure_composition_never_exceeds_the_sum():
    for epsilon, count in [(1e-6, 1), (1.0, 3), (700.0, 4), (2000.0, 50), (0.1, 5_000_000)]:
        found = composition.pure_epsilon([(epsilon, count)], 1e-5)
        assert 0 <= found <= epsilon * count * (1 + 1e-9)


def test_what_has_which_composition():
    assert composition.gaussian_dp(ConfidentGNMax(1, 2.0, 1.0), 4) == pytest.approx(3.0)
    assert composition.gaussian_dp(DiscreteGaussianMax(1.0), 4) is None
    assert composition.pure_steps(ConfidentGNMax(1, 2.0, 1.0), 4) is None
    assert composition.pure_steps(GumbelMax(4.0), 7) == [(0.5, 7)]
    assert composition.pure_steps(LNMax(4.0), 7) == [(0.25, 14)]
