"""Upper bounds of `(a-1) D_a` of moves, in both directions, from their one-sided moments.

The sums over the classes j that a move does not touch are matrix products over (a, j) and (j, b) if all
moves are wanted, and sums of one row for each move if only a few are (docs/proofs/exact.md, section 5).

For a class j that the move a -> b does not touch, `P'_j / P_j = E_j[R_a S_b]` over the nodes, where R falls
and S rises. So the ratio lies between `E[R] E[S] - sd(R) sd(S)` and `E[R] E[S]`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pate_jax.accounting.exact.argmax_law import Factors, product
from pate_jax.accounting.exact.groups import Groups


class Screen(NamedTuple):
    """The quantities of all moves that need no loop over moves."""

    log_p: np.ndarray  # [R, U]
    sizes: np.ndarray  # [R, U]
    leave: np.ndarray  # [R, U(j), U(a)]: log E_j[R_a]
    join: np.ndarray  # [R, U(j), U(b)]: log E_j[S_b]
    slack: np.ndarray  # [R, U(j), U(a)]: how far the log of the ratio can be below leave + join
    loser: np.ndarray  # [R, U(a), U(b)]
    winner: np.ndarray  # [R, U(a), U(b)]
    fall: np.ndarray  # [R, U(j), U(a)]: how much of class j's mass the slack can take away, at most
    deepest: np.ndarray  # [R, U(j), U(a)]: the largest -log(P'_j / P_j), at least 0

    def of(self, rows: np.ndarray) -> Screen:
        """The quantities of some of the histograms."""
        return Screen(*(value[rows] for value in self))


def screen(made: Factors, groups: Groups, log_p: np.ndarray, ordered: bool) -> Screen:
    """One-sided moments under each class's law of the winning noisy count, as matrix products.

    If R falls and S rises (`ordered`), the mean of their product is at most the product of their means.
    Within a cell of whole-number noise they need not be monotone, and the spreads bound both sides.
    """
    with np.errstate(under="ignore"):
        weight = np.exp(made.level - log_p[:, :, None])
        mean_leave, spread_leave = _moments(weight, np.expm1(made.leave))
        mean_join, spread_join = _moments(weight, np.expm1(made.join))
        ratios = np.exp(made.leave).transpose(0, 2, 1), np.exp(made.join).transpose(0, 2, 1)
    # a group's only class is not among the untouched if it is itself moved
    alone = (groups.sizes == 1)[:, :, None] & np.eye(log_p.shape[1], dtype=bool)
    spread_leave, spread_join = np.where(alone, 0.0, spread_leave), np.where(alone, 0.0, spread_join)
    overlap = (spread_leave * spread_join.max(axis=2, keepdims=True)).clip(max=1)
    above = 0.0 if ordered else np.log1p(overlap)
    with np.errstate(divide="ignore"):
        slack = above - np.log1p(-overlap)
        join = np.log1p(np.maximum(mean_join, -1))
    leave = np.log1p(mean_leave) + above
    loser = _product(made.fewer, ratios[1])
    winner = _product(made.more, ratios[0]).transpose(0, 2, 1)
    others = np.where(alone, 0.0, leave), np.where(alone, 0.0, join)
    with np.errstate(over="ignore", invalid="ignore"):
        lost = np.exp(others[0] + others[1].max(axis=2, keepdims=True)) * -np.expm1(-slack)
        fall = (groups.sizes * np.exp(log_p))[:, :, None] * lost
        deepest = np.maximum(slack - others[0] - others[1].min(axis=2, keepdims=True), 0)
    return Screen(log_p, groups.sizes, leave, join, slack, loser, winner, fall, deepest)


def _moments(weight: np.ndarray, change: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean of each change [R, J, K], and its spread relative to `1 + mean`, which is rounded up."""
    across = change.transpose(0, 2, 1)
    mean, square = product(weight, across), product(weight, across * across)
    spread = np.sqrt(np.maximum(square - mean * mean, 0) + 1e-13 * square)
    with np.errstate(divide="ignore", invalid="ignore"):
        return mean, np.nan_to_num(spread / (1 + mean), nan=1.0, posinf=1.0)


