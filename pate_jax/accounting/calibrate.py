"""The least noise for a target epsilon, searched on data-independent figures only and never over the target.

Exact data-dependent cost is not monotone in the noise, and a search on private votes would itself be a query.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from pate_jax.accounting.data_independent import worst_case
from pate_jax.accounting.inputs import check_delta
from pate_jax.accounting.slack import sampler_slack
from pate_jax.errors import PateError
from pate_jax.mechanisms import Mechanism, from_dict, name_of
from pate_jax.mechanisms.descriptions import SMALLEST_SCALE, largest_scale

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

    `noise` says which of its noises may change. Everything it reads is public.

    >>> from pate_jax.mechanisms import GNMax
    >>> found = calibrate(GNMax(sigma=1.0), 1.0, 1e-5, queries=100, teachers=250, classes=10)
    >>> round(found.mechanism.sigma, 1), found.epsilon <= 1.0
    (52.8, True)
    """
    if not (target > 0 and math.isfinite(target)):
        raise PateError(f"target={target!r} must be a finite epsilon above 0")
    if queries < 1 or teachers < 1 or classes < 2:
        raise PateError(
            f"queries={queries}, teachers={teachers}, classes={classes} must be at least 1, 1 and 2"
        )
    check_delta(delta)

    def spent(factor: float) -> float:
        changed = scaled(mechanism, factor, noise)
        slack = sampler_slack(changed, queries, classes)
        found, _ = worst_case(changed, np.full(queries, teachers), delta, slack=slack)
        return float(found.epsilon)

    low, high = _bracket(spent, target, mechanism, _factors(mechanism, noise))
    while high / low > 1 + 1e-7:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if spent(middle) <= target else (middle, high)
    return Calibrated(scaled(mechanism, high, noise), spent(high))


def scaled(
    mechanism: Mechanism, factor: float, noise: Literal["both", "answer", "test"] = "both"
) -> Mechanism:
    """The mechanism with its noise multiplied by `factor`.

    >>> from pate_jax.mechanisms import ConfidentGNMax
    >>> scaled(ConfidentGNMax(200, 150, 40), 2.0, "answer")
    ConfidentGNMax(threshold=200, sigma_threshold=150, sigma=80.0)
    """
    values = dataclasses.asdict(mechanism)
    values.update({name: value * factor for name, value in _noises(mechanism, noise).items()})
    return from_dict({"name": name_of(mechanism), **values})


def _noises(mechanism: Mechanism, noise: Literal["both", "answer", "test"]) -> dict[str, float]:
    """The scales that `noise` names, by field."""
    names = [name for kind in _NOISES for name in _NOISES[kind] if noise in ("both", kind)]
    found = {name: value for name, value in dataclasses.asdict(mechanism).items() if name in names}
    if not found:
        raise PateError(f"noise={noise!r} names no noise of {mechanism!r}; use 'both' or 'answer'")
    return found


def _factors(mechanism: Mechanism, noise: Literal["both", "answer", "test"]) -> tuple[float, float]:
    """The smallest and the largest factor that leave every scale one that a mechanism may have."""
    scales, largest = _noises(mechanism, noise).values(), largest_scale(mechanism.noise.family)
    return SMALLEST_SCALE / min(scales) * (1 + 1e-9), largest / max(scales) * (1 - 1e-9)


def _bracket(
    spent: Callable[[float], float], target: float, mechanism: Mechanism, limits: tuple[float, float]
) -> tuple[float, float]:
    """Two factors, the first over the target (or the least there can be), the second within it."""
    least, most = limits
    low = high = 1.0
    while spent(high) > target:
        if high >= most:
            raise PateError(
                f"target={target!r} cannot be met by {mechanism!r} with any noise at this delta; "
                "ask fewer queries or raise the target or delta"
            )
        low, high = high, min(high * 2, most)
    if low == high:
        while low > least and spent(max(low / 2, least)) <= target:
            low = high = max(low / 2, least)
        low = max(low / 2, least)
    return low, high
