"""Composed privacy losses: never below the truth of short lists, near the recorded figures of long ones."""

import itertools
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest
from scipy.special import ndtr

from pate_jax.accounting import composition, exact
from pate_jax.accounting.exact import pld
from pate_jax.accounting.exact.groups import merge
from pate_jax.errors import PateError
from pate_jax.mechanisms import (
    ConfidentDiscreteGaussian,
    ConfidentGNMax,
    DiscreteGaussianMax,
    DiscreteLaplaceMax,
    GNMax,
    GumbelMax,
    LNMax,
    PermuteAndFlip,
)

DATA = Path(__file__).parents[2] / "../shared/data"


def release_law(mechanism, votes):
    """Probabilities of what is released for one query: refused first, then the labels."""
    label = np.exp(exact.probabilities(mechanism, [votes])[0])
    if mechanism.test is None:
        return label
    chance = float(ndtr((max(votes) - mechanism.test.threshold) / mechanism.test.noise.scale))
    return np.array([1 - chance, *(chance * label)])


def neighbours(votes):
    for a, b in itertools.permutations(range(len(votes)), 2):
        if votes[a] >= 1:
            moved = list(votes)
            moved[a] -= 1
            moved[b] += 1
            yield moved


def curve(p, q, epsilons):
    """Hockey-stick divergence of two laws at each epsilon."""
    return np.maximum(p - np.exp(np.asarray(epsilons))[:, None] * q, 0).sum(axis=1)


def true_epsilon(mechanism, queries, delta):
    """Largest epsilon over all combinations of neighbours and both directions, by enumeration."""

    def product(laws):
        return np.array([np.prod(values) for values in itertools.product(*laws)])

    before = product([release_law(mechanism, votes) for votes in queries])
    grid = np.linspace(0, 3, 3001)
    worst = 0.0
    for moved in itertools.product(*(list(neighbours(votes)) for votes in queries)):
        after = product([release_law(mechanism, votes) for votes in moved])
        for p, q in ((before, after), (after, before)):
            worst = max(worst, grid[np.argmax(curve(p, q, grid) <= delta)])
    return worst


@pytest.mark.parametrize(
    "mechanism",
    [GNMax(4.0), LNMax(6.0), GumbelMax(5.0), DiscreteGaussianMax(4.0), ConfidentGNMax(7, 5.0, 4.0)],
    ids=str,
)
def test_short_lists_by_enumeration(mechanism):
    """Every combination of neighbours of three queries: never below, and above only by mixing neighbours."""
    queries = [[8, 2], [6, 4], [10, 0]]
    for delta in (0.05, 1e-2):
        truth = true_epsilon(mechanism, queries, delta)
        found = pld.epsilon(mechanism, queries, delta)
        assert truth - 1e-3 <= found <= 1.1 * truth + 1e-2


@pytest.mark.parametrize("mechanism", [GNMax(3.0), PermuteAndFlip(4.0), ConfidentGNMax(9, 5.0, 3.0)], ids=str)
def test_profile_is_the_largest_curve(mechanism):
    """On the grid both directions equal the maximum over all neighbours' curves."""
    votes, step = [7, 4, 1], 0.01
    groups = merge([votes]).buckets[0]
    found = pld.outcomes(mechanism.noise, mechanism.test, groups)
    values = pld.time_values(found, 1, step, 100)
    grid = step * np.arange(-100, 101)
    own = release_law(mechanism, votes)
    others = [release_law(mechanism, moved) for moved in neighbours(votes)]
    for value, pairs in zip(values, ([(own, q) for q in others], [(q, own) for q in others]), strict=True):
        truth = np.max([curve(p, q, grid) for p, q in pairs], axis=0)
        np.testing.assert_allclose(value[0] + np.maximum(-np.expm1(grid), 0), truth, atol=2e-12)
        assert (value[0] + np.maximum(-np.expm1(grid), 0) >= truth - 1e-15).all()


def test_connected_dots_reproduce_the_profile():
    """The discretised losses have the profile's own values on the grid and never less in between."""
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.4, 0.33, 0.27])
    step, grid = 0.05, 0.05 * np.arange(-12, 13)
    values = curve(p, q, grid) - np.maximum(-np.expm1(grid), 0)
    probs, infinity = pld.dots(np.maximum(values, 0), 12, step)
    assert abs(probs.sum() + infinity - 1) < 1e-12
    for at in np.linspace(-0.5, 0.55, 43):
        discrete = (probs * np.maximum(-np.expm1(at - grid), 0)).sum() + infinity
        exactly = curve(p, q, [at])[0]
        assert discrete >= exactly - 1e-12
        if abs(at / step - round(at / step)) < 1e-9:
            assert abs(discrete - exactly) < 1e-12


