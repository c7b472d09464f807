"""Remote classes: classes so unlikely, before and after any move, that moves among them need not be tried.

With many classes, most have hardly any votes, and hundreds of moves between them differ by less than a
float64 can represent. A class is remote if every term it can add to a sum `sum_j P_j^a P'_j^(1-a)` is below
exp(-50). Of the remote groups only the one with the most votes is tried. How much the others could change
the laws of the remaining classes is bounded and added to their error (docs/proofs/exact.md).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pate_jax.accounting.exact.argmax_law import Factors
from pate_jax.accounting.exact.groups import Groups

NATS = 50.0
NEGLIGIBLE = 1e-11  # the largest error that is accepted in exchange for fewer moves
LEFT_OUT = 4e-18  # all terms of remote classes together: 1e4 classes times exp(-50), twice


class Near(NamedTuple):
    """A piece of histograms without its remote classes, except the first of them."""

    made: Factors
    groups: Groups
    log_p: np.ndarray
    possible: np.ndarray  # bool [R, U, U], the moves to try
    error: np.ndarray  # [R], already part of `made.error`


def leave_out(made: Factors, groups: Groups, log_p: np.ndarray, order: float, root: float) -> Near:
    """The piece without remote classes, wherever they can be left out.

    `order` is the largest order, `root` the square root of the argmax's zero-concentrated cost.
    """
    surprise = np.sqrt(np.maximum(-log_p, 0))
    remote = surprise > order * root + np.sqrt((order * root) ** 2 + order * root**2 + NATS)
    number = remote.sum(axis=1)
    first = np.minimum((~remote).sum(axis=1), remote.shape[1] - 1)  # groups are sorted, remote ones come last
    at = np.arange(len(log_p))
    useful = (number >= 2) & (groups.counts[:, 0] - groups.counts[at, first] >= 3)
    possible = groups.moves()
    if not useful.any() or not np.array_equal(groups.margins, groups.counts):
        return Near(made, groups, log_p, possible, np.zeros(len(log_p)))
    with np.errstate(under="ignore", over="ignore", invalid="ignore", divide="ignore"):
        error = _error(made, log_p, first, ~remote)
    useful &= error < NEGLIGIBLE
    error = np.where(useful, error, 0.0)
    skipped = remote & useful[:, None]
    possible &= ~(skipped[:, :, None] & remote[:, None, :])
    skipped[at, first] = False
    possible &= ~skipped[:, :, None] & ~skipped[:, None, :]
    keep = int(np.where(useful, first + 1, remote.shape[1]).max())
    made = Factors(
        made.level[:, :keep],
        made.fewer[:, :keep],
        made.more[:, :keep],
        made.leave[:, :keep],
        made.join[:, :keep],
        made.ghost,
        made.error[:, :keep] + error[:, None],
    )
    groups = Groups(groups.rows, *(value[:, :keep] for value in groups[1:]))
    return Near(made, groups, log_p[:, :keep], possible[:, :keep, :keep], error)


def _error(made: Factors, log_p: np.ndarray, first: np.ndarray, live: np.ndarray) -> np.ndarray:
    """A bound [R] on how the log of a live class's law depends on which remote class a move touches.

    The ratios of remote classes lie between 1 and that of the first one. So it is enough to bound the mean
    distance of the latter from 1, under the law of each live class before or after the move's other half.
    """
    at = np.arange(len(log_p))
    rise = np.expm1(made.leave[at, first])[:, :, None]
    fall = -np.expm1(made.join[at, first])[:, :, None]
    steepest = np.exp(made.leave[:, 0])[:, :, None]
    weight = np.exp(made.level - log_p[:, :, None])
    least = (weight @ np.exp(made.join[:, :1]).transpose(0, 2, 1))[:, :, 0]  # E[S] of the largest class
    shares = [(weight @ (steepest * fall))[:, :, 0], (weight @ rise)[:, :, 0] / least]
    for integrand, change in ((made.fewer, fall), (made.more, rise)):
        scaled = np.exp(integrand - integrand.max(axis=2, keepdims=True))
        shares.append((scaled @ change)[:, :, 0] / scaled.sum(axis=2))
    worst = np.where(live, np.maximum.reduce(shares), 0.0).max(axis=1)
    return np.where(np.isfinite(worst), 2 * worst, np.inf)
