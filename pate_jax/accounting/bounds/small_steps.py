"""Epsilon of many small steps, from the Renyi curve of one (docs/proofs/worst_case.md, section 7).

Converting the Renyi curve of the whole list to epsilon loses up to eight percent. Here the list is compared
with a Gaussian loss whose variance grows with every query, and each query may depend on all before it.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from pate_jax.accounting.inputs import check_delta

Curve = NDArray[np.float64]
ORDERS = np.concatenate([[1.001], 1 + np.geomspace(0.02, 400, 240)])
ROUNDING = 1e-9  # relative, for variances and for delta
_STARTS = (6.0, 2.0, 18.0)  # variances to begin with, in units of one query's variance
_HIGHEST = np.geomspace(4, 400, 15)  # orders up to which the curve is used


class _Steps(NamedTuple):
    """Cells of orders from 1/2 on: the lower end of each, and the largest share `e/(a(a-1))` in it."""

    first: Curve
    share: Curve


def epsilon(orders: Curve, curve: Curve, queries: int, delta: float) -> float:
    """Epsilon at `delta` of `queries` adaptive queries, each of at most this Renyi curve in both directions.

    Infinite if the curve is too large for the comparison.

    >>> 2.60 < epsilon(ORDERS, 0.64 * ORDERS / 40**2, 500, 1e-5) < 2.70
    True
    """
    check_delta(delta)
    tried = [_up_to(orders, curve, queries, delta, highest, _STARTS[0]) for highest in _HIGHEST]
    best = _HIGHEST[int(np.argmin(tried))]
    return min(*tried, *(_up_to(orders, curve, queries, delta, best, start) for start in _STARTS[1:]))


def _up_to(orders: Curve, curve: Curve, queries: int, delta: float, highest: float, start: float) -> float:
    """Epsilon from the curve up to the order `highest`, starting with the variance of `start` queries."""
    count = int(np.searchsorted(orders, highest, side="right"))
    if count < 2 or not np.isfinite(curve[:count]).all():
        return math.inf
    variance = _variance(orders[:count].tobytes(), curve[:count].tobytes(), queries, start)
    if not math.isfinite(variance):
        return math.inf
    return _read_off(float(orders[count - 1]), variance * (1 + ROUNDING), delta * (1 - ROUNDING))


@lru_cache(maxsize=1024)
def _variance(orders: bytes, curve: bytes, queries: int, start: float) -> float:
    """The variance that covers all queries, the same for every delta; infinite if the search fails."""
    a, cost = np.frombuffer(orders), np.frombuffer(curve)
    if ((a - 1) * cost).max() > 30:
        return math.inf
    share = np.expm1((a - 1) * cost) / (a * (a - 1))
    if share[0] <= 0:
        return math.inf
    # shares are log-convex and symmetric about 1/2, so below the first order none is larger than the first
    steps = _Steps(np.append(0.5, a[:-1]), np.append(share[0], np.maximum(share[:-1], share[1:])))
    return _after(steps, float(start * 2 * share[0]), queries)


def _after(steps: _Steps, variance: float, queries: int) -> float:
    """The variance after all queries; what one query adds is reused for a few queries after it."""
    left, step = queries, _first_step(steps, variance)
    while left:
        if not math.isfinite(step):
            return math.inf
        times = min(left, max(1, int(0.2 * variance / step)))
        variance, left = variance + times * step, left - times
        step = _smaller_step(steps, variance, step)
    return variance


def _first_step(steps: _Steps, variance: float) -> float:
    """The least variance that covers one query on top of `variance`; infinite if the search fails."""
    step = 2 * float(steps.share[0])
    for _ in range(60):
        if _covers(steps, variance, step):
            return _smaller_step(steps, variance, step)
        step *= 1.1
    return math.inf


def _smaller_step(steps: _Steps, variance: float, step: float) -> float:
    """The least variance that covers one query, at most `step`, which does."""
    low, high = 2 * float(steps.share[0]), step
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (low, middle) if _covers(steps, variance, middle) else (middle, high)
    return high


def _covers(steps: _Steps, variance: float, step: float) -> bool:
    """Whether inequality (3) holds in every cell of orders."""
    keeps = variance / (variance + step)
    rise = np.minimum(step * (keeps * (steps.first - 0.5) ** 2 - 0.25) / 2, 700.0)
    mean = np.where(rise == 0, 1.0, np.expm1(rise) / np.where(rise == 0, 1.0, rise))
    return bool(np.all(math.sqrt(keeps) * step / 2 * mean >= steps.share))


def _read_off(highest: float, variance: float, delta: float) -> float:
    """Epsilon of a Gaussian loss of this variance and a two-sided exponential one, composed."""
    root, middle = math.sqrt(variance), (highest - 0.5) * variance
    lift = highest * (highest - 1) * variance / 2

    def spent(value: float) -> float:
        gain = log_ndtr(root / 2 - value / root)
        loss = value + log_ndtr(-root / 2 - value / root)
        right = lift - (highest - 1) * value + log_ndtr((value - middle) / root)
        left = lift + highest * value + log_ndtr(-(value + middle) / root)
        tails = (math.exp(min(right, 50.0)) + math.exp(min(left, 50.0))) / (2 * highest - 1)
        return math.exp(gain) - math.exp(loss) + tails - delta

    from scipy.optimize import brentq  # half a second, which other commands need not wait for

    if spent(0.0) <= 0:
        return 0.0
    high = 1.0
    while spent(high) > 0:
        high *= 2
        if high > 1e4:
            return math.inf
    return float(brentq(spent, 0.0, high, xtol=1e-12)) * (1 + 1e-9) + 1e-11
