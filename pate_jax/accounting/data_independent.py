"""The data-independent figure of a list of queries: it holds for all votes, and it is the one to publish.

Several methods prove such a figure, and the smallest one counts: the Renyi curve of
`curves.data_independent`, many small steps, closed forms of composition, and privacy-loss distributions.
Only the first two depend on what is charged, counts or index.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate_jax.accounting import composition, curves
from pate_jax.accounting.bounds import small_steps
from pate_jax.accounting.curves import Columns, Curve, Epsilon, Rule, least, sampler_slack, with_slack
from pate_jax.accounting.inputs import check_orders
from pate_jax.mechanisms import Mechanism

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
        found = small_steps.epsilon(small_steps.ORDERS, self._of_small_steps, queries, delta)
        return Epsilon(found, None)

    @cached_property
    def _of_small_steps(self) -> Curve:
        result: Curve = self._curve(small_steps.ORDERS).max(axis=0)
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
