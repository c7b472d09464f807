"""The smooth sensitivity of the 2018 scripts: for comparison with the paper, never as a guarantee.

Its errors are kept on purpose and listed in docs/proofs/accounting.md; `accounting.sanitise` is what to use.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from pate_jax.accounting.bounds import noisy_max, threshold
from pate_jax.accounting.inputs import check_votes
from pate_jax.mechanisms import Mechanism, check_votes_suffice

Curve = NDArray[np.float64]


def smooth_sensitivity(mechanism: Mechanism, votes: ArrayLike, order: float) -> dict[str, Any]:
    """Beta, smooth sensitivity, noise and cost as the 2018 scripts choose them: on the private votes.

    Three errors are kept: the local sensitivity is taken at distance `d` only, Pr[answered] is a fixed
    weight, and the release cost is below its worst case.
    """
    check_votes_suffice(mechanism)
    counts = check_votes(votes)
    sigma, teachers = mechanism.noise.scale, int(counts.sum(axis=1).max())
    total = np.zeros(teachers)
    weight, rdp = np.ones(len(counts)), np.zeros(len(counts))
    if mechanism.test is not None:
        log_yes, log_no = threshold.log_answered(mechanism.test, counts.max(axis=1))
        weight = np.exp(log_yes)
        rdp = threshold.published(mechanism.test, log_yes, log_no, np.array([order]))[:, 0]
    rdp = rdp + weight * noisy_max.published(counts, sigma, np.array([order]))[:, 0]
    total += weight @ local_sensitivity(counts, sigma, order, teachers)
    best: dict[str, Any] = {"total": math.inf}
    for beta in np.arange(0.3 / order, 0.495 / order, 0.01 / order):
        spread = float((total * np.exp(-beta * np.arange(teachers))).max())
        noise = (order * math.exp(2 * beta) / spread) ** (1 / 3)
        cost = release_cost(order, beta, noise)
        whole = float(rdp.sum()) + float(cost) + 2 * spread * noise
        if whole < best["total"]:
            best = {"total": whole, "beta": float(beta), "sensitivity": spread, "noise": noise, "cost": cost}
    return best


def release_cost(order: float, beta: float, noise: float) -> float:
    """Theorem 23 of the 2018 paper: below the worst case once `order beta` exceeds about 0.27.

    >>> round(release_cost(14.0, 0.46 / 14, 6.2328), 4)
    0.5174
    """
    if not 1 < order < 1 / (2 * beta):
        return math.inf
    spread = (-math.log1p(-2 * order * beta) / 2 + order * beta) / (order - 1)
    return order * math.exp(2 * beta) / noise**2 + spread


def local_sensitivity(votes: NDArray[np.int64], sigma: float, order: float, teachers: int) -> Curve:
    """Local sensitivity [query, distance] of the argmax as in the 2018 scripts, along their path of votes."""
    classes = votes.shape[1]
    top = _log_q0(sigma, order)
    low = float(_stepped(np.array([top]), sigma, classes, -1)[0])
    result = np.broadcast_to(_local_at(np.array([low]), sigma, order, classes, low, top), (len(votes), 1))
    result = result.repeat(teachers, axis=1)
    ordered = np.sort(votes, axis=1)[:, ::-1].copy()
    log_q = noisy_max.gaussian_log_q(ordered, sigma)
    left = log_q > top
    rows = np.flatnonzero((log_q < low) | left)
    for distance in range(teachers):
        result[rows, distance] = _local_at(log_q[rows], sigma, order, classes, low, top)
        going = np.where(left[rows], (log_q[rows] > top) & (ordered[rows, 1] > 0), log_q[rows] < low)
        rows = rows[going]
        if len(rows) == 0:
            break
        sign = np.where(left[rows], 1, -1)
        ordered[rows, 0] += sign
        ordered[rows, 1] -= sign
        ordered[rows] = np.sort(ordered[rows], axis=1)[:, ::-1]
        log_q[rows] = noisy_max.gaussian_log_q(ordered[rows], sigma)
    return result


def _log_q0(sigma: float, order: float) -> float:
    """The largest `log q` at which Theorem 6 improves on the data-independent value."""
    grid, low, high = np.array([order]), -1e6, -1e-9
    for _ in range(200):
        middle = (low + high) / 2
        better = noisy_max.theorem6(np.array([middle]), sigma, grid) < noisy_max.gaussian_curve(sigma, grid)
        low, high = (middle, high) if better.all() else (low, middle)
    return low


def _stepped(log_q: Curve, sigma: float, classes: int, sign: int) -> Curve:
    """`log q` after one vote has moved, as if all gaps were equal."""
    z = special.ndtri_exp(np.minimum(log_q - np.log(classes - 1), -1e-300))
    result: Curve = np.minimum(np.log(classes - 1) + special.log_ndtr(z + sign * np.sqrt(2) / sigma), 0.0)
    return result


def _local_at(log_q: Curve, sigma: float, order: float, classes: int, low: float, top: float) -> Curve:
    log_q = np.where((log_q >= low) & (log_q <= top), low, log_q)
    grid = np.array([order])
    here, up, down = (
        noisy_max.theorem6(np.minimum(point, -1e-12), sigma, grid)[:, 0]
        for point in (log_q, _stepped(log_q, sigma, classes, 1), _stepped(log_q, sigma, classes, -1))
    )
    return np.maximum(up - here, here - down)
