"""Smooth sensitivity (2018, Appendix B, repaired): a data-dependent cost made publishable by noise.

What is released is the sum over queries of a bound at one order plus Gaussian noise of scale `S noise`,
where `S` is the smooth sensitivity `max_d e^{-beta d} LS(d)`. Order, beta and noise come from a `Plan` made
without the private votes. What was repaired against the published code: local sensitivity within distance
`d` and not at it; sorted counts; everything in log q, so strong consensus does not underflow; conditions C5
and C6 hold by construction and are reported; the weight of the argmax is a constant, since Pr[answered] is
itself a function of the votes; the bound holds in both directions; and the release is charged its worst
case.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import SystemRandom
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate_jax.accounting import curves, figures
from pate_jax.accounting.bounds import gnmax, smooth_bounds, threshold
from pate_jax.accounting.figures import Figure
from pate_jax.accounting.inputs import check_delta, check_votes
from pate_jax.accounting.slack import sampler_slack, with_slack
from pate_jax.errors import PateError
from pate_jax.mechanisms import Mechanism, check_votes_suffice
from pate_jax.system import progress

ESTIMATE = "an estimate: the noise that sanitises it puts it below the true bound as often as above"
ROUNDED = "the noisy sum is rounded up to a multiple of {grid:g}; the noise is a float64 Gaussian"
OWN_VOTES = "its parameters were chosen on the private votes, so it must stay inside"


@dataclass(frozen=True)
class Plan:
    """Parameters of a release, fixed before the private votes are seen.

    >>> round(Plan(order=14.0, beta=0.02, noise=8.0).cost, 3)
    0.242
    """

    order: float
    beta: float  # discount per moved vote
    noise: float  # standard deviation in units of the smooth sensitivity
    from_private_votes: bool = False  # then the figure stays sensitive

    def __post_init__(self) -> None:
        if not (self.order > 1 and self.noise > 0 and 0 < self.beta < -math.log1p(-1 / self.order) / 2):
            limit = -math.log1p(-1 / self.order) / 2 if self.order > 1 else math.nan
            raise PateError(
                f"plan with order={self.order!r}, beta={self.beta!r}, noise={self.noise!r}: "
                f"order must be above 1, noise above 0 and beta between 0 and {limit:.4g}"
            )

    @property
    def cost(self) -> float:
        """Renyi cost of the release at `order`."""
        return release_cost(self.order, self.beta, self.noise)

    @property
    def grid(self) -> float:
        """What a released sum is a multiple of: a power of two, at most a hundredth of the release's cost.

        In plans made here the noise has about the size of that cost. Its true size depends on the votes, so
        the grid does not follow it.

        >>> Plan(order=14.0, beta=0.02, noise=8.0).grid == 2**-9
        True
        """
        return 2.0 ** math.floor(math.log2(self.cost / 100))


class Smooth(NamedTuple):
    """The sum of bounds and its smooth sensitivity, both functions of the votes, so sensitive."""

    value: float
    sensitivity: float
    distance: int  # at which the maximum is attained
    by_distance: NDArray[np.float64]
    conditions: tuple[bool, bool]  # C5 and C6 as they stood; the result holds either way
    plan: Plan


def release_cost(order: float, beta: float, noise: float) -> float:
    """Worst-case cost of a release: two scales e^beta apart, means apart by the smaller sensitivity.

    `a e^{-2 beta} / (2 noise^2 u) + (-log(u)/2 - a beta) / (a - 1)` with `u = 1 - a (1 - e^{-2 beta})`.

    >>> round(release_cost(14.0, 0.46 / 14, 6.2328), 2)
    1.59
    """
    u = 1 + order * math.expm1(-2 * beta)
    if u <= 0:
        return math.inf
    return order * math.exp(-2 * beta) / (2 * noise**2 * u) + (-math.log(u) / 2 - order * beta) / (order - 1)


def published_release_cost(order: float, beta: float, noise: float) -> float:
    """Theorem 23 of the 2018 paper: below the worst case once `order beta` exceeds about 0.27.

    >>> round(published_release_cost(14.0, 0.46 / 14, 6.2328), 4)
    0.5174
    """
    if not 1 < order < 1 / (2 * beta):
        return math.inf
    spread = (-math.log1p(-2 * order * beta) / 2 + order * beta) / (order - 1)
    return order * math.exp(2 * beta) / noise**2 + spread


def smooth_sensitivity(
    mechanism: Mechanism, votes: ArrayLike, plan: Plan, *, both_directions: bool = True
) -> Smooth:
    """The sum over all queries asked of a bound at the plan's order, and its smooth sensitivity.

    GNMax: Theorem 6. With a test: the exact cost of the test plus GNMax times the largest weight that any
    reading of so many teachers can give it, a constant.

    >>> from pate_jax.mechanisms import GNMax
    >>> found = smooth_sensitivity(GNMax(40.0), [[240, 10], [200, 50]], Plan(14.0, 0.02, 8.0))
    >>> found.value < 2 * 14 / 40**2, found.sensitivity > 0
    (True, True)
    """
    counts = check_votes(votes)
    test = mechanism.test
    if mechanism.noise.family != "gaussian" or (test is not None and test.noise.family != "gaussian"):
        raise PateError(f"{mechanism!r} has no smooth sensitivity here; use gnmax or confident-gnmax")
    check_votes_suffice(mechanism)
    teachers, sigma, order = int(counts.sum(axis=1).max()), mechanism.noise.scale, plan.order
    table = smooth_bounds.cells(sigma, counts.shape[1], teachers, order, both_directions=both_directions)
    value = float(table.bound[table.of(gnmax.log_q(counts, sigma))].sum())
    local = smooth_bounds.argmax_by_distance(counts, sigma, table, teachers)
    if test is not None:
        share = argmax_share(mechanism, teachers, order)
        costs = smooth_bounds.costs_of_test(test, teachers, order)
        largest = counts.max(axis=1)
        value = share * value + float(costs[largest].sum())
        local = share * local + smooth_bounds.threshold_by_distance(largest, costs, teachers)
    discounted = local * np.exp(-plan.beta * np.arange(len(local)))
    distance = int(discounted.argmax())
    held = (table.monotone, table.unimodal)
    return Smooth(value, float(discounted[distance]), distance, local, held, plan)


def argmax_share(mechanism: Mechanism, teachers: int, order: float) -> float:
    """The largest share of the argmax's cost that comes on top of the test's in a confident mechanism.

    The joint divergence is the test's plus `log(1 - w + w e^{(a-1) r}) / (a-1)`, where `w` is the weight of
    "answered" in the test's own divergence and `r` the argmax's. That is convex in `r`, 0 at 0, and rises
    with `w`, so its ratio to `r` is largest at the data-independent `r` and the largest `w`, that of the
    largest reading.

    >>> from pate_jax.mechanisms import ConfidentGNMax
    >>> 0.6 < argmax_share(ConfidentGNMax(200, 150, 40), 250, 14.0) < 0.7
    True
    """
    if mechanism.test is None:
        return 1.0
    most = order / mechanism.noise.scale**2
    reading = np.arange(max(teachers, math.ceil(mechanism.test.threshold)) + 1.0)
    passed, refused = threshold.log_answered(mechanism.test, reading)
    share = 0.0
    for p, q in (
        (slice(1, None), slice(None, -1)),
        (slice(None, -1), slice(1, None)),
        (slice(None), slice(None)),
    ):
        yes = passed[p] + (order - 1) * (passed[p] - passed[q])
        no = refused[p] + (order - 1) * (refused[p] - refused[q])
        log_weight = yes - np.logaddexp(yes, no)
        raised = np.logaddexp(
            gnmax.log1mexp(np.minimum(log_weight, -1e-300)), log_weight + (order - 1) * most
        )
        share = max(share, float(raised.max()) / (order - 1) / most)
    return min(share * (1 + 1e-9), 1.0)


def sanitise(
    mechanism: Mechanism, votes: ArrayLike, delta: float, plan: Plan, *, normal: float | None = None
) -> Figure:
    """The sanitised figure: the released sum, the cost of the release, the conversion at the plan's order.

    The noisy sum is rounded up to the plan's public grid, so that the low bits of a floating-point sum, which
    not every sum can have, do not leave. That the float64 Gaussian before it is an ideal one has no proof.

    `normal` is one standard normal draw; by default a fresh one from the operating system. Release it once:
    two releases of one list cost twice.

    >>> from pate_jax.mechanisms import GNMax
    >>> sanitise(GNMax(40.0), [[240, 10]] * 50, 1e-5, Plan(14.0, 0.02, 8.0), normal=0.0).status
    'publishable'
    """
    counts = check_votes(votes)
    found = smooth_sensitivity(mechanism, counts, plan)
    drawn = SystemRandom().gauss(0.0, 1.0) if normal is None else normal
    noisy = max(found.value + drawn * found.sensitivity * plan.noise, 0.0)
    released = math.ceil(noisy / plan.grid) * plan.grid + plan.cost
    slack = sampler_slack(mechanism, *counts.shape)
    result = with_slack(
        lambda inner: curves.epsilon([plan.order], [released], inner), check_delta(delta), slack
    )
    status: figures.Status = "sensitive" if plan.from_private_votes else "publishable"
    note = f"{OWN_VOTES if plan.from_private_votes else ESTIMATE}; {ROUNDED.format(grid=plan.grid)}"
    return figures.figure(result, status, "smooth sensitivity", note)


def plan(mechanism: Mechanism, queries: int, teachers: int, classes: int, delta: float) -> Plan:
    """A plan from public numbers: the best one for votes of an assumed consensus.

    A wrong guess of the consensus makes the figure larger, never less private.

    >>> from pate_jax.mechanisms import GNMax
    >>> plan(GNMax(40.0), 100, 250, 10, 1e-5).from_private_votes
    False
    """
    return plan_for(mechanism, example_votes(queries, teachers, classes), delta)


def plan_for(
    mechanism: Mechanism, votes: ArrayLike, delta: float, *, from_private_votes: bool = False
) -> Plan:
    """The plan with the smallest figure, two standard deviations included, on PUBLIC or made-up votes."""
    best, chosen = math.inf, None
    orders = (3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 14.0, 17.0, 20.0, 25.0, 32.0)
    for order in progress.track(orders, "planning the release", len(orders)):
        limit = -math.log1p(-1 / order) / 2
        first = smooth_sensitivity(mechanism, votes, Plan(order, limit / 2, 1.0))
        extra = float(curves.epsilon([order], [first.value], delta).epsilon)
        for beta in limit * np.linspace(0.05, 0.9, 18):
            smooth = float((first.by_distance * np.exp(-beta * np.arange(len(first.by_distance)))).max())
            u = 1 + order * math.expm1(-2 * beta)
            noise = (order * math.exp(-2 * beta) / (2 * u) / max(smooth, 1e-9)) ** (1 / 3)
            total = extra + release_cost(order, beta, noise) + 2 * smooth * noise
            if total < best:
                best, chosen = total, Plan(order, float(beta), float(noise), from_private_votes)
    if chosen is None:
        raise PateError(f"no plan for {mechanism!r} at delta={delta!r}; use more noise or a larger delta")
    return chosen


def example_votes(queries: int, teachers: int, classes: int) -> NDArray[np.int64]:
    """Made-up votes: most queries near unanimous, a tail down to half of the teachers on the winner.

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
