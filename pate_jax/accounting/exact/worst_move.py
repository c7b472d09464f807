"""The largest cost over all moves: bounds of all, and full values of the few that can be the largest.

Bounds at all orders follow from those at a few, the anchors. `E(a) = exp((a-1) D_a) - 1` is a sum of
`phi_a(d) = a (a-1) int (y-t) t^(a-2) dt` from 1 to `y = exp(d)`, so `E(a) / (a (a-1))` is a mixture of
exponentials in a: its log is convex and lies below its chords.
"""

from __future__ import annotations

import numpy as np

from pate_jax.accounting.exact import moves
from pate_jax.accounting.exact.argmax_law import ALONE
from pate_jax.accounting.exact.move_bounds import Answered, Every, Screen, Some
from pate_jax.accounting.exact.moves import Law

NEGLIGIBLE = 1e-11  # the largest error of a log that may hide which of two moves costs more
FEW = 12  # moves of one histogram that are computed in full without a closer look
ANCHORS = 16
MOST = 1e300  # stands for an infinite log, so that it may be multiplied by 0


def largest(
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
