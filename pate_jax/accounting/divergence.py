"""Renyi divergences between a law and its neighbours, in both directions, rounded up (theory §4).

With `d = log(P/P')` and both laws of total mass 1,

    D_a(P || P') = log1p( sum_j P'_j phi_a(d_j) ) / (a - 1),   phi_a(d) = exp(a d) - 1 - a (exp(d) - 1) >= 0.

Every term is non-negative and grows with |d|, so where each log-probability is known to within `e`, the sum
with `P'_j exp(e)` and `|d_j| + 2 e` is an upper bound of the true one, and nothing cancels.
"""

from __future__ import annotations

import numpy as np

EPSILON = float(np.finfo(np.float64).eps)
FAR = 600.0  # above this exponent phi is exp(a d) to the last bit, and weights are added in logarithms


def phi(order: float, d: np.ndarray) -> np.ndarray:
    """Upper bound of `exp(a d) - 1 - a (exp(d) - 1)` that is off by rounding only, for `a d` up to 600.

    >>> abs(phi(2.0, np.array(0.5)) - np.expm1(0.5) ** 2) < 1e-14
    np.True_
    """
    first, second = np.expm1(order * d), order * np.expm1(d)
    return np.maximum(first - second, 0) + 4 * EPSILON * (np.abs(first) + np.abs(second) + np.abs(order * d * first))


def excess(order: float, log_weight: np.ndarray, d: np.ndarray) -> np.ndarray:
    """`exp(log_weight) phi_a(d)` without overflow on the way."""
    exponent = order * d
    near = exponent <= FAR
    with np.errstate(over="ignore", under="ignore"):
        small = np.exp(log_weight) * phi(order, np.where(near, d, 0.0))
        return np.where(near, small, np.exp(log_weight + exponent))


def log_moment(order: float, sizes: np.ndarray, log_p: np.ndarray, log_q: np.ndarray, error) -> np.ndarray:
    """Upper bound of `(a-1)` times the larger of `D_a(P||Q)` and `D_a(Q||P)` over the last axis.

    `sizes` says how often each outcome occurs (0 leaves it out) and `error` bounds the error of the logs.

    >>> p, q = np.log([0.75, 0.25]), np.log([0.5, 0.5])
    >>> round(float(log_moment(2.0, np.ones(2), p, q, 0.0)), 6) == round(float(np.log(4 / 3)), 6)
    True
    """
    with np.errstate(invalid="ignore"):
        d = np.where(sizes > 0, log_p - log_q, 0.0)
    d = d + np.copysign(2 * error, d)
    forward = (sizes * excess(order, log_q + error, d)).sum(axis=-1)
    backward = (sizes * excess(order, log_p + error, -d)).sum(axis=-1)
    with np.errstate(over="ignore"):
        return np.log1p(np.maximum(forward, backward)) * (1 + 64 * EPSILON)
