"""Log-densities and log-distribution functions of the noises, as the accountant integrates them.

Whole-number noise with ties broken at random is equivalent to continuous noise: spread the probability of
each whole number `x` evenly over the cell `(x-1, x]`. So a node of a discrete family is a cell and a
`fraction` u of it, and the distribution function there is `F(x-1) + u f(x)` (docs/proofs/exact.md,
section 2).

By the law of its noise, a threshold test has a chance to answer, before and after any one vote moves. And
there is a largest possible cost of an aggregation, whatever the votes: the ceiling (`caps`) of the exact
figures (docs/proofs/accounting.md, "The data-independent figure").
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr

from pate_jax.accounting.exact.groups import Groups
from pate_jax.errors import PateError
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


TABLE_LIMIT = 500.0  # the largest discrete Gaussian with a table; wider ones use Euler and Maclaurin's series
TABLE_REACH = 1 << 18  # the largest value in a table; values further out use the series too
HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)


def log_density(noise: Noise, x: np.ndarray) -> np.ndarray:
    """Log of the density at `x`, or of the probability of the whole number `x`.

    >>> round(float(np.exp(log_density(Noise("laplace", 2.0), np.array(2.0)))), 4)
    0.092
    """
    family, scale = noise
    z = x / scale
    if family in ("gaussian", "discrete_gaussian"):
        normaliser = math.log(scale) + HALF_LOG_2PI
        if family == "discrete_gaussian":
            normaliser = _log_lattice_mass(scale)
        return -0.5 * z * z - normaliser
    if family == "laplace":
        return -np.abs(z) - math.log(2 * scale)
    if family == "exponential":
        return np.where(x >= 0, -z, -np.inf) - math.log(scale)
    if family == "discrete_laplace":
        return math.log(math.tanh(0.5 / scale)) - np.abs(z)
    raise PateError(f"no density is known here of {family} noise")


def log_cdf(noise: Noise, x: np.ndarray, fraction: np.ndarray | float = 1.0) -> np.ndarray:
    """Log of the distribution function at `x`; for whole numbers, at the given fraction of the cell of `x`.

    Several fractions [K] go with `x` [.., 1] and give [.., K].

    >>> round(float(np.exp(log_cdf(Noise("gaussian", 40.0), np.array(0.0)))), 4)
    0.5
    >>> round(float(np.exp(log_cdf(Noise("discrete_gaussian", 40.0), np.array(0.0), fraction=0.5))), 4)
    0.5
    """
    family, scale = noise
    if family == "gaussian":
        result: np.ndarray = log_ndtr(x / scale)
        return result
    if family == "laplace":
        below = np.minimum(x, 0) / scale - math.log(2)
        two_sided: np.ndarray = np.where(x < 0, below, np.log1p(-0.5 * np.exp(-np.maximum(x, 0) / scale)))
        return two_sided
    if family == "exponential":
        with np.errstate(divide="ignore"):
            one_sided: np.ndarray = np.log(-np.expm1(-np.maximum(x, 0) / scale))
            return one_sided
    if family == "discrete_laplace":
        return _log_cdf_discrete_laplace(scale, x, fraction)
    if family == "discrete_gaussian":
        return _log_cdf_discrete_gaussian(scale, x, fraction)
    raise PateError(f"no distribution function is known here of {family} noise")


def log_tail(noise: Noise, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities that the noise is at least `x`, and that it is below `x`.

    >>> [round(float(np.exp(value)), 4) for value in log_tail(Noise("discrete_laplace", 1.0), np.array(0.2))]
    [0.2689, 0.7311]
    """
    family, scale = noise
    x = np.asarray(x, np.float64)
    if noise.is_discrete:
        first = np.ceil(x)  # the smallest whole number >= x; both laws are symmetric
        return log_cdf(noise, -first), log_cdf(noise, first - 1)
    if family == "exponential":
        return -np.maximum(x, 0) / scale, log_cdf(noise, x)
    if family == "gumbel":
        below = -np.exp(-x / scale)
        return np.log(-np.expm1(below)), below
    return log_cdf(noise, -x), log_cdf(noise, x)


