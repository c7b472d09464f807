"""What one person risks, against laws that are enumerated one by one, and never above the worst case."""

import math

import exact_laws
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as losses
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from pate_jax.accounting import composition, curves
from pate_jax.accounting.exact import pair, pld, renyi
from pate_jax.accounting.exact.pair import Moves
from pate_jax.errors import PateError
from pate_jax.mechanisms import (
    ConfidentDiscreteGaussian,
    ConfidentGNMax,
    DiscreteGaussianMax,
    DiscreteLaplaceMax,
    GNMax,
    GumbelMax,
    LNMax,
)

DELTA = 1e-5
VOTES = np.array([[6, 5, 0, 1], [4, 4, 4, 0], [9, 1, 1, 1], [7, 3, 2, 0]])
PERSON = Moves(np.array([0, 1, 3]), np.array([0, 2, 1]), np.array([1, 3, 0]))


def law(mechanism, counts):
    """Of a label, and of a refusal where there is a test."""
    chances = exact_laws.outcomes(mechanism, counts)
    return chances if mechanism.test else chances[1:]


def both(mechanism, votes, moves):
    """The laws of all answers with and without a person, outcome by outcome."""
    with_it = without = np.ones(1)
    moved = {int(query): (a, b) for query, a, b in zip(*moves, strict=True)}
    for query, counts in enumerate(votes):
        other = counts.copy()
        if query in moved:
            other[moved[query][0]] -= 1
            other[moved[query][1]] += 1
        with_it = np.multiply.outer(with_it, law(mechanism, counts)).ravel()
        without = np.multiply.outer(without, law(mechanism, other)).ravel()
    return with_it, without


def hockey(p, q, epsilon):
    return np.maximum(p - math.exp(epsilon) * q, 0).sum()


def least(p, q, delta):
    if hockey(p, q, 0) <= delta:
        return 0.0
    return optimize.brentq(lambda epsilon: hockey(p, q, epsilon) - delta, 0, 50, xtol=1e-12)


def caught(p, q, false):
    """The best test's power, by Neyman and Pearson: the largest ratios first, the last one by chance."""
    order = np.argsort(-(p / q), kind="stable")
    spent = np.cumsum(q[order])
    last = np.searchsorted(spent, false)
    before = spent[last - 1] if last else 0.0
    return p[order][:last].sum() + p[order][last] * (false - before) / q[order][last]


@pytest.mark.parametrize(
    "mechanism",
    [
        GNMax(2.5),
        LNMax(2.0),
        GumbelMax(1.5),
        DiscreteGaussianMax(2.0),
        DiscreteLaplaceMax(1.5),
        ConfidentGNMax(7.0, 2.0, 1.5),
        ConfidentDiscreteGaussian(7.0, 2.0, 1.5),
    ],
    ids=lambda mechanism: mechanism.name,
)
def test_a_persons_exposure_is_that_of_the_enumerated_outcomes(mechanism):
    p, q = both(mechanism, VOTES, PERSON)
    for delta in (1e-5, 1e-2):
        (epsilon,), (variation,), (found,) = pair.of_votes(mechanism, VOTES, [PERSON], delta)
        for value, exact, room in (
            (epsilon, max(least(p, q, delta), least(q, p, delta)), 1e-3),
            (variation, np.abs(p - q).sum() / 2, 1e-5),
            (found, caught(p, q, pair.FALSE_POSITIVES), 1e-3),
        ):
            assert exact * (1 - 1e-6) <= value <= exact * (1 + room)


def test_the_two_directions_differ_and_the_larger_one_counts():
    """A class with one vote: its loss says more than its gain, whichever way round it is asked."""
    votes, there = np.array([[5, 3, 0]]), Moves(np.array([0]), np.array([1]), np.array([2]))
    p, q = both(GNMax(2.0), votes, there)
    one, other = least(p, q, 1e-3), least(q, p, 1e-3)
    assert abs(one - other) > 0.01
    back = votes + np.array([[0, -1, 1]])
    again = Moves(np.array([0]), np.array([2]), np.array([1]))
    for given_votes, moves in ((votes, there), (back, again)):
        found = pair.of_votes(GNMax(2.0), given_votes, [moves], 1e-3).epsilon[0]
        assert found == pytest.approx(max(one, other), rel=2e-3)


