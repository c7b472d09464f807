"""Settings chosen on private data and paid for: the best of a random number of candidates.

Candidates are drawn at random, with replacement, from a list that was fixed without private data. Each
is run on the private data, by a mechanism of one known Renyi curve whose output includes a score. Only the
output with the best score is published, and the number K of candidates is random and stays secret. Then the
cost hardly depends on K (Papernot and Steinke 2022, "Hyperparameter tuning with Renyi differential privacy").
With a *fixed* number this is false: the best of a fixed number of candidates may reveal as much as all of
them, and is charged as their composition (`Fixed`). See docs/proofs/tuning.md.

Where each candidate is Gaussian differentially private (`Tuned`), one is known by its privacy profile: the
log of the smallest delta at each epsilon. For the truncated negative binomial law this gives a smaller figure
than Renyi curves do. docs/proofs/tuning.md derives the bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from pate_jax.accounting import composition
from pate_jax.accounting.curves import Epsilon, with_slack
from pate_jax.accounting.inputs import Curve, check_curve, check_orders
from pate_jax.accounting.trade_off import Gaussian
from pate_jax.errors import PateError
from pate_jax.mechanisms import laws
from pate_jax.mechanisms.crowds import LARGEST_SIGMA
from pate_jax.mechanisms.descriptions import Noise

_UP = 1 + 1e-12  # every figure is rounded up by this


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


Profile = Callable[[float], float]  # from epsilon >= 0 to the log of delta, for both directions
_CELLS = 1 << 30  # of the noisy tables of one candidate, at most: a ledger's line holds fewer
_DRAWN = 1e-11  # of the number of candidates: how far the table that it is drawn from strays from its law


@dataclass(frozen=True)
class Tuned:
    """How the best candidate was chosen: the law of their number, and what the list of settings was.

    >>> Tuned(NegativeBinomial(1.0, 0.1), mu=0.2, settings=3).expected
    10.0
    """

    law: NegativeBinomial | Fixed  # a fixed number is charged as the composition of all
    mu: float  # each candidate costs the choice at most what a mu-Gaussian-DP one does, whatever its settings
    settings: int  # on the list from which each candidate is drawn

    def __post_init__(self) -> None:
        if type(self.mu) is not float or not 0 < self.mu < 1e3:
            raise PateError(f"mu={self.mu!r} of a candidate must be a number above 0")
        if type(self.settings) is not int or self.settings < 1:
            raise PateError(f"settings={self.settings!r} must be a whole number of at least 1")
        if isinstance(self.law, Fixed) and self.law.candidates != self.settings:
            raise PateError(
                f"candidates={self.law.candidates} of {self.settings} settings are charged: each is tried "
                "once, so charge all of them"
            )

    @property
    def expected(self) -> float:
        """The mean number of candidates."""
        return self.law.candidates if isinstance(self.law, Fixed) else round(self.law.mean, 9)

    @property
    def of_all(self) -> bool:
        """Whether every setting of the list was tried once, and all are charged."""
        return isinstance(self.law, Fixed)

    @property
    def words(self) -> str:
        """What was done, for a statement.

        >>> Tuned(NegativeBinomial(1.0, 0.1), mu=0.2, settings=3).words[:62]
        'the best, by a noisy score, of a random number of candidates, '
        """
        if isinstance(self.law, Fixed):
            number = f"each of the {self.law.candidates} settings of a list, all charged"
        else:
            law = f"{self.expected:g} on average (shape {self.law.shape:g})"
            number = f"a random number of candidates, {law}, drawn from a list of {self.settings} settings"
        return (
            f"the best, by a noisy score, of {number}; each costs at most what {self.mu:.6g}-Gaussian-DP does"
        )

    def epsilon(self, delta: float) -> float:
        """The epsilon of the whole choice at delta, whichever candidate won.

        >>> round(Tuned(NegativeBinomial(1.0, 0.1), mu=0.125, settings=3).epsilon(1e-5), 3)
        0.729
        """
        ideal = with_slack(lambda inner: Epsilon(self._ideal(inner), None), delta, self.strays())
        return float(ideal.epsilon)

    @property
    def gaussian(self) -> Gaussian | None:
        """The mu of the whole choice where all candidates are charged; that of a random number has none."""
        if isinstance(self.law, NegativeBinomial):
            return None
        return Gaussian(self.mu * math.sqrt(self.law.candidates) * _UP, self.strays())

    def strays(self) -> float:
        """How far all draws may stray from their laws: the noise of all candidates, and their number.

        >>> Tuned(NegativeBinomial(1.0, 0.1), mu=0.125, settings=3).strays() < 1e-10
        True
        """
        each = _CELLS * laws.distance(Noise("rounded_gaussian", LARGEST_SIGMA))
        return (self.expected * each + _DRAWN) * _UP

    def _ideal(self, delta: float) -> float:
        """The same for noise that follows its law exactly."""
        if isinstance(self.law, Fixed):
            return composition.gaussian_epsilon(self.mu * math.sqrt(self.law.candidates) * _UP, delta) * _UP
        one = composition.gaussian_epsilon(self.mu, delta / self.law.mean / _UP)
        often = log_ratio(self.law, lambda epsilon: composition.gaussian_log_delta(self.mu, epsilon))
        return (one + often) * _UP


def log_ratio(law: NegativeBinomial, profile: Profile) -> float:
    """A bound on how much likelier or rarer an outcome becomes by its rank alone, as a log.

    It is `1 + shape` times the log of a ratio. Let x and x' be the chances of a better outcome for two
    neighbours. Then `x' <= e^e x + delta(e)` for each e, and `(gamma + (1-gamma) x') / (gamma + (1-gamma) x)`
    is at most `max(1 + (1-gamma)/gamma delta(e), gamma + (1-gamma)(e^e + delta(e)))`. The best e makes both
    equal.

    >>> law = NegativeBinomial(1.0, 0.1)
    >>> round(log_ratio(law, lambda epsilon: composition.gaussian_log_delta(0.125, epsilon)), 3)
    0.225
    """
    return (1 + law.shape) * math.log(max(_ends(law, profile, _balance(law, profile)))) * _UP


def _ends(law: NegativeBinomial, profile: Profile, epsilon: float) -> tuple[float, float]:
    """Both terms of the bound on that ratio: the first falls with epsilon, the second rises."""
    gamma, rest, delta = law.gamma, 1 - law.gamma, math.exp(profile(epsilon))
    return 1 + rest / gamma * delta, gamma + rest * (math.exp(epsilon) + delta)


def _balance(law: NegativeBinomial, profile: Profile) -> float:
    """The epsilon that makes them equal."""
    low, high = 0.0, 1.0
    while high < 512 and _is_rare(_ends(law, profile, high)):
        low, high = high, 2 * high
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if _is_rare(_ends(law, profile, middle)) else (low, middle)
    return high


def _is_rare(ends: tuple[float, float]) -> bool:
    return ends[0] > ends[1]


class Point(NamedTuple):
    """An epsilon, and the largest delta that a candidate's profile may have there."""

    epsilon: float
    delta: float


