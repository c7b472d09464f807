"""Many settings over one list of votes in one call: published and data-independent figures side by side.

Every figure is the one that `papers.published` and `statement` give for the setting alone, to rounding. What
settings share is computed once: histograms that are equal when sorted are merged; an argmax's curve depends
on the noise of the answer only, and a test's on the test and the largest count only. Orders are looked at
coarsely first. Every curve here is one that never falls as the order grows, and what a conversion adds never
grows with it, so between two orders no epsilon is below the curve at the lower one plus the conversion at the
higher one: orders that cannot give the least epsilon are never computed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from pate_jax.accounting import composition, curves, figures, papers
from pate_jax.accounting.bounds import gnmax, laplace, threshold
from pate_jax.accounting.curves import Epsilon
from pate_jax.accounting.inputs import check_delta, check_votes
from pate_jax.errors import PateError
from pate_jax.mechanisms import InteractiveGNMax, LNMax, Mechanism
from pate_jax.system.progress import bar

Curve = NDArray[np.float64]
_STRIDE = 24  # orders between the first ones looked at
_PIECES = 4  # into which an interval of orders is cut
_LARGE = 50.0  # an epsilon past which a distribution of losses is not worth its grid


class Many(NamedTuple):
    """One number a setting."""

    published: Curve  # the papers' epsilon: expected cost, classic conversion
    published_order: Curve
    answered: Curve  # expected number of answers
    data_independent: Curve  # the figure to publish, of `statement`
    basis: list[str]  # the method that gave it


class Tally(NamedTuple):
    """The merged histograms of a list of votes, and how often each occurs among its first queries."""

    counts: NDArray[np.int64]  # [H, C], sorted
    row_of: NDArray[np.int64]  # [Q]
    largest: NDArray[np.int64]  # [L], the different largest counts
    level: NDArray[np.int64]  # [H], which of them a histogram has

    def times(self, queries: int) -> NDArray[np.int64]:
        """How often each histogram [H] occurs among the first so many queries."""
        return np.bincount(self.row_of[:queries], minlength=len(self.counts))


def tally(votes: ArrayLike) -> Tally:
    """Merge the histograms that are equal when sorted.

    >>> merged = tally([[7, 3, 0], [0, 7, 3], [5, 5, 0]])
    >>> merged.counts.tolist(), merged.times(2).tolist(), merged.largest.tolist()
    ([[5, 5, 0], [7, 3, 0]], [0, 2], [5, 7])
    """
    ordered = -np.sort(-check_votes(votes), axis=1)
    counts, row_of = np.unique(ordered, axis=0, return_inverse=True)
    largest, level = np.unique(counts[:, 0], return_inverse=True)
    return Tally(counts, row_of.reshape(-1), largest, level.reshape(-1))


def many(
    mechanisms: Sequence[Mechanism],
    votes: ArrayLike,
    delta: float,
    *,
    queries: Sequence[int] | None = None,
) -> Many:
    """The figures of every setting; `queries` says how many of the first rows each one is asked.

    >>> from pate_jax.mechanisms import GNMax
    >>> found = many([GNMax(40.0), GNMax(80.0)], [[240, 10], [130, 120]], 1e-5)
    >>> found.published.round(4).tolist(), found.data_independent.round(4).tolist()
    ([0.2252, 0.1203], [0.16, 0.0749])
    """
    counts, delta = check_votes(votes), check_delta(delta)
    asked = check_settings(mechanisms, counts, queries)
    merged = tally(counts)
    by_noise: dict[tuple, list[int]] = {}
    for place, mechanism in enumerate(mechanisms):
        by_noise.setdefault((mechanism.noise, isinstance(mechanism, LNMax)), []).append(place)
    jobs: list[Callable[[], list[tuple]]] = [
        partial(_published, mechanisms, asked, places, merged, delta) for places in by_noise.values()
    ]
    kinds: dict[tuple, list[int]] = {}
    for place, mechanism in enumerate(mechanisms):
        kinds.setdefault((mechanism.noise, mechanism.test), []).append(place)
    jobs += [partial(_worst, mechanisms, asked, places, counts, delta) for places in kinds.values()]
    published = np.zeros((len(mechanisms), 3))
    worst, basis = np.zeros(len(mechanisms)), [""] * len(mechanisms)
    for row in spread(jobs, "accounting"):
        for place, *values in row:
            if len(values) == 3:
                published[place] = values
            else:
                worst[place], basis[place] = values
    return Many(published[:, 0], published[:, 1], published[:, 2], worst, basis)


def check_settings(
    mechanisms: Sequence[Mechanism], votes: NDArray[np.int64], queries: Sequence[int] | None
) -> list[int]:
    """How many queries each setting is asked, checked."""
    asked = [len(votes)] * len(mechanisms) if queries is None else [int(number) for number in queries]
    if len(asked) != len(mechanisms):
        raise PateError(f"queries has {len(asked)} entries for {len(mechanisms)} settings; give one for each")
    for number in set(asked):
        if not 1 <= number <= len(votes):
            raise PateError(f"queries={number} must be from 1 to the {len(votes)} rows of the votes")
    if any(isinstance(mechanism, InteractiveGNMax) for mechanism in mechanisms):
        raise PateError("interactive-gnmax needs a student between its questions; account for it by itself")
    return asked


def spread(jobs: Sequence[Callable[[], Any]], what: str) -> list[Any]:
    """The results of jobs, done by a thread for each core; NumPy lets go of the interpreter in long loops."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    found = []
    with bar(what, total=len(jobs)) as steps, ThreadPoolExecutor(cores) as pool:
        waiting = [pool.submit(job) for job in jobs]
        try:
            for one in waiting:
                found.append(one.result())
                steps.advance()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return found


