"""The largest possible cost of an aggregation, whatever the votes: the ceiling of the exact figures.

See docs/proofs/accounting.md, "The data-independent figure".
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from pate_jax.mechanisms import Noise, ThresholdTest


def caps(noise: Noise, test: ThresholdTest | None, orders: ArrayLike) -> np.ndarray:
    """The Renyi cost [A] that holds for any votes; no exact value exceeds it.

    A moved vote shifts two counts by one each, and the test's reading by at most one.

    >>> caps(Noise("gaussian", 40.0), None, np.array([2.0])).tolist()
    [0.00125]
    """
    orders = np.asarray(orders, np.float64)
    if noise.family == "gumbel":  # exponential mechanism: log-ratios range over 2/b, so 2/b and a (2/b)^2 / 8
        cap = np.minimum(2 / noise.scale, orders / (2 * noise.scale**2))
    elif noise.family == "exponential":  # one step of 2/b: one-sided noise has no finite cost of a shift
        cap = np.minimum(2 / noise.scale, 2 * orders / noise.scale**2)
    else:
        cap = 2 * shift_cost(noise, orders)
    return cap if test is None else cap + shift_cost(test.noise, orders)


def concentrated(noise: Noise) -> float:
    """A constant r with Renyi cost of the argmax at most `r a` at every order (zero-concentrated privacy).

    >>> concentrated(Noise("gaussian", 40.0))
    0.000625
    """
    if noise.family in ("gaussian", "discrete_gaussian"):
        return 1 / noise.scale**2
    return 2 / noise.scale**2  # half the square of pure privacy 2/b (Bun and Steinke 2016)


def shift_cost(noise: Noise, orders: np.ndarray) -> np.ndarray:
    """The Renyi cost of one number plus noise if the number moves by one."""
    scale = noise.scale
    if noise.family in ("gaussian", "discrete_gaussian"):
        return orders / (2 * scale**2)
    if noise.family in ("laplace", "discrete_laplace"):
        result: np.ndarray = np.minimum(_laplace_shift(noise, orders), 1 / scale)
        return result
    return np.minimum(1 / scale, orders / (2 * scale**2))


def _laplace_shift(noise: Noise, orders: np.ndarray) -> np.ndarray:
    """The divergence between Laplace noise, continuous or discrete, and its shift by one (Mironov 2017)."""
    one = 1 / noise.scale
    if noise.family == "laplace":
        share = orders / (2 * orders - 1)
        with np.errstate(over="ignore"):
            inner = share * np.expm1((orders - 1) * one) + (1 - share) * np.expm1(-orders * one)
    else:
        share = 1 / (1 + math.exp(-one))
        with np.errstate(over="ignore"):
            inner = share * np.expm1((orders - 1) * one) + (1 - share) * np.expm1(-(orders - 1) * one)
    result: np.ndarray = (np.log1p(inner) + 1e-15 * orders) / (orders - 1)
    return result
