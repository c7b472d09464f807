"""The threshold test: the chance of an answer, the published analysis, and the exact two-outcome supremum.

The test reads a number that moves by at most one, adds noise and compares the sum with a threshold. If the
number is `x` above the threshold, the two outcomes have probabilities `F(x)` and `1 - F(x)` for one of two
neighbours, and `F(x - 1)` and `1 - F(x - 1)` for the other.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy import special

from pate_jax.accounting.bounds import noisy_max, worst_reading
from pate_jax.accounting.inputs import Curve
from pate_jax.errors import PateError
from pate_jax.mechanisms import Noise, ThresholdTest

LARGEST_TABLE = 20_000.0  # a discrete Gaussian test of a larger scale is charged as one of this scale


def log_survival(noise: Noise, x: Curve) -> tuple[Curve, Curve]:
    """`log Pr[noise >= x]` and `log Pr[noise < x]`.

    >>> [round(float(part[0]), 4) for part in log_survival(Noise("gaussian", 2.0), np.array([0.0]))]
    [-0.6931, -0.6931]
    """
    if noise.family == "gaussian":
        return special.log_ndtr(-x / noise.scale), special.log_ndtr(x / noise.scale)
    if noise.family == "laplace":
        return _laplace_tail(x / noise.scale), _laplace_tail(-x / noise.scale)
    if noise.family == "discrete_laplace":
        ceiling = np.ceil(x)
        return _geometric_tail(ceiling, noise.scale), _geometric_tail(1 - ceiling, noise.scale)
    if noise.family == "discrete_gaussian":
        ceiling = np.ceil(x)
        return _discrete_gaussian_tail(ceiling, noise.scale), _discrete_gaussian_tail(
            1 - ceiling, noise.scale
        )
    raise PateError(
        f"noise family {noise.family!r} has no threshold test; use gaussian, laplace or a discrete one"
    )


def _laplace_tail(x: Curve) -> Curve:
    """`log Pr[Lap(1) >= x]`."""
    return np.where(x > 0, -np.log(2) - np.abs(x), np.log1p(-np.exp(-np.abs(x)) / 2))


def _geometric_tail(k: Curve, scale: float) -> Curve:
    """`log Pr[Z >= k]` for whole `k` and the law proportional to `exp(-|z| / scale)`."""
    upper = -np.abs(k) / scale - np.logaddexp(0.0, -1 / scale)  # Pr[Z >= k] for k >= 0 is r^k / (1 + r)
    mirrored = -(np.abs(k) + 1) / scale - np.logaddexp(0.0, -1 / scale)  # Pr[Z <= k - 1] for k < 0
    result: Curve = np.where(k >= 0, upper, np.log1p(-np.exp(mirrored)))
    return result


def _discrete_gaussian_tail(k: Curve, sigma: float) -> Curve:
    """`log Pr[Z >= k]` for whole `k` and the law proportional to `exp(-z^2 / (2 sigma^2))`."""
    where = np.abs(k).astype(np.int64)
    table = _discrete_gaussian_table(sigma, 1 << int(where.max() + 2).bit_length())
    with np.errstate(divide="ignore"):
        negative = np.log1p(-np.exp(np.minimum(table[where + 1], 0.0)))  # Pr[Z >= -j] = 1 - Pr[Z >= j + 1]
    return np.where(k > 0, table[where], negative)


@lru_cache(maxsize=16)
def _discrete_gaussian_table(sigma: float, size: int) -> Curve:
    """`log Pr[Z >= k]` for `k = 0 .. size - 1`, summed from the far end in logarithms."""
    values = np.arange(size + int(np.ceil(12 * sigma)) + 2, dtype=np.float64)
    log_weights = -((values / sigma) ** 2) / 2
    log_tails = np.logaddexp.accumulate(log_weights[::-1])[::-1]
    result: Curve = log_tails[:size] - np.logaddexp(log_tails[0], log_tails[1])
    return result  # both sides, zero counted once


def log_answered(test: ThresholdTest, reading: Curve) -> tuple[Curve, Curve]:
    """`log Pr[answered]` and `log Pr[refused]` for the reading of each query.

    >>> test = ThresholdTest(200, Noise("gaussian", 150))
    >>> [round(float(part[0]), 4) for part in log_answered(test, np.array([200.0]))]
    [-0.6931, -0.6931]
    """
    return log_survival(test.noise, test.threshold - np.asarray(reading, dtype=np.float64))


def published(test: ThresholdTest, log_answered: Curve, log_refused: Curve, orders: Curve) -> Curve:
    """Theorem 6 for the test: noise `sqrt(2) sigma`, `q = min(Pr[answered], Pr[refused])`, [query, order].

    Theorem 6 holds for the discrete Gaussian too, because it has the Gaussian's curve. Other families, which
    the papers did not analyse, get their data-independent curve.

    >>> test = ThresholdTest(200, Noise("gaussian", 150))
    >>> published(test, np.log([0.5]), np.log([0.5]), np.array([9.0])).round(6)
    array([[0.0002]])
    """
    family, scale = test.noise
    if family in ("gaussian", "discrete_gaussian"):
        return noisy_max.theorem6(np.minimum(log_answered, log_refused), np.sqrt(2) * scale, orders)
    return np.broadcast_to(data_independent(test, orders), (len(log_answered), len(orders))).copy()


def data_independent(test: ThresholdTest, orders: Curve) -> Curve:
    """The published curve of the test alone, [A]: `a / (2 sigma^2)`, or that of `1/scale`-DP.

    >>> data_independent(ThresholdTest(200, Noise("gaussian", 10.0)), np.array([2.0]))
    array([0.01])
    """
    family, scale = test.noise
    if family in ("gaussian", "discrete_gaussian"):
        return orders / 2 / scale / scale
    return noisy_max.pure_curve(1 / scale, orders)


def supremum(noise: Noise, orders: Curve) -> Curve:
    """The exact cost of the test alone, [A], at the worst possible reading: data-independent.

    >>> orders = np.array([10.0])
    >>> bool(supremum(Noise("gaussian", 150.0), orders)[0] < 10 / (2 * 150**2))
    True
    """
    return _supremum(noise, np.zeros_like(orders), np.inf, orders)


def joint_bound(test: ThresholdTest, argmax: Curve, teachers: float, orders: Curve) -> Curve:
    """A confident mechanism's curve [A] at the worst reading that `teachers` votes allow, argmax included.

    `sup_x max(J(x, x-1), J(x-1, x))` over readings up to the larger of `teachers` and the threshold, J the
    joint divergence of {refused, 1..C} with the argmax at its own data-independent curve. A reading cannot
    exceed the number of teachers, so the argmax is weighed by the chance that a query passes. Readings up to
    the threshold are included so that the bound is monotone in the noise of the test. With infinitely many
    `teachers` the bound holds for every reading.

    >>> test, orders = ThresholdTest(200, Noise("gaussian", 150.0)), np.array([10.0])
    >>> bool(joint_bound(test, orders / 40**2, 250, orders)[0] < 0.7 * 10 / 40**2)
    True
    """
    room = max(float(teachers) - test.threshold, 0.0)
    together = _supremum(test.noise, argmax, room, orders)
    return np.minimum(together, data_independent(test, orders) + argmax)


def _supremum(noise: Noise, argmax: Curve, room: float, orders: Curve) -> Curve:
    ceiling = data_independent(ThresholdTest(0, noise), orders) + argmax
    return np.minimum(worst_reading.supremum(noise, argmax, room, orders), ceiling)
