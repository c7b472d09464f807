"""What answering with one index costs on any votes: brute force, 30 digits, climbing, and the traps."""

import functools
import itertools

import mpmath as mp
import numpy as np
import pytest

from pate_jax import accounting
from pate_jax.accounting import exact
from pate_jax.accounting.bounds import moved_vote, worst_case
from pate_jax.accounting.bounds.laplace_worst_case import LaplaceVote
from pate_jax.accounting.bounds.worst_case import counts_curve, index_curve
from pate_jax.errors import PateError
from pate_jax.mechanisms import (
    ConfidentDiscreteGaussian,
    ConfidentDiscreteLaplace,
    ConfidentGNMax,
    DiscreteGaussianMax,
    DiscreteLaplaceMax,
    GNMax,
    GumbelMax,
    InteractiveGNMax,
    LNMax,
    Noise,
    PermuteAndFlip,
)

ORDERS = np.array([1.3, 2.0, 5.0, 9.0])


def every_histogram(teachers, classes):
    """All sorted histograms of so many votes."""

    def below(left, places, most):
        if places == 1:
            return [(left,)] if left <= most else []
        counts = range(min(left, most), -1, -1)
        return [(n, *rest) for n in counts for rest in below(left - n, places - 1, n)]

    return np.array(below(teachers, classes, teachers))


@functools.cache
def general(mechanism, teachers, classes):
    """The curve of three or more classes, which also bounds that of fewer."""
    return index_curve(mechanism, teachers, classes, ORDERS)


CASES = [
    (GNMax(2.0), 24, 5),
    (GNMax(12.0), 23, 4),
    (DiscreteGaussianMax(3.0), 24, 5),
    (LNMax(3.0), 24, 4),
    (LNMax(0.8), 12, 5),
    (DiscreteLaplaceMax(1.0), 12, 5),
    (DiscreteLaplaceMax(3.0), 24, 3),
    (ConfidentGNMax(16, 12.0, 4.0), 24, 5),
    (ConfidentGNMax(10, 3.0, 6.0), 21, 3),
    (ConfidentGNMax(30, 3.0, 2.0), 24, 4),
    (ConfidentDiscreteGaussian(16, 6.0, 3.0), 23, 4),
    (ConfidentDiscreteLaplace(16, 6.0, 3.0), 24, 3),
]


@pytest.mark.parametrize(("mechanism", "teachers", "classes"), CASES, ids=str)
def test_no_histogram_exceeds_the_curve(mechanism, teachers, classes):
    for few in range(2, classes + 1):
        cost = exact.rdp(mechanism, every_histogram(teachers, few), ORDERS).max(axis=0)
        assert np.all(cost <= general(mechanism, teachers, classes)), few


@pytest.mark.parametrize("mechanism", [GNMax(40.0), GNMax(10.0), DiscreteGaussianMax(40.0)], ids=str)
@pytest.mark.long
def test_without_a_test_the_worst_histogram_is_within_one_percent(mechanism):
    counts = np.arange(126)
    costs = [exact.rdp(mechanism, np.stack([250 - counts, counts], axis=1), ORDERS)]
    three = [[a, b, 250 - a - b] for b in range(126) for a in range(b, 251 - b) if 250 - a - b <= b]
    costs.append(exact.rdp(mechanism, np.array(three), ORDERS))
    worst, bound = np.concatenate(costs).max(axis=0), general(mechanism, 250, 3)
    assert np.all(worst <= bound) and np.all(worst >= 0.99 * bound)


