"""What crowds cost: against arbitrary precision, enumerated laws, and what is really drawn."""

import math

import mpmath as mp
import numpy as np
import pytest
from scipy import special, stats

from pate_jax.accounting import composition
from pate_jax.accounting.exact import counts
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums, NeighbourCounts

CHANGES = ("changed", "joined")
DELTA = 1e-5


def release(votes=1, sigma=10.0, family="rounded_gaussian"):
    return NeighbourCounts(queries=50, classes=4, votes=votes, sigma=sigma, family=family)


def gaussian_delta(mu, epsilon):
    with mp.workdps(60):
        return mp.ncdf(mu / 2 - epsilon / mu) - mp.exp(epsilon) * mp.ncdf(-mu / 2 - epsilon / mu)


def law(family, sigma, reach):
    """Probabilities of -reach..reach."""
    values = np.arange(-reach, reach + 1)
    if family == "rounded_gaussian":
        return stats.norm.cdf((values + 0.5) / sigma) - stats.norm.cdf((values - 0.5) / sigma)
    weights = np.exp(-(values**2) / (2 * sigma**2))
    return weights / weights.sum()


def moved(chances, by):
    """The law of the noise plus `by`."""
    return np.roll(np.pad(chances, 5), by)


def joint(*laws):
    total = np.ones(1)
    for one in laws:
        total = np.multiply.outer(total, one).ravel()
    return total


def hockey_stick(before, after, epsilon):
    return np.maximum(before - math.exp(epsilon) * after, 0).sum()


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("made", [release(3, 40.0), ClassSums(5, 7, 30, 900.0)])
def test_rounded_noise_costs_what_the_gaussian_costs_at_its_exact_shift(made, change):
    shift = {"NeighbourCounts": {"changed": 6, "joined": 3}, "ClassSums": {"changed": 3600, "joined": 900}}
    mu = mp.sqrt(shift[type(made).__name__][change]) / mp.mpf(made.sigma)
    found = counts.epsilon([made], DELTA, change=change)
    assert gaussian_delta(mu, found) <= DELTA
    assert gaussian_delta(mu, found * (1 - 1e-6)) > DELTA


@pytest.mark.parametrize("family", ["rounded_gaussian", "discrete_gaussian"])
@pytest.mark.parametrize("sigma", [1.5, 4.0, 9.0])
def test_no_enumerated_pair_of_neighbours_costs_more(family, sigma):
    """One voter who changes its mind at one query moves two cells; the laws of both are summed in full."""
    made, reach = release(1, sigma, family), math.ceil(10 * sigma)
    here = law(family, sigma, reach)
    for delta in (1e-2, 1e-4):
        found = counts.epsilon([made], delta)
        for shifts in ((1, -1), (1, 1), (1, 0)):
            before = joint(moved(here, 0), moved(here, 0))
            after = joint(*(moved(here, by) for by in shifts))
            truth = max(hockey_stick(before, after, found), hockey_stick(after, before, found))
            assert truth <= delta * (1 + 1e-6)
        before, after = joint(moved(here, 0), moved(here, 0)), joint(moved(here, 1), moved(here, -1))
        worst = hockey_stick(before, after, found)
        assert worst > (0.3 if sigma < 2 else 0.8) * delta, "the figure is not idle"
        assert before.sum() == pytest.approx(1)


@pytest.mark.parametrize("family", ["rounded_gaussian", "discrete_gaussian"])
@pytest.mark.parametrize("shifts", [(1, -1), (2, 1), (5, 0)])
def test_renyi_curves_bound_enumerated_divergences(family, shifts):
    """Longer moves than one vote too, as sums have: S is the square of the shift's length."""
    sigma = 3.0
    here = law(family, sigma, 60)
    squared = sum(by * by for by in shifts)
    for order in (1.5, 4.0, 8.0):
        exact = 0.0
        for by in shifts:
            p, q = moved(here, 0), moved(here, by)
            there = (p > 0) & (q > 0)
            terms = order * np.log(p[there]) + (1 - order) * np.log(q[there])
            exact += special.logsumexp(terms) / (order - 1)
        bound = counts.rdp(release(1, sigma, family), [order])[0] * squared / 2
        assert exact <= bound * (1 + 1e-9)
        assert exact > 0.97 * bound


def test_releases_compose_as_squares_add_up():
    one, two = release(1, 40.0), ClassSums(3, 9, 20, 2000.0)
    mu = math.hypot(counts.gaussian_mu(one), counts.gaussian_mu(two))
    wanted = composition.gaussian_epsilon(mu, DELTA)
    assert counts.epsilon([one, two], DELTA) == pytest.approx(wanted, rel=1e-6)
    assert counts.epsilon([one, two], DELTA) >= wanted


def test_composed_losses_of_discrete_noise_come_near_the_gaussian_curve():
    """The discrete Gaussian's delta exceeds the continuous one's by little at scale 40 (1.001 times)."""
    discrete, rounded = (
        counts.epsilon([release(2, 40.0, family)], DELTA)
        for family in ("discrete_gaussian", "rounded_gaussian")
    )
    assert 0.999 * rounded <= discrete <= 1.01 * rounded
    assert math.isinf(counts._composed([ClassSums(3, 9, 20, 2000.0, "discrete_gaussian")], DELTA, "changed"))
    assert counts.epsilon([ClassSums(3, 9, 20, 2000.0, "discrete_gaussian")], DELTA) > 0


def test_mu_of_a_wished_epsilon_is_the_root():
    for target in (0.05, 1.0, 3.0):
        mu = counts.mu_for(target, DELTA)
        assert gaussian_delta(mp.mpf(mu), target) <= DELTA < gaussian_delta(mp.mpf(mu) * (1 + 1e-9), target)


def test_measured_losses_of_what_is_drawn_are_not_above_the_figure():
    """The best test tells two neighbouring tables apart no better than delta allows: 400,000 draws."""
    from pate_jax.aggregate import noise

    made, epsilon = release(1, 2.0), 0.5
    drawn = np.asarray(noise.draw(made.noise, noise.seeded_key(11), (400_000, 2)))
    chances = np.concatenate([law("rounded_gaussian", 2.0, 40), np.zeros(2)])
    loss = np.log(chances[drawn + 40]) - np.log(chances[drawn + 40 + np.array([1, -1])])
    exceeding = np.maximum(1 - np.exp(epsilon - loss.sum(1)), 0).mean()
    bound = math.exp(composition.gaussian_log_delta(counts.gaussian_mu(made), epsilon))
    assert 0.9 * bound < exceeding < bound * 1.02


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: release(0), "votes=0 of a voter"),
        (lambda: release(51), "from 1 to the 50 queries"),
        (lambda: release(1, 0.5), "sigma=0.5"),
        (lambda: release(1, float("nan")), "sigma=nan"),
        (lambda: release(1, 5.0, "gaussian"), "family='gaussian'"),
        (lambda: ClassSums(1, 5, 5, 5.0), "classes=1"),
        (lambda: ClassSums(3, 0, 5, 5.0), "directions=0"),
        (lambda: counts.rdp(release(), [2.0], change="moved"), "change='moved'"),
        (lambda: counts.epsilon([release()], 0), "delta=0"),
    ],
)
def test_bad_input_is_one_sentence(wrong, message):
    with pytest.raises(PateError, match=message):
        wrong()
