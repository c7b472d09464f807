"""The 2018 analysis with discrete Gaussian noise: its q by enumeration, its bound against the true cost."""

import numpy as np
import pytest

from pate_jax.accounting import curves
from pate_jax.accounting.bounds import noisy_max
from pate_jax.mechanisms import ConfidentDiscreteGaussian, ConfidentGNMax, DiscreteGaussianMax, GNMax

ORDERS = np.array([1.5, 2.0, 4.0, 9.0, 20.0])


def law(sigma):
    """The discrete Gaussian on a window that leaves out nothing of note."""
    values = np.arange(-int(20 * sigma) - 20, int(20 * sigma) + 21)
    weights = np.exp(-(values**2) / (2 * sigma**2))
    return values, weights / weights.sum()


def chance_of_second(gap, sigma, ties):
    """Pr[the class that is `gap` votes behind gets ahead], ties counted as `ties`."""
    values, chances = law(sigma)
    difference = np.convolve(chances, chances[::-1])
    shifts = np.arange(2 * values[0], 2 * values[-1] + 1)
    return difference[shifts > gap].sum() + ties * difference[shifts == gap].sum()


@pytest.mark.parametrize("sigma", [0.4, 1.0, 3.7, 12.0])
@pytest.mark.parametrize("gap", [0, 1, 4, 13])
def test_q_is_the_tail_of_the_difference(sigma, gap):
    votes = np.array([[20 + gap, 20]])
    truth = min(np.log(chance_of_second(gap, sigma, ties=1.0)), np.log(0.5))
    assert truth <= noisy_max.discrete_log_q(votes, sigma)[0] <= truth + 1e-6


def test_far_gaps_stay_finite_and_ordered():
    found = noisy_max.discrete_log_q(np.array([[5000, 0], [4000, 1000], [2501, 2499]]), 1.0)
    assert np.all(np.isfinite(found)) and np.all(np.diff(found) > 0) and found[0] < -1e6


@pytest.mark.parametrize("sigma", [1e-3, 0.05, 1.0, 300.0, 2e4, 1e6])
def test_any_scale_gives_finite_costs_below_the_worst_case(sigma):
    votes = np.array([[250, 0, 0], [84, 83, 83], [125, 125, 0]])
    for mechanism in (DiscreteGaussianMax(sigma), ConfidentDiscreteGaussian(200, sigma, sigma)):
        found = curves.rdp(mechanism, votes, ORDERS, method="published")
        assert np.all(np.isfinite(found)) and np.all(found >= 0)
        assert np.all(found <= ORDERS / sigma**2 + ORDERS / (2 * sigma**2))


@pytest.mark.parametrize("sigma", [1.0, 3.0, 8.0])
@pytest.mark.parametrize("spread", [2, 3, 5, 7])
def test_the_bound_is_above_the_true_cost_in_its_direction(sigma, spread):
    gap = round(spread * sigma)
    votes = np.array([[60 + gap, 60]])
    bound = curves.published_parts(DiscreteGaussianMax(sigma), votes, ORDERS).argmax[0]
    here, there = (chance_of_second(each, sigma, ties=0.5) for each in (gap, gap - 2))
    won = (1 - here) ** ORDERS * (1 - there) ** (1 - ORDERS)
    power = won + np.exp(ORDERS * np.log(here) + (1 - ORDERS) * np.log(there))
    truth = np.log(power) / (ORDERS - 1)
    assert np.all(bound >= truth * (1 - 1e-6) - 1e-12)
    assert np.all(bound <= ORDERS / sigma**2)


def test_wide_noise_costs_as_much_as_the_gaussian():
    votes = np.array([[200, 30, 20], [90, 85, 75], [249, 1, 0]])
    for discrete, continuous in (
        (DiscreteGaussianMax(40.0), GNMax(40.0)),
        (ConfidentDiscreteGaussian(200, 150.0, 40.0), ConfidentGNMax(200, 150.0, 40.0)),
    ):
        first, second = (
            curves.rdp(each, votes, ORDERS, method="published") for each in (discrete, continuous)
        )
        np.testing.assert_allclose(first, second, rtol=0.05)
