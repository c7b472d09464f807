"""What the best guesser can reach who sees everything that a run released: its joint trade-off curve.

For two neighbours with the laws P and Q of all releases, a test that accuses with chance `a` under Q does so
with a chance of at most `1 - f(a)` under P, where f is their trade-off function. Every figure here bounds f
for all neighbours, all records and all votes, so it may be published. It follows from two things that an
accountant proves of all releases together: an epsilon at every delta, and, where there is one, a mu of
Gaussian differential privacy. docs/proofs/trade_off.md, "What a statement says to everybody", derives each
figure.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from pate_jax.accounting import after_count, composition, curves, figures, filter, stable
from pate_jax.accounting.curves import Epsilon, sampler_slack, with_slack
from pate_jax.accounting.figures import rounded_up
from pate_jax.mechanisms import Mechanism
from pate_jax.mechanisms.stable import StableAnswers

DELTAS = (1e-5, 1e-6, 1e-9)  # at which a statement gives epsilon
FALSE_ALARMS = 1e-3  # at which true positives are given
Spent = Callable[[float], float]  # the epsilon that is proved at a delta, of the noise that is drawn
_UP = 1 + 1e-13  # every figure is rounded up by this
_GRID = np.geomspace(1e-8, 0.5, 16)  # deltas at which the curve is read first
_FINER, _BETWEEN = 2, 5  # how often it is read again around the best of them, and at how many deltas
_FINITE = 700.0  # an epsilon whose exponential is a number


class Gaussian(NamedTuple):
    """All releases follow from two Gaussians that are `mu` standard deviations apart, but for what strays."""

    mu: float
    strays: float  # total-variation distance of what is drawn from laws of which mu is proved


class TradeOff(NamedTuple):
    """What is published of the curve."""

    gaussian: Gaussian | None  # None where no mu is proved
    epsilons: dict[float, float | None]  # by delta; None where none is finite
    guess: float  # the largest share of right guesses at even odds
    caught: float  # the largest share of true positives at `FALSE_ALARMS`
    apart: str = ""  # what was released beside it and is not in it, in words

    @property
    def mu(self) -> float | None:
        """The mu of Gaussian differential privacy; None where none is proved."""
        return None if self.gaussian is None else self.gaussian.mu

    @property
    def words(self) -> str:
        """All of it in words.

        >>> of(lambda delta: composition.gaussian_epsilon(0.2681, delta), 1e-5, Gaussian(0.2681, 0.0)).words
        'a guess at even odds is right at most 55.4% of the time (blindly 50%); at 1 false accusation in \
1,000 at most 0.239% of the true cases are found; mu 0.2681 of Gaussian differential privacy; epsilon 1.0003 \
at delta 1e-05, 1.1439 at delta 1e-06, 1.5022 at delta 1e-09'
        """
        mu = "no mu" if self.mu is None else f"mu {rounded_up(self.mu)}"
        each = [
            f"{'none' if epsilon is None else rounded_up(epsilon)} at delta {delta:g}"
            for delta, epsilon in self.epsilons.items()
        ]
        return (
            f"a guess at even odds is right at most {percent(self.guess)} of the time (blindly 50%); at 1 "
            f"false accusation in 1,000 at most {percent(self.caught, 3)} of the true cases are found; "
            f"{mu} of Gaussian differential privacy; epsilon {', '.join(each)}"
            f"{self.apart and '; '}{self.apart}"
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        mu, strays = self.gaussian or (None, None)
        return {
            "mu": mu,
            "strays": strays,
            "epsilon": {f"{delta:g}": epsilon for delta, epsilon in self.epsilons.items()},
            "guess": self.guess,
            "false_alarms": FALSE_ALARMS,
            "caught": self.caught,
            "in_words": self.words,
        }


def of(spent: Spent, delta: float, gaussian: Gaussian | None = None) -> TradeOff:
    """The curve of what costs at most `spent`, and follows from two Gaussians where `gaussian` is given.

    `delta` is that of the headline: what its epsilon allows is never exceeded.

    >>> of(lambda delta: 1.0 if delta >= 1e-5 else math.inf, 1e-5).guess <= 0.731064
    True
    """

    def epsilon(at: float) -> float:
        return min(spent(at), _of_gaussian(gaussian, at))

    known = {at: epsilon(at) for at in (delta, *DELTAS, *_GRID.tolist())}
    apart = _least(variation, epsilon, known)
    found = _least(caught, epsilon, known)
    if gaussian is not None:
        apart = min(apart, float(gaussian_variation(gaussian.mu, gaussian.strays)))
        found = min(found, float(gaussian_caught(gaussian.mu, FALSE_ALARMS, gaussian.strays)))
    epsilons = {at: known[at] if math.isfinite(known[at]) else None for at in DELTAS}
    return TradeOff(gaussian, epsilons, min(1.0, (1 + apart) / 2 * _UP), min(1.0, found * _UP))


def of_point(epsilon: float, delta: float) -> Spent:
    """What a single epsilon at a delta proves: nothing at a smaller delta.

    >>> of_point(1.0, 1e-5)(1e-4), of_point(1.0, 1e-5)(1e-6)
    (1.0, inf)
    """
    return lambda at: epsilon if at >= delta else math.inf


def variation(epsilon: float, delta: float) -> float:
    """The largest total variation of two laws that are (epsilon, delta)-close in both directions.

    >>> round(variation(1.0, 1e-5), 4)
    0.4621
    """
    return min(1.0, 1 - 2 * (1 - delta) / (math.exp(min(epsilon, _FINITE)) + 1))


def caught(epsilon: float, delta: float, level: float = FALSE_ALARMS) -> float:
    """The most true positives at this share of false ones, of two such laws.

    >>> round(caught(1.0, 1e-5), 6)
    0.002728
    """
    growth = math.exp(min(epsilon, _FINITE))
    return min(1.0, growth * level + delta, 1 - (1 - level - delta) / growth)


def gaussian_variation(mu: Any, strays: float = 0.0) -> Any:
    """The largest total variation, for each mu, where both laws stray at most so far from Gaussian ones.

    >>> round(float(gaussian_variation(0.2681)), 4)
    0.1066
    """
    return np.minimum(1.0, special.erf(np.asarray(mu) / 8**0.5) * _UP + 2 * strays)


def gaussian_caught(mu: Any, level: float = FALSE_ALARMS, strays: float = 0.0) -> Any:
    """The most true positives at this share of false ones, for each mu.

    >>> round(float(gaussian_caught(0.2681)), 6)
    0.002385
    """
    return np.minimum(1.0, special.ndtr(mu + special.ndtri(min(1.0, level + strays))) * _UP + strays)


def percent(chance: float, digits: int = 0) -> str:
    """A chance in per cent, rounded up; with more digits where little is missing from certainty.

    >>> percent(0.5), percent(0.731057), percent(0.9983746), percent(0.0023849, 3)
    ('50.0%', '73.2%', '99.84%', '0.239%')
    """
    digits = max(digits, 1 if chance < 0.99 else 2 if chance < 0.999 else 4)
    return f"{math.ceil(round(chance * 10 ** (2 + digits), 6)) / 10**digits:.{digits}f}%"


def _of_gaussian(gaussian: Gaussian | None, delta: float) -> float:
    """The epsilon that mu proves at a delta, with what strays paid for."""
    if gaussian is None:
        return math.inf
    mu = gaussian.mu

    def ideal(inner: float) -> Epsilon:
        return Epsilon(composition.gaussian_epsilon(mu, inner), None)

    return float(with_slack(ideal, delta, gaussian.strays).epsilon)


def _least(bound: Callable[[float, float], float], epsilon: Spent, known: dict[float, float]) -> float:
    """The least of a bound over deltas; each delta proves one, so it need not be the very best."""
    points = dict(known)
    for _ in range(_FINER):
        deltas = sorted(points)
        best = min(range(len(deltas)), key=lambda place: bound(points[deltas[place]], deltas[place]))
        ends = deltas[max(best - 1, 0)], deltas[min(best + 1, len(deltas) - 1)]
        between = np.geomspace(*ends, _BETWEEN + 2)[1:-1].tolist()
        points |= {at: epsilon(at) for at in between}
    return min(bound(one, at) for at, one in points.items())


@lru_cache(maxsize=256)
def of_answers(
    mechanism: Mechanism,
    asked: int,
    *,
    teachers: int,
    classes: int,
    delta: float,
    headline: float,
    budgeted: bool,
) -> TradeOff:
    """The curve of as many queries as were asked or, under a privacy filter, as its budget affords.

    `headline` is the epsilon of the statement, which is infinite if it has none. Where the numbers of
    teachers differ (0), it and the mu of the noise are all that is used.

    >>> from pate_jax.mechanisms import GNMax
    >>> size = {"teachers": 250, "classes": 10, "delta": 1e-5, "budgeted": False}
    >>> found = of_answers(GNMax(sigma=40.0), 100, headline=1.1588, **size)
    >>> round(found.mu, 6), round(found.guess, 3)
    (0.353553, 0.559)
    """
    alone = of_point(headline, delta)
    queries = _affordable(mechanism, teachers, classes, delta, headline) if budgeted else asked
    if queries < asked:  # a filter that was not planned for these queries
        return of(alone, delta)
    mu = composition.safe_mu(mechanism, queries)
    strays = 2 * sampler_slack(mechanism, queries, classes or 2)
    gaussian = None if mu is None or not classes else Gaussian(mu, strays)
    if not teachers or not classes:
        return of(alone, delta, gaussian)
    orders = tuple(curves.default_orders().tolist())

    def spent(at: float) -> float:
        proved = figures.proved_for(mechanism, ((teachers, queries),), classes, orders, at)
        return min(float(proved.epsilon.epsilon), alone(at))

    return of(spent, delta, gaussian)


@lru_cache(maxsize=256)
def of_limit(epsilon: float, delta: float) -> TradeOff:
    """The curve of a noisy number of voters and any answers that the limit allows after it.

    >>> found = of_limit(1.0, 1e-5)
    >>> found.mu, found.epsilons[1e-5] <= 1.0, round(found.guess, 2)
    (None, True, 0.57)
    """
    limit = after_count.limit(epsilon, delta)
    return of(lambda at: epsilon if at == delta else after_count.epsilon(limit, at), delta)


@lru_cache(maxsize=256)
def of_stable(mechanism: StableAnswers, delta: float) -> TradeOff:
    """The curve of a whole list of stable answers. It has a delta of its own, and so no mu.

    >>> found = of_stable(StableAnswers(threshold=40, scale=3.0, cutoff=1), 1e-5)
    >>> found.mu, round(found.guess, 4), found.epsilons[1e-9]
    (None, 0.7311, None)
    """
    return of(lambda at: stable.epsilon(mechanism, at), delta)


def _affordable(mechanism: Mechanism, teachers: int, classes: int, delta: float, epsilon: float) -> int:
    """How many queries of this mechanism a filter affords; none if it is not known for how many teachers."""
    if not teachers or not classes or not math.isfinite(epsilon):
        return -1
    return filter.affordable(mechanism, teachers=teachers, classes=classes, epsilon=epsilon, delta=delta)
