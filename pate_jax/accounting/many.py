"""Many settings over one list of votes in one call; each figure equals the one for that setting alone.

Shared work is done once: histograms that are equal when sorted are merged, an argmax's curve depends only on
the noise of the answer, and the worst case depends only on the mechanism. The functions that account for one
setting do all the rest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache, partial
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate_jax.accounting import curves, papers
from pate_jax.accounting.curves import Columns, Epsilon, sampler_slack
from pate_jax.accounting.data_independent import Proved, WorstCase
from pate_jax.accounting.exact import groups
from pate_jax.accounting.figures import Case
from pate_jax.accounting.inputs import Curve, check_delta, check_votes
from pate_jax.accounting.papers import Published
from pate_jax.errors import PateError
from pate_jax.mechanisms import LNMax, Mechanism, check_votes_suffice
from pate_jax.system.progress import bar

Result = TypeVar("Result")
Group = TypeVar("Group", bound=Hashable)
_SAMPLE = 500  # size of the sample of queries that locates the best order
_STEPS = (8, 3, 1)  # steps of the search for it
_WORTH = 2e-3  # the share of epsilon that one more order, computed for all queries, must save


class Many(NamedTuple):
    """One entry for each setting."""

    published: Curve  # the papers' epsilon: expected cost, classic conversion
    published_order: Curve
    answered: Curve  # expected number of answers
    data_independent: Curve  # the figure to publish, the same as in `statement`
    basis: list[str]  # the method that proves it


def many(
    mechanisms: Sequence[Mechanism],
    votes: ArrayLike,
    delta: float,
    *,
    queries: Sequence[int] | None = None,
) -> Many:
    """The figures of every setting; `queries[i]` is the number of first rows that setting i is asked.

    >>> from pate_jax.mechanisms import GNMax
    >>> found = many([GNMax(40.0), GNMax(80.0)], [[240, 10], [130, 120]], 1e-5)
    >>> found.published.round(4).tolist(), found.data_independent.round(2).tolist()
    ([0.2252, 0.1203], [0.15, 0.07])
    """
    counts, delta = check_votes(votes), check_delta(delta)
    asked = check_settings(mechanisms, counts, queries)
    sizes = sorted(set(asked))
    merged = groups.distinct(counts, *(np.arange(len(counts)) < size for size in sizes))

    def published(places: list[int]) -> list[Published]:
        rows = [sizes.index(asked[place]) for place in places]
        reading = merged.votes.max(axis=1).astype(np.float64)
        some = [mechanisms[place] for place in places]
        return papers.of_one_noise(some, rows, merged.votes, reading, merged.among, delta)

    def worst(places: list[int]) -> list[Proved]:
        one = WorstCase(mechanisms[places[0]], [counts[0].sum()], counts.shape[1])
        known = {
            size: one.figure(np.array([size]), delta) for size in sorted({asked[place] for place in places})
        }
        return [known[asked[place]] for place in places]

    with_papers = _each(mechanisms, lambda one: (one.noise, isinstance(one, LNMax)), published, "published")
    proved = _each(mechanisms, lambda one: (one.noise, one.test), worst, "data-independent")
    return Many(
        np.array([one.epsilon for one in with_papers]),
        np.array([one.order for one in with_papers]),
        np.array([one.answered for one in with_papers]),
        np.array([one.epsilon.epsilon for one in proved], np.float64),
        [one.basis for one in proved],
    )


def _each(
    mechanisms: Sequence[Mechanism],
    group_of: Callable[[Mechanism], Group],
    account: Callable[[list[int]], list[Result]],
    what: str,
) -> list[Result]:
    """One result for each setting; `account` handles all settings of a group in one call."""
    groups_: dict[Group, list[int]] = {}
    for place, mechanism in enumerate(mechanisms):
        groups_.setdefault(group_of(mechanism), []).append(place)
    by_place: dict[int, Result] = {}
    jobs = [partial(account, places) for places in groups_.values()]
    for places, results in zip(groups_.values(), spread(jobs, what), strict=True):
        by_place.update(zip(places, results, strict=True))
    return [by_place[place] for place in range(len(mechanisms))]


def check_settings(
    mechanisms: Sequence[Mechanism], votes: NDArray[np.int64], queries: Sequence[int] | None
) -> list[int]:
    """The number of queries that each setting is asked, checked."""
    asked = [len(votes)] * len(mechanisms) if queries is None else [int(number) for number in queries]
    if len(asked) != len(mechanisms):
        raise PateError(f"queries has {len(asked)} entries for {len(mechanisms)} settings; give one for each")
    for number in set(asked):
        if not 1 <= number <= len(votes):
            raise PateError(f"queries={number} must be from 1 to the {len(votes)} rows of the votes")
    for mechanism in mechanisms:
        check_votes_suffice(mechanism)
    return asked


def spread(jobs: Sequence[Callable[[], Result]], what: str) -> list[Result]:
    """The results of jobs, one thread per core; NumPy releases the interpreter's lock in long loops."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    results = []
    with bar(what, total=len(jobs)) as steps, ThreadPoolExecutor(cores) as pool:
        waiting = [pool.submit(job) for job in jobs]
        try:
            for one in waiting:
                results.append(one.result())
                steps.advance()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return results


