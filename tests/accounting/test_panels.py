"""Panels for noise with kinks: the rules outside all kinks, and laws they must give in closed form."""

import numpy as np
import pytest
from mpmath import mp, mpf

from pate_jax.accounting import exact
from pate_jax.accounting.exact import panels
from pate_jax.mechanisms import DiscreteLaplaceMax, LNMax


@pytest.mark.parametrize("scale", [0.001, 0.05, 0.7, 1.5, 3.0, 20.0, 400.0, 1e5])
@pytest.mark.parametrize("number", [1, 2, 5, 17, 40])
def test_the_geometric_rule_sums_polynomials(scale, number):
    t, weight = panels._geometric(scale, number)
    assert (t > 0).all() and (t <= 1).all() and (weight > 0).all()
    for degree in range(2 * number):
        true = np.expm1(-1 / scale) / np.expm1(-(degree + 1) / scale)
        found = -np.expm1(-1 / scale) * (weight * t**degree).sum()
        assert abs(found - true) < 2e-14


@mp.workdps(40)
def laplace_tie(scale, classes):
    """Chance of a class one vote behind C-1 tied ones, in 40 digits."""
    b, n = mpf(scale), classes - 1
    h = mp.exp(-1 / b)
    # x < -1 below both kinks; then the own density falls and F(x)^n rises; then above 0
    below = (h / 2) ** n / 2 / classes
    between = mp.quad(lambda x: mp.exp(-(x + 1) / b) / (2 * b) * (mp.exp(x / b) / 2) ** n, [-1, 0])
    above = h * (1 - mpf(1) / 2**classes) / classes
    return mp.log(below + between + above)


@pytest.mark.parametrize("classes", [2, 10, 150, 700])
@pytest.mark.parametrize("scale", [0.8, 20.0, 3000.0])
def test_a_class_one_vote_behind_tied_ones(scale, classes):
    votes = np.full((1, classes), 3)
    votes[0, -1] = 2
    logs = exact.probabilities(LNMax(scale=scale), votes)[0]
    assert abs(logs[-1] - float(laplace_tie(scale, classes))) < 1e-12
    assert abs(np.exp(logs).sum() - 1) < 1e-12


@pytest.mark.parametrize("classes", [3, 10, 150, 700])
@pytest.mark.parametrize("scale", [0.001, 0.3, 1.45, 6.0, 300.0])
def test_laws_of_wide_and_tied_histograms_have_mass_one(scale, classes):
    rng = np.random.default_rng(classes)
    votes = rng.multinomial(60, np.full(classes, 1 / classes), size=3)
    votes[0] = 0
    for mechanism in (LNMax(scale=scale), DiscreteLaplaceMax(scale=scale)):
        mass = np.exp(exact.probabilities(mechanism, votes)).sum(axis=1)
        assert np.abs(mass - 1).max() < 1e-12 * max(1, 0.01 / scale)  # positions are rounded, in scales
