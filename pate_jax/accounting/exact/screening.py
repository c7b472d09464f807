"""Cheap upper bounds for all moves of one vote, which show the few moves that can be the worst.

For a class j that the move a -> b does not touch, `P'_j / P_j = E_j[R_a S_b]` over the nodes, where R falls
and S rises. So the ratio lies between `E[R] E[S] - sd(R) sd(S)` and `E[R] E[S]`. The sums over j of its
powers become matrix products over (a, j) and (j, b), so each move costs a few multiplications at each anchor
order. Between anchor orders a convex interpolation gives bounds (docs/accounting_exact.md).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pate_jax.accounting.exact.argmax_law import Factors
from pate_jax.accounting.exact.groups import Groups

ANCHORS = 16


class Screen(NamedTuple):
    """The quantities of all moves that need no loop over moves."""

    log_p: np.ndarray  # [R, U]
    leave: np.ndarray  # [R, U(j), U(a)]: log E_j[R_a]
    join: np.ndarray  # [R, U(j), U(b)]: log E_j[S_b]
    slack: np.ndarray  # [R, U(j)]: how far the log of the ratio can be below leave + join
    loser: np.ndarray  # [R, U(a), U(b)]
    winner: np.ndarray  # [R, U(a), U(b)]


def screen(made: Factors, log_p: np.ndarray, ordered: bool) -> Screen:
    """One-sided moments under each class's law of the winning noisy count, as matrix products.

    If R falls and S rises (`ordered`), the mean of their product is at most the product of their means.
    Within a cell of whole-number noise they need not be monotone, and the spreads bound both sides.
    """
    with np.errstate(under="ignore"):
        weight = np.exp(made.level - log_p[:, :, None])
        leave, join = np.expm1(made.leave), np.expm1(made.join)
        mean_leave, spread_leave = _moments(weight, leave)
        mean_join, spread_join = _moments(weight, join)
        ratios = np.exp(made.leave).transpose(0, 2, 1), np.exp(made.join).transpose(0, 2, 1)
    overlap = (spread_leave.max(axis=2) * spread_join.max(axis=2)).clip(max=1)
    above = 0.0 if ordered else np.log1p(overlap)
    with np.errstate(divide="ignore"):
        slack = above - np.log1p(-overlap)
        joined = np.log1p(np.maximum(mean_join, -1))
    left = np.log1p(mean_leave) + (0.0 if ordered else np.log1p(overlap)[:, :, None])
    loser = _product(made.fewer, ratios[1])
    winner = _product(made.more, ratios[0]).transpose(0, 2, 1)
    return Screen(log_p, left, joined, slack, loser, winner)


def _moments(weight: np.ndarray, change: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The mean of each change [R, J, K], and its spread relative to `1 + mean`, which is rounded up."""
    across = change.transpose(0, 2, 1)
    mean, square = weight @ across, weight @ (across * across)
    spread = np.sqrt(np.maximum(square - mean * mean, 0) + 1e-13 * square)
    with np.errstate(divide="ignore", invalid="ignore"):
        return mean, np.nan_to_num(spread / (1 + mean), nan=1.0, posinf=1.0)


def _product(terms: np.ndarray, ratios: np.ndarray) -> np.ndarray:
    """Log of `sum_x exp(terms) ratios` [R, U, U]."""
    peak = terms.max(axis=2)
    with np.errstate(divide="ignore", under="ignore"):
        result: np.ndarray = np.log(np.exp(terms - peak[:, :, None]) @ ratios) + peak[:, :, None]
        return result


def after(found: Screen, groups: Groups) -> np.ndarray:
    """The total mass of all classes after each move [R, U, U], by the products of means."""
    with np.errstate(all="ignore"):
        result: np.ndarray = _sum(found, groups, 1.0, 0.0) + np.exp(found.loser) + np.exp(found.winner)
        return result


def upper(
    found: Screen, groups: Groups, order: float, answered: tuple[np.ndarray, ...] | None, mass: np.ndarray
) -> np.ndarray:
    """An upper bound of `(a-1) D_a` of every move [R, U(a), U(b)], in both directions, at one order.

    `answered` holds the logs of Pr[answered] and Pr[refused] before [R, 1, 1] and after [R, U, U];
    `mass` is the result of `after`.
    """
    with np.errstate(all="ignore"):
        forward, backward = _powers(found, groups, order, mass)
        if answered is not None:
            passed, refused, passed_after, refused_after = answered
            ahead, back = (
                order * passed + (1 - order) * passed_after,
                order * passed_after + (1 - order) * passed,
            )
            forward = np.exp(ahead) * forward + np.exp(order * refused + (1 - order) * refused_after)
            backward = np.exp(back) * backward + np.exp(order * refused_after + (1 - order) * refused)
        bound = np.log(np.maximum(forward, backward))
    result: np.ndarray = np.nan_to_num(bound, nan=np.inf, posinf=np.inf, neginf=np.inf)
    return result