@settings(max_examples=15)
@given(
    st.lists(st.lists(st.integers(0, 6), min_size=3, max_size=3), min_size=1, max_size=5),
    st.integers(0, 2**31),
    st.sampled_from(
        [GNMax(3.0), DiscreteGaussianMax(4.0), LNMax(3.0), ConfidentDiscreteGaussian(5.0, 3.0, 2.0)]
    ),
)
def test_nobody_risks_more_than_the_exact_worst_case(rows, seed, mechanism):
    votes = np.array(rows) + np.array([1, 0, 0])
    votes[:, 0] += votes.sum(1).max() - votes.sum(1)
    random = np.random.default_rng(seed)
    persons = []
    for _ in range(4):
        before = np.array([random.choice(np.flatnonzero(counts)) for counts in votes])
        after = (before + random.integers(1, 3, len(votes))) % 3
        some = random.random(len(votes)) < 0.8
        persons.append(Moves(np.flatnonzero(some), before[some], after[some]))
    found = pair.of_votes(mechanism, votes, persons, DELTA)
    orders = curves.default_orders()
    cost = renyi.rdp(mechanism, votes, orders).sum(0)
    assert found.epsilon.max() <= pld.epsilon(mechanism, votes, DELTA) * (1 + 1e-9)
    assert found.epsilon.max() <= curves.epsilon(orders, cost, DELTA).epsilon * (1 + 2e-3)  # of a grid
    assert (found.caught >= pair.FALSE_POSITIVES - 1e-12).all()
    assert (found.variation >= 0).all() and (found.variation <= 1).all()


def test_moves_of_equal_histograms_are_computed_once_and_mean_the_same():
    votes = np.array([[5, 4, 3], [3, 5, 4], [4, 3, 5]])  # the same one three times over
    moves = [Moves(np.array([query]), np.array([query]), np.array([(query + 1) % 3])) for query in range(3)]
    found = pair.of_votes(GNMax(3.0), votes, moves, DELTA)
    assert len(set(found.epsilon.tolist())) == 1 and found.epsilon[0] > 0


def test_a_vote_that_is_not_there_cannot_move():
    with pytest.raises(PateError, match=r"from class 3 to 0 at query 1.*give the votes"):
        pair.of_votes(GNMax(3.0), VOTES, [Moves(np.array([1]), np.array([3]), np.array([0]))], DELTA)


def test_shifts_agree_with_dp_accounting_and_with_one_shift_at_a_time():
    mu = np.array([0.0, 1e-4, 0.05, 0.27, 1.0, 3.0])
    found = pair.of_shifts(mu, DELTA)
    for one, epsilon, guess in zip(mu.tolist(), found.epsilon.tolist(), found.guess.tolist(), strict=True):
        exact = composition.gaussian_epsilon(one, DELTA)
        assert exact * (1 - 1e-9) <= epsilon <= exact * (1 + 1e-6)
        assert guess == pytest.approx(stats.norm.cdf(one / 2), abs=1e-12)
        if one >= 0.2:
            known = losses.from_gaussian_mechanism(1 / one, value_discretization_interval=1e-3)
            assert epsilon == pytest.approx(known.get_epsilon_for_delta(DELTA), rel=2e-3)
    power = stats.norm.sf(stats.norm.isf(pair.FALSE_POSITIVES) - mu)
    np.testing.assert_allclose(found.caught, power, rtol=1e-12)


def test_a_rounded_gaussian_tells_hardly_less_than_the_gaussian_that_is_charged():
    """The noise of crowds is rounded: the exact losses of three moved counts, cell by cell."""
    sigma, cells = 6.0, 3
    edges = np.arange(-90, 92) - 0.5
    p = np.diff(stats.norm.cdf(edges / sigma))
    q = np.diff(stats.norm.cdf((edges - 1) / sigma))
    with_it = without = np.ones(1)
    for _ in range(cells):
        with_it, without = (np.multiply.outer(a, b[40:141]).ravel() for a, b in ((with_it, p), (without, q)))
    exact = max(least(with_it, without, DELTA), least(without, with_it, DELTA))
    charged = pair.of_shifts(np.array([math.sqrt(cells) / sigma]), DELTA).epsilon[0]
    assert exact <= charged <= exact * 1.005


def test_noise_off_its_law_is_paid_for():
    exact, paid = (pair.of_shifts(np.array([0.5]), DELTA, slack).epsilon[0] for slack in (0.0, 1e-7))
    assert exact < paid < exact * 1.02
    assert pair.of_shifts(np.array([0.5, 0.0]), DELTA, 1e-4).epsilon.tolist() == [math.inf, 0.0]
