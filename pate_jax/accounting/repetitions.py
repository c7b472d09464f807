"""Settings chosen on private data and paid for: the best of a random number of candidates.

Candidates are drawn at random, with replacement, from a list that was fixed without private data. Each
is run on the private data, by a mechanism of one known Renyi curve whose output includes a score. Only the
output with the best score is published, and the number K of candidates is random and stays secret. Then the
cost hardly depends on K (Papernot and Steinke 2022, "Hyperparameter tuning with Renyi differential privacy").
With a *fixed* number this is false: the best of a fixed number of candidates may reveal as much as all of
them, and is charged as their composition (`Fixed`). See docs/proofs/tuning.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from pate_jax.accounting.inputs import check_curve, check_orders
from pate_jax.errors import PateError

Curve = NDArray[np.float64]
_UP = 1 + 1e-12


@dataclass(frozen=True)
class NegativeBinomial:
    """A truncated negative binomial number of candidates, at least 1; a small gamma makes it large.

    `shape` is the papers' eta: 1 is the geometric law, 0 the logarithmic one, and below 0 the tail is heavier
    and the cost smaller.

    >>> round(NegativeBinomial(shape=1.0, gamma=0.1).mean, 6)
    10.0
    """

    name: ClassVar[str] = "negative-binomial"
    shape: float
    gamma: float

    def __post_init__(self) -> None:
        if not (_is_number(self.shape) and -1 < self.shape <= 10):
            raise PateError(f"shape={self.shape!r} must be above -1 and at most 10; 1 is the geometric law")
        if not (_is_number(self.gamma) and 1e-4 <= self.gamma < 1):
            raise PateError(f"gamma={self.gamma!r} must be from 0.0001 to 1, excluding 1")

    @property
    def mean(self) -> float:
        """The expected number of candidates."""
        log_gamma = math.log(self.gamma)
        if self.shape == 0:
            return (1 / self.gamma - 1) / -log_gamma
        return self.shape * (1 - self.gamma) / self.gamma / -math.expm1(self.shape * log_gamma)


@dataclass(frozen=True)
class Poisson:
    """A Poisson number of candidates, which may be 0: nothing is then published.

    >>> Poisson(mean=20.0).mean
    20.0
    """

    mean: float

    def __post_init__(self) -> None:
        if not (_is_number(self.mean) and 1 <= self.mean <= 1e6):
            raise PateError(f"mean={self.mean!r} must be from 1 to a million candidates")


@dataclass(frozen=True)
class Fixed:
    """All candidates of a list: the best of them is charged as if all had been published."""

    name: ClassVar[str] = "fixed"
    candidates: int

    def __post_init__(self) -> None:
        if type(self.candidates) is not int or self.candidates < 1:
            raise PateError(f"candidates={self.candidates!r} must be a whole number of at least 1")


Repetitions = NegativeBinomial | Poisson | Fixed


def best_of(repetitions: Repetitions, orders: ArrayLike, rdp: ArrayLike) -> Curve:
    """The Renyi curve [A] of the best candidate, from the curve of one candidate at the same orders.

    The truncated negative binomial (Theorem 2, for the best of the orders b on the grid):
    `rdp(a) + (1+shape)((1 - 1/b) rdp(b) + log(1/gamma)/b) + log(mean)/(a-1)`. Poisson (Theorem 6):
    `rdp(a) + mean delta(a) + log(mean + e^-mean)/(a-1)`, where one candidate is `(log(1 + 1/(a-1)),
    delta(a))`-private; the `e^-mean`, which the paper leaves out, covers the outcome of no candidate.
    Fixed: the composition of all. A Renyi curve rises with the order, so an order also has the bounds of all
    higher ones.

    >>> orders = np.array([2.0, 8.0, 32.0])
    >>> one = orders / 200
    >>> best_of(NegativeBinomial(shape=1.0, gamma=0.1), orders, one).round(3)
    array([0.688, 0.688, 0.688])
    >>> best_of(Fixed(10), orders, one)
    array([0.1, 0.4, 1.6])
    """
    grid, curve = check_orders(orders), check_curve(rdp)
    if curve.shape != grid.shape:
        raise PateError(f"rdp of shape {curve.shape} must have one value for each of the {grid.size} orders")
    if isinstance(repetitions, Fixed):
        return repetitions.candidates * curve * _UP
    if isinstance(repetitions, Poisson):
        extra = repetitions.mean * np.exp(_log_delta(grid, curve))
        number = repetitions.mean + math.exp(-repetitions.mean)
    elif isinstance(repetitions, NegativeBinomial):
        per_order = (1 - 1 / grid) * curve - math.log(repetitions.gamma) / grid
        extra, number = np.full_like(grid, (1 + repetitions.shape) * per_order.min()), repetitions.mean
    else:
        raise PateError(
            f"repetitions={repetitions!r} is no law of the number of candidates: the best of a fixed number "
            "may reveal as much as all of them, so draw the number by NegativeBinomial or Poisson, or pay "
            "for all of them with Fixed"
        )
    best: Curve = (curve + extra + math.log(number) / (grid - 1)) * _UP
    return _least_from_here_on(grid, best)


def number_at(repetitions: Repetitions, chance: float) -> int:
    """The number of candidates whose distribution function first exceeds a uniform `chance`, drawn in secret.

    >>> [number_at(NegativeBinomial(shape=1.0, gamma=0.1), chance) for chance in (0.0, 0.5, 0.99)]
    [1, 7, 44]
    >>> number_at(Poisson(mean=3.0), 0.01)
    0
    """
    if not (_is_number(chance) and 0 <= chance < 1):
        raise PateError(f"chance={chance!r} must be from 0 to 1, excluding 1")
    if isinstance(repetitions, Fixed):
        return repetitions.candidates
    return int(np.searchsorted(np.cumsum(law(repetitions)), chance, "right"))


def law(repetitions: NegativeBinomial | Poisson) -> NDArray[np.float64]:
    """The chances of 0, 1, 2, .. candidates, as far as float64 resolves them.

    >>> law(NegativeBinomial(shape=1.0, gamma=0.5))[:4].round(4)
    array([0.   , 0.5  , 0.25 , 0.125])
    """
    if isinstance(repetitions, Poisson):
        numbers = np.arange(math.ceil(repetitions.mean + 40 * math.sqrt(repetitions.mean) + 100))
        logs = numbers * math.log(repetitions.mean) - special.gammaln(numbers + 1)
    else:
        shape, gamma = repetitions.shape, repetitions.gamma
        before = np.arange(1.0, math.ceil(50 * (1 + max(shape, 0.0)) / gamma) + 1)
        steps = math.log1p(-gamma) + np.log1p((shape - 1) / (before + 1))
        logs = np.concatenate([[-np.inf, 0.0], np.cumsum(steps)])
    weights = np.exp(logs - logs.max())
    chances: NDArray[np.float64] = weights / weights.sum()
    return chances


def negative_binomial(mean: float, shape: float = 1.0) -> NegativeBinomial:
    """The law of this shape whose mean is the wished one, or less by rounding.

    >>> round(negative_binomial(mean=20.0, shape=0.0).gamma, 4)
    0.011
    """
    low, high = 1e-4, 1 - 1e-9
    if not (
        _is_number(mean) and NegativeBinomial(shape, high).mean <= mean <= NegativeBinomial(shape, low).mean
    ):
        raise PateError(
            f"mean={mean!r} must be above 1 and at most {NegativeBinomial(shape, low).mean:,.0f} candidates"
        )
    while high - low > 1e-12 * high:
        middle = math.sqrt(low * high)
        over = NegativeBinomial(shape, middle).mean > mean
        low, high = (middle, high) if over else (low, middle)
    return NegativeBinomial(shape, high)


def _least_from_here_on(orders: Curve, curve: Curve) -> Curve:
    ranked = np.argsort(orders)
    least = np.empty_like(curve)
    least[ranked] = np.minimum.accumulate(curve[ranked][::-1])[::-1]
    return least


def _log_delta(orders: Curve, curve: Curve) -> Curve:
    """For each order a, the log of the delta at which one candidate is `log(1 + 1/(a-1))`-private.

    It is the tight conversion (Canonne, Kamath, Steinke 2020, Proposition 12), at the best order b:
    `(b-1)(rdp(b) - epsilon + log1p(-1/b)) - log(b)`.
    """
    epsilon = np.log1p(1 / (orders - 1))[:, None]
    each = (orders - 1) * (curve - epsilon + np.log1p(-1 / orders)) - np.log(orders)
    least: Curve = np.minimum(each.min(axis=1), 0.0)
    return least


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)