@pytest.mark.parametrize(
    ("mechanism", "classes"), [(GNMax(20.0), 10), (ConfidentGNMax(200, 150, 40), 6)], ids=str
)
def test_climbing_over_large_histograms_ends_below_the_curve(mechanism, classes):
    rng, order = np.random.default_rng(5), 5.0
    bound = general(mechanism, 250, classes)[order == ORDERS][0]
    best = 0.0
    for _ in range(3):
        votes = rng.multinomial(250, rng.dirichlet(np.ones(classes)))
        for step in (32, 8, 2, 1):
            while True:
                moves = [
                    np.eye(classes, dtype=int)[[a, b]] for a, b in itertools.permutations(range(classes), 2)
                ]
                near = np.array([votes] + [votes + step * (up - down) for down, up in moves])
                near = near[near.min(axis=1) >= 0]
                costs = exact.rdp(mechanism, near, [order])[:, 0]
                if costs.argmax() == 0:
                    break
                votes = near[costs.argmax()]
        best = max(best, costs.max())
    assert 0.8 * bound < best <= bound


@pytest.mark.parametrize("mechanism", [GNMax(4.0), ConfidentGNMax(16, 12.0, 4.0)], ids=str)
def test_two_classes_are_enumerated(mechanism):
    found = index_curve(mechanism, 24, 2, ORDERS)
    assert np.array_equal(found, exact.rdp(mechanism, every_histogram(24, 2), ORDERS).max(axis=0))


def mp_laws(family, x, y):
    """The three outcomes with unit noise by mpmath, at (x, y)."""
    density, below = {
        "gaussian": (mp.npdf, mp.ncdf),
        "laplace": (
            lambda z: mp.exp(-abs(z)) / 2,
            lambda z: mp.exp(z) / 2 if z < 0 else 1 - mp.exp(-z) / 2,
        ),
    }[family]

    def wins(u, v):
        kinks = sorted({mp.mpf(0), *(k for k in (u, v, u + 8, u + 30) if k > 0), mp.mpf(60)})
        return mp.quad(lambda s: density(s - u) * below(s - v), kinks)

    return wins(x, y), wins(y, x), below(-x) * below(-y)


@pytest.mark.parametrize("family", ["gaussian", "laplace"])
@pytest.mark.parametrize(("x", "y"), [(0, 0), (3, -2), (30, 24), (-20, -21), (100, 90), (-5, 40), (61, -80)])
def test_laws_equal_mpmath(family, x, y):
    scale = 12.0
    vote = (moved_vote.GaussianVote if family == "gaussian" else LaplaceVote)(scale)
    law = vote.laws(np.array([x - y + 0.0]), np.array([x + 0.0]))
    with mp.workdps(20):
        before = mp_laws(family, mp.mpf(x) / 12, mp.mpf(y) / 12)
        after = mp_laws(family, mp.mpf(x - 1) / 12, mp.mpf(y + 1) / 12)
        for j, (p, q) in enumerate(zip(before, after, strict=True)):
            assert abs(law.log_q[j, 0] - mp.log(q)) < 1e-12 * (1 + abs(mp.log(q)))
            assert abs(law.loss[j, 0] - mp.log(p / q)) < 1e-11


def test_lattice_laws_equal_sums():
    noise, reach = Noise("discrete_gaussian", 3.0), 90
    k = np.arange(-60, 61)
    mass = np.exp(-(k**2) / 18.0)
    mass /= mass.sum()
    both = np.outer(mass, mass)
    for a_wins, x, y in itertools.product((False, True), (-4, 0, 5), (-3, 0, 7)):
        law = moved_vote.LatticeVote(noise, reach, a_wins).laws(np.array([x - y + 0.0]), np.array([x + 0.0]))
        s, t = (k + x - 1)[:, None], (k + y + 1)[None, :]
        a = (s > 0) & ((s >= t) if a_wins else (s > t))
        b = (t > 0) & ((t > s) if a_wins else (t >= s))
        wanted = [both[a].sum(), both[b].sum(), both[~(a | b)].sum()]
        assert np.allclose(np.exp(law.log_q[:, 0]), wanted, rtol=1e-12)