def exact_many(
    mechanisms: Sequence[Mechanism],
    votes: ArrayLike,
    delta: float,
    *,
    queries: Sequence[int] | None = None,
) -> list[Epsilon]:
    """The exact epsilon of every setting for its first queries; sensitive, because it depends on the votes.

    For one move of one vote `(a-1) D_a` is convex in the order. So are its maximum over moves, its sum over
    queries, and `a-1` times what the tight conversion adds. So epsilon, as a function of the order, first
    falls and then rises. A small sample of queries locates the minimum; all queries are then computed at
    orders around it, as long as epsilon still falls by two in a thousand. The figure is valid for any orders:
    it may be above the least over the whole grid, but never below the truth.

    >>> from pate_jax.mechanisms import GNMax
    >>> [round(one.epsilon, 4) for one in exact_many([GNMax(40.0)], [[240, 10], [130, 120]], 1e-5)]
    [0.1203]
    """
    counts, delta = check_votes(votes), check_delta(delta)
    asked = check_settings(mechanisms, counts, queries)

    @lru_cache(maxsize=32)
    def merged(number: int, step: int) -> groups.Distinct:
        return groups.distinct(counts[:number:step])

    def one(place: int) -> Epsilon:
        number, mechanism = asked[place], mechanisms[place]
        slack = sampler_slack(mechanism, number, counts.shape[1])
        cases = [
            Case(mechanism, some.votes, some.asked, None, delta, curves.default_orders(), slack)
            for some in (merged(number, _step(number)), merged(number, 1))
        ]
        return _at_the_turn(*cases)

    for number in set(asked):  # fills the cache before threads use it
        merged(number, 1), merged(number, _step(number))
    return spread([partial(one, place) for place in range(len(asked))], "exact privacy")


def _step(queries: int) -> int:
    return max(1, queries // _SAMPLE)


def _at_the_turn(sample: Case, case: Case) -> Epsilon:
    """The exact epsilon of a case, at orders around the one where the sample's epsilon is least."""
    grid = case.orders
    extra = curves.conversion_cost(grid, case.delta)
    share = int(case.asked.sum()) / int(sample.asked.sum())
    place = int(np.searchsorted(grid, 8.0))
    quick = Columns(grid, lambda orders: share * replace(sample, orders=orders).exact.summed)
    for step in _STEPS:
        place = _descend(quick, extra, place, step)
    curve = Columns(grid, lambda orders: replace(case, orders=orders).exact.summed)
    _descend(curve, extra, place, _STEPS[-1], worth=_WORTH)
    known = curve.known
    return replace(case, orders=grid[known]).epsilon(curve.at(known)[0])


def _descend(curve: Columns, extra: Curve, place: int, step: int, worth: float = 0.0) -> int:
    """The place reached by steps to the neighbour of least epsilon, as long as a step saves enough."""
    while True:
        around = [at for at in (place - step, place, place + step) if 0 <= at < len(extra)]
        epsilon = dict(zip(around, curve.at(np.array(around))[0] + extra[around], strict=True))
        best = min(around, key=lambda at: epsilon[at])
        if best == place or epsilon[best] > epsilon[place] - worth * abs(epsilon[place]):
            return place
        place = best
