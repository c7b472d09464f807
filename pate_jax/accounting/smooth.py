"""A sanitised figure: the exact cost made publishable, as an upper limit at a stated confidence.

The release is the logarithm of a sum over queries, plus discrete Gaussian noise. Each query's term bounds its
exact joint cost from above, and no voter can change it by more than a factor of `e^beta`: it is the largest
cost by the two largest counts (`leading_counts`), discounted by `e^-beta` for each vote of distance. So the
logarithm of the sum moves by at most beta between neighbours, whatever the votes are, and the noise has one
public scale. Order, beta and noise come from a `Plan` made without the private votes. Proved in
docs/proofs/sanitised.md.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate_jax.accounting import curves, figures
from pate_jax.accounting.bounds import leading_counts
from pate_jax.accounting.bounds.leading_counts import Boxes
from pate_jax.accounting.bounds.worst_case import LARGEST_SHIFT
from pate_jax.accounting.curves import sampler_slack, with_slack
from pate_jax.accounting.figures import Figure
from pate_jax.accounting.inputs import Curve, check_delta, check_votes
from pate_jax.errors import PateError
from pate_jax.mechanisms import Mechanism, Noise, check_votes_suffice, laws

STEPS = 32  # the most steps of the public grid by which one voter can move the logarithm of the sum
ROUNDING = 1e-6  # the share of beta that is reserved for the rounding of the sum and of its logarithm
BASIS = "exact joint cost, sanitised"
LIMIT = "at most this with confidence {confidence:.7g}%, {releases} (Renyi {cost:.3g}) included"
OWN_VOTES = "its parameters were chosen on the private votes, so it must stay inside"
ORDERS = (3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 14.0, 17.0, 20.0, 25.0, 32.0)
BETAS = np.round(np.geomspace(0.005, 0.5, 21), 4)
NOISES = np.round(np.geomspace(2.0, 40.0, 31), 2)


@dataclass(frozen=True)
class Plan:
    """Parameters of a release, fixed before the private votes are seen.

    >>> round(Plan(order=14.0, beta=0.025, noise=8.0).cost, 4)
    0.1094
    """

    order: float
    beta: float  # the most by which one voter can move the logarithm of the released sum
    noise: float  # standard deviation of the noise, in units of beta
    from_private_votes: bool = False  # then the figure stays sensitive

    def __post_init__(self) -> None:
        if not (1 < self.order < math.inf and 0 < self.beta <= 1 and 0.1 <= self.noise <= 1000):
            raise PateError(
                f"plan with order={self.order!r}, beta={self.beta!r}, noise={self.noise!r}: "
                "order must be above 1, beta above 0 and at most 1, noise from 0.1 to 1000"
            )

    @property
    def cost(self) -> float:
        """Renyi cost of the release at `order`: that of a shift of its noise by at most `STEPS`."""
        return self.order / (2 * self.noise**2)

    @property
    def grid(self) -> float:
        """The step of the grid to which the logarithm is rounded."""
        return self.beta / STEPS

    @property
    def law(self) -> Noise:
        """The law of the noise, in steps of the grid."""
        return Noise("discrete_gaussian", self.noise * STEPS)


def smooth_sum(mechanism: Mechanism, votes: ArrayLike, plan: Plan) -> float:
    """The sum that is released with noise: an upper bound of the exact joint cost; sensitive.

    >>> from pate_jax.mechanisms import GNMax
    >>> total = smooth_sum(GNMax(40.0), [[240, 10], [200, 50]], Plan(14.0, 0.025, 8.0))
    >>> bool(total > curves.rdp(GNMax(40.0), [[240, 10], [200, 50]], [14.0], method="exact").sum())
    True
    """
    counts = _checked(mechanism, votes)
    places, times = _places(counts)
    boxes = leading_counts.costs(mechanism, np.array([plan.order]), int(counts[0].sum()), counts.shape[1])
    return float(times @ smooth_costs(boxes, places, plan.beta)[0])


def smooth_costs(boxes: Boxes, places: NDArray[np.int64], beta: float) -> Curve:
    """The smoothed cost [order, place] of each pair of largest counts: no voter changes it by over `e^beta`.

    It is the largest cost of all boxes, each discounted by `e^-beta` for each vote of distance.
    """
    with np.errstate(divide="ignore"):
        logs = np.log(boxes.cost)
    costs = np.empty((len(logs), len(places)))
    rows = max(1, 4_000_000 // len(boxes.low))
    for start in range(0, len(places), rows):
        block = places[start : start + rows, None]
        away = np.maximum(boxes.low - block, block - boxes.high).max(axis=2).clip(min=0)
        discount = beta * (1 - ROUNDING) * away
        for order, log_cost in enumerate(logs):
            costs[order, start : start + rows] = (log_cost - discount).max(axis=1)
    return np.exp(costs)


class Release(NamedTuple):
    """The published value: the noisy logarithm of the sum, in steps of the plan's grid."""

    plan: Plan
    value: int


