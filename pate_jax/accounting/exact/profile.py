"""Privacy profiles of one query: the largest hockey-stick divergence over all one-vote moves, on a grid.

For a move with laws P and P' the divergence at `e` is `H(e) = sum_j (P_j - exp(e) P'_j)_+`. The pointwise
maximum over all moves is a valid profile of its direction (docs/proofs/exact.md, section 6). It is stored
as its time value `h(e) = H(e) - (1 - exp(e))_+`, which is small on both sides of 0 and loses no digits.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pate_jax.accounting.exact import argmax_law, moves, renyi
from pate_jax.accounting.exact.groups import Groups
from pate_jax.accounting.exact.noise_law import Passing, concentrated, largest, largest_after, passing
from pate_jax.mechanisms import Noise, ThresholdTest

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
    if len(row) * factors.level.shape[1] * factors.level.shape[2] > renyi.BUDGET * len(law):
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
