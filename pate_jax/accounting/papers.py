"""The papers' figures by the papers' methods: for comparison with their tables, never as a guarantee.

Expected cost weighs the argmax by Pr[answered], and conversions are classic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate_jax.accounting import curves
from pate_jax.accounting.bounds import threshold
from pate_jax.accounting.bounds.worst_case import argmax_bound
from pate_jax.accounting.curves import Columns, Places, least
from pate_jax.accounting.inputs import Curve, check_votes
from pate_jax.mechanisms import LNMax, Mechanism, ThresholdTest, check_votes_suffice


class Published(NamedTuple):
    """The figures that a paper prints for a list of queries."""

    epsilon: float  # classic conversion of the expected, data-dependent cost
    order: float
    epsilon_tight: float  # the same sum, tight conversion
    epsilon_data_independent: float  # classic conversion of the expected, data-independent cost
    answered: float  # expected number of answers
    test: float  # Renyi cost of the tests at `order`
    argmax: float  # Renyi cost of the answers at `order`
    delta: float  # the part that the conversion adds


def orders_2018() -> Curve:
    """The orders of the 2018 scripts.

    >>> len(orders_2018())
    297
    """
    return np.concatenate([np.arange(2, 100.5, 0.5), np.geomspace(100, 500, 100)])


def published(mechanism: Mechanism, votes: ArrayLike, delta: float) -> Published:
    """The figures of the 2017 paper for LNMax (moments 1 to 100) and of the 2018 paper for all others.

    >>> from pate_jax.mechanisms import GNMax
    >>> published(GNMax(40.0), [[240, 10]] * 10, 1e-5).answered
    10.0
    """
    check_votes_suffice(mechanism)
    counts = check_votes(votes)
    reading = counts.max(axis=1).astype(np.float64)
    order = np.argsort(reading, kind="stable")
    times = np.ones((1, len(counts)), np.int64)
    return of_one_noise([mechanism], [0], counts[order], reading[order], times, delta)[0]


def of_one_noise(
    mechanisms: Sequence[Mechanism],
    rows: Sequence[int],
    votes: NDArray[np.int64],
    reading: Curve,
    times: NDArray[np.int64],
    delta: float,
) -> list[Published]:
    """The figures of settings whose answers have the same noise, over the same histograms [H, C].

    `reading` [H], in ascending order, holds the numbers that a test reads. In the i-th setting each histogram
    occurs `times[rows[i]]` times. The curves of the argmax are computed once, and summed for each reading.

    >>> from pate_jax.mechanisms import GNMax
    >>> one = np.ones((1, 1), np.int64)
    >>> of_one_noise([GNMax(40.0)], [0], np.array([[240, 10]]), np.array([240.0]), one, 1e-5)[0].answered
    1.0
    """
    first = mechanisms[0]
    grid = np.arange(2.0, 102.0) if isinstance(first, LNMax) else orders_2018()
    settings, place = len(mechanisms), np.arange(len(mechanisms))
    starts = np.flatnonzero(np.diff(reading, prepend=-np.inf))
    tests = [_Test.of(one.test, reading[starts]) for one in mechanisms]
    often = np.add.reduceat(times, starts, axis=1)[np.asarray(rows)]
    weight = np.array([one.chance for one in tests])
    argmax = curves.published_argmax(first, votes)

    def parts(orders: Curve) -> Curve:
        """Costs of the tests, then of the answers, [2 S, A]."""
        of_tests = [one.cost(many, orders) for one, many in zip(tests, often, strict=True)]
        of_answers = _answer_costs(argmax(orders), np.asarray(rows), times, starts, weight)
        return np.concatenate([np.array(of_tests), of_answers])

    columns = Columns(grid, parts)

    def whole(at: Places) -> Curve:
        result: Curve = columns.at(at).reshape(2, settings, len(at)).sum(axis=0)
        return result

    classic, best = least(whole, curves.conversion_cost(grid, delta, "classic"))
    tight, _ = least(whole, curves.conversion_cost(grid, delta))
    test, answer = columns.at(best).reshape(2, settings, settings)[:, place, place]
    answered = (weight * often).sum(axis=1)
    return [
        Published(
            epsilon=float(classic[at]),
            order=float(grid[best[at]]),
            epsilon_tight=float(tight[at]),
            epsilon_data_independent=_data_independent(
                mechanisms[at], float(answered[at]), int(often[at].sum()), grid, delta
            ),
            answered=float(answered[at]),
            test=float(test[at]),
            argmax=float(answer[at]),
            delta=-math.log(delta) / (float(grid[best[at]]) - 1),
        )
        for at in range(settings)
    ]


class _Test(NamedTuple):
    """A setting's test, if it has one, and the chance that each distinct reading passes."""

    test: ThresholdTest | None
    logs: tuple[Curve, Curve]  # log-probabilities of an answer and of a refusal
    chance: Curve  # of an answer

    @classmethod
    def of(cls, test: ThresholdTest | None, reading: Curve) -> _Test:
        if test is None:
            sure = np.zeros(len(reading))
            return cls(None, (sure, sure - np.inf), np.ones(len(reading)))
        logs = threshold.log_answered(test, reading)
        return cls(test, logs, np.exp(logs[0]))

    def cost(self, often: NDArray[np.int64], orders: Curve) -> Curve:
        """The cost [A] of the tests if each reading occurs this often."""
        if self.test is None:
            return np.zeros(len(orders))
        return often @ threshold.published(self.test, *self.logs, orders)