def release(mechanism: Mechanism, votes: ArrayLike, plan: Plan, *, drawn: int | None = None) -> Release:
    """The logarithm of the sum, rounded up to the grid, plus noise from the operating system.

    `drawn` is a value of the plan's noise that replaces a fresh one.

    >>> from pate_jax.mechanisms import GNMax
    >>> release(GNMax(40.0), [[240, 10]] * 50, Plan(14.0, 0.025, 8.0), drawn=0).value
    -4615
    """
    steps = math.ceil(math.log(smooth_sum(mechanism, votes, plan)) / plan.grid)
    return Release(plan, steps + (draw(plan.law) if drawn is None else drawn))


def limit(
    mechanism: Mechanism,
    shape: tuple[int, ...],
    releases: Sequence[Release],
    delta: float,
    confidence: float = 0.99,
    last: float | None = None,
) -> Figure:
    """The upper limit from the last release, with the costs of all releases of these votes [query, class].

    `last` is the confidence of the last release alone, of which `spread` leaves `confidence` for all.
    """
    plan, value = releases[-1]
    own = check_confidence(confidence) if last is None else last
    largest = math.exp((value + quantile(plan.law, own)) * plan.grid)
    cost = sum(plan.order / (2 * one.plan.noise**2) for one in releases)
    slack = sampler_slack(mechanism, *shape) + sum(laws.distance(one.plan.law) for one in releases)
    result = with_slack(
        lambda inner: curves.epsilon([plan.order], [largest + cost], inner), check_delta(delta), slack
    )
    from_private = plan.from_private_votes
    note = LIMIT.format(
        confidence=100 * confidence,
        releases="its own release" if len(releases) == 1 else f"all {len(releases)} releases",
        cost=cost,
    )
    return figures.figure(
        result,
        "sensitive" if from_private else "publishable",
        BASIS,
        f"{OWN_VOTES}; {note}" if from_private else note,
    )


def sanitise(
    mechanism: Mechanism,
    votes: ArrayLike,
    delta: float,
    plan: Plan,
    *,
    confidence: float = 0.99,
    drawn: int | None = None,
) -> Figure:
    """An upper limit, at the given confidence, of the exact cost together with the cost of this release.

    Release it once: two releases for one list cost twice, and share the confidence (`limit`, `spread`).

    >>> from pate_jax.mechanisms import GNMax
    >>> sanitise(GNMax(40.0), [[240, 10]] * 50, 1e-5, Plan(14.0, 0.025, 8.0), drawn=0).status
    'publishable'
    """
    check_confidence(confidence)
    counts = _checked(mechanism, votes)
    return limit(mechanism, counts.shape, [release(mechanism, counts, plan, drawn=drawn)], delta, confidence)


def draw(law: Noise) -> int:
    """One value of whole-number noise, from the operating system's entropy and whole numbers alone.

    >>> abs(draw(Noise("discrete_gaussian", 4.0))) < 60
    True
    """
    return _value(law, secrets.randbits(laws.WORD_BITS))


def quantile(law: Noise, confidence: float) -> int:
    """The least value that is at or above the noise with the given probability.

    >>> quantile(Noise("discrete_gaussian", 100.0), 0.99)
    233
    """
    return _value(law, math.ceil(confidence * 2**53) * 2 ** (laws.WORD_BITS - 53))


def _value(law: Noise, word: int) -> int:
    """The first value whose entry in the law's table is at least the word."""
    table = laws.table(law)
    first, last = 0, table.size - 1
    while first < last:
        middle = (first + last) // 2
        entry = int.from_bytes(table.words[middle].astype(">u4").tobytes(), "big")
        first, last = (first, middle) if entry >= word else (middle + 1, last)
    return table.lowest + first


def check_confidence(confidence: float) -> float:
    """The confidence; one that is too low or too close to 1 is refused.

    >>> check_confidence(0.99)
    0.99
    """
    if not 0.5 <= confidence <= 1 - 1e-9:
        raise PateError(f"confidence={confidence!r} must be from 0.5 to 0.999999999; 0.99 is customary")
    return confidence


