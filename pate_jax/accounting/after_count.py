"""What answers of teachers may cost that are chosen after a noisy number of voters: one figure for both.

The number of teachers, queries and the noise follow from a noisy number of voters, which is released first
with Gaussian noise (`headcount`). Which answers follow is not known before, so a figure of the answers that
were given would be the cost of one history. Instead a limit is fixed in advance: a list of pairs of epsilon
and delta. Whatever number came out, the answers that follow must be (epsilon, delta)-private at every pair.

**The figure.** Let `H(z) = sup E_P[(1 - e^(z - L))+]` be the hockey-stick curve of the answers after a
number, L their privacy loss. As a function of `t = e^z` it is convex, at t = 0 equal to 1, and never rises.
So it lies below the chords `U` that join (0, 1) and the pairs of the limit, and below the last delta from
there on. A number with the loss D leaves `H(z - D)`, whichever it was, so both together have

    delta(z) = E[H_number(z - D)] <= E[U(z - D)],   D ~ N(m^2/2, m^2),   m = 1 / (scale of the number).

`U` is convex in t, so rounding the number lowers the mean (data processing). It is a sum of normal
distribution functions, since `U` is linear in t between two pairs. A voter whose contents change does not
move the number, and costs no more. docs/proofs/crowds.md, "One number for every kind of voters", has an
example.
"""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from pate_jax.accounting import composition
from pate_jax.accounting.calibrate import enough_noise, factors, least_noise, scaled
from pate_jax.accounting.curves import sampler_slack
from pate_jax.accounting.data_independent import WorstCase
from pate_jax.accounting.exact import counts
from pate_jax.errors import PateError
from pate_jax.mechanisms import Mechanism
from pate_jax.mechanisms.crowds import LARGEST_SIGMA, HeadCount

Points = NDArray[np.float64]
SHARE = 1 / 28  # of mu^2, for the number of voters
_STEPS = np.concatenate(  # deltas of the limit by that of the run, close to each other where most is at stake
    [np.geomspace(1e-5, 1e-2, 4), 1.5 ** np.arange(-6.0, 11.0), np.geomspace(200, 3e4, 5)]
)
_MIDDLE = math.log(2.3)  # where the number's loss and the answers' together take most of delta
_WIDE = (0.002, 0.0005, 0.015)  # how much more the limit allows away from there
_CLOSE = 2e-3  # relative: how far below its limit a calibrated list may end
_UP = 1 + 1e-9  # every figure is rounded up


class Limit(NamedTuple):
    """What answers may cost after a number of voters, and what both cost together at most."""

    epsilon: float
    delta: float
    mu: float  # of the number of voters
    epsilons: tuple[float, ...]  # falling
    deltas: tuple[float, ...]  # rising

    @property
    def headcount(self) -> HeadCount:
        """The noisy number of voters."""
        return headcount(self.epsilon, self.delta)

    @property
    def answers(self) -> float:
        """The epsilon of the answers alone at the run's delta."""
        return float(np.interp(math.log(self.delta), np.log(self.deltas), self.epsilons))


def headcount(epsilon: float, delta: float) -> HeadCount:
    """The noisy number of voters that leaves at least 96% of epsilon to whoever votes after it.

    >>> [round(headcount(target, 1e-5).sigma, 1) for target in (0.1, 1.0)]
    [162.7, 19.7]
    """
    sigma = 1 / (counts.mu_for(epsilon, delta) * math.sqrt(SHARE)) * (1 + 1e-6)
    if sigma > LARGEST_SIGMA:
        raise PateError(
            f"epsilon={epsilon:g} at delta={delta:g} has no room for a noisy number of voters beside their "
            "answers: raise epsilon or delta, or name the voters (--voters teachers, neighbours or sums)"
        )
    return HeadCount(max(1.0, sigma))


@lru_cache(maxsize=64)
def limit(epsilon: float, delta: float) -> Limit:
    """The limit under which number and answers together are (epsilon, delta)-private.

    >>> found = limit(1.0, 1e-5)
    >>> 0.97 < found.answers < 0.98, together(found, 1.0) <= 1e-5
    (True, True)
    """
    mu, number = counts.mu_for(epsilon, delta), 1 / headcount(epsilon, delta).sigma
    low, high = mu / 2, mu
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        keeps = together(_of(middle, number, epsilon, delta), epsilon) <= delta / _UP
        low, high = (middle, high) if keeps else (low, middle)
    return _of(low, number, epsilon, delta)


def _of(mu: float, number: float, epsilon: float, delta: float) -> Limit:
    """The limit for answers that cost about mu, wider where nothing is at stake."""
    deltas = np.minimum(delta * _STEPS, 0.5)
    away = np.log(_STEPS) - _MIDDLE
    square, cube, above = _WIDE
    wider = 1 + square * away**2 + cube * np.abs(away) ** 3
    wider += above / max(1.0, mu) * np.maximum(away - 0.4, 0) ** 2
    wider = np.where(away < 0, np.minimum(wider, 1.3), wider)
    each = np.array([composition.gaussian_epsilon(mu, one) for one in deltas]) * wider
    falling = np.minimum.accumulate(each)
    return Limit(epsilon, delta, number, tuple(falling.tolist()), tuple(deltas.tolist()))