@pytest.mark.parametrize("a_wins", [False, True])
def test_laws_of_wide_noise_equal_sums(a_wins):
    """Nothing but sums over whole numbers, from far below to far above, at leads of either sign."""
    scale, random = 260.0, np.random.default_rng(4)
    k = np.arange(-40.0 * scale, 40 * scale + 1)
    log_mass = -(k**2) / (2 * scale**2) - np.log(np.exp(-(k**2) / (2 * scale**2)).sum())
    log_below = np.logaddexp.accumulate(log_mass)

    def wins(x, y, at_least):  # sum over a's noise: a's place is positive, and b's not above it
        from_here = np.maximum(0, int(1 - x - k[0]))
        reach = np.clip(np.arange(from_here, len(k)) + int(x - y - at_least), 0, len(k) - 1)
        return np.logaddexp.reduce(log_mass[from_here:] + log_below[reach])

    places = np.round(random.uniform(-9, 12, (12, 2)) * scale)
    vote = moved_vote.WideLatticeVote(scale, a_wins)
    laws = vote.laws(places[:, 0] - places[:, 1], places[:, 0])
    for row, (x, y) in enumerate(places):
        before, after = (
            np.array([wins(x - move, y + move, not a_wins), wins(y + move, x - move, a_wins)])
            for move in (0, 1)
        )
        assert np.abs(laws.log_q[:2, row] - after).max() < 5e-7
        losses = before - after
        assert np.abs(laws.loss[:2, row] - losses).max() < 1e-8 * np.abs(losses).max() + 1e-12
        x_below, y_below = (log_below[np.clip(int(-place - k[0]), 0, len(k) - 1)] for place in (x - 1, y + 1))
        assert abs(laws.log_q[2, row] - x_below - y_below) < 5e-7


def test_exact_costs_of_wide_noise_come_close_to_the_bound_and_stay_below():
    mechanism, orders = DiscreteGaussianMax(300.0), np.array([1.5, 8.0, 300.0])
    for votes, least in (([5000, 5000], 0.99), ([5001, 5000], 0.99), ([3000, 3000, 3000], 0.83)):
        found = exact.rdp(mechanism, np.array([votes]), orders)[0]
        bound = worst_case.argmax_curve(mechanism.noise, orders)
        assert np.all(found <= bound) and found[0] > least * bound[0]


def test_wide_noise_costs_what_sums_say_and_never_more_than_released_counts(monkeypatch):
    orders = np.array([1.01, 2.0, 9.0, 70.0, 200.0])
    with monkeypatch.context() as patch:
        patch.setattr(worst_case, "WIDE", 50.0)
        wide = worst_case.argmax_curve(Noise("discrete_gaussian", 70.0), orders)
    summed = worst_case.argmax_curve(Noise("discrete_gaussian", 70.0000001), orders)
    assert np.allclose(wide, summed, rtol=1e-6)
    widest = worst_case.argmax_curve(Noise("discrete_gaussian", 1e5), orders) / (orders / 1e5**2)
    assert np.all((widest > 0.64) & (widest < 0.65))


@pytest.mark.parametrize(
    "noise",
    [
        Noise("gaussian", 40.0),
        Noise("gaussian", 0.7),
        Noise("discrete_gaussian", 5.0),
    ],
    ids=str,
)
def test_a_fine_grid_of_places_never_exceeds_the_search_and_comes_close(noise):
    scale = noise.scale
    places = np.arange(-6, 9, 0.1) * scale
    if noise.family == "gaussian":
        votes = [moved_vote.GaussianVote(scale)]
    else:
        votes = [moved_vote.LatticeVote(noise, int(60 * scale), ties) for ties in (False, True)]
    if "discrete" in noise.family:
        places = np.unique(np.round(places))
    orders = np.array([1.01, 2.0, 6.0, 11.0])
    orders = orders[orders < 2.9 * scale]
    x, y = (part.ravel() for part in np.meshgrid(places, places))
    laws = [vote.laws(x - y, x) for vote in votes]
    for order, bound in zip(orders, worst_case.argmax_curve(noise, orders), strict=True):
        ways = itertools.product(laws, (np.True_, np.False_))
        most = max(moved_vote.excess(*law, np.array([order]), way).sum(axis=0).max() for law, way in ways)
        assert 0.985 * bound < np.log1p(most) / (order - 1) <= bound