def spread(confidence: float, draw: int) -> float:
    """The confidence of this draw alone (1, 2, ...), such that any number of draws hold with `confidence`.

    Draw k may fail with the share `6 / (pi k)^2` of `1 - confidence`, and these shares add up to 1.
    So whoever draws until a limit is small enough still has one that holds.

    >>> [round(spread(0.99, draw), 5) for draw in (1, 2, 10)]
    [0.99392, 0.99848, 0.99994]
    """
    own = 1 - (1 - check_confidence(confidence)) * 6 / (math.pi * draw) ** 2
    if own > 1 - 1e-12:
        raise PateError(
            f"confidence={confidence!r} leaves too little to be wrong for draw number {draw}: ask for less"
        )
    return math.nextafter(own, 1)


def plan(
    mechanism: Mechanism, queries: int, teachers: int, classes: int, delta: float, confidence: float = 0.99
) -> Plan:
    """The best plan for votes of an assumed consensus, from public numbers only.

    If the assumption is wrong, the figure is larger, but still valid.

    >>> from pate_jax.mechanisms import GNMax
    >>> plan(GNMax(40.0), 100, 250, 10, 1e-5).from_private_votes
    False
    """
    return plan_for(mechanism, example_votes(queries, teachers, classes), delta, confidence)


def plan_for(
    mechanism: Mechanism,
    votes: ArrayLike,
    delta: float,
    confidence: float = 0.99,
    *,
    from_private_votes: bool = False,
) -> Plan:
    """The plan with the smallest limit, if the noise happens to be 0, on PUBLIC or made-up votes."""
    counts = _checked(mechanism, votes)
    orders = np.array([order for order in ORDERS if order <= LARGEST_SHIFT * mechanism.noise.scale])
    if not len(orders):
        raise PateError(f"no plan for {mechanism!r}: its noise scale must be at least {ORDERS[0] / 3:g}")
    places, times = _places(counts)
    boxes = leading_counts.costs(mechanism, orders, int(counts[0].sum()), counts.shape[1])
    sums = np.array([smooth_costs(boxes, places, beta) @ times for beta in BETAS])
    sums = sums[..., None]  # [beta, order, 1]
    margin = quantile(Noise("discrete_gaussian", 100.0), check_confidence(confidence)) / 100
    extra = curves.conversion_cost(orders, check_delta(delta))[:, None] + orders[:, None] / (2 * NOISES**2)
    limits = sums * np.exp(margin * BETAS[:, None, None] * NOISES) + extra
    beta, order, noise = np.unravel_index(int(limits.argmin()), limits.shape)
    return Plan(float(orders[order]), float(BETAS[beta]), float(NOISES[noise]), from_private_votes)


def _checked(mechanism: Mechanism, votes: ArrayLike) -> NDArray[np.int64]:
    counts = check_votes(votes)
    check_votes_suffice(mechanism)
    if mechanism.releases_counts:
        raise PateError(
            f"{mechanism!r} costs the same whatever the votes: its data-independent figure may be published "
            "as it is, without --sanitise"
        )
    totals = counts.sum(axis=1)
    if not len(counts) or np.ptp(totals) or totals[0] < 1:
        raise PateError(
            f"votes of {len(counts)} queries with totals from {totals.min(initial=totals.max(initial=0))} to "
            f"{totals.max(initial=0)} have no sanitised figure; each teacher must vote once on each query"
        )
    return counts


def _places(counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The distinct pairs of largest counts, and how many queries have each."""
    largest = -np.sort(-counts, axis=1)[:, :2]
    places, times = np.unique(largest, axis=0, return_counts=True)
    return places, times


def example_votes(queries: int, teachers: int, classes: int) -> NDArray[np.int64]:
    """Made-up votes: most queries nearly unanimous, the rest down to half of the teachers for the winner.

    >>> example_votes(3, 100, 4)[:, 0]
    array([100,  94,  71])
    """
    place = (np.arange(queries) + 0.5) / queries
    votes = np.zeros((queries, classes), dtype=np.int64)
    votes[:, 0] = np.round(teachers * (1 - place**3 / 2))
    rest = teachers - votes[:, 0]
    if classes > 2:
        votes[:, 2:] = (rest // 2 // (classes - 2))[:, None]
    votes[:, 1] = teachers - votes.sum(axis=1)
    return votes