def least(
    curve: Callable[[NDArray[np.int64]], Curve], extra: Curve, known: Curve | float = np.inf
) -> tuple[Curve, NDArray[np.int64]]:
    """The least `curve + extra` over all orders, not below 0, and where: [S] each.

    `curve` gives columns [S, k] for some places in the grid; it never falls along the grid, and `extra` never
    rises. `known` is an epsilon that is had already: orders that cannot beat it are left out.

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
        new = np.unique(
            np.concatenate(
                [np.linspace(seen[i], seen[i + 1], _PIECES + 1)[1:-1].round().astype(int) for i in wide]
            )
        )
        new = np.setdiff1d(new, seen)
        every = np.concatenate([seen, new])
        order = np.argsort(every)
        values = np.concatenate([values, curve(new)], axis=1)[:, order]
        seen = every[order]


def _published(
    mechanisms: Sequence[Mechanism], asked: list[int], places: list[int], merged: Tally, delta: float
) -> list[tuple]:
    """`papers.published` of settings whose answers have the same noise: place, epsilon, order, answers."""
    first = mechanisms[places[0]]
    grid = np.arange(2.0, 102.0) if isinstance(first, LNMax) else papers.orders_2018()
    argmax = _argmax_curves(first, merged.counts)
    sizes = sorted({asked[place] for place in places})
    levels, number = len(merged.largest), len(merged.counts)
    gather = sparse.csr_array(
        (
            np.concatenate([merged.times(size) for size in sizes]).astype(np.float64),
            (
                np.concatenate([merged.level + levels * i for i in range(len(sizes))]),
                np.tile(np.arange(number), len(sizes)),
            ),
        ),
        shape=(levels * len(sizes), number),
    )
    weight = np.ones((len(places), levels))
    chances: list[tuple[Curve, Curve] | None] = []
    for row, place in enumerate(places):
        test = mechanisms[place].test
        chances.append(
            None if test is None else threshold.log_answered(test, merged.largest.astype(np.float64))
        )
        if test is not None:
            weight[row] = np.exp(chances[-1][0])  # type: ignore[index]
    often = (gather @ np.ones(number)).reshape(len(sizes), levels)
    of_size = np.array([sizes.index(asked[place]) for place in places])

    def curve(at: NDArray[np.int64]) -> Curve:
        answers = (gather @ argmax(grid[at])).reshape(len(sizes), levels, len(at))
        total = np.empty((len(places), len(at)))
        for size in range(len(sizes)):
            rows = np.flatnonzero(of_size == size)
            total[rows] = weight[rows] @ answers[size]
        for row, place in enumerate(places):
            chance, test = chances[row], mechanisms[place].test
            if test is not None and chance is not None:
                total[row] += often[of_size[row]] @ threshold.published(test, *chance, grid[at])
        return total

    epsilon, at = least(curve, -np.log(delta) / (grid - 1))
    answered = (weight * often[of_size]).sum(axis=1)
    return list(zip(places, epsilon, grid[at], answered, strict=True))


def _argmax_curves(mechanism: Mechanism, counts: NDArray[np.int64]) -> Callable[[Curve], Curve]:
    """The published bound of the argmax as a function of orders, with `q` computed once."""
    family, scale = mechanism.noise
    if family == "gaussian":
        log_q = gnmax.log_q(counts, scale)
        return lambda orders: gnmax.theorem6(log_q, scale, orders)
    if family == "discrete_gaussian" and scale <= threshold.LARGEST_TABLE:
        log_q = gnmax.discrete_log_q(counts, scale)
        return lambda orders: gnmax.theorem6(log_q, scale, orders)
    if family == "laplace":
        log_q = laplace.log_q(counts, scale)
        return lambda orders: laplace.moments(log_q, 2 / scale, orders)
    return lambda orders: np.broadcast_to(curves.argmax_bound(mechanism, orders), (len(counts), len(orders)))


def _worst(
    mechanisms: Sequence[Mechanism],
    asked: list[int],
    places: list[int],
    votes: NDArray[np.int64],
    delta: float,
) -> list[tuple]:
    """The data-independent figure of one mechanism for some numbers of queries: place, epsilon, basis."""
    mechanism = mechanisms[places[0]]
    one = _OneQuery(mechanism, int(votes[0].sum()))
    found: dict[int, tuple[float, str]] = {}
    for queries in {asked[place] for place in places}:
        slack = figures.sampler_slack(mechanism, queries, votes.shape[1])
        best, basis = _closed_forms(mechanism, queries, delta, slack)

        def renyi(inner: float, queries: int = queries, known: float = best.epsilon) -> Epsilon:  # type: ignore[assignment]
            grid = one.grid
            extra = np.log1p(-1 / grid) - (np.log(inner) + np.log(grid)) / (grid - 1)
            value, at = least(lambda at: queries * one.columns(at), extra, known)
            return Epsilon(float(value[0]), float(grid[at[0]]))

        other = figures.with_slack(renyi, delta, slack)
        if other.epsilon < best.epsilon:
            best, basis = other, "renyi, worst case"
        found[queries] = _composed(
            mechanism, queries, votes.shape[1], delta, slack, (float(best.epsilon), basis)
        )
    return [(place, *found[asked[place]]) for place in places]


class _OneQuery:
    """The worst-case curve of one query, each order computed when it is first asked for."""

    def __init__(self, mechanism: Mechanism, teachers: int) -> None:
        self.grid = curves.default_orders()
        self._mechanism, self._teachers = mechanism, teachers
        self._known: dict[int, float] = {}

    def columns(self, at: NDArray[np.int64]) -> Curve:
        """The curve [1, k] at places in the grid."""
        new = np.array([place for place in at.tolist() if place not in self._known], np.int64)
        if len(new):
            values = curves.data_independent(self._mechanism, [self._teachers], self.grid[new])[0]
            self._known.update(zip(new.tolist(), values.tolist(), strict=True))
        return np.array([[self._known[place] for place in at.tolist()]])


def _closed_forms(mechanism: Mechanism, queries: int, delta: float, slack: float) -> tuple[Epsilon, str]:
    """Gaussian-DP or pure-DP composition, where there is one."""
    mu = composition.gaussian_dp(mechanism, queries)
    if mu is not None:
        return figures.with_slack(
            lambda inner: Epsilon(composition.gaussian_epsilon(mu, inner), None), delta, slack
        ), "Gaussian-DP"
    steps = composition.pure_steps(mechanism, queries)
    if steps is not None:
        return figures.with_slack(
            lambda inner: Epsilon(composition.pure_epsilon(steps, inner), None), delta, slack
        ), "pure-DP composition"
    return Epsilon(np.inf, None), ""


def _composed(
    mechanism: Mechanism, queries: int, classes: int, delta: float, slack: float, best: tuple[float, str]
) -> tuple[float, str]:
    """Where the statement composes distributions of losses too, the smaller of both."""
    plain = mechanism.test is None and mechanism.noise.family in ("discrete_gaussian", "laplace")
    if not plain or best[0] >= _LARGE:
        return best
    from pate_jax.accounting.exact import pld

    found = figures.with_slack(
        lambda inner: Epsilon(pld.data_independent_epsilon(mechanism, queries, classes, inner), None),
        delta,
        slack,
    )
    if found.epsilon < best[0]:
        return float(found.epsilon), "privacy-loss distributions, worst case"
    return best
