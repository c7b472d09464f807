"""Exact (epsilon, delta) by composing privacy-loss distributions (beyond the papers).

Each query has one profile for each direction. The profile is discretised by connecting the dots, which is
exact on the grid and never too low in between. The list is composed with dp_accounting, each direction
separately, and the larger epsilon is the result. It is valid for a list of queries fixed in advance. All
rounding adds to delta. Derived in docs/proofs/exact.md, section 6.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from dp_accounting.pld import privacy_loss_distribution as losses
from dp_accounting.pld.pld_pmf import DensePLDPmf
from numpy.typing import ArrayLike

from pate_jax.accounting import composition
from pate_jax.accounting.exact import profile
from pate_jax.accounting.exact import renyi as exact_renyi
from pate_jax.accounting.exact.groups import merge
from pate_jax.accounting.exact.noise_law import caps
from pate_jax.accounting.inputs import check_delta
from pate_jax.errors import PateError
from pate_jax.mechanisms import Mechanism, Noise, check_votes_suffice
from pate_jax.system.progress import bar

SHARE = 1e-3  # the share of delta that cutting all tails may cost
DIRECT = 4096  # up to this many points convolutions are summed directly, with relative rounding errors only
POINTS = 1200  # grid points on each side of loss 0
WAITING = 20_000  # how many queries' losses are collected before they are composed
ULP = float(np.finfo(np.float64).eps)
ORDERS = 1 + np.geomspace(0.01, 1000, 300)


class Losses(NamedTuple):
    """A distribution of losses on a grid: the first loss in steps, probabilities, Euclidean norm."""

    lower: int
    probs: np.ndarray
    norm: float


def epsilon(
    mechanism: Mechanism,
    votes: ArrayLike,
    delta: float,
    *,
    times: ArrayLike | None = None,
) -> float:
    """The smallest epsilon that the composed profiles of these votes prove for `delta`; `inf` if none.

    `times` says how many queries have each histogram; one by default.

    >>> from pate_jax.mechanisms import GNMax
    >>> round(epsilon(GNMax(sigma=40), [[150, 100]] * 5, delta=1e-5), 2)
    0.22
    >>> epsilon(GNMax(40), [[150, 100]] * 5, 1e-5) == epsilon(GNMax(40), [[150, 100]], 1e-5, times=[5])
    True
    """
    check_delta(delta)
    check_votes_suffice(mechanism)
    merged = merge(votes)
    if not merged.rows:
        return 0.0
    each = np.ones(len(merged.row_of), np.int64) if times is None else np.asarray(times)
    repeats = np.bincount(merged.row_of, weights=each, minlength=merged.rows).astype(np.int64)
    step, budget = step_of(mechanism), SHARE * delta / int(repeats.sum())
    directions = [_Composed(step, SHARE * delta / (2 * merged.rows)) for _ in range(2)]
    with bar("privacy losses", total=merged.rows) as steps:
        for piece in exact_renyi.pieces(mechanism.noise, merged, every_move=True):
            laws = profile.outcomes(mechanism.noise, mechanism.test, piece)
            if laws is None:
                return math.inf
            values = profile.time_values(laws, len(piece.rows), step, profile.reach(laws, step, POINTS))
            for one, curves in zip(directions, values, strict=True):
                for row, curve in zip(piece.rows.tolist(), curves, strict=True):
                    one.add(row, *trimmed(curve, step, budget), int(repeats[row]))
            steps.advance(len(piece.rows))
    return max(one.epsilon(delta) for one in directions)


def step_of(mechanism: Mechanism) -> float:
    """The grid's step: the grid ends at 8 standard deviations of a Gaussian loss of the largest cost.

    >>> from pate_jax.mechanisms import GNMax
    >>> round(step_of(GNMax(sigma=40)), 6)
    0.000333
    """
    return 8 * math.sqrt(2 * float(caps(mechanism.noise, mechanism.test, np.array([2.0]))[0])) / POINTS


def data_independent_epsilon(mechanism: Mechanism, queries: int, classes: int, delta: float) -> float:
    """Epsilon for any votes, if every query asked is charged for its test and its answer.

    Gaussian noise uses the exact Gaussian-DP curve, Laplace and whole-number noise the composition of one
    loss for each count that a vote moves, Gumbel noise the profile of a bounded range (Dong, Durfee, Rogers
    2020), and exponential noise pure DP. It is never above the Renyi bound of the noisy counts.

    >>> from pate_jax.mechanisms import GNMax
    >>> round(data_independent_epsilon(GNMax(sigma=40), queries=100, classes=10, delta=1e-5), 4)
    1.3565
    """
    check_delta(delta)
    if queries < 0 or classes < 2:
        raise PateError(f"queries={queries} must be >= 0 and classes={classes} at least 2")
    if queries == 0:
        return 0.0
    parts = [(mechanism.noise, 2)] + ([(mechanism.test.noise, 1)] if mechanism.test else [])
    if all(noise.family == "gaussian" for noise, _ in parts):
        return composition.gaussian_epsilon(
            math.sqrt(queries * sum(counts / n.scale**2 for n, counts in parts)), delta
        )
    curve = queries * caps(mechanism.noise, mechanism.test, ORDERS)
    tight = curve + np.log1p(-1 / ORDERS) - (math.log(delta) + np.log(ORDERS)) / (ORDERS - 1)
    renyi = max(float(tight.min()), 0.0)
    if min(noise.scale for noise, _ in parts) < 0.5:  # grids would be huge, for a useless epsilon
        return renyi
    return min(renyi, float(_any_votes(tuple(parts), queries).get_epsilon_for_delta(delta * (1 - 1e-9))))


def trimmed(values: np.ndarray, step: float, budget: float) -> tuple[Losses, float]:
    """The losses of one profile where it has mass; cutting off the rest costs at most the budget."""
    middle = len(values) // 2
    right = np.flatnonzero(values[middle:] > budget)
    left = np.flatnonzero(values[: middle + 1][::-1] > budget)
    up = min(int(right[-1]) + 1 if len(right) else 1, middle)
    down = min(int(left[-1]) + 1 if len(left) else 1, middle)
    probs, infinity = profile.dots(values[middle - down : middle + up + 1], down, step)
    return Losses(-down, probs, float(np.linalg.norm(probs))), infinity + profile.LEFT_OUT


class _Composed:
    """The losses of a list of queries in one direction, composed each time that many have been added."""

    def __init__(self, step: float, cut: float) -> None:
        self._step, self._cut = step, cut
        self._waiting: list[tuple[int, int, Losses]] = []
        self._lost, self._tables = 0.0, 0

    def add(self, row: int, table: Losses, infinite: float, times: int) -> None:
        """Add the losses of one histogram, which `times` queries have."""
        repeated, error = _repeat(table, times, self._step, self._cut)
        self._waiting.append((len(repeated.probs), row, repeated))
        self._lost += error - times * math.log1p(-min(infinite, 1 - 1e-12))
        self._tables += 1
        if len(self._waiting) >= WAITING:
            self._compose()

    def epsilon(self, delta: float) -> float:
        """Epsilon of all losses that were added."""
        self._compose()
        lower, probs, _ = self._waiting[0][2]
        infinity = -math.expm1(-self._lost) + 64 * ULP * self._tables
        if infinity >= delta:
            return math.inf
        pmf = DensePLDPmf(self._step, lower, np.maximum(probs, 0.0), infinity, pessimistic_estimate=True)
        return float(pmf.get_epsilon_for_delta(delta))

    def _compose(self) -> None:
        """Compose the tables in pairs, the shortest first, until one table is left."""
        queue = [table for _, _, table in sorted(self._waiting, key=lambda one: one[:2])]
        with bar("composing the losses", total=len(queue) - 1) as steps:
            while len(queue) > 1:
                joined = []
                for first, second in zip(queue[::2], queue[1::2], strict=False):
                    pair, error = _join(first, second, self._step, self._cut)
                    joined.append(pair)
                    self._lost += error
                    steps.advance()
                queue = joined + queue[len(joined) * 2 :]
        self._waiting = [(len(queue[0].probs), -1, queue[0])]


def _repeat(table: Losses, times: int, step: float, cut: float) -> tuple[Losses, float]:
    """The losses of a query asked several times, and the probability that was cut or lost to rounding."""
    if times == 1:
        return table, 0.0
    pmf = DensePLDPmf(step, table.lower, table.probs, 0.0, pessimistic_estimate=True)
    return _opened(pmf.self_compose(times, cut), table.norm, table.norm)


def _join(first: Losses, second: Losses, step: float, cut: float) -> tuple[Losses, float]:
    """The losses of two lists of queries together, and the probability that was cut or lost to rounding."""
    if len(first.probs) + len(second.probs) <= DIRECT:
        probs = np.convolve(first.probs, second.probs)
        return Losses(first.lower + second.lower, probs, float(np.linalg.norm(probs))), len(probs) * ULP
    pair = [
        DensePLDPmf(step, lower, probs, 0.0, pessimistic_estimate=True) for lower, probs, _ in (first, second)
    ]
    return _opened(pair[0].compose(pair[1], cut), first.norm, second.norm)


def _opened(pmf: DensePLDPmf, first: float, second: float) -> tuple[Losses, float]:
    """The losses of a composed distribution, and their error: a few ulps of both norms at each point."""
    probs = pmf._probs
    error = 4 * ULP * math.log2(len(probs) + 2) * first * second * len(probs)
    return Losses(pmf._lower_loss, probs, float(np.linalg.norm(probs))), pmf._infinity_mass + error


@lru_cache(maxsize=4)
def _any_votes(parts: tuple[tuple[Noise, int], ...], queries: int) -> losses.PrivacyLossDistribution:
    """The composed losses of any votes: `counts` moved counts for every noise of every query."""
    step = min(0.02, *(0.02 / noise.scale for noise, _ in parts))
    total = losses.identity(value_discretization_interval=step)
    for noise, counts in parts:
        loss = _one_loss(noise, step)
        loss = loss.self_compose(queries * (1 if noise.family in ("gumbel", "exponential") else counts))
        total = total.compose(loss)
    return total


def _one_loss(noise: Noise, step: float) -> losses.PrivacyLossDistribution:
    """The largest loss of one moved count (for Gumbel and exponential noise, of one moved vote)."""
    scale = noise.scale
    settings = {"value_discretization_interval": step, "pessimistic_estimate": True}
    if noise.family == "gaussian":
        return losses.from_gaussian_mechanism(scale, use_connect_dots=True, **settings)
    if noise.family == "laplace":
        return losses.from_laplace_mechanism(scale, use_connect_dots=True, **settings)
    if noise.family == "discrete_laplace":
        return losses.from_discrete_laplace_mechanism(
            1 / scale, sensitivity=1, use_connect_dots=True, **settings
        )
    if noise.family == "discrete_gaussian":
        return losses.from_discrete_gaussian_mechanism(
            scale, sensitivity=1, use_connect_dots=True, **settings
        )
    if noise.family == "exponential":
        parameters = losses.common.DifferentialPrivacyParameters(2 / scale, 0)
        return losses.from_privacy_parameters(parameters, value_discretization_interval=step)
    span = 2 / scale
    grid = step * np.arange(-math.ceil(span / step), math.ceil(span / step) + 1)
    inside = np.clip(grid, -span, span)
    value = np.expm1((inside - span) / 2) ** 2 / -math.expm1(-span)
    value = np.where(grid >= span, 0.0, np.where(grid <= -span, 0.0, value - np.maximum(-np.expm1(grid), 0)))
    probs, infinity = profile.dots(np.maximum(value, 0.0), len(grid) // 2, step)
    return losses.PrivacyLossDistribution(DensePLDPmf(step, -(len(grid) // 2), probs, infinity, True))
