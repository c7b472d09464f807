"""Laws of the noisy argmax of a histogram and of all its one-vote neighbours, in logarithms (theory §4)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pate_jax.accounting.groups import Groups
from pate_jax.accounting.nodes import Nodes, nodes
from pate_jax.accounting.noise_law import log_cdf, log_density
from pate_jax.mechanisms import Noise

EPSILON = float(np.finfo(np.float64).eps)
STEEP = 250.0  # log of the largest ratio of neighbouring factors that is multiplied outside the logarithm


class Laws(NamedTuple):
    """Log-probabilities of one class of each group, before and after each move of one vote (a to b)."""

    base: np.ndarray  # [R, U]: one class of group j
    others: np.ndarray  # [R, U(a), U(b), U(j)]: one class of group j that the move does not touch
    loser: np.ndarray  # [R, U(a), U(b)]: the class that loses the vote
    winner: np.ndarray  # [R, U(a), U(b)]: the class that gains it
    error: np.ndarray  # [R]: bound on the error of every entry above


class _Factors(NamedTuple):
    """Logs of the integrands [R, U, N] of each class with its count as it is, one less and one more, and of
    the ratios by which the other integrands change when that class loses or gains a vote."""

    level: np.ndarray
    fewer: np.ndarray
    more: np.ndarray
    leave: np.ndarray
    join: np.ndarray
    ghost: np.ndarray | None  # bool [R, N]: nodes where only neighbours have mass
    error: np.ndarray


def laws(noise: Noise, groups: Groups) -> Laws:
    """The laws of a few histograms and of all their neighbours.

    >>> groups = Groups(np.array([0]), np.array([[3.0, 1.0]]), np.array([[1.0, 1.0]]), np.array([[3.0, 1.0]]))
    >>> np.exp(laws(Noise("gumbel", 2.0), groups).base).round(4).tolist()
    [[0.7311, 0.2689]]
    """
    if noise.family == "gumbel":
        return _softmax(noise.scale, groups)
    factors = _factors(noise, groups, nodes(noise, groups))
    with np.errstate(divide="ignore", under="ignore"):
        if noise.scale < 1 or factors.leave[np.isfinite(factors.leave)].max(initial=0) > STEEP:
            return _in_logs(factors)
        return _as_products(factors)


def base_law(noise: Noise, groups: Groups) -> np.ndarray:
    """Log-probability of one class of each group [R, U], without the neighbours."""
    if noise.family == "gumbel":
        return _softmax(noise.scale, groups).base
    factors = _factors(noise, groups, nodes(noise, groups))
    with np.errstate(divide="ignore", under="ignore"):
        return _log_sum(_alive(factors))


def _factors(noise: Noise, groups: Groups, grid: Nodes) -> _Factors:
    """All factors of the integrands at the nodes."""
    distance = grid.position[:, None, :] - groups.counts[:, :, None]
    fewer, level, more = (log_cdf(noise, distance - vote, grid.fraction) for vote in (-1, 0, 1))
    weights = grid.log_weight[:, None, :]
    f_fewer, f_level, f_more = (log_density(noise, distance - vote) + weights for vote in (-1, 0, 1))
    ghost = None
    if noise.family == "exponential":
        ghost = grid.position < groups.counts[:, :1]
        top = (distance < 0) & (groups.sizes == 1)[:, :, None] & (np.arange(level.shape[1]) == 0)[:, None]
        dead = ghost[:, None, :] & ~top
        level = np.where(distance < 0, 0.0, level)  # any finite value: these nodes count for neighbours only
        fewer, f_fewer = np.where(dead, -np.inf, fewer), np.where(dead, -np.inf, f_fewer)
    total = np.einsum("ru,run->rn", groups.sizes, level)[:, None, :]
    rest = total - level
    largest = np.abs(rest + f_level - weights)
    at = np.argmax(f_level + rest, axis=2)[:, :, None]
    largest = np.take_along_axis(largest, at, axis=2).max(axis=(1, 2))
    error = grid.error + EPSILON * (8 * np.sqrt(level.shape[2]) + 16 * (2 + largest))
    return _Factors(f_level + rest, f_fewer + rest, f_more + rest, fewer - level, more - level, ghost, error)


def _alive(factors: _Factors) -> np.ndarray:
    """The integrands before any move: zero at the nodes that only neighbours reach."""
    if factors.ghost is None:
        return factors.level
    return np.where(factors.ghost[:, None, :], -np.inf, factors.level)


def _log_sum(terms: np.ndarray) -> np.ndarray:
    """Log of the sum over the last axis; `-inf` where nothing is left."""
    peak = terms.max(axis=-1, keepdims=True)
    peak = np.where(np.isfinite(peak), peak, 0.0)
    return np.log(np.exp(terms - peak).sum(axis=-1)) + peak[..., 0]


def _scaled(terms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Exponentials relative to each row's largest, and the logs of those [R, U]."""
    peak = terms.max(axis=2)
    return np.exp(terms - peak[:, :, None]), peak


def _as_products(factors: _Factors) -> Laws:
    """All laws at once as batched matrix products over the nodes."""
    level, peak = _scaled(factors.level)
    leave, join = np.exp(factors.leave), np.exp(factors.join).transpose(0, 2, 1)
    rows, number, points = level.shape
    weighted = (leave[:, :, None, :] * level[:, None, :, :]).reshape(rows, number * number, points)
    others = np.log(weighted @ join).reshape(rows, number, number, number)
    others = (others + peak[:, None, :, None]).transpose(0, 1, 3, 2)
    fewer, peak = _scaled(factors.fewer)
    loser = np.log(fewer @ join) + peak[:, :, None]
    more, peak = _scaled(factors.more)
    winner = np.log(leave @ more.transpose(0, 2, 1)) + peak[:, None, :]
    return Laws(_log_sum(_alive(factors)), others, loser, winner, factors.error)


def _in_logs(factors: _Factors) -> Laws:
    """The same without leaving the logarithm: for little noise, where ratios of factors overflow."""
    rows, number, _ = factors.level.shape
    others = np.empty((rows, number, number, number))
    for a in range(number):
        for j in range(number):
            moved = (factors.level[:, j] + factors.leave[:, a])[:, None, :] + factors.join
            others[:, a, :, j] = _log_sum(moved)
    loser, winner = np.empty((2, rows, number, number))
    for a in range(number):
        loser[:, a] = _log_sum(factors.fewer[:, a, None, :] + factors.join)
        winner[:, a] = _log_sum(factors.more + factors.leave[:, a, None, :])
    return Laws(_log_sum(_alive(factors)), others, loser, winner, factors.error)


def _softmax(scale: float, groups: Groups) -> Laws:
    """Gumbel noise: the closed form `P_j = exp(n_j/b) / sum_k exp(n_k/b)`."""
    score = (groups.counts - groups.counts[:, :1]) / scale
    share = np.exp(score)
    mass = (groups.sizes * share).sum(axis=1)
    gain, loss = np.expm1(1 / scale), np.expm1(-1 / scale)
    change = (share * loss)[:, :, None] + (share * gain)[:, None, :]
    with np.errstate(over="ignore"):
        after = np.log(mass)[:, None, None] + np.log1p(change / mass[:, None, None])
    base = score - np.log(mass)[:, None]
    others = score[:, None, None, :] - after[..., None]
    one = 1 / scale
    error = EPSILON * (16 + 8 * np.abs(groups.counts).max(axis=1) / scale + 4 * one)
    return Laws(base, others, score[:, :, None] - one - after, score[:, None, :] + one - after, error)