def _answer_costs(
    argmax: Curve, rows: NDArray[np.int64], times: NDArray[np.int64], starts: NDArray[np.int64], weight: Curve
) -> Curve:
    """The cost [S, A] of the answers: the argmax's curves [H, A], weighed by the chance of an answer."""
    costs = np.zeros((len(rows), argmax.shape[1]))
    for row in np.unique(rows):
        same = np.flatnonzero(rows == row)
        costs[same] = weight[same] @ np.add.reduceat(times[row][:, None] * argmax, starts, axis=0)
    return costs


def _data_independent(
    mechanism: Mechanism, answered: float, asked: int, orders: Curve, delta: float
) -> float:
    if isinstance(mechanism, LNMax):
        epsilon = 2 / mechanism.scale
        argmax = np.minimum(epsilon**2 * orders / 2, epsilon)
    else:
        argmax = argmax_bound(mechanism, orders)
    summed = answered * argmax
    if mechanism.test is not None:
        summed = summed + asked * threshold.data_independent(mechanism.test, orders)
    return float(curves.epsilon(orders, summed, delta, conversion="classic").epsilon)


def published_text(mechanism: Mechanism, votes: ArrayLike, delta: float) -> str:
    """`published` as a table for a terminal, marked as sensitive and no guarantee.

    >>> from pate_jax.mechanisms import GNMax
    >>> print(published_text(GNMax(40.0), [[240, 10]] * 10, 1e-5).splitlines()[0])
    The papers' analysis at delta = 1e-05 (sensitive, no guarantee: see docs/proofs/mistakes.md)
    """
    figures = published(mechanism, votes, delta)
    rows = [
        ("queries asked", f"{len(np.asarray(votes))}"),
        ("expected answers", f"{figures.answered:.2f}"),
        ("epsilon, published (expected, classic conversion)", f"{figures.epsilon:.4f}"),
        ("  at order", f"{figures.order:g}"),
        ("  of which test", f"{figures.test:.4f}"),
        ("  of which argmax", f"{figures.argmax:.4f}"),
        ("  of which delta", f"{figures.delta:.4f}"),
        ("epsilon, published (expected, tight conversion)", f"{figures.epsilon_tight:.4f}"),
        ("epsilon, data-independent (expected, classic)", f"{figures.epsilon_data_independent:.4f}"),
    ]
    head = f"The papers' analysis at delta = {delta:g} (sensitive, no guarantee: see docs/proofs/mistakes.md)"
    return "\n".join([head, *(f"  {name:<52}{value:>10}" for name, value in rows)]) + "\n"