@pytest.mark.long
def test_the_curve_falls_as_gaussian_noise_grows():
    scales = [0.8, 2.0, 5.0, 40.0, 41.0]
    for family in ("gaussian", "discrete_gaussian"):
        known = [s for s in scales if family == "gaussian" or 1 <= s <= 5]
        found = np.array([worst_case.argmax_curve(Noise(family, s), np.array([1.5, 2.2])) for s in known])
        assert np.all(np.diff(found, axis=0) < 0)


@pytest.mark.parametrize("noise", [Noise("gaussian", 20.0), Noise("discrete_gaussian", 20.0)], ids=str)
def test_levels_are_nested_and_cover_their_pairs(noise):
    orders, at = np.array([1.5, 5.0, 40.0]), 1
    by_depth = worst_case.by_depth(noise, orders)
    assert np.all(np.diff(by_depth.costs, axis=1) <= 1e-12) and by_depth.levels[0] == -np.inf
    lead, x = (part.ravel() for part in np.meshgrid(np.arange(1, 120.0, 3), np.arange(-80, 120.0, 4)))
    votes = [moved_vote.GaussianVote(20.0)]
    if noise.is_discrete:
        votes = [moved_vote.LatticeVote(noise, 1500, ties) for ties in (False, True)]
    terms = [
        moved_vote.excess(*vote.laws(lead, x), orders[at], way).sum(axis=0)
        for vote in votes
        for way in (np.True_, np.False_)
    ]
    found = np.log1p(np.max(terms, axis=0)) / (orders[at] - 1)
    for level in (-np.inf, 5.0, 30.0, 70.0):
        ties = 1 if noise.is_discrete else 0
        column = np.searchsorted(by_depth.levels, level - ties, side="right") - 1
        assert found[-x >= level].max(initial=0.0) <= by_depth.costs[at, column]


@pytest.mark.parametrize("noise", [Noise("gaussian", 20.0), Noise("discrete_gaussian", 20.0)], ids=str)
def test_every_pair_of_counts_lies_below_its_cell_in_either_direction(noise):
    shares, knot = worst_case.shares(noise), 9
    order = worst_case._knots(20.0)[[knot]]
    lead, x = (part.ravel() for part in np.meshgrid(np.arange(1, 160.0, 3), np.arange(-80, 160.0, 5)))
    votes = [(moved_vote.GaussianVote(20.0), 0)]
    if noise.is_discrete:
        votes = [(moved_vote.LatticeVote(noise, 1500, ties), int(ties)) for ties in (False, True)]
    for vote, lower in votes:
        for way, cells in zip(
            (np.True_, np.False_), shares.cells[:, knot] * order * (order - 1), strict=True
        ):
            excess = moved_vote.excess(*vote.laws(lead - lower, x), order, way).sum(axis=0)
            for side in ("left", "right"):  # a pair on the edge of two cells lies in both
                k, j = (
                    np.searchsorted(ends, at, side) - 1
                    for ends, at in zip(shares[1:3], (lead, x), strict=True)
                )
                bound = cells[np.maximum(k, 0), j]
                assert np.all(excess <= bound) and np.median(excess / bound) > 0.8


FIGURES = [  # what data-independent figures come to at delta 1e-5, test and argmax together
    (ConfidentGNMax(200, 150, 40), 250, 10, 640, 1.84, 1.88),
    (ConfidentGNMax(300, 200, 40), 250, 2, 1500, 2.20, 2.35),
    (ConfidentDiscreteGaussian(100, 75, 20), 125, 10, 500, 3.51, 3.58),
    (GNMax(40.0), 250, 10, 500, 2.75, 2.83),
    (GNMax(60.0), 250, 10, 50, 0.50, 0.52),
    (GNMax(100.0), 250, 10, 1000, 1.40, 1.51),
    (LNMax(20.0), 250, 10, 1000, 8.05, 8.08),
    (LNMax(20.0), 250, 10, 100, 2.13, 2.15),
]


