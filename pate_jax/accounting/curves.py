"""Renyi curves of a mechanism on votes, and their conversion into one (epsilon, delta) figure.

A curve is a float64 array [query, order] and adds up over queries. Orders are above 1. The three methods:

    method              holds for               may be published
    exact               this data set           no (a function of the votes)
    published           one direction only      no (a function of the votes)
    data_independent    every data set          yes

The least epsilon over a grid of orders is computed only at the orders that could attain it (`least`). As the
order grows, a curve never falls, and what the conversion adds never rises. So between two orders no epsilon
is below the curve at the lower order plus the conversion at the higher one, and intervals that cannot contain
the least epsilon are skipped.

Samplers and tables differ from the ideal law by a total-variation distance `slack` (`mechanisms.laws`). If
ideal answers are (epsilon, delta')-DP, drawn ones are (epsilon, delta' + (1 + e^epsilon) slack)-DP. So every
figure is computed at a delta' that leaves room for the second term.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate_jax.accounting.bounds import noisy_max, threshold
from pate_jax.accounting.bounds.worst_case import argmax_bound, counts_curve, index_curve
from pate_jax.accounting.inputs import Curve, check_curve, check_delta, check_orders, check_votes
from pate_jax.errors import PateError, one_of
from pate_jax.mechanisms import Mechanism, check_votes_suffice, laws

Places = NDArray[np.int64]
_STRIDE = 24  # distance between the first orders that are computed
_PIECES = 4  # how many pieces an interval of orders is cut into


class Columns:
    """A curve [row, order] over a grid of orders, each order computed at its first use.

    >>> curve = Columns(np.array([2.0, 3.0, 4.0]), lambda orders: np.outer([1.0, 10.0], orders))
    >>> curve.at(np.array([2, 0])).tolist(), curve.known.tolist()
    ([[4.0, 2.0], [40.0, 20.0]], [0, 2])
    """

    def __init__(self, grid: Curve, compute: Callable[[Curve], Curve]) -> None:
        self.grid, self._compute = grid, compute
        self._columns: dict[int, Curve] = {}

    def at(self, places: Places) -> Curve:
        """The curve [row, k] at places of the grid."""
        wanted = places.tolist()
        new = [place for place in dict.fromkeys(wanted) if place not in self._columns]
        if new:
            computed = check_curve(self._compute(self.grid[new]))
            self._columns.update(zip(new, computed.T, strict=True))
        return np.stack([self._columns[place] for place in wanted], axis=-1)

    @property
    def known(self) -> Places:
        """The places that were computed, in ascending order."""
        return np.array(sorted(self._columns), np.int64)


def least(curve: Callable[[Places], Curve], extra: Curve, known: float = np.inf) -> tuple[Curve, Places]:
    """The least `curve + extra` over all orders, at least 0, and its place in the grid: [S] each.

    `curve` gives columns [S, k] at some places of the grid. It never falls along the grid, and `extra` never
    rises. `known` is an epsilon that is already proved: orders that cannot improve on it are skipped.

    >>> orders = np.arange(2.0, 200.0)
    >>> value, place = least(lambda at: orders[at][None] / 100, 10 / (orders - 1))
    >>> value.round(4).tolist(), orders[place].tolist()
    ([0.6425], [33.0])
    """
    size = len(extra)
    seen = np.unique(np.append(np.arange(0, size, _STRIDE), size - 1))
    values = curve(seen)
    while True:
        total = np.maximum(values + extra[seen], 0.0)
        best = np.minimum(total.min(axis=1), known)
        wide = np.flatnonzero(np.diff(seen) > 1)
        floor = values[:, wide] + extra[seen[wide + 1] - 1]
        wide = wide[(floor < best[:, None] * (1 - 1e-12)).any(axis=0)]
        if not len(wide):
            at = total.argmin(axis=1)
            return total[np.arange(len(total)), at], seen[at]
        new = _between(seen, wide)
        order = np.argsort(np.concatenate([seen, new]))
        values = np.concatenate([values, curve(new)], axis=1)[:, order]
        seen = np.concatenate([seen, new])[order]


def _between(seen: Places, wide: Places) -> Places:
    """Places that cut the intervals after `seen[wide]` into pieces."""
    cuts = [np.linspace(seen[i], seen[i + 1], _PIECES + 1)[1:-1].round().astype(np.int64) for i in wide]
    return np.setdiff1d(np.concatenate(cuts), seen)


Method = Literal["exact", "published", "data_independent"]
Conversion = Literal["tight", "classic"]
Rule = Literal["counts", "index"]  # what a query is charged for: all noisy counts, or the one index released


class Epsilon(NamedTuple):
    """An epsilon and the order that attains it; arrays if the curve has leading axes."""

    epsilon: float | NDArray[np.float64]
    order: float | NDArray[np.float64] | None


class Parts(NamedTuple):
    """A curve in parts: the test [Q, A], the argmax given an answer [Q, A], the log of Pr[answered], [Q]."""

    test: Curve
    argmax: Curve
    log_answered: NDArray[np.float64]


def default_orders() -> NDArray[np.float64]:
    """The default grid of orders, over which every figure is minimised.

    >>> orders = default_orders()
    >>> bool(orders[0] < 1.01), bool(orders[-1] > 1000), 14.0 in orders
    (True, True, True)
    """
    below_two = 1 + np.geomspace(1e-3, 0.9, 14)
    return np.concatenate([below_two, np.arange(2.0, 32.0, 0.5), np.geomspace(32, 4096, 36)])


def epsilon(orders: ArrayLike, rdp: ArrayLike, delta: float, *, conversion: Conversion = "tight") -> Epsilon:
    """The smallest epsilon that a curve implies at `delta`, and the order that attains it.

    It is the least `rdp(a) + conversion_cost(a)`, and at least 0. The last axis of `rdp` is the order.

    >>> round(epsilon([14.0], [1.1], 1e-5).epsilon, 6)
    1.708497
    >>> round(epsilon([14.0], [1.1], 1e-5, conversion="classic").epsilon, 6)
    1.98561
    """
    grid, curve = check_orders(orders), check_curve(rdp)
    if curve.shape[-1:] != grid.shape:
        raise PateError(f"rdp of shape {curve.shape} must end in the {grid.size} orders it belongs to")
    each = np.maximum(curve + conversion_cost(grid, delta, conversion), 0.0)
    best = np.argmin(each, axis=-1)
    least = np.take_along_axis(each, best[..., None], axis=-1)[..., 0]
    if curve.ndim == 1:
        return Epsilon(float(least), float(grid[best]))
    return Epsilon(least, grid[best])


def conversion_cost(
    orders: NDArray[np.float64], delta: float, conversion: Conversion = "tight"
) -> NDArray[np.float64]:
    """What the conversion of a Renyi curve to `delta` adds at each order, [A]; it never grows with the order.

    `tight` (Balle et al. 2020; Canonne, Kamath, Steinke 2020, Proposition 12): `log1p(-1/a) - (log(delta) +
    log(a)) / (a - 1)`. `classic` (Mironov 2017, Proposition 3): `log(1/delta) / (a - 1)`, which is never
    smaller.

    >>> conversion_cost(np.array([14.0]), 1e-5).round(6)
    array([0.608497])
    """
    log_delta = np.log(check_delta(delta))
    if conversion == "tight":
        result: NDArray[np.float64] = np.log1p(-1 / orders) - (log_delta + np.log(orders)) / (orders - 1)
        return result
    if conversion == "classic":
        classic: NDArray[np.float64] = -log_delta / (orders - 1)
        return classic
    raise PateError(f"conversion={conversion!r} must be 'tight' or 'classic'")


def published_parts(mechanism: Mechanism, votes: ArrayLike, orders: ArrayLike) -> Parts:
    """The papers' bounds for test and argmax.

    Theorem 6 needs only a data-independent curve and `q`. Discrete Gaussian noise has the curve of the
    Gaussian, so the theorem bounds it with its own `q`. Families that no paper analysed get their
    data-independent curve.

    >>> from pate_jax.mechanisms import ConfidentGNMax
    >>> parts = published_parts(ConfidentGNMax(200, 150, 40), [[240, 10]], [2.0])
    >>> [part.shape for part in parts]
    [(1, 1), (1, 1), (1,)]
    """
    check_votes_suffice(mechanism)
    counts = check_votes(votes)
    grid = check_orders(orders)
    argmax = published_argmax(mechanism, counts)(grid)
    if mechanism.test is None:
        return Parts(np.zeros_like(argmax), argmax, np.zeros(len(counts)))
    reading = counts.max(axis=1).astype(np.float64)
    log_answered, log_refused = threshold.log_answered(mechanism.test, reading)
    return Parts(threshold.published(mechanism.test, log_answered, log_refused, grid), argmax, log_answered)


def published_argmax(mechanism: Mechanism, votes: NDArray[np.int64]) -> Callable[[Curve], Curve]:
    """The papers' bound of the argmax as a function of orders; the votes are processed only once.

    >>> from pate_jax.mechanisms import GNMax
    >>> published_argmax(GNMax(40.0), np.array([[240, 10]]))(np.array([14.0])).shape
    (1, 1)
    """
    family, scale = mechanism.noise
    if family == "laplace":
        log_q = noisy_max.laplace_log_q(votes, scale)
        return lambda orders: noisy_max.moments(log_q, 2 / scale, orders)
    if family == "gaussian":
        log_q = noisy_max.gaussian_log_q(votes, scale)
    elif family == "discrete_gaussian" and scale <= threshold.LARGEST_TABLE:
        log_q = noisy_max.discrete_log_q(votes, scale)
    else:
        return lambda orders: np.broadcast_to(argmax_bound(mechanism, orders), (len(votes), len(orders)))
    return lambda orders: noisy_max.theorem6(log_q, scale, orders)


def data_independent(
    mechanism: Mechanism, teachers: ArrayLike, classes: int, orders: ArrayLike, *, rule: Rule = "index"
) -> Curve:
    """A bound [query, order] that holds for every histogram of that many teachers and every history.

    `teachers` [query] (or one number) and `classes` are public.

    >>> from pate_jax.mechanisms import GNMax
    >>> (data_independent(GNMax(40.0), [250, 250], 10, [2.0]) * 40**2 / 2).round(2).tolist()
    [[0.64], [0.64]]
    >>> data_independent(GNMax(40.0), 250, 10, [2.0], rule="counts") * 40**2 / 2
    array([[1.]])
    """
    one_of(get_args(Rule), rule=rule)
    grid, totals = check_orders(orders), np.atleast_1d(np.asarray(teachers, dtype=np.int64))
    distinct, where = np.unique(totals, return_inverse=True)
    if rule == "counts":
        return np.stack([counts_curve(mechanism, int(total), grid) for total in distinct])[where]
    # without teachers no vote can move, so the cost with one teacher is an upper bound
    return np.stack([index_curve(mechanism, max(int(one), 1), classes, grid) for one in distinct])[where]


def rdp(
    mechanism: Mechanism,
    votes: ArrayLike,
    orders: ArrayLike | None = None,
    *,
    method: Method,
    rule: Rule = "index",
) -> Curve:
    """Renyi curves [query, order] of a mechanism on vote histograms [query, class].

    `exact` is the joint mechanism in both directions; of noisy counts that is the same for all votes.
    `published` weighs the argmax by Pr[answered], as the 2018 paper's analysis does; it bounds one direction
    only. `data_independent` reads only the number of queries, classes and votes; `rule` chooses its curve.

    >>> from pate_jax.mechanisms import GNMax
    >>> rdp(GNMax(sigma=10.0), [[200, 50], [130, 120]], [2.0], method="data_independent").round(4)
    array([[0.0127],
           [0.0127]])
    """
    counts = check_votes(votes)
    grid = default_orders() if orders is None else check_orders(orders)
    if method == "data_independent":
        return data_independent(mechanism, counts.sum(axis=1), counts.shape[1], grid, rule=rule)
    if method == "published":
        parts = published_parts(mechanism, counts, grid)
        return parts.test + np.exp(parts.log_answered)[:, None] * parts.argmax
    if method == "exact":
        cap = data_independent(mechanism, counts.sum(axis=1), counts.shape[1], grid, rule="counts")
        if mechanism.releases_counts:
            return cap
        from pate_jax.accounting import exact

        result: Curve = np.minimum(exact.rdp(mechanism, counts, grid), cap)
        return result
    raise PateError(f"method={method!r} must be 'exact', 'published' or 'data_independent'")


def sampler_slack(mechanism: Mechanism, queries: int, classes: int) -> float:
    """The total-variation distance of all draws from their ideal laws, from `mechanisms.laws`.

    >>> from pate_jax.mechanisms import DiscreteGaussianMax
    >>> sampler_slack(DiscreteGaussianMax(40.0), 100, 10) < 1e-20
    True
    """
    return laws.delta_slack(mechanism, queries=queries, classes=classes)


def with_slack(curve: Callable[[float], Epsilon], delta: float, slack: float) -> Epsilon:
    """The epsilon of `curve` at a delta' with `delta' + (1 + e^epsilon) slack <= delta`, or infinity.

    >>> with_slack(lambda delta: Epsilon(1.0, 2.0), 1e-5, 1e-18)
    Epsilon(epsilon=1.0, order=2.0)
    >>> with_slack(lambda delta: Epsilon(1.0, 2.0), 1e-5, 1e-5).epsilon
    inf
    """
    inner = delta * (1 - 1e-6)  # room for the slack of a 62-bit sampler without a second try
    for _ in range(50):
        epsilon = curve(inner)
        if slack == 0:
            return epsilon
        if epsilon.epsilon > math.log(delta) - math.log(slack):
            break
        needed = (1 + math.exp(epsilon.epsilon)) * slack
        if inner + needed <= delta:
            return epsilon
        inner = delta - 2 * needed if delta - 2 * needed < inner else inner / 2
        if inner <= 0:
            break
    return Epsilon(math.inf, None)
