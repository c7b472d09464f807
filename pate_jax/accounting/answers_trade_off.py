"""The joint trade-off curve of a list of answers, from what its statement publishes alone."""

from __future__ import annotations

import math
from functools import lru_cache

from pate_jax.accounting import after_count, composition, curves, figures, filter, stable, trade_off
from pate_jax.accounting.slack import sampler_slack
from pate_jax.accounting.trade_off import Gaussian, TradeOff
from pate_jax.mechanisms import Mechanism
from pate_jax.mechanisms.stable import StableAnswers


@lru_cache(maxsize=256)
def of_answers(
    mechanism: Mechanism,
    asked: int,
    *,
    teachers: int,
    classes: int,
    rule: curves.Rule,
    delta: float,
    headline: float,
    budgeted: bool,
) -> TradeOff:
    """The curve of as many queries as were asked or, under a privacy filter, as its budget affords.

    `headline` is the epsilon of the statement, which is infinite if it has none. Where the numbers of
    teachers differ (0), it and the mu of the noise are all that is used.

    >>> from pate_jax.mechanisms import GNMax
    >>> size = {"teachers": 250, "classes": 10, "rule": "index", "delta": 1e-5, "budgeted": False}
    >>> found = of_answers(GNMax(sigma=40.0), 100, headline=1.1588, **size)
    >>> round(found.mu, 6), round(found.guess, 3)
    (0.353553, 0.559)
    """
    alone = trade_off.of_point(headline, delta)
    queries = _affordable(mechanism, teachers, classes, rule, delta, headline) if budgeted else asked
    if queries < asked:  # a filter that was not planned for these queries
        return trade_off.of(alone, delta)
    mu = composition.safe_mu(mechanism, queries)
    strays = 2 * sampler_slack(mechanism, queries, classes or 2)
    gaussian = None if mu is None or not classes else Gaussian(mu, strays)
    if not teachers or not classes:
        return trade_off.of(alone, delta, gaussian)
    orders = tuple(curves.default_orders().tolist())

    def spent(at: float) -> float:
        proved = figures.proved_for(mechanism, ((teachers, queries),), classes, rule, orders, at)
        return min(float(proved.epsilon.epsilon), alone(at))

    return trade_off.of(spent, delta, gaussian)


@lru_cache(maxsize=256)
def of_limit(epsilon: float, delta: float) -> TradeOff:
    """The curve of a noisy number of voters and any answers that the limit allows after it.

    >>> found = of_limit(1.0, 1e-5)
    >>> found.mu, found.epsilons[1e-5] <= 1.0, round(found.guess, 2)
    (None, True, 0.57)
    """
    limit = after_count.limit(epsilon, delta)
    return trade_off.of(lambda at: epsilon if at == delta else after_count.epsilon(limit, at), delta)


@lru_cache(maxsize=256)
def of_stable(mechanism: StableAnswers, delta: float) -> TradeOff:
    """The curve of a whole list of stable answers. It has a delta of its own, and so no mu.

    >>> found = of_stable(StableAnswers(threshold=40, scale=3.0, cutoff=1), 1e-5)
    >>> found.mu, round(found.guess, 4), found.epsilons[1e-9]
    (None, 0.7311, None)
    """
    return trade_off.of(lambda at: stable.epsilon(mechanism, at), delta)


def _affordable(
    mechanism: Mechanism, teachers: int, classes: int, rule: curves.Rule, delta: float, epsilon: float
) -> int:
    """How many queries of this mechanism a filter affords; none if it is not known for how many teachers."""
    if not teachers or not classes or not math.isfinite(epsilon):
        return -1
    size = {"teachers": teachers, "classes": classes}
    planned = filter.plan(mechanism, epsilon=epsilon, delta=delta, rule=rule, **size)
    each = filter.cost(mechanism, order=planned.order, rule=rule, **size)
    return planned.affords(filter.NOTHING, each)