@pytest.mark.parametrize(("mechanism", "teachers", "classes", "queries", "least", "most"), FIGURES)
@pytest.mark.long
def test_figures_at_published_settings(mechanism, teachers, classes, queries, least, most):
    orders = accounting.default_orders()
    curve = queries * index_curve(mechanism, teachers, classes, orders)
    assert least < accounting.epsilon(orders, curve, 1e-5).epsilon <= most


def test_it_is_never_above_what_stood_before_and_gains_nothing_where_it_claims_nothing():
    orders = accounting.default_orders()
    for mechanism in (GNMax(3.0), LNMax(2.0), InteractiveGNMax(10, 7, 4, 0.9), ConfidentGNMax(10, 7, 4)):
        before = counts_curve(mechanism, 40, orders)
        now = index_curve(mechanism, 40, 3, orders)
        assert np.all(now <= before) and now[10] < 0.9 * before[10]
    for mechanism in (GumbelMax(3.0), PermuteAndFlip(3.0), GNMax(1e-3), GNMax(1e7)):
        before = counts_curve(mechanism, 40, orders)
        assert np.array_equal(index_curve(mechanism, 40, 3, orders), before)


def test_counts_that_make_no_sense_are_refused():
    with pytest.raises(PateError, match="teachers=0"):
        index_curve(GNMax(4.0), 0, 3, ORDERS)


def test_the_leader_of_few_votes_is_no_exception():
    orders = np.array([2.0, 4.0])
    for teachers in (1, 2, 3):
        found = index_curve(ConfidentGNMax(1, 2.0, 2.0), teachers, 3, orders)
        votes = every_histogram(teachers, 3)
        assert np.all(exact.rdp(ConfidentGNMax(1, 2.0, 2.0), votes, orders).max(axis=0) <= found)
    assert np.isinf(
        worst_case.joint_curve(Noise("gumbel", 2.0), ConfidentGNMax(1, 2.0, 2.0).test, 9, 3, orders)
    ).all()


def test_noise_that_a_user_chose_keeps_the_older_curve():
    orders = accounting.default_orders()
    for family in ("gumbel", "exponential", "logistic"):
        assert np.isinf(worst_case.argmax_curve(Noise(family, 5.0), orders)).all()
        assert np.isinf(
            worst_case.joint_curve(Noise(family, 5.0), ConfidentGNMax(9, 7, 5).test, 9, 3, orders)
        ).all()


@pytest.mark.parametrize("threshold", [5, 30])
@pytest.mark.parametrize("family", [ConfidentGNMax, ConfidentDiscreteGaussian])
def test_thresholds_below_half_and_above_all_votes(family, threshold):
    mechanism = family(threshold, 4.0, 2.0)
    orders = np.array([1.2, 2.0, 4.0, 5.9])
    curve = index_curve(mechanism, 18, 5, orders)
    for classes in (2, 3, 5):
        assert np.all(exact.rdp(mechanism, every_histogram(18, classes), orders).max(axis=0) <= curve)


def test_groups_of_largest_counts_cost_at_least_as_much_as_each_of_them(monkeypatch):
    noise, test, orders = (
        Noise("gaussian", 20.0),
        ConfidentGNMax(100, 75, 20).test,
        np.array([1.5, 6.0, 20.0]),
    )
    each = worst_case.joint_curve(noise, test, 126, 10, orders)
    monkeypatch.setattr(worst_case, "GROUPS", 8)
    grouped = worst_case.joint_curve(noise, test, 126, 10, orders)
    assert np.all(each <= grouped * (1 + 1e-9)) and np.all(grouped < 1.1 * each)


def test_a_curve_that_a_caller_changes_is_not_what_the_next_caller_gets():
    found = index_curve(GNMax(4.0), 40, 3, ORDERS)
    before, found[:] = found.copy(), 0.0
    assert np.array_equal(index_curve(GNMax(4.0), 40, 3, ORDERS), before)
