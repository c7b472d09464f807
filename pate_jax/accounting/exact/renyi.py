"""The exact data-dependent Renyi cost of an aggregation, from the known law of its outcome.

The cost of a query is the largest divergence, in both directions, between the law of the outcome and its law
after any one vote has moved (beyond the papers, derived in docs/proofs/exact.md). With a threshold test the
outcome is "refused" or a label: one joint mechanism. Numerical errors are bounded and added, so a figure is
never below the truth.

The largest cost over all moves is found by bounds of all, and full values of the few that can be the largest.
Bounds at all orders follow from those at a few, the anchors. `E(a) = exp((a-1) D_a) - 1` is a sum of
`phi_a(d) = a (a-1) int (y-t) t^(a-2) dt` from 1 to `y = exp(d)`, so `E(a) / (a (a-1))` is a mixture of
exponentials in a: its log is convex and lies below its chords.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pate_jax.accounting.exact import argmax_law, move_bounds, moves, nodes
from pate_jax.accounting.exact.argmax_law import ALONE
from pate_jax.accounting.exact.groups import Groups, Merged, merge
from pate_jax.accounting.exact.move_bounds import Answered, Every, Screen, Some
from pate_jax.accounting.exact.moves import Law
from pate_jax.accounting.exact.noise_law import (
    Passing,
    caps,
    concentrated,
    largest,
    largest_after,
    passing,
    shift_cost,
)
from pate_jax.accounting.inputs import check_orders
from pate_jax.mechanisms import Mechanism, Noise, ThresholdTest, check_votes_suffice
from pate_jax.system.progress import bar

NEGLIGIBLE = 1e-11  # the largest error of a log that may hide which of two moves costs more
FEW = 12  # moves of one histogram that are computed in full without a closer look
ANCHORS = 16
MOST = 1e300  # stands for an infinite log, so that it may be multiplied by 0


def largest_cost(
    law: Law, found: Screen, possible: np.ndarray, orders: np.ndarray, ceiling: np.ndarray
) -> np.ndarray:
    """The largest `(a-1) D_a` [R, A] over the possible moves.

    Nothing is computed in full to learn that it is above the ceiling [A], which holds anyway.
    """
    search = _Search(law, found, possible, orders, ceiling)
    search.compute(search.leading(np.arange(len(search.row)), search.anchored))
    remaining = search.unsettled(np.arange(len(search.row)))
    number = np.bincount(search.row[remaining], minlength=len(possible))
    crowded = remaining[(number > FEW)[search.row[remaining]]]
    if len(crowded):  # many moves cost almost the same: bound them more closely
        search.compute(search.leading(crowded, search.refine(crowded)))
        remaining = search.unsettled(remaining)
    search.compute(remaining)
    return search.result()


class _Search:
    """What is known about the moves [M] of a piece: bounds at every order, and the best full value."""

    def __init__(
        self, law: Law, found: Screen, possible: np.ndarray, orders: np.ndarray, ceiling: np.ndarray
    ) -> None:
        self.law, self.found, self.orders, self.ceiling = law, found, orders, ceiling
        self.row, self.a, self.b = np.nonzero(possible)
        error, self.answered = _test_bounds(law)
        self.slack = (2 * orders + 1) * (error[:, None] + 1e-14)  # [R, A]: what rounding can hide
        chosen = anchors(orders)
        bounds = Every.of(found, self.answered).upper(orders[chosen])[self.row, self.a, self.b]
        self.anchored = logs(orders[chosen], bounds + self.slack[self.row][:, chosen])
        self.bounds = chords(orders, chosen, self.anchored)  # [M, A], as logs
        self.best = np.zeros((len(possible), len(orders)))
        self.bounded = np.full(self.best.shape, -np.inf)  # as logs: the largest bound of settled moves
        self.done = np.zeros(len(self.row), bool)

    def leading(self, which: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """Which of some moves have the largest bound [m, K] of their histogram at some order."""
        starts = np.flatnonzero(np.diff(self.row[which], prepend=-1))
        if not len(starts):
            return which
        top = np.maximum.reduceat(bounds, starts)
        place = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(which)))
        at = np.where(bounds == top[place], np.arange(len(which))[:, None], len(which))
        leading: np.ndarray = which[np.unique(np.minimum.reduceat(at, starts))]
        return leading

    def compute(self, which: np.ndarray) -> None:
        """Raise the best to the full values of some moves."""
        row = self.row[which]
        moves.lift(self.best, row, moves.moments(self.law, row, self.a[which], self.b[which], self.orders))
        self.done[which] = True

    def unsettled(self, which: np.ndarray) -> np.ndarray:
        """Which of some moves could still be the worst at some order; the bounds of the others are noted."""
        which = which[~self.done[which]]
        open_ = (self.bounds[which] > self._close()[self.row[which]]).any(axis=1)
        moves.lift(self.bounded, self.row[which[~open_]], self.bounds[which[~open_]])
        unsettled: np.ndarray = which[open_]
        return unsettled

    def refine(self, which: np.ndarray) -> np.ndarray:
        """Bound some moves at every order where they could be the worst; returns these bounds."""
        needed = np.flatnonzero((self.bounds[which] > self._close()[self.row[which]]).any(axis=0))
        orders = self.orders[needed]
        some = Some.of(self.found, self.answered, self.row[which], self.a[which], self.b[which])
        bounds = some.upper(orders) + self.slack[self.row[which]][:, needed]
        self.bounds[np.ix_(which, needed)] = logs(orders, bounds)
        closer: np.ndarray = self.bounds[np.ix_(which, needed)]
        return closer

    def result(self) -> np.ndarray:
        """The best full value, or the bound of a move that may be larger by rounding."""
        result: np.ndarray = np.maximum(self.best, moments(self.orders, self.bounded))
        return result

    def _close(self) -> np.ndarray:
        """The logs up to which a bound is taken as it is [R, A], because rounding hides the difference."""
        hidden = np.minimum(3 * self.slack, (2 * self.orders + 1) * NEGLIGIBLE)
        close = np.where(self.best < self.ceiling, self.best * (1 + 1e-9) + hidden, np.inf)
        return logs(self.orders, close)


def _test_bounds(law: Law) -> tuple[np.ndarray, Answered | None]:
    """The largest error of the logs of each histogram [R], and the test's laws in the shape of all moves."""
    error: np.ndarray = law.made.error.max(axis=1)
    if law.test is None:
        return error, None
    before, after = law.test
    answered = before.answered[:, None, None], before.refused[:, None, None], after.answered, after.refused
    return error + after.error.max(axis=(1, 2)), answered