def _log_cdf_discrete_laplace(scale: float, x: np.ndarray, fraction: np.ndarray | float) -> np.ndarray:
    """`r^-x (r + u (1-r)) / (1+r)` up to 0, from there `1 - r^x (1 - u (1-r)) / (1+r)`; `r = exp(-1/b)`."""
    gap, both = -math.expm1(-1 / scale), 1 + math.exp(-1 / scale)
    left = np.log((1 - gap) + fraction * gap) - math.log(both) + np.minimum(x, 0) / scale
    with np.errstate(under="ignore"):
        right = np.log1p(-np.exp(-np.maximum(x, 0) / scale) * (1 - fraction * gap) / both)
    result: np.ndarray = np.where(x <= 0, left, right)
    return result


def _log_cdf_discrete_gaussian(sigma: float, x: np.ndarray, fraction: np.ndarray | float) -> np.ndarray:
    """`log((1-u) F(x-1) + u F(x))`: read from a table where there is one for this scale."""
    fraction = np.asarray(fraction, np.float64)
    if sigma > TABLE_LIMIT or x.min(initial=0.0) < -TABLE_REACH:
        below = _without_table(sigma, x - 1)
        with np.errstate(under="ignore", divide="ignore"):
            result: np.ndarray = below + np.log1p(
                fraction * np.exp(log_density(Noise("discrete_gaussian", sigma), x) - below)
            )
            return result
    reach = 1 << int(max(-x.min(initial=0.0), 40 * sigma, 60) + 2).bit_length()
    table = _table(sigma, reach)
    index = np.clip(x, -reach + 1, reach).astype(np.intp) + reach
    if fraction.ndim == 0 and fraction == 1.0:
        read: np.ndarray = table[index]
        return read
    mixed = _mixed_table(sigma, reach, tuple(fraction.ravel().tolist()))
    if fraction.ndim == 1 and index.shape[-1] == 1:  # whole rows are faster than single numbers
        rows: np.ndarray = mixed[index[..., 0] - 1]
        return rows
    between: np.ndarray = mixed[index - 1, np.arange(fraction.size).reshape(fraction.shape)]
    return between


@functools.lru_cache(maxsize=16)
def _table(sigma: float, reach: int) -> np.ndarray:
    """`log F(x)` for x from -reach to reach, up to 0 by `F(x)/f(x) = 1 + f(x-1)/f(x) * F(x-1)/f(x-1)`."""
    lower = np.arange(-reach - 1, 1)
    step = np.exp(np.maximum((2 * lower - 1) / (2 * sigma**2), -745.0)).tolist()
    ratio, value = [], 1.0
    for factor in step:
        value = 1.0 + value * factor
        ratio.append(value)
    logs = np.log(ratio) - lower.astype(np.float64) ** 2 / (2 * sigma**2) - _log_lattice_mass(sigma)
    upper = np.log1p(-np.exp(logs[:-1][::-1]))  # F(x) = 1 - F(-x-1), for x from 0 to reach
    table = np.concatenate([logs[1:-1], upper])
    table.setflags(write=False)
    return table


@functools.lru_cache(maxsize=2)
def _mixed_table(sigma: float, reach: int, fractions: tuple[float, ...]) -> np.ndarray:
    """`log((1-u) F(x-1) + u F(x))` for x from -reach+1 to reach (rows), at some fractions u (columns)."""
    table, kinds = _table(sigma, reach)[:, None], np.array(fractions)
    with np.errstate(divide="ignore"):
        mixed: np.ndarray = np.logaddexp(np.log1p(-kinds) + table[:-1], np.log(kinds) + table[1:])
    mixed.setflags(write=False)
    return mixed


@functools.lru_cache(maxsize=64)
def _log_lattice_mass(sigma: float) -> float:
    """Log of `sum_x exp(-x^2 / (2 sigma^2))`, by the faster of the sum and its Poisson dual."""
    if sigma < 1:
        return math.log(1 + 2 * sum(math.exp(-x * x / (2 * sigma**2)) for x in range(1, 12)))
    dual = 2 * sum(math.exp(-2 * (math.pi * sigma * m) ** 2) for m in range(1, 4))
    return math.log(sigma) + HALF_LOG_2PI + math.log1p(dual)