def _product(terms: np.ndarray, ratios: np.ndarray) -> np.ndarray:
    """Log of `sum_x exp(terms) ratios` [R, U, U]."""
    peak = terms.max(axis=2)
    with np.errstate(divide="ignore", under="ignore"):
        result: np.ndarray = np.log(product(np.exp(terms - peak[:, :, None]), ratios)) + peak[:, :, None]
        return result


Answered = tuple[np.ndarray, ...]  # logs of Pr[answered] and Pr[refused], before and after each move


@dataclass(frozen=True)
class Moves(ABC):
    """Moves with what their bounds need; every array has one number for each move."""

    p_a: np.ndarray
    p_b: np.ndarray
    loser: np.ndarray
    winner: np.ndarray
    answered: Answered | None

    @abstractmethod
    def untouched(self, power: float, slack: float) -> np.ndarray:
        """`sum_j P_j exp(slack slack_j) (P'_j / P_j)^power` over the classes that a move does not touch."""

    @abstractmethod
    def rises(self, order: float) -> tuple[np.ndarray, np.ndarray]:
        """The most that the sums of f can rise over the slack, in both directions."""

    def upper(self, orders: np.ndarray) -> np.ndarray:
        """The bounds at some orders, which become the last axis."""
        with np.errstate(all="ignore"):
            moved = np.exp(self.loser) + np.exp(self.winner)
            mass = self.untouched(1.0, 0.0) + moved  # of all classes after the move, by the products of means
            bounds = np.stack([self._upper(float(order), mass - 1) for order in orders], axis=-1)
        result: np.ndarray = np.where(np.isfinite(bounds), bounds, np.inf)
        return result

    def _upper(self, order: float, excess: np.ndarray) -> np.ndarray:
        forward, backward = self._powers(order, excess)
        if self.answered is None:
            alone: np.ndarray = np.maximum(forward, backward)
            return alone
        passed, refused, passed_after, refused_after = self.answered
        ahead = order * passed + (1 - order) * passed_after
        back = order * passed_after + (1 - order) * passed
        joint: np.ndarray = np.maximum(
            np.logaddexp(ahead + forward, order * refused + (1 - order) * refused_after),
            np.logaddexp(back + backward, order * refused_after + (1 - order) * refused),
        )
        return joint

    def _powers(self, order: float, excess: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Logs of upper bounds of `sum_j P_j^a P'_j^(1-a)` and of `sum_j P'_j^a P_j^(1-a)`.

        Each has two bounds. The first takes the worst ratio in every term. The second takes the product
        `r = E[R] E[S]` in `f(r) = r^(1-a) + (a-1) r - a`, which is convex with its minimum at 1, plus the
        most that f can rise if r falls by the slack. The second is tight at low orders.
        """
        steep, flat = self.rises(order)
        convex = self.untouched(1 - order, 0.0) + (order - 1) * excess + steep
        forward = np.fmin(convex, self.untouched(1 - order, order - 1))
        plain = self.untouched(order, 0.0)
        backward = np.fmin(plain, plain - order * excess + flat)
        return (
            _total(
                forward,
                order * self.p_a + (1 - order) * self.loser,
                order * self.p_b + (1 - order) * self.winner,
            ),
            _total(
                backward,
                order * self.loser + (1 - order) * self.p_a,
                order * self.winner + (1 - order) * self.p_b,
            ),
        )


@dataclass(frozen=True)
class Every(Moves):
    """All moves of a few histograms [R, U(a), U(b)]."""

    found: Screen

    @classmethod
    def of(cls, found: Screen, answered: Answered | None) -> Every:
        """All moves, possible or not."""
        p = found.log_p
        return cls(p[:, :, None], p[:, None, :], found.loser, found.winner, answered, found)

    def untouched(self, power: float, slack: float) -> np.ndarray:
        """Matrix products over all classes, less those that are touched."""
        found = self.found
        leave = found.log_p[:, :, None] + power * found.leave
        if slack:
            leave += slack * found.slack
        weighted, joined = np.exp(leave).transpose(0, 2, 1), np.exp(power * found.join)
        total = product(weighted * found.sizes[:, None, :], joined)
        own_a = np.diagonal(weighted, axis1=1, axis2=2)[:, :, None] * joined  # j = a
        own_b = np.diagonal(joined, axis1=1, axis2=2)[:, None, :] * weighted
        result: np.ndarray = np.maximum(total - own_a - own_b, 0) + 1e-14 * total
        return result

    def rises(self, order: float) -> tuple[np.ndarray, np.ndarray]:
        """The rises depend on a only."""
        steep, flat = _rises(self.found.fall, self.found.deepest, order)
        return steep[:, :, None], flat[:, :, None]


@dataclass(frozen=True)
class Some(Moves):
    """A list of moves [M]."""

    log_weight: np.ndarray  # [M, U(j)]: of the untouched classes
    log_ratio: np.ndarray  # of P'_j / P_j, by the product of means
    slack: np.ndarray
    fall: np.ndarray
    deepest: np.ndarray

    @classmethod
    def of(
        cls, found: Screen, answered: Answered | None, row: np.ndarray, a: np.ndarray, b: np.ndarray
    ) -> Some:
        """The moves `a[m] -> b[m]` of the histograms `row[m]`."""
        at = np.arange(len(row))
        left = found.sizes[row]
        left[at, a] -= 1
        left[at, b] -= 1
        with np.errstate(divide="ignore"):
            log_weight = np.log(left) + found.log_p[row]
        log_ratio = np.where(left > 0, found.leave[row, :, a] + found.join[row, :, b], 0.0)
        slack = np.where(left > 0, found.slack[row, :, a], 0.0)
        if answered is not None:
            before, after = answered[:2], answered[2:]
            answered = (*(value[row, 0, 0] for value in before), *(value[row, a, b] for value in after))
        return cls(
            found.log_p[row, a],
            found.log_p[row, b],
            found.loser[row, a, b],
            found.winner[row, a, b],
            answered,
            log_weight,
            log_ratio,
            slack,
            found.fall[row, :, a],
            found.deepest[row, :, a],
        )

    def untouched(self, power: float, slack: float) -> np.ndarray:
        """The sum over one row of classes for each move."""
        terms = power * self.log_ratio
        terms += self.log_weight
        if slack:
            terms += slack * self.slack
        result: np.ndarray = np.exp(terms, out=terms).sum(axis=1)
        return result * (1 + 1e-14)

    def rises(self, order: float) -> tuple[np.ndarray, np.ndarray]:
        """The rises of each move."""
        return _rises(self.fall, self.deepest, order)


def _rises(fall: np.ndarray, deepest: np.ndarray, order: float) -> tuple[np.ndarray, np.ndarray]:
    """`f' (r_0 - r)` summed over classes, with the steepest f' between, of `r^(1-a)` and of `r^a`."""
    forward = (order - 1) * (fall * np.expm1(order * deepest)).sum(axis=1)
    return forward, order * (fall * np.minimum((order - 1) * deepest, 1)).sum(axis=1)


def _total(untouched: np.ndarray, loser: np.ndarray, winner: np.ndarray) -> np.ndarray:
    """`log(untouched + exp(loser) + exp(winner))`, also where the exponentials overflow."""
    total: np.ndarray = np.log(untouched + np.exp(loser) + np.exp(winner))
    far = np.isposinf(total)
    if far.any():
        total[far] = np.logaddexp(np.log(untouched[far]), np.logaddexp(loser[far], winner[far]))
    return total