def anchors(orders: np.ndarray) -> np.ndarray:
    """The indices of the anchors among the sorted orders: both ends, and others evenly spaced in log(a-1).

    >>> anchors(np.array([1.5, 2.0, 3.0])).tolist()
    [0, 1, 2]
    """
    if len(orders) <= ANCHORS:
        return np.arange(len(orders))
    logs = np.log(orders - 1)
    return np.unique(np.searchsorted(logs, np.linspace(logs[0], logs[-1], ANCHORS)).clip(max=len(orders) - 1))


def logs(orders: np.ndarray, moments: np.ndarray) -> np.ndarray:
    """`log(E(a) / (a (a-1)))` of moments `(a-1) D_a` [.., A]: it grows with them, and is convex in a."""
    moments = np.maximum(moments, 1e-290)
    with np.errstate(over="ignore"):
        # log(exp(m) - 1), which neither overflows nor loses small m
        plain = np.where(moments > 30, moments, np.log(np.expm1(np.minimum(moments, 30))))
    result: np.ndarray = np.minimum(plain - np.log(orders * (orders - 1)), MOST)
    return result


def chords(orders: np.ndarray, chosen: np.ndarray, anchored: np.ndarray) -> np.ndarray:
    """The chords [M, A] at all sorted orders through the logs [M, K] at the chosen ones."""
    right = np.searchsorted(chosen, np.arange(len(orders))).clip(min=min(1, len(chosen) - 1))
    left = np.maximum(right - 1, 0)
    span = np.where(right > left, orders[chosen][right] - orders[chosen][left], 1.0)
    share = (orders - orders[chosen][left]) / span
    weights = np.zeros((len(chosen), len(orders)))
    at = np.arange(len(orders))
    weights[left, at] += 1 - share
    weights[right, at] += share
    result: np.ndarray = np.empty((len(anchored), len(orders)))
    step = max(1, ALONE // weights.size)
    for start in range(0, len(anchored), step):
        result[start : start + step] = anchored[start : start + step] @ weights
    return result


def moments(orders: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Moments `(a-1) D_a` [.., A] from their logs.

    >>> orders, chosen = np.array([2.0, 3.0, 4.0]), np.array([0, 2])
    >>> anchored = logs(orders[chosen], np.log1p(np.array([[0.2, 1.2]])))
    >>> moments(orders, chords(orders, chosen, anchored)).round(4).tolist()
    [[0.1823, 0.47, 0.7885]]
    """
    with np.errstate(over="ignore"):
        raised = found + np.log(orders * (orders - 1))
        out = np.where(raised > 30, raised + 1e-12, np.log1p(np.exp(np.minimum(raised, 30))))
    result: np.ndarray = np.where(out < MOST / 2, out, np.inf)
    return result


BLOCK = 1_500_000  # numbers in one intermediate array
BUDGET = 4e8  # the most exponentials for one histogram if noise is so small that screening is impossible


class Parts(NamedTuple):
    """The costs of the test and of the argmax alone, and the chance that each query is answered."""

    test: np.ndarray  # [Q, A]
    argmax: np.ndarray  # [Q, A]
    log_answered: np.ndarray  # [Q]


def rdp(mechanism: Mechanism, votes: ArrayLike, orders: ArrayLike) -> np.ndarray:
    """The Renyi cost [query, order] of each query's outcome, with test and answer as one mechanism.

    >>> from pate_jax.mechanisms import GNMax
    >>> rdp(GNMax(sigma=40), [[250, 0], [130, 120]], [2.0, 8.0]).round(6).tolist()
    [[0.0, 1e-06], [0.000791, 0.003187]]
    """
    check_votes_suffice(mechanism)
    return rdp_of(mechanism, merge(votes), orders)


def rdp_of(mechanism: Mechanism, merged: Merged, orders: ArrayLike) -> np.ndarray:
    """`rdp` for histograms that `merge` put into groups, together with what the test reads of them.

    >>> from pate_jax.mechanisms import GNMax
    >>> rdp_of(GNMax(sigma=40), merge([[250, 0], [130, 120]]), [2.0]).round(6).tolist()
    [[0.0], [0.000791]]
    """
    costs = _costs(mechanism.noise, [mechanism.test], merged, check_orders(orders))
    result: np.ndarray = costs[0, merged.row_of]
    return result


def parts(mechanism: Mechanism, votes: ArrayLike, orders: ArrayLike) -> Parts:
    """The separate costs of test and argmax, for the papers' expected and realised sums: not bounds.

    >>> from pate_jax.mechanisms import ConfidentGNMax
    >>> found = parts(ConfidentGNMax(threshold=200, sigma_threshold=150, sigma=40), [[180, 70]], [2.0])
    >>> found.test.shape, found.argmax.shape, found.log_answered.round(3).tolist()
    ((1, 1), (1, 1), [-0.805])
    """
    return _parts(mechanism, votes, orders, [None])[1]


def joint_and_parts(mechanism: Mechanism, votes: ArrayLike, orders: ArrayLike) -> tuple[np.ndarray, Parts]:
    """The results of `rdp` and of `parts`, from the same laws.

    >>> from pate_jax.mechanisms import ConfidentGNMax
    >>> joint, found = joint_and_parts(ConfidentGNMax(200, 150, 40), [[180, 70]], [2.0])
    >>> bool(found.test[0, 0] < joint[0, 0] < found.test[0, 0] + found.argmax[0, 0])
    True
    """
    tests = [None] if mechanism.test is None else [mechanism.test, None]
    costs, found = _parts(mechanism, votes, orders, tests)
    return costs[0], found


def _parts(
    mechanism: Mechanism, votes: ArrayLike, orders: ArrayLike, tests: Sequence[ThresholdTest | None]
) -> tuple[np.ndarray, Parts]:
    """The costs [test, Q, A] with some tests, the last of which is none, and the parts."""
    check_votes_suffice(mechanism)
    orders, merged = check_orders(orders), merge(votes)
    costs = _costs(mechanism.noise, tests, merged, orders)[:, merged.row_of]
    test, answered = np.zeros((merged.rows, len(orders))), np.zeros(merged.rows)
    if mechanism.test is not None:
        for groups in merged.buckets:
            for piece in groups.split(max(1, BLOCK // (8 * groups.counts.shape[1] ** 2))):
                test[piece.rows] = _test_costs(mechanism.test, piece, orders)
                answered[piece.rows] = passing(mechanism.test, largest(piece)).answered
    return costs, Parts(test[merged.row_of], costs[-1], answered[merged.row_of])


def probabilities(mechanism: Mechanism, votes: ArrayLike) -> np.ndarray:
    """The log-probability [query, class] of each label, given that the query is answered.

    >>> from pate_jax.mechanisms import GumbelMax
    >>> np.exp(probabilities(GumbelMax(scale=2.0), [[1, 3]])).round(4).tolist()
    [[0.2689, 0.7311]]
    """
    merged = merge(votes)
    counts = np.asarray(votes, np.float64)
    order = np.argsort(-counts, axis=1, kind="stable")
    table = np.empty((merged.rows, merged.classes))
    for piece in pieces(mechanism.noise, merged):
        logs = _base(mechanism.noise, piece)
        for row, size, values in zip(piece.rows, piece.sizes.astype(int), logs, strict=True):
            table[row] = np.repeat(values, size)
    out = np.empty(counts.shape)
    np.put_along_axis(out, order, table[merged.row_of], axis=1)
    return out


def pieces(noise: Noise, merged: Merged, *, every_move: bool = False) -> Iterator[Groups]:
    """The merged histograms in pieces that fit into memory, even if every move is computed in full."""
    for groups in merged.buckets:
        distinct = groups.counts.shape[1]
        each = 400 if noise.family == "gumbel" else nodes.number(noise, groups)
        numbers = distinct * each + distinct**2 * (10 * distinct if every_move else 60)
        yield from groups.split(max(1, BLOCK // numbers))


def _base(noise: Noise, groups: Groups) -> np.ndarray:
    """The log-probability of one class of each group [R, U]."""
    if noise.family == "gumbel":
        return argmax_law.softmax_base(noise.scale, groups)
    return argmax_law.base(argmax_law.factors(noise, groups))


def _costs(
    noise: Noise, tests: Sequence[ThresholdTest | None], merged: Merged, orders: np.ndarray
) -> np.ndarray:
    """The cost of each merged histogram with each test [test, row, order]."""
    grid = np.unique(np.append(orders, [2.0, 4.0]) if orders.min() < 2 else orders)
    cost = np.zeros((len(tests), merged.rows, len(grid)))
    with bar("exact privacy", total=merged.rows) as steps:
        for piece in pieces(noise, merged):
            cost[:, piece.rows] = _piece(noise, tests, piece, grid) / (grid - 1)
            steps.advance(len(piece.rows))
    # divergences grow with the order, so a bound at a higher order holds at every lower one; near order 1,
    # where rounding is divided by a - 1, the bound from a higher order is better
    for of_test, test in zip(cost, tests, strict=True):
        np.minimum(of_test, caps(noise, test, grid), out=of_test)
    cost = np.minimum.accumulate(cost[..., ::-1], axis=2)[..., ::-1]
    return cost[..., np.searchsorted(grid, orders)]


def _piece(
    noise: Noise, tests: Sequence[ThresholdTest | None], groups: Groups, orders: np.ndarray
) -> np.ndarray:
    """The largest `(a-1) D_a` over all moves [test, R, A] for a few histograms."""
    if noise.family == "gumbel":
        return np.stack([_softmax_moments(noise.scale, test, groups, orders) for test in tests])
    factors = argmax_law.factors(noise, groups)
    log_p = argmax_law.base(factors)
    if noise.scale < 1 or factors.steep or factors.ghost is not None:
        laws = [Law.of(groups, factors, log_p, test) for test in tests]
        return np.stack([moves.in_full(law, groups.moves(), orders, BUDGET) for law in laws])
    near = argmax_law.leave_out(factors, groups, log_p, orders[-1], math.sqrt(concentrated(noise)))
    found = move_bounds.screen(near.made, near.groups, near.log_p, not noise.is_discrete)
    costs = []
    for test in tests:
        law = Law.of(near.groups, near.made, near.log_p, test)
        ceiling = caps(noise, test, orders) * (orders - 1)
        costs.append(largest_cost(law, found, near.possible, orders, ceiling))
    result: np.ndarray = np.stack(costs) + argmax_law.LEFT_OUT * (near.error > 0)[:, None]
    return result


def _softmax_moments(
    scale: float, test: ThresholdTest | None, groups: Groups, orders: np.ndarray
) -> np.ndarray:
    """The largest `(a-1) D_a` over all moves [R, A] for Gumbel noise, for which three outcomes are enough."""
    log_p, log_q, error = argmax_law.softmax_outcomes(scale, groups)
    error = np.broadcast_to(error[:, None, None, None], log_p.shape)
    sizes = np.isfinite(log_p).astype(np.float64)
    if test is not None:
        before, after = moves.test_law(test, groups)
        before = Passing(*(value[:, None, None] for value in before))
        sizes, log_p, log_q, error = moves.join(before, after, sizes, log_p, log_q, error)
    every = moves.log_moments(orders, sizes, log_p, log_q, error)
    result: np.ndarray = np.where(groups.moves()[..., None], every, 0).max(axis=(1, 2))
    return result


def _test_costs(test: ThresholdTest, groups: Groups, orders: np.ndarray) -> np.ndarray:
    """The cost of the test's two outcomes alone [R, A], over every possible move.

    Moves that leave the same largest margin cost the same, so each margin is computed once.
    """
    row, a, b = np.nonzero(groups.moves())
    pairs = np.unique(np.stack([row, largest_after(groups)[row, a, b]]), axis=1)
    row = pairs[0].astype(np.intp)
    before, after = passing(test, largest(groups)), passing(test, pairs[1])
    log_p = np.stack([before.refused[row], before.answered[row]], axis=-1)
    log_q = np.stack([after.refused, after.answered], axis=-1)
    error = np.maximum(before.error[row], after.error)[:, None]
    cost = np.zeros((len(groups.counts), len(orders)))
    moves.lift(cost, row, moves.log_moments(orders, np.ones(2), log_p, log_q, error) / (orders - 1))
    result: np.ndarray = np.minimum(cost, shift_cost(test.noise, orders))
    return result