def _without_table(sigma: float, x: np.ndarray) -> np.ndarray:
    """`log F(x)` by Euler and Maclaurin's series around `x + 1/2`; far below 0, by a sum, which is short.

    For z up to 0.05 sigma and sigma above 500, the first omitted term is below 1e-16.
    """
    z = (x + 0.5) / sigma
    deep = z < -0.05 * sigma
    near = np.where(deep, 0.0, z)
    level = log_ndtr(near)
    with np.errstate(under="ignore"):
        hazard = np.exp(-0.5 * near * near - HALF_LOG_2PI - level)
        s, capped = 1 / sigma**2, np.minimum(near, 40.0)  # the hazard is 0 beyond
        first = capped / 24
        third = 7 * (3 * capped - capped**3) / 5760
        fifth = 31 * (15 * capped - 10 * capped**3 + capped**5) / 967680
        logs = level + np.log1p(hazard * s * (first + s * (third + s * fifth)))
    if deep.any():
        values, where = np.unique(x[deep], return_inverse=True)
        logs = np.array(logs)
        logs[deep] = _tail_sum(sigma, values)[where]
    result: np.ndarray = logs
    return result


def _tail_sum(sigma: float, x: np.ndarray) -> np.ndarray:
    """`log F(x)` for x far below 0 as `log f(x)` and the log of a sum of ratios `f(x-k)/f(x)`."""
    terms = np.arange(2 + int(40 * sigma**2 / -x.max()), dtype=np.float64)
    with np.errstate(under="ignore"):
        ratios = np.exp(-(terms * terms - 2 * terms * x[:, None]) / (2 * sigma**2))
    result: np.ndarray = log_density(Noise("discrete_gaussian", sigma), x) + np.log(ratios.sum(axis=1))
    return result


EPSILON = float(np.finfo(np.float64).eps)


class Passing(NamedTuple):
    """The log-probabilities of an answer and of a refusal, and a bound on the error of both."""

    answered: np.ndarray
    refused: np.ndarray
    error: np.ndarray


def passing(test: ThresholdTest, largest: np.ndarray) -> Passing:
    """The test's law if the largest margin is `largest`.

    >>> from pate_jax.mechanisms import Noise
    >>> passing(ThresholdTest(200, Noise("gaussian", 150.0)), np.array([200.0])).answered.round(4).tolist()
    [-0.6931]
    """
    answered, refused = log_tail(test.noise, test.threshold - largest)
    with np.errstate(invalid="ignore"):
        error = 16 * EPSILON * (2 + np.nan_to_num(np.abs(answered) + np.abs(refused), posinf=0.0))
    return Passing(answered, refused, error)


def largest(groups: Groups) -> np.ndarray:
    """The largest margin of each histogram [R]."""
    result: np.ndarray = groups.margins.max(axis=1)
    return result


def largest_after(groups: Groups) -> np.ndarray:
    """The largest margin after each move of one vote from group a to group b [R, U, U].

    A move touches two classes, so the largest untouched one is in one of the three groups of largest margin.
    """
    order = np.argsort(-groups.margins, axis=1, kind="stable")
    margins = np.take_along_axis(groups.margins, order, axis=1)
    sizes = np.take_along_axis(groups.sizes, order, axis=1)
    rank = np.argsort(order, axis=1)
    untouched = np.full((*groups.counts.shape, groups.counts.shape[1]), -np.inf)
    for place in range(min(3, margins.shape[1]) - 1, -1, -1):
        moved = (rank == place)[:, :, None].astype(int) + (rank == place)[:, None, :]
        left = sizes[:, place, None, None] - moved >= 1
        untouched = np.where(left, margins[:, place, None, None], untouched)
    moved_margins = np.maximum(groups.margins[:, :, None] - 1, groups.margins[:, None, :] + 1)
    result: np.ndarray = np.maximum(untouched, moved_margins)
    return result
