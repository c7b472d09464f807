"""One-sided moments of a vote's moves, from which cheap upper bounds of all moves follow (`move_bounds`).

For a class j that the move a -> b does not touch, `P'_j / P_j = E_j[R_a S_b]` over the nodes, where R falls
and S rises. So the ratio lies between `E[R] E[S] - sd(R) sd(S)` and `E[R] E[S]` (docs/accounting_exact.md).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pate_jax.accounting.exact.argmax_law import Factors
from pate_jax.accounting.exact.groups import Groups
from pate_jax.accounting.exact.products import product


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