def together(found: Limit, epsilon: float) -> float:
    """The delta at this epsilon of a number and any answers within the limit, rounded up.

    >>> found = limit(1.0, 1e-5)
    >>> together(found, 1.1) < together(found, 1.0) < together(found, 0.9)
    True
    """
    heights, growths = _hull(found)
    # between two pairs, U is a line in t = e^(z - D): its height at 0 under P, its slope times e^z under Q
    ends = np.concatenate([[-np.inf], np.log(growths[1:]), [np.inf]])
    slopes = np.append(np.diff(heights) / np.diff(growths), 0.0)
    starts = heights - slopes * growths
    under_p, under_q = (_between(ends, epsilon, found.mu, sign) for sign in (1, -1))
    total = float(np.sum(starts * under_p) + math.exp(epsilon) * np.sum(slopes * under_q))
    strays = (1 + math.exp(epsilon)) * counts.slack_of([HeadCount(1 / found.mu)])
    return total * _UP + strays


def epsilon(found: Limit, delta: float) -> float:
    """The least epsilon at which both together have at most this delta; infinite if the limit shows none.

    >>> found = limit(1.0, 1e-5)
    >>> round(epsilon(found, 1e-5), 6), epsilon(found, 1e-3) < 1, epsilon(found, 1e-30)
    (1.0, True, inf)
    """
    low, high = 0.0, found.epsilons[0] + 10 * found.mu
    if together(found, low) <= delta:
        return low
    if together(found, high) > delta:
        return math.inf
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if together(found, middle) <= delta else (middle, high)
    return high


def _between(ends: Points, epsilon: float, mu: float, sign: int) -> Points:
    """The chance that `epsilon - D` lies between two ends, D being normal around half of mu^2 or minus it."""
    places = (ends - epsilon + sign * mu * mu / 2) / mu
    lower, upper = places[:-1], places[1:]
    flipped = lower > 0  # where both tails are small, differences of the other tails keep their digits
    low, high = np.where(flipped, -upper, lower), np.where(flipped, -lower, upper)
    result: Points = special.ndtr(high) - special.ndtr(low)
    return result


def _hull(found: Limit) -> tuple[Points, Points]:
    """The corners of U, in t from 0 on: the lower convex hull of the limit's pairs and (0, 1)."""
    corners: list[tuple[float, float]] = [(0.0, 1.0)]
    for epsilon, delta in sorted(zip(found.epsilons, found.deltas, strict=True)):
        corner = math.exp(epsilon), delta
        if corner[0] <= corners[-1][0]:
            continue  # a larger delta at the same epsilon
        while len(corners) > 1 and _above(corners[-2], corners[-1], corner):
            corners.pop()
        corners.append(corner)
    growths, heights = np.array(corners).T
    return heights, growths


def _above(first: tuple[float, float], middle: tuple[float, float], last: tuple[float, float]) -> bool:
    """Whether the middle corner is not below the line from the first one to the last."""
    (x0, y0), (x1, y1), (x2, y2) = first, middle, last
    return (y1 - y0) * (x2 - x0) >= (y2 - y0) * (x1 - x0)


@lru_cache(maxsize=64)
def excess(mechanism: Mechanism, found: Limit, *, queries: int, teachers: int, classes: int) -> float:
    """What a list of answers costs by what the limit allows, at the worst of its pairs: at most 1 if it fits.

    It depends on public numbers alone, whatever the votes.

    >>> from pate_jax.mechanisms import DiscreteGaussianMax
    >>> size = {"queries": 60, "teachers": 250, "classes": 10}
    >>> [excess(DiscreteGaussianMax(scale), limit(1.0, 1e-5), **size) < 1 for scale in (30.0, 40.0)]
    [False, True]
    """
    case, slack = _case(mechanism, teachers, classes), sampler_slack(mechanism, queries, classes)
    worst = 0.0
    for epsilon, delta in zip(found.epsilons, found.deltas, strict=True):
        spent = float(case.quick(np.array([queries]), delta, slack).epsilon.epsilon)
        worst = max(worst, spent / epsilon if epsilon > 0 else math.inf if spent > 0 else 0.0)
    return worst


@lru_cache(maxsize=64)
def _case(mechanism: Mechanism, teachers: int, classes: int) -> WorstCase:
    """Its curves are those of one query, so they serve every pair of the limit."""
    return WorstCase(mechanism, [teachers], classes)


def fits(mechanism: Mechanism, found: Limit, *, queries: int, teachers: int, classes: int) -> bool:
    """Whether a list of answers is within the limit; rounding on another machine does not matter.

    >>> from pate_jax.mechanisms import DiscreteGaussianMax
    >>> fits(DiscreteGaussianMax(40.0), limit(1.0, 1e-5), queries=60, teachers=250, classes=10)
    True
    """
    spent = excess(mechanism, found, queries=queries, teachers=teachers, classes=classes)
    return spent <= _UP


@lru_cache(maxsize=16)
def calibrated(mechanism: Mechanism, found: Limit, *, queries: int, teachers: int, classes: int) -> Mechanism:
    """The mechanism with its noise multiplied by the least factor that keeps the list within the limit.

    >>> from pate_jax.mechanisms import DiscreteGaussianMax
    >>> size = {"queries": 60, "teachers": 250, "classes": 10}
    >>> found = calibrated(DiscreteGaussianMax(10.0), limit(1.0, 1e-5), **size)
    >>> 35 < found.sigma < 37, fits(found, limit(1.0, 1e-5), **size)
    (True, True)
    """

    @cache
    def spent(factor: float) -> float:
        changed = scaled(mechanism, factor)
        return excess(changed, found, queries=queries, teachers=teachers, classes=classes)

    smallest, largest = factors(mechanism)
    enough = enough_noise(spent, 1.0, largest)
    if spent(enough) > 1:
        raise PateError(
            f"epsilon={found.epsilon:g} at delta={found.delta:g} leaves too little for {queries} answers of "
            f"{mechanism!r} with any noise: ask fewer queries, or raise epsilon or delta"
        )
    return scaled(mechanism, least_noise(spent, 1.0, enough, smallest, _CLOSE))