def _powers(found: Screen, groups: Groups, order: float, mass: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Upper bounds of `sum_j P_j^a P'_j^(1-a)` and of `sum_j P'_j^a P_j^(1-a)` [R, U, U].

    Each has two bounds. The first takes the worst ratio in every term. The second takes the product
    `r = E[R] E[S]` in `f(r) = r^(1-a) + (a-1) r - a`, which is convex with its minimum at 1, plus the most
    that f can rise if r falls by the slack. The second is tight at low orders.
    """
    p_a, p_b = found.log_p[:, :, None], found.log_p[:, None, :]
    touched_forward = np.exp(order * p_a + (1 - order) * found.loser) + np.exp(
        order * p_b + (1 - order) * found.winner
    )
    touched_backward = np.exp(order * found.loser + (1 - order) * p_a) + np.exp(
        order * found.winner + (1 - order) * p_b
    )
    weight = groups.sizes * np.exp(found.log_p)
    overlap = -np.expm1(-found.slack)
    deepest = -(found.leave.min(axis=2) + found.join.min(axis=2)) + found.slack  # of -log(P'/P), at least
    highest = np.exp(found.leave.max(axis=2) + found.join.max(axis=2))
    rise = (order - 1) * highest * overlap * np.expm1(order * np.maximum(deepest, 0))
    extra = (weight * rise).sum(axis=1)[:, None, None]
    convex = _sum(found, groups, 1 - order, 0.0) + touched_forward + (order - 1) * (mass - 1) + extra
    worst = _sum(found, groups, 1 - order, (order - 1) * found.slack) + touched_forward
    forward = np.fmin(convex, worst)
    rise = order * highest * overlap * -np.expm1(-(order - 1) * np.maximum(deepest, 0))
    extra = (weight * rise).sum(axis=1)[:, None, None]
    plain = _sum(found, groups, order, 0.0) + touched_backward
    return forward, np.fmin(plain, plain - order * (mass - 1) + extra)


def _sum(found: Screen, groups: Groups, power: float, slack: np.ndarray | float) -> np.ndarray:
    """`sum_j P_j exp(slack_j) (P'_j / P_j)^power` over the classes that a move does not touch [R, U, U]."""
    one = found.log_p + slack
    leave, join = power * found.leave, power * found.join
    weighted = np.exp((one + np.log(groups.sizes))[:, :, None] + leave).transpose(0, 2, 1)
    total = weighted @ np.exp(join)
    own_a = np.exp(one + np.diagonal(leave, axis1=1, axis2=2))[:, :, None] * np.exp(join)  # j = a
    own_b = np.exp(one + np.diagonal(join, axis1=1, axis2=2))[:, None, :] * np.exp(leave).transpose(0, 2, 1)
    result: np.ndarray = np.maximum(total - own_a - own_b, 0) + 1e-14 * total
    return result


def anchors(orders: np.ndarray) -> np.ndarray:
    """The indices of the anchors among the sorted orders: both ends, and others evenly spaced in log(a-1).

    >>> anchors(np.array([1.5, 2.0, 3.0])).tolist()
    [0, 1, 2]
    """
    if len(orders) <= ANCHORS:
        return np.arange(len(orders))
    logs = np.log(orders - 1)
    return np.unique(np.searchsorted(logs, np.linspace(logs[0], logs[-1], ANCHORS)).clip(max=len(orders) - 1))


def between(orders: np.ndarray, chosen: np.ndarray, moments: np.ndarray) -> np.ndarray:
    """Upper bounds of `(a-1) D_a` [.., A] at all sorted orders from those [.., K] at the chosen ones.

    `E(a) = exp((a-1) D_a) - 1` is a sum of `phi_a(d) = a (a-1) int (y-t) t^(a-2) dt` from 1 to `y = exp(d)`,
    so `E(a) / (a (a-1))` is a mixture of exponentials in a: its log is convex and lies below its chords.

    >>> between(np.array([2.0, 3.0, 4.0]), np.array([0, 2]), np.log1p(np.array([0.2, 1.2]))).round(4).tolist()
    [0.1823, 0.47, 0.7885]
    """
    if len(chosen) == len(orders):
        return moments
    anchors_ = orders[chosen]
    right = np.searchsorted(chosen, np.arange(len(orders))).clip(min=1)
    share = (orders - anchors_[right - 1]) / (anchors_[right] - anchors_[right - 1])
    with np.errstate(all="ignore"):
        # log(exp(m) - 1), which neither overflows nor loses small m
        moments = np.maximum(moments, 1e-290)
        logs = np.where(moments > 30, moments, np.log(np.expm1(np.minimum(moments, 30)))) - np.log(
            anchors_ * (anchors_ - 1)
        )
        chord = (1 - share) * logs[..., right - 1] + share * logs[..., right] + np.log(orders * (orders - 1))
        out = np.where(chord > 30, chord + 1e-12, np.log1p(np.exp(np.minimum(chord, 30))))
    result: np.ndarray = np.nan_to_num(out, nan=np.inf, posinf=np.inf)
    return result
