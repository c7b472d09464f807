"""The Renyi curve of Gaussian noise on a Poisson sample, where one record's contents change.

Worlds are `P = (1 - q) N(0) + q N(1)` and `Q = (1 - q) N(0) + q N(-1)`, of the scale of the noise in units of
the longest gradient; docs/proofs/dpsgd.md shows that no other pair of gradients tells more. Registers add
these curves to those of other runs. A training by itself is charged by composed privacy losses, which are
tighter.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from pate_jax.accounting.inputs import Curve
from pate_jax.errors import PateError

_UP = 1e-9  # relative: more than what the sum below may miss of its integral
_ROUNDING = 2.0**-49  # relative: of a power's log, whose two parts nearly cancel at high orders
_TAIL = 30.0  # what is cut off is less than e^-30 of the integral, and so is the error of the steps
_MOST = 50_000  # points of one sum; where more are needed, the noise is charged without its sample


class Training(NamedTuple):
    """What DP-SGD did to the records."""

    rate: float  # chance of each record to take part in each step
    steps: int
    noise_multiplier: float  # standard deviation of the noise, in units of the longest gradient


def changed(rate: float, scale: float, orders: Curve) -> Curve:
    """The curve of one step at each order; never below the truth.

    >>> changed(1.0, 2.0, np.array([8.0])).tolist()  # all records take part: 2 a / scale^2
    [4.0]
    >>> bool(changed(0.01, 2.0, np.array([8.0]))[0] < 0.003)
    True
    """
    if not (0 < rate <= 1 and 0 < scale < math.inf):
        raise PateError(f"rate={rate} must be above 0 and at most 1, and scale={scale} above 0")
    unsampled = 2 * orders / scale**2  # Renyi divergences are jointly quasi-convex
    if rate == 1:
        return np.asarray(unsampled, np.float64)
    sampled = [_one(rate, scale, float(order)) for order in orders]
    return np.asarray(np.minimum(sampled, unsampled), np.float64)


def _one(rate: float, scale: float, order: float) -> float:
    """The divergence at one order, by the trapezoidal rule (its error is derived in docs/proofs/dpsgd.md)."""
    points = _points(rate, scale, order)
    if points is None:
        return math.inf
    out, joins = math.log1p(-rate) - points**2 / (2 * scale**2), math.log(rate)
    first = np.logaddexp(out, joins - (points - 1) ** 2 / (2 * scale**2))
    second = np.logaddexp(out, joins - (points + 1) ** 2 / (2 * scale**2))
    logs = order * first + (1 - order) * second
    logs += _ROUNDING * (order * np.abs(first) + (order - 1) * np.abs(second))
    most = float(logs.max())
    density = (points[1] - points[0]) / (scale * math.sqrt(2 * math.pi))
    found = most + math.log(float(np.exp(logs - most).sum()) * density * (1 + _UP))
    return max(found, 0.0) / (order - 1)


def _points(rate: float, scale: float, order: float) -> Curve | None:
    """Where the integrand is summed: so finely, and so far out, that the error is below `_UP`."""
    step = math.pi**2 * scale**2 / (_TAIL + 0.35 * order + 1.3 * scale**2)
    thin = (order - 1) * -math.log1p(-rate)  # how far the sample thins out the second world, at most
    left = scale * math.sqrt(2 * (_TAIL + thin)) + 1
    right = scale * math.sqrt(2 * (_TAIL + thin + order * (order - 1) / (2 * scale**2))) + 1
    count = math.ceil((left + order + right) / step) + 1
    return np.linspace(-left, order + right, count) if count <= _MOST else None