def points(tuned: Tuned, delta: float) -> tuple[Point, Point]:
    """Where the proof reads a candidate's profile: for the ratio, and for what is left of the whole epsilon.

    A candidate whose profile is no larger than these two may be any mechanism: `tuned.epsilon(delta)` covers
    the best of such candidates as it covers that of Gaussian ones (docs/proofs/tuning.md).

    >>> found = points(Tuned(NegativeBinomial(1.0, 0.1), mu=0.125, settings=3), 1e-5)
    >>> [f"{one.epsilon:.3f} {one.delta:.1e}" for one in found]
    ['0.113 1.3e-02', '0.504 1.0e-06']
    """
    if isinstance(tuned.law, Fixed):
        raise PateError("all candidates of a fixed list are charged, so a profile at two places is no bound")
    law = tuned.law

    def profile(epsilon: float) -> float:
        return composition.gaussian_log_delta(tuned.mu, epsilon)

    both = _balance(law, profile), tuned.epsilon(delta) / _UP - log_ratio(law, profile)
    ratio, left = (Point(one, math.exp(profile(one)) / _UP) for one in both)
    return ratio, left


def log_delta(law: NegativeBinomial, profile: Profile, epsilon: float) -> float:
    """The log of a delta at which the best candidate is epsilon-private, by the profile of one.

    `delta_best(epsilon) <= E[K] delta_one(epsilon - log_ratio)`, and 1 below that.

    >>> law = NegativeBinomial(1.0, 0.1)
    >>> one = lambda epsilon: composition.gaussian_log_delta(0.125, epsilon)
    >>> math.exp(log_delta(law, one, 0.73)) < 1e-5
    True
    """
    left = epsilon - log_ratio(law, profile)
    return min(0.0, math.log(law.mean) + profile(left) + 1e-12) if left >= 0 else 0.0


def tuned_for(law: NegativeBinomial | Fixed, settings: int, epsilon: float, delta: float) -> Tuned:
    """The choice whose candidates have the least noise that keeps the whole choice within epsilon.

    >>> found = tuned_for(NegativeBinomial(1.0, 0.1), 3, epsilon=1.0, delta=1e-5)
    >>> round(found.mu, 4), 0.999 < found.epsilon(1e-5) <= 1.0
    (0.1689, True)
    """
    low, high = 0.0, 100.0
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        fits = Tuned(law, middle, settings).epsilon(delta) <= epsilon
        low, high = (middle, high) if fits else (low, middle)
    if low < 1e-6:
        raise PateError(f"epsilon={epsilon!r} at delta={delta:g} is too little for a choice: raise it")
    return Tuned(law, low, settings)
