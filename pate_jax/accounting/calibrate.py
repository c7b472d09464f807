"""The least noise for a target epsilon. The search uses data-independent figures only.

The result is never above the target. The exact cost of private votes is not monotone in the noise, and a
search on private votes would itself be a query.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import cache, partial
from typing import Literal, NamedTuple

import numpy as np

from pate_jax.accounting.curves import Rule, sampler_slack
from pate_jax.accounting.data_independent import worst_case
from pate_jax.accounting.inputs import check_delta
from pate_jax.errors import PateError
from pate_jax.mechanisms import Mechanism, descriptions, from_dict, name_of

_CLOSE = 2e-3  # relative: how far below the target epsilon may end; about the error of a searched curve
_ROUNDING = 1e-7  # the same for curves in closed form
_INDEX = 1.24  # ratio of the noise at which all counts cost about as much as an index
_FAR = 50.0  # stands for the logarithm of infinity; minus this, for the logarithm of 0
_NOISES = {"answer": ("sigma", "scale"), "test": ("sigma_threshold", "scale_threshold")}


class Calibrated(NamedTuple):
    """A mechanism whose data-independent epsilon is at most the target."""

    mechanism: Mechanism
    epsilon: float


def calibrate(
    mechanism: Mechanism,
    target: float,
    delta: float,
    *,
    queries: int,
    teachers: int,
    classes: int,
    noise: Literal["both", "answer", "test"] = "both",
) -> Calibrated:
    """`mechanism` with its noise multiplied by the least factor that keeps `queries` answers within `target`.

    `noise` says which of the noises may change. Everything that the search reads is public.

    >>> from pate_jax.mechanisms import GNMax
    >>> found = calibrate(GNMax(sigma=1.0), 1.0, 1e-5, queries=100, teachers=250, classes=10)
    >>> 44 < found.mechanism.sigma < 48, found.epsilon <= 1.0
    (True, True)
    """
    if not (target > 0 and math.isfinite(target)):
        raise PateError(f"target={target!r} must be a finite epsilon above 0")
    if queries < 1 or teachers < 1 or classes < 2:
        raise PateError(
            f"queries={queries}, teachers={teachers}, classes={classes} must be at least 1, 1 and 2"
        )
    check_delta(delta)

    @cache
    def spent(factor: float, rule: Rule = "index", stronger: float = 1.0) -> float:
        changed = scaled(scaled(mechanism, factor, noise), stronger, "answer")
        slack = sampler_slack(changed, queries, classes)
        totals = np.full(queries, teachers)
        cost, _ = worst_case(changed, totals, delta, classes=classes, slack=slack, rule=rule)
        return float(cost.epsilon)

    smallest, largest = factors(mechanism, noise)
    quick = partial(spent, rule="counts")  # never below the figure that counts, and takes no time
    enough = enough_noise(quick, target, largest)
    if quick(enough) > target and spent(enough) > target:
        raise PateError(
            f"target={target!r} cannot be met by {mechanism!r} with any noise at this delta; "
            "ask fewer queries or raise the target or delta"
        )
    enough = least_noise(quick, target, enough, smallest, _ROUNDING)
    if enough * _INDEX <= largest:
        guess = least_noise(partial(quick, stronger=_INDEX), target, enough, smallest, _ROUNDING)
        enough = guess if spent(guess) <= target else enough
    factor = least_noise(spent, target, enough, smallest, _CLOSE)
    return Calibrated(scaled(mechanism, factor, noise), spent(factor))


def scaled(
    mechanism: Mechanism, factor: float, noise: Literal["both", "answer", "test"] = "both"
) -> Mechanism:
    """The mechanism with its noise multiplied by `factor`.

    >>> from pate_jax.mechanisms import ConfidentGNMax
    >>> scaled(ConfidentGNMax(200, 150, 40), 2.0, "answer")
    ConfidentGNMax(threshold=200.0, sigma_threshold=150.0, sigma=80.0)
    """
    values = dataclasses.asdict(mechanism)
    values.update({name: value * factor for name, value in _noises(mechanism, noise).items()})
    return from_dict({"name": name_of(mechanism), **values})


def _noises(mechanism: Mechanism, noise: Literal["both", "answer", "test"]) -> dict[str, float]:
    """The scales that `noise` names, by field."""
    names = [name for kind in _NOISES for name in _NOISES[kind] if noise in ("both", kind)]
    scales = {name: value for name, value in dataclasses.asdict(mechanism).items() if name in names}
    if not scales:
        raise PateError(f"noise={noise!r} names no noise of {mechanism!r}; use 'both' or 'answer'")
    return scales


def factors(mechanism: Mechanism, noise: Literal["both", "answer", "test"] = "both") -> tuple[float, float]:
    """The smallest and the largest factor with which every scale stays one that a mechanism may have."""
    scales = _noises(mechanism, noise).values()
    smallest, largest = descriptions.scales(mechanism.noise.family)
    return smallest / min(scales) * (1 + 1e-9), largest / max(scales) * (1 - 1e-9)


def enough_noise(spent: Callable[[float], float], target: float, largest: float) -> float:
    """A factor that meets the target, or `largest` if none was found.

    >>> enough_noise(lambda factor: 10 / factor, 1.0, 1000.0)
    16.0
    """
    factor = 1.0
    while factor < largest and spent(factor) > target:
        factor = min(factor * 2, largest)
    return factor


def least_noise(
    spent: Callable[[float], float], target: float, enough: float, smallest: float, close: float
) -> float:
    """The least factor whose epsilon is within the target, up to a share `close` of epsilon.

    `enough` must be a factor within the target. The search uses secants in logarithms, where epsilon falls
    almost in a straight line, with a slope of at least one. If epsilon jumps, the factor is least up to half
    of that share; if epsilon rises somewhere, the factor may not be the least. Its epsilon is always within
    the target.

    >>> round(least_noise(lambda factor: 10 / factor, 1.0, 16.0, 1e-3, 1e-6), 4)
    10.0
    """

    def excess(factor: float) -> float:
        value = spent(factor) / target
        return math.log(value) if 0 < value < math.inf else math.copysign(_FAR, value - 1)

    high, within = enough, excess(enough)
    if within > 0:
        return high
    low, over, stride = high, within, 0.25
    while over <= 0:
        high, within = low, over
        if within > -close or high <= smallest:
            return high
        low = max(high * math.exp(max(within, -1.0) * max(stride, 1.0)), smallest)
        over, stride = excess(low), 2 * stride  # far above the least, one of two noises may not matter
    ends = over, within
    while within <= -close and high / low > 1 + close / 2:
        share = (ends[0] + close / 2) / (ends[0] - ends[1])
        middle = low * (high / low) ** min(max(share, 0.02), 0.98)
        value = excess(middle)
        if value <= 0:
            high, within = middle, value
            ends = ends[0] / 2, value  # the end that stays counts for half, so that it moves next
        else:
            low, ends = middle, (value, ends[1] / 2)
    return high
