"""The data-independent figure of a list of queries: it holds for all votes, and it is the one to publish.

Several methods prove such a figure, and the smallest one counts: the Renyi curve of
`curves.data_independent`, many small steps, closed forms of composition, and privacy-loss distributions.
Only the first two depend on what is charged, counts or index.

Many small steps (docs/proofs/worst_case.md, section 7): converting the Renyi curve of the whole list to
epsilon loses up to eight percent. Here the list is compared with a Gaussian loss whose variance grows with
every query, and each query may depend on all before it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property, lru_cache, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr

from pate_jax.accounting import composition, curves
from pate_jax.accounting.curves import Columns, Epsilon, Rule, least, sampler_slack, with_slack
from pate_jax.accounting.inputs import Curve, check_delta, check_orders
from pate_jax.mechanisms import Mechanism

ORDERS = np.concatenate([[1.001], 1 + np.geomspace(0.02, 400, 240)])
ROUNDING = 1e-9  # relative, for variances and for delta
_STARTS = (6.0, 2.0, 18.0)  # variances to begin with, in units of one query's variance
_HIGHEST = np.geomspace(4, 400, 15)  # orders up to which the curve is used


class _Steps(NamedTuple):
    """Cells of orders from 1/2 on: the lower end of each, and the largest share `e/(a(a-1))` in it."""

    first: Curve
    share: Curve


def epsilon(orders: Curve, curve: Curve, queries: int, delta: float) -> float:
    """Epsilon at `delta` of `queries` adaptive queries, each of at most this Renyi curve in both directions.

    Infinite if the curve is too large for the comparison.

    >>> 2.60 < epsilon(ORDERS, 0.64 * ORDERS / 40**2, 500, 1e-5) < 2.70
    True
    """
    check_delta(delta)
    tried = [_up_to(orders, curve, queries, delta, highest, _STARTS[0]) for highest in _HIGHEST]
    best = _HIGHEST[int(np.argmin(tried))]
    return min(*tried, *(_up_to(orders, curve, queries, delta, best, start) for start in _STARTS[1:]))


def _up_to(orders: Curve, curve: Curve, queries: int, delta: float, highest: float, start: float) -> float:
    """Epsilon from the curve up to the order `highest`, starting with the variance of `start` queries."""
    count = int(np.searchsorted(orders, highest, side="right"))
    if count < 2 or not np.isfinite(curve[:count]).all():
        return math.inf
    variance = _variance(orders[:count].tobytes(), curve[:count].tobytes(), queries, start)
    if not math.isfinite(variance):
        return math.inf
    return _read_off(float(orders[count - 1]), variance * (1 + ROUNDING), delta * (1 - ROUNDING))


@lru_cache(maxsize=1024)
def _variance(orders: bytes, curve: bytes, queries: int, start: float) -> float:
    """The variance that covers all queries, the same for every delta; infinite if the search fails."""
    a, cost = np.frombuffer(orders), np.frombuffer(curve)
    if ((a - 1) * cost).max() > 30:
        return math.inf
    share = np.expm1((a - 1) * cost) / (a * (a - 1))
    if share[0] <= 0:
        return math.inf
    # shares are log-convex and symmetric about 1/2, so below the first order none is larger than the first
    steps = _Steps(np.append(0.5, a[:-1]), np.append(share[0], np.maximum(share[:-1], share[1:])))
    return _after(steps, float(start * 2 * share[0]), queries)


def _after(steps: _Steps, variance: float, queries: int) -> float:
    """The variance after all queries; what one query adds is reused for a few queries after it."""
    left, step = queries, _first_step(steps, variance)
    while left:
        if not math.isfinite(step):
            return math.inf
        times = min(left, max(1, int(0.2 * variance / step)))
        variance, left = variance + times * step, left - times
        step = _smaller_step(steps, variance, step)
    return variance


def _first_step(steps: _Steps, variance: float) -> float:
    """The least variance that covers one query on top of `variance`; infinite if the search fails."""
    step = 2 * float(steps.share[0])
    for _ in range(60):
        if _covers(steps, variance, step):
            return _smaller_step(steps, variance, step)
        step *= 1.1
    return math.inf


def _smaller_step(steps: _Steps, variance: float, step: float) -> float:
    """The least variance that covers one query, at most `step`, which does."""
    low, high = 2 * float(steps.share[0]), step
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (low, middle) if _covers(steps, variance, middle) else (middle, high)
    return high


def _covers(steps: _Steps, variance: float, step: float) -> bool:
    """Whether inequality (3) holds in every cell of orders."""
    keeps = variance / (variance + step)
    rise = np.minimum(step * (keeps * (steps.first - 0.5) ** 2 - 0.25) / 2, 700.0)
    mean = np.where(rise == 0, 1.0, np.expm1(rise) / np.where(rise == 0, 1.0, rise))
    return bool(np.all(math.sqrt(keeps) * step / 2 * mean >= steps.share))


def _read_off(highest: float, variance: float, delta: float) -> float:
    """Epsilon of a Gaussian loss of this variance and a two-sided exponential one, composed."""
    root, middle = math.sqrt(variance), (highest - 0.5) * variance
    lift = highest * (highest - 1) * variance / 2

    def spent(value: float) -> float:
        gain = log_ndtr(root / 2 - value / root)
        loss = value + log_ndtr(-root / 2 - value / root)
        right = lift - (highest - 1) * value + log_ndtr((value - middle) / root)
        left = lift + highest * value + log_ndtr(-(value + middle) / root)
        tails = (math.exp(min(right, 50.0)) + math.exp(min(left, 50.0))) / (2 * highest - 1)
        return math.exp(gain) - math.exp(loss) + tails - delta

    from scipy.optimize import brentq  # half a second, which other commands need not wait for

    if spent(0.0) <= 0:
        return 0.0
    high = 1.0
    while spent(high) > 0:
        high *= 2
        if high > 1e4:
            return math.inf
    return float(brentq(spent, 0.0, high, xtol=1e-12)) * (1 + 1e-9) + 1e-11


LARGE = 50.0  # the epsilon above which privacy-loss distributions are not computed
_TWO_COUNTS = ("discrete_gaussian", "laplace")  # no closed form composes the two counts that a vote moves


class Proved(NamedTuple):
    """An epsilon and the method that proves it."""

    epsilon: Epsilon
    basis: str


def worst_case(
    mechanism: Mechanism,
    teachers: ArrayLike,
    delta: float,
    *,
    classes: int,
    orders: ArrayLike | None = None,
    slack: float = 0.0,
    rule: Rule = "index",
) -> Proved:
    """The data-independent epsilon of one query for each entry of `teachers`, and the method that proves it.

    >>> from pate_jax.mechanisms import GNMax
    >>> proved = worst_case(GNMax(sigma=40.0), [250] * 100, 1e-5, classes=10)
    >>> round(proved.epsilon.epsilon, 2), proved.basis
    (1.16, 'renyi, worst case')
    >>> proved = worst_case(GNMax(sigma=40.0), [250] * 100, 1e-5, classes=10, rule="counts")
    >>> round(proved.epsilon.epsilon, 4), proved.basis
    (1.3565, 'Gaussian-DP')
    """
    different, times = np.unique(np.atleast_1d(np.asarray(teachers)), return_counts=True)
    return WorstCase(mechanism, different, classes, rule, orders).epsilon(times, delta, slack)


class WorstCase:
    """The data-independent figures of one mechanism, for any number of queries.

    The curve of one query is computed once, and only at the orders that matter.

    >>> from pate_jax.mechanisms import GNMax
    >>> of = WorstCase(GNMax(sigma=40.0), [250], classes=10)
    >>> [round(of.epsilon(np.array([queries]), 1e-5, 0.0).epsilon.epsilon, 2) for queries in (1, 100)]
    [0.11, 1.16]
    """

    def __init__(
        self,
        mechanism: Mechanism,
        teachers: ArrayLike,
        classes: int,
        rule: Rule = "index",
        orders: ArrayLike | None = None,
    ) -> None:
        grid = curves.default_orders() if orders is None else np.unique(check_orders(orders))
        self._mechanism, self._classes, self._rule = mechanism, classes, rule
        self._teachers = teachers
        self._one_query = Columns(grid, self._curve)

    def _curve(self, orders: Curve) -> Curve:
        return curves.data_independent(
            self._mechanism, self._teachers, self._classes, orders, rule=self._rule
        )

    def figure(self, times: NDArray[np.int64], delta: float) -> Proved:
        """The smallest figure of all methods, for `times[i]` queries to `teachers[i]` teachers."""
        queries = int(times.sum())
        slack = sampler_slack(self._mechanism, queries, self._classes)
        best = self.quick(times, delta, slack)
        two_counts = self._mechanism.test is None and self._mechanism.noise.family in _TWO_COUNTS
        if two_counts and best.epsilon.epsilon < LARGE:
            losses = with_slack(partial(self._losses, queries), delta, slack)
            best = _smaller(best, Proved(losses, "privacy-loss distributions, worst case"))
        return best

    def quick(self, times: NDArray[np.int64], delta: float, slack: float) -> Proved:
        """The smallest figure of the methods that take little time for one more delta."""
        best = self.epsilon(times, delta, slack)
        if self._rule == "index" and best.epsilon.epsilon < LARGE:
            steps = with_slack(partial(self._small_steps, int(times.sum())), delta, slack)
            best = _smaller(best, Proved(steps, "many small steps, worst case"))
        return best

    def _losses(self, queries: int, delta: float) -> Epsilon:
        from pate_jax.accounting.exact import pld

        return Epsilon(pld.data_independent_epsilon(self._mechanism, queries, self._classes, delta), None)

    def _small_steps(self, queries: int, delta: float) -> Epsilon:
        found = epsilon(ORDERS, self._of_small_steps, queries, delta)
        return Epsilon(found, None)

    @cached_property
    def _of_small_steps(self) -> Curve:
        result: Curve = self._curve(ORDERS).max(axis=0)
        return result

    def epsilon(self, times: NDArray[np.int64], delta: float, slack: float) -> Proved:
        """The smaller of the Renyi figure and the closed form, if there is one."""
        best = _closed_form(self._mechanism, int(times.sum()), delta, slack)
        grid, known = self._one_query.grid, float(best.epsilon.epsilon)

        def renyi(inner: float) -> Epsilon:
            extra = curves.conversion_cost(grid, inner)
            value, place = least(lambda at: (times @ self._one_query.at(at))[None], extra, known)
            return Epsilon(float(value[0]), float(grid[place[0]]))

        return _smaller(best, Proved(with_slack(renyi, delta, slack), "renyi, worst case"))


def _smaller(first: Proved, second: Proved) -> Proved:
    return second if second.epsilon.epsilon < first.epsilon.epsilon else first


def _closed_form(mechanism: Mechanism, queries: int, delta: float, slack: float) -> Proved:
    """Gaussian-DP or pure-DP composition; infinity if neither applies."""
    mu, steps = composition.gaussian_dp(mechanism, queries), composition.pure_steps(mechanism, queries)
    form: Callable[[float], float]
    if mu is not None:
        form, basis = lambda inner: composition.gaussian_epsilon(mu, inner), "Gaussian-DP"
    elif steps is not None:
        form, basis = lambda inner: composition.pure_epsilon(steps, inner), "pure-DP composition"
    else:
        return Proved(Epsilon(np.inf, None), "renyi, worst case")
    return Proved(with_slack(lambda inner: Epsilon(form(inner), None), delta, slack), basis)
