"""The largest cost over all moves: bounds of all, and full values of the few that can be the largest."""

from __future__ import annotations

import numpy as np

from pate_jax.accounting.exact import between_orders, moves
from pate_jax.accounting.exact.move_bounds import Answered, Every, Some
from pate_jax.accounting.exact.moves import Law
from pate_jax.accounting.exact.screening import Screen

NEGLIGIBLE = 1e-11  # the largest error of a log that may hide which of two moves costs more
FEW = 12  # moves of one histogram that are computed in full without a closer look


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
        chosen = between_orders.anchors(orders)
        bounds = Every.of(found, self.answered).upper(orders[chosen])[self.row, self.a, self.b]
        self.anchored = between_orders.logs(orders[chosen], bounds + self.slack[self.row][:, chosen])
        self.bounds = between_orders.chords(orders, chosen, self.anchored)  # [M, A], as logs
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
        self.bounds[np.ix_(which, needed)] = between_orders.logs(orders, bounds)
        closer: np.ndarray = self.bounds[np.ix_(which, needed)]
        return closer

    def result(self) -> np.ndarray:
        """The best full value, or the bound of a move that may be larger by rounding."""
        result: np.ndarray = np.maximum(self.best, between_orders.moments(self.orders, self.bounded))
        return result

    def _close(self) -> np.ndarray:
        """The logs up to which a bound is taken as it is [R, A], because rounding hides the difference."""
        hidden = np.minimum(3 * self.slack, (2 * self.orders + 1) * NEGLIGIBLE)
        close = np.where(self.best < self.ceiling, self.best * (1 + 1e-9) + hidden, np.inf)
        return between_orders.logs(self.orders, close)


def _test_bounds(law: Law) -> tuple[np.ndarray, Answered | None]:
    """The largest error of the logs of each histogram [R], and the test's laws in the shape of all moves."""
    error: np.ndarray = law.made.error.max(axis=1)
    if law.test is None:
        return error, None
    before, after = law.test
    answered = before.answered[:, None, None], before.refused[:, None, None], after.answered, after.refused
    return error + after.error.max(axis=(1, 2)), answered
