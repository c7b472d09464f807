"""Which moves of one vote can be the worst: cheap upper bounds for all of them, from one-sided moves.

For a class j that the move a -> b does not touch, `P'_j / P_j = E_j[R_a S_b]` over the nodes, where R falls and
S rises. So it lies between `E[R] E[S] - sd(R) sd(S)` and `E[R] E[S]`, and the sums over j of its powers become
matrix products over (a, j) and (j, b): every move at every anchor order costs a few multiplications
(docs/accounting_exact.md). Between anchor orders `(a-1) D_a`, which is convex in a, lies below its chord.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pate_jax.accounting.argmax_law import Factors
from pate_jax.accounting.groups import Groups

ANCHORS = 10


class Screen(NamedTuple):
    """Everything about all moves that needs no loop over moves."""

    log_p: np.ndarray  # [R, U]
    leave: np.ndarray  # [R, U(j), U(a)]: log E_j[R_a]
    join: np.ndarray  # [R, U(j), U(b)]: log E_j[S_b]
    slack: np.ndarray  # [R, U(j)]: how far below leave + join the log of the ratio can lie
    loser: np.ndarray  # [R, U(a), U(b)]
    winner: np.ndarray  # [R, U(a), U(b)]


def screen(made: Factors, log_p: np.ndarray) -> Screen:
    """One-sided moments under each class's law of the winning noisy count, as matrix products."""
    level = made.level if made.ghost is None else np.where(made.ghost[:, None, :], -np.inf, made.level)
    with np.errstate(under="ignore"):
        weight = np.exp(level - log_p[:, :, None])
        leave, join = np.expm1(made.leave), np.expm1(made.join)
        mean_leave, spread_leave = _moments(weight, leave)
        mean_join, spread_join = _moments(weight, join)
        ratios = np.exp(made.leave).transpose(0, 2, 1), np.exp(made.join).transpose(0, 2, 1)
    overlap = (spread_leave.max(axis=2) * spread_join.max(axis=2)).clip(max=1)
    with np.errstate(divide="ignore"):
        slack = -np.log1p(-overlap)
        joined = np.log1p(np.maximum(mean_join, -1))
    loser = _product(made.fewer, ratios[1])
    winner = _product(made.more, ratios[0]).transpose(0, 2, 1)
    return Screen(log_p, np.log1p(mean_leave), joined, slack, loser, winner)


def _moments(weight: np.ndarray, change: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean of each change [R, J, K] and its spread relative to `1 + mean`, the latter rounded up."""
    across = change.transpose(0, 2, 1)
    mean, square = weight @ across, weight @ (across * across)
    spread = np.sqrt(np.maximum(square - mean * mean, 0) + 1e-13 * square)
    with np.errstate(divide="ignore", invalid="ignore"):
        return mean, np.nan_to_num(spread / (1 + mean), nan=1.0, posinf=1.0)


def _product(terms: np.ndarray, ratios: np.ndarray) -> np.ndarray:
    """Log of `sum_x exp(terms) ratios` [R, U, U]."""
    peak = terms.max(axis=2)
    with np.errstate(divide="ignore", under="ignore"):
        return np.log(np.exp(terms - peak[:, :, None]) @ ratios) + peak[:, :, None]


def upper(found: Screen, groups: Groups, order: float, answered: tuple[np.ndarray, ...] | None) -> np.ndarray:
    """Upper bound of `(a-1) D_a` of every move [R, U(a), U(b)], both directions, at one order.

    `answered` holds the logs of Pr[answered] and Pr[refused] before [R, 1, 1] and after [R, U, U].
    """
    with np.errstate(all="ignore"):
        forward = _sum(found, groups, 1 - order, (order - 1) * found.slack)
        backward = _sum(found, groups, order, 0.0)
        p_a, p_b = found.log_p[:, :, None], found.log_p[:, None, :]
        for p, q in ((p_a, found.loser), (p_b, found.winner)):
            forward = forward + np.exp(order * p + (1 - order) * q)
            backward = backward + np.exp(order * q + (1 - order) * p)
        if answered is not None:
            passed, refused, passed_after, refused_after = answered
            ahead, back = order * passed + (1 - order) * passed_after, order * passed_after + (1 - order) * passed
            forward = np.exp(ahead) * forward + np.exp(order * refused + (1 - order) * refused_after)
            backward = np.exp(back) * backward + np.exp(order * refused_after + (1 - order) * refused)
        bound = np.log(np.maximum(forward, backward))
    return np.nan_to_num(bound, nan=np.inf, posinf=np.inf, neginf=np.inf)


def _sum(found: Screen, groups: Groups, power: float, slack) -> np.ndarray:
    """`sum_j P_j (P'_j / P_j)^power` over the classes a move does not touch [R, U(a), U(b)], rounded up."""
    one = found.log_p + slack
    leave, join = power * found.leave, power * found.join
    weighted = np.exp((one + np.log(groups.sizes))[:, :, None] + leave).transpose(0, 2, 1)
    total = weighted @ np.exp(join)
    own_a = np.exp(one + np.diagonal(leave, axis1=1, axis2=2))[:, :, None] * np.exp(join)  # j = a
    own_b = np.exp(one + np.diagonal(join, axis1=1, axis2=2))[:, None, :] * np.exp(leave).transpose(0, 2, 1)
    return np.maximum(total - own_a - own_b, 0) + 1e-14 * total


def anchors(orders: np.ndarray) -> np.ndarray:
    """Which of the sorted orders every move is bounded at: the ends and some between, evenly in log(a-1).

    >>> anchors(np.array([1.5, 2.0, 3.0])).tolist()
    [0, 1, 2]
    """
    if len(orders) <= ANCHORS:
        return np.arange(len(orders))
    logs = np.log(orders - 1)
    return np.unique(np.searchsorted(logs, np.linspace(logs[0], logs[-1], ANCHORS)).clip(max=len(orders) - 1))


def between(orders: np.ndarray, chosen: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Chords [.., A] at all orders through the values [.., K] at the chosen ones."""
    right = np.searchsorted(chosen, np.arange(len(orders))).clip(min=1, max=max(len(chosen) - 1, 1))
    if len(chosen) == 1:
        return values
    low, high = chosen[right - 1], chosen[right]
    share = (orders - orders[low]) / (orders[high] - orders[low])
    with np.errstate(invalid="ignore"):
        chord = (1 - share) * values[..., right - 1] + share * values[..., right]
    return np.nan_to_num(chord, nan=np.inf, posinf=np.inf)


