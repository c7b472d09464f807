"""The worst case under Laplace noise is a mean over the best of the others: hazards, hostile laws, ties."""

import itertools

import numpy as np
import pytest

from pate_jax.accounting.bounds import moved_vote, worst_case
from pate_jax.accounting.bounds.laplace_worst_case import LaplaceVote, WholeLaplaceVote
from pate_jax.mechanisms import Noise

FORWARD = np.True_


def reaching(noise, t):
    """Pr[noise >= t]."""
    b = noise.scale
    if noise.is_discrete:
        r = np.exp(-1 / b)
        return np.where(t >= 1, r ** np.maximum(t, 1) / (1 + r), 1 - r ** (1 - np.minimum(t, 1)) / (1 + r))
    return np.where(t >= 0, np.exp(-np.maximum(t, 0) / b) / 2, 1 - np.exp(np.minimum(t, 0) / b) / 2)


def largest_reaches(noise, centres, t):
    """Pr[max of the counts >= t]."""
    return -np.expm1(sum(np.log1p(-reaching(noise, t - n) * (1 - 1e-16)) for n in centres))


@pytest.mark.parametrize("family", ["laplace", "discrete_laplace"])
def test_the_largest_of_many_counts_leaves_no_place_faster_than_one_does(family):
    rng = np.random.default_rng(7)
    for scale in (0.7, 3.0, 20.0):
        noise, t = Noise(family, scale), np.arange(-60, 60.0)
        for _ in range(20):
            centres = rng.integers(-40, 40, rng.integers(1, 12))
            reached = largest_reaches(noise, centres, t)
            assert np.all(reached[1:] >= np.exp(-1 / scale) * reached[:-1] * (1 - 1e-12))


@pytest.mark.parametrize("rule", [True, False])
@pytest.mark.parametrize("scale", [0.8, 4.0, 30.0])
def test_closed_forms_of_whole_numbers_equal_sums(scale, rule):
    x, y = (part.ravel() for part in np.meshgrid(np.arange(-12, 14.0), np.arange(-12, 14.0)))
    table = moved_vote.LatticeVote(Noise("discrete_laplace", scale), int(50 * scale) + 30, rule)
    summed, closed = table.laws(x - y, x), WholeLaplaceVote(scale, rule).laws(x - y, x)
    assert np.allclose(closed.log_q, summed.log_q, rtol=0, atol=1e-13)
    assert np.allclose(closed.loss, summed.loss, rtol=0, atol=1e-13)


def means(noise, order, leads, places, law):
    """The mean excess of a continuous law [M] of the others' best place, for each lead."""
    vote = LaplaceVote(noise.scale)
    lead, m = (part.ravel() for part in np.meshgrid(leads, places))
    terms = moved_vote.excess(*vote.laws(lead, -m), np.array([order]), FORWARD).sum(axis=0)
    return law @ terms.reshape(len(places), len(leads))


@pytest.mark.parametrize(("scale", "share"), [(20.0, 0.1), (20.0, 1.0), (20.0, 3.0), (1.0, 3.0)])
def test_no_law_with_such_a_hazard_costs_more_and_one_comes_close(scale, share):
    """Laws that stay at one place as briefly as they may: exponential from a start, whatever the lead."""
    noise, order = Noise("laplace", scale), max(share * scale, 1.5)
    bound = worst_case.argmax_curve(noise, np.array([order]))[0]
    leads = 1 + np.arange(-3, 3, 0.125) * scale
    width = 0.01 * scale
    from_start = (np.arange(4000) + 0.5) * width
    law = np.exp(-from_start / scale) * width / scale
    starts = np.array([-30, -8, -4, -3, -2.5, -2, -1.5, -1, -0.5, 0.0]) * scale
    found = [means(noise, order, leads, start + from_start, law).max() for start in starts]
    cost = np.log1p(max(found)) / (order - 1)
    assert 0.97 * bound < cost <= bound * (1 + 1e-5)


@pytest.mark.parametrize("share", [0.1, 3.0])
def test_no_others_cost_more(share):
    """The exact mean over the best of real counts, some of them close behind and some ahead."""
    noise, scale = Noise("laplace", 5.0), 5.0
    order = max(share * scale, 1.5)
    bound = worst_case.argmax_curve(noise, np.array([order]))[0]
    rng = np.random.default_rng(3)
    ends = np.arange(-12, 15, 0.02) * scale
    for _ in range(30):
        centres = rng.normal(scale=2 * scale, size=rng.integers(1, 9)).round()
        law = -np.diff(largest_reaches(noise, centres, ends))
        found = means(noise, order, 1 + np.arange(-10, 11.0), (ends[1:] + ends[:-1]) / 2, law)
        assert np.log1p(found.max()) / (order - 1) <= bound


@pytest.mark.parametrize("share", [0.1, 3.0])
def test_no_whole_numbers_cost_more_with_every_order_of_the_classes_numbers(share):
    """Ties: one class each has a number below, between and above those of a and b."""
    noise, scale = Noise("discrete_laplace", 3.0), 3.0
    order = np.array([max(share * scale, 1.5)])
    bound = worst_case.argmax_curve(noise, order)[0]
    rng, k = np.random.default_rng(4), np.arange(-40.0, 41)
    votes = {rule: WholeLaplaceVote(scale, rule) for rule in (True, False)}

    def excess(rule, x, y):
        return moved_vote.excess(*votes[rule].laws(x - y, x), order, FORWARD).sum(axis=0)

    for _, a_wins in itertools.product(range(15), (True, False)):
        below, between, above = rng.integers(-6, 7, 3)
        n_a, n_b = rng.integers(-4, 6, 2)
        # that the last in order is, at k, of the class above, between or below, or comes after k
        upper, middle, lower, later = (
            largest_reaches(noise, [below - i, between - j, above - m], k)
            for i, j, m in ((1, 1, 0), (1, 0, 0), (0, 0, 0), (1, 1, 1))
        )
        x, y = n_a - k, n_b - k
        none, both = excess(a_wins, x, y), excess(a_wins, x + 1, y + 1)
        one = excess(not a_wins, x + a_wins, y + (not a_wins))
        mean = (upper - later) @ none + (middle - upper) @ one + (lower - middle) @ both
        assert lower[0] > 0.99 and np.log1p(mean) / (order[0] - 1) <= bound


def test_up_to_orders_of_the_scale_two_classes_are_the_worst():
    orders = np.array([1.5, 2.0, 5.0, 10.0, 15.0])
    for family, vote in (("laplace", LaplaceVote(20.0)), ("discrete_laplace", WholeLaplaceVote(20.0, True))):
        bound = worst_case.argmax_curve(Noise(family, 20.0), orders)
        leads = np.arange(-40, 41.0)
        law = vote.laws(leads, np.full(81, 1000.0) + leads)
        costs = [
            np.log1p(moved_vote.excess(*law, order, FORWARD).sum(axis=0).max()) / (order - 1)
            for order in orders[:, None]
        ]
        assert np.all(np.concatenate(costs) <= bound) and np.all(bound <= 1.01 * np.concatenate(costs))
