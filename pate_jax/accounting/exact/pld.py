"""Exact (epsilon, delta) by composing privacy-loss distributions (beyond the papers).

Each query has one profile for each direction. The profile is discretised by connecting the dots, which is
exact on the grid and never too low in between. The list is composed with dp_accounting, each direction
separately, and the larger epsilon is the result. It is valid for a list of queries fixed in advance. All
rounding adds to delta. Derived in docs/proofs/exact.md, section 6.

The profile of a query is the largest hockey-stick divergence over all one-vote moves, on a grid. For a move
with laws P and P' the divergence at `e` is `H(e) = sum_j (P_j - exp(e) P'_j)_+`. The pointwise maximum over
all moves is a valid profile of its direction (docs/proofs/exact.md, section 6). It is stored as its time
value `h(e) = H(e) - (1 - exp(e))_+`, which is small on both sides of 0 and loses no digits.
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
from pate_jax.accounting.exact import argmax_law, moves
from pate_jax.accounting.exact import renyi as exact_renyi
from pate_jax.accounting.exact.groups import Groups, merge
from pate_jax.accounting.exact.noise_law import Passing, caps, concentrated, largest, largest_after, passing
from pate_jax.accounting.inputs import check_delta
from pate_jax.errors import PateError
from pate_jax.mechanisms import Mechanism, Noise, ThresholdTest, check_votes_suffice
from pate_jax.system.progress import bar

BLOCK = 1_000_000
LEFT_OUT = 4e-18  # more than the probability of all remote classes, which are not among the outcomes


class Outcomes(NamedTuple):
    """The laws before and after M moves [M, K], and the histogram of each move."""

    row: np.ndarray  # [M]
    sizes: np.ndarray
    log_p: np.ndarray
    log_q: np.ndarray
    error: np.ndarray


def outcomes(noise: Noise, test: ThresholdTest | None, groups: Groups) -> Outcomes | None:
    """The laws of every move of a few histograms; None if little noise makes them too slow to compute."""
    if noise.family == "gumbel":
        return of_moves(noise, test, groups, *np.nonzero(groups.moves()))
    factors = argmax_law.factors(noise, groups)
    law = argmax_law.base(factors)
    possible = groups.moves()
    if noise.scale >= 1 and not factors.steep and factors.ghost is None:
        root = math.sqrt(concentrated(noise))
        factors, groups, law, possible, _ = argmax_law.leave_out(factors, groups, law, 2.0, root)
    row, a, b = np.nonzero(possible)
    if len(row) * factors.level.shape[1] * factors.level.shape[2] > exact_renyi.BUDGET * len(law):
        return None
    sizes, log_p, log_q, error = moves.outcomes(groups, factors, law, row, a, b)
    return behind(test, groups, (row, a, b), Outcomes(row, sizes, log_p, log_q, error))


def of_moves(
    noise: Noise, test: ThresholdTest | None, groups: Groups, row: np.ndarray, a: np.ndarray, b: np.ndarray
) -> Outcomes:
    """The laws of moves of a vote, from group `a[m]` to `b[m]` of the histograms `row[m]`, in full."""
    if noise.family == "gumbel":
        log_p, log_q, errors = argmax_law.softmax_outcomes(noise.scale, groups)
        log_p, log_q = log_p[row, a, b], log_q[row, a, b]
        sizes, error = np.isfinite(log_p) * 1.0, np.broadcast_to(errors[row, None], log_p.shape)
    else:
        factors = argmax_law.factors(noise, groups)
        law = argmax_law.base(factors)
        sizes, log_p, log_q, error = moves.outcomes(groups, factors, law, row, a, b)
    return behind(test, groups, (row, a, b), Outcomes(row, sizes, log_p, log_q, error))


def behind(
    test: ThresholdTest | None,
    groups: Groups,
    moved: tuple[np.ndarray, np.ndarray, np.ndarray],
    found: Outcomes,
) -> Outcomes:
    """The same laws behind a test, with "refused" as the first outcome; unchanged where there is no test."""
    if test is None:
        return found
    row = moved[0]
    before, after = passing(test, largest(groups)), passing(test, largest_after(groups))
    chances = Passing(*(value[row] for value in before)), Passing(*(value[moved] for value in after))
    return Outcomes(row, *moves.join(*chances, *found[1:]))


def time_values(found: Outcomes, rows: int, step: float, reach: int) -> tuple[np.ndarray, np.ndarray]:
    """The time values of both directions [R, 2 reach + 1] at the multiples of `step`, rounded up."""
    forward, backward = np.zeros((2, rows, 2 * reach + 1))
    piece = max(1, BLOCK // (2 * reach + 1))
    for start in range(0, len(found.row), piece):
        part = Outcomes(*(array[start : start + piece] for array in found))
        starts = np.flatnonzero(np.diff(part.row, prepend=-1))
        where = part.row[starts]
        for out, log_p, log_q in ((forward, part.log_p, part.log_q), (backward, part.log_q, part.log_p)):
            values = np.maximum.reduceat(_curves(part.sizes, log_p, log_q, part.error, step, reach), starts)
            out[where] = np.maximum(out[where], values)
    return forward, backward


def reach(found: Outcomes, step: float, most: int) -> int:
    """The number of multiples of `step` that losses reach; beyond them every time value is 0."""
    with np.errstate(invalid="ignore"):
        loss = np.where(found.sizes > 0, np.abs(found.log_p - found.log_q), 0.0)
    furthest = float((loss + 2 * found.error).max(initial=0.0)) / step
    return min(most, math.ceil(furthest) + 2) if math.isfinite(furthest) else most


def _curves(
    sizes: np.ndarray,
    log_p: np.ndarray,
    log_q: np.ndarray,
    error: np.ndarray,
    step: float,
    reach: int,
) -> np.ndarray:
    """The time values [M, G] of single moves: `sum (P-Q) - (exp(e)-1) Q` over outcomes of a loss beyond e.

    Losses and weights are moved by their errors towards the larger value, separately on each side of 0.
    """
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        loss = np.where(sizes > 0, log_p - log_q, 0.0)
        # right of 0: P exp(err) - t Q exp(-err); left of 0: t Q exp(err) - P exp(-err)
        right, left = loss + 2 * error, loss - 2 * error
        q_right = sizes * np.exp(log_q - error)
        q_left = sizes * np.exp(log_q + error)
        gain_right = np.where(
            right > 30, sizes * np.exp(log_p + error), q_right * np.expm1(np.minimum(right, 30))
        )
        gain_left = q_left * np.expm1(left)
    grid = np.expm1(np.minimum(step * np.arange(1, reach + 1), 700.0))  # smaller is safe
    above = _beyond(right / step, gain_right, q_right, reach)
    upper = above[0][:, 1:] - grid * above[1][:, 1:]
    below = _beyond(-left / step, gain_left, q_left, reach)
    grid = np.expm1(-step * np.arange(1, reach + 1))
    lower = grid * below[1][:, 1:] - below[0][:, 1:]
    middle = np.maximum(above[0][:, :1], -below[0][:, :1])
    result: np.ndarray = np.maximum(np.concatenate([lower[:, ::-1], middle, upper], axis=1), 0.0)
    return result


def _beyond(
    place: np.ndarray, gain: np.ndarray, mass: np.ndarray, reach: int
) -> tuple[np.ndarray, np.ndarray]:
    """The sums of gain and mass over outcomes at or beyond each grid point 0..reach, [M, reach+1]."""
    moves, _ = place.shape
    cell = np.clip(np.floor(np.nan_to_num(place, nan=-1.0, posinf=reach, neginf=-1)), -1, reach).astype(
        np.intp
    )
    index = (np.arange(moves)[:, None] * (reach + 2) + cell + 1).ravel()
    sums = []
    for weight in (gain, mass):
        table = np.bincount(index, weight.ravel(), moves * (reach + 2)).reshape(moves, reach + 2)
        sums.append(np.cumsum(table[:, ::-1], axis=1)[:, ::-1][:, 1:])
    return sums[0], sums[1]


def dots(values: np.ndarray, middle: int, step: float) -> tuple[np.ndarray, float]:
    """The probabilities of the losses on the grid, and of an infinite loss, that connect a profile's dots.

    This is algorithm 1 of Doroshenko et al. 2022 (`create_pmf_pessimistic_connect_dots_fixed_gap` in
    dp_accounting) for time values: the part `(1 - exp(e))_+` is one atom at loss 0, the grid point `middle`.

    >>> probs, infinity = dots(np.array([0.0, 0.1, 0.0]), 1, step=1.0)
    >>> probs.round(4).tolist(), float((probs.sum() + infinity).round(12))
    ([0.0582, 0.7836, 0.1582], 1.0)
    """
    change = np.diff(values)
    probs = np.zeros_like(values)
    probs[0] = -values[0]
    probs[1:] += change / math.expm1(-step)
    probs[:-1] += change / math.expm1(step)
    probs[middle] += 1.0
    return np.maximum(probs, 0.0), float(values[-1])


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
            laws = outcomes(mechanism.noise, mechanism.test, piece)
            if laws is None:
                return math.inf
            values = time_values(laws, len(piece.rows), step, reach(laws, step, POINTS))
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
    probs, infinity = dots(values[middle - down : middle + up + 1], down, step)
    return Losses(-down, probs, float(np.linalg.norm(probs))), infinity + LEFT_OUT


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
    probs, infinity = dots(np.maximum(value, 0.0), len(grid) // 2, step)
    return losses.PrivacyLossDistribution(DensePLDPmf(step, -(len(grid) // 2), probs, infinity, True))