def test_gaussian_curve_at_fifty_digits():
    for mean in (0.01, 0.3, 1.0, 4.0, 30.0):
        for delta in (1e-3, 1e-5, 1e-10):
            value = composition.gaussian_epsilon(mean, delta)
            if value == 0:
                assert 2 * mp.ncdf(mp.mpf(mean) / 2) - 1 <= delta
                continue
            e, m = mp.mpf(value), mp.mpf(mean)
            spent = mp.ncdf(m / 2 - e / m) - mp.exp(e) * mp.ncdf(-m / 2 - e / m)
            assert spent <= delta
            assert spent >= delta * (1 - mp.mpf(10) ** -6)


def test_data_independent_figures():
    """Above every data-dependent figure, near the Gaussian curve for wide noise, falling with noise."""
    votes = np.array([[13, 12, 0]] * 20)
    for kind in (GNMax, LNMax, GumbelMax, PermuteAndFlip, DiscreteGaussianMax, DiscreteLaplaceMax):
        figures = [pld.data_independent_epsilon(kind(scale), 20, 3, 1e-5) for scale in (5.0, 10.0, 40.0)]
        assert figures == sorted(figures, reverse=True)
        assert pld.epsilon(kind(10.0), votes, 1e-5) <= figures[1]
    whole = pld.data_independent_epsilon(ConfidentDiscreteGaussian(200, 150, 40), 100, 10, 1e-5)
    smooth = pld.data_independent_epsilon(ConfidentGNMax(200, 150, 40), 100, 10, 1e-5)
    assert smooth <= whole <= smooth * 1.01
    mean = np.sqrt(100 * (2 / 40**2 + 1 / 150**2))
    assert smooth == composition.gaussian_epsilon(mean, 1e-5)
    assert pld.data_independent_epsilon(DiscreteGaussianMax(0.01), 5, 3, 1e-5) < np.inf
    assert pld.data_independent_epsilon(GNMax(1.0), 0, 3, 1e-5) == 0


def test_smaller_delta_costs_more():
    votes = np.random.default_rng(2).multinomial(30, [0.6, 0.3, 0.1], size=25)
    figures = [pld.epsilon(GNMax(8.0), votes, delta) for delta in (1e-2, 1e-4, 1e-6, 1e-8)]
    assert figures == sorted(figures)
    assert figures[0] > 0
    assert pld.epsilon(GNMax(8.0), votes[:0], 1e-5) == 0


def test_order_of_queries_and_classes_does_not_matter():
    rng = np.random.default_rng(4)
    votes = rng.multinomial(30, [0.6, 0.3, 0.1], size=25)
    once = pld.epsilon(GNMax(8.0), votes, 1e-5)
    assert pld.epsilon(GNMax(8.0), rng.permutation(votes), 1e-5) == pytest.approx(once, rel=1e-9)
    assert pld.epsilon(GNMax(8.0), votes[:, ::-1], 1e-5) == pytest.approx(once, rel=1e-9)


def test_long_list_lies_between_one_neighbour_and_the_renyi_bound():
    """300 queries: at least what the single neighbour "every query's winner loses a vote" needs."""
    rng = np.random.default_rng(6)
    right = rng.binomial(250, rng.beta(6, 1, 300))
    votes = np.stack([right, 250 - right], axis=1)
    mechanism = ConfidentGNMax(200, 150, 40)
    found = pld.epsilon(mechanism, votes, 1e-5)
    orders = 1 + np.geomspace(0.5, 60, 60)
    curve_ = exact.rdp(mechanism, votes, orders).sum(axis=0)
    renyi = (curve_ + np.log1p(-1 / orders) - (np.log(1e-5) + np.log(orders)) / (orders - 1)).min()
    assert 0.8 * renyi <= found <= 1.05 * renyi
    losses, spread = [], []
    for a, b in votes:
        p = release_law(mechanism, [a, b])
        q = release_law(mechanism, [a - 1, b + 1] if a > b else [a + 1, b - 1])
        losses.append((p * np.log(p / q)).sum())
        spread.append((p * np.log(p / q) ** 2).sum() - losses[-1] ** 2)
    mean = np.sqrt(sum(spread))  # by the central limit theorem the losses compose to a Gaussian pair
    assert found >= 0.97 * composition.gaussian_epsilon(mean, 1e-5)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, np.nan])
def test_delta_is_checked(delta):
    with pytest.raises(PateError, match="delta="):
        pld.epsilon(GNMax(2.0), [[3, 1]], delta)


@pytest.mark.parametrize(
    ("name", "queries", "mechanism", "least", "most"),
    [
        ("mnist", 640, ConfidentGNMax(200, 150, 40), 0.828, 0.930),
        ("adult", 1500, ConfidentGNMax(300, 200, 40), 0.858, 0.960),
    ],
)
def test_golden_lists(name, queries, mechanism, least, most):
    path = DATA / f"votes/published_{name}_250.npz"
    if not path.exists():
        pytest.skip("the published votes are not on this machine")
    votes = np.load(path)["votes"][:queries]
    assert least < pld.epsilon(mechanism, votes, 1e-5) <= most
