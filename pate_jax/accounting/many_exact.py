"""Exact epsilon of many settings over one list of votes, each at the orders that can give the least.

For one move of one vote `(a-1) D_a` is convex in the order, so are its largest value over moves and its sum
over queries, and so is what the tight conversion adds times `a-1`: epsilon as a function of the order falls
and then rises. A small sample of queries tells where it turns; all queries are then looked at around that
place, going on as long as epsilon still falls by two in a thousand. Whatever orders were looked at, the
figure is a valid one: at worst it is above the least over the whole grid, never below the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate_jax.accounting import curves, figures
from pate_jax.accounting.curves import Epsilon
from pate_jax.accounting.exact import groups, renyi
from pate_jax.accounting.inputs import check_delta, check_votes
from pate_jax.accounting.many import check_settings, spread
from pate_jax.mechanisms import Mechanism

_SAMPLE = 500  # queries that tell where to look
_STEPS = (8, 3, 1)  # of the search for the best order
_WORTH = 2e-3  # share of epsilon that one more order, computed for all queries, must save


def exact_many(
    mechanisms: Sequence[Mechanism],
    votes: ArrayLike,
    delta: float,
    *,
    queries: Sequence[int] | None = None,
    done: Callable[[int, Epsilon], Any] | None = None,
) -> list[Epsilon]:
    """The exact epsilon of every setting for its first so many queries; a function of the votes: sensitive.

    `done` is called with the place of each setting as soon as it is finished.

    >>> from pate_jax.mechanisms import GNMax
    >>> [round(one.epsilon, 4) for one in exact_many([GNMax(40.0)], [[240, 10], [130, 120]], 1e-5)]
    [0.1203]
    """
    counts, delta = check_votes(votes), check_delta(delta)
    asked = check_settings(mechanisms, counts, queries)

    @lru_cache(maxsize=32)
    def merged(number: int) -> tuple[groups.Merged, NDArray[np.int64]]:
        found = groups.merge(counts[:number])
        return found, np.bincount(found.row_of, minlength=found.rows)

    @lru_cache(maxsize=32)
    def sample(number: int) -> groups.Merged:
        return groups.merge(counts[:number][:: max(1, number // _SAMPLE)])

    def one(place: int) -> Epsilon:
        number = asked[place]
        found = _least(mechanisms[place], counts[:number], delta, sample(number), *merged(number))
        if done is not None:
            done(place, found)
        return found

    for number in set(asked):  # once, before threads ask for them
        merged(number), sample(number)
    jobs: list[Callable[[], Epsilon]] = [lambda place=place: one(place) for place in range(len(asked))]  # type: ignore[misc]
    return spread(jobs, "exact privacy")


def _least(
    mechanism: Mechanism,
    counts: NDArray[np.int64],
    delta: float,
    sample: groups.Merged,
    merged: groups.Merged,
    times: NDArray[np.int64],
) -> Epsilon:
    grid = curves.default_orders()
    extra = np.log1p(-1 / grid) - (np.log(delta) + np.log(grid)) / (grid - 1)
    sampled = np.bincount(sample.row_of, minlength=sample.rows) * (len(counts) / len(sample.row_of))
    first = int(np.searchsorted(grid, 8.0))
    guess = first
    quick = _Summed(mechanism, counts, sample, sampled, grid)
    for step in _STEPS:
        guess = _descend(quick, extra, guess, step)
    curve = _Summed(mechanism, counts, merged, times, grid)
    _descend(curve, extra, guess, _STEPS[-1], worth=_WORTH)
    known = np.array(sorted(curve.known))
    values = np.array([curve.known[at] for at in known.tolist()])
    slack = figures.sampler_slack(mechanism, *counts.shape)
    return figures.with_slack(lambda inner: curves.epsilon(grid[known], values, inner), delta, slack)


class _Summed:
    """The exact curve summed over all queries, each order computed when it is first asked for."""

    def __init__(
        self,
        mechanism: Mechanism,
        counts: NDArray[np.int64],
        merged: groups.Merged,
        times: NDArray[Any],
        grid: NDArray[np.float64],
    ) -> None:
        self.known: dict[int, float] = {}
        self._mechanism, self._teachers = mechanism, int(counts[0].sum())
        self._merged, self._times, self._grid = merged, times, grid

    def at(self, places: Sequence[int]) -> None:
        """Compute these places of the grid, all at once."""
        new = sorted({place for place in places if 0 <= place < len(self._grid)} - set(self.known))
        if not new:
            return
        orders = self._grid[new]
        each = renyi._costs(self._mechanism.noise, self._mechanism.test, self._merged, orders)
        worst = curves.data_independent(self._mechanism, [self._teachers], orders)[0]
        total = self._times @ np.minimum(each, worst)
        self.known.update(zip(new, total.tolist(), strict=True))


def _descend(curve: _Summed, extra: NDArray[np.float64], place: int, step: int, worth: float = 0.0) -> int:
    """Walk to where epsilon is least among neighbours `step` apart, as long as that saves enough."""
    last = len(extra) - 1
    while True:
        around = [at for at in (place - step, place, place + step) if 0 <= at <= last]
        curve.at(around)
        best = min(around, key=lambda at: curve.known[at] + extra[at])
        here = curve.known[place] + extra[place]
        if best == place or curve.known[best] + extra[best] > here - worth * abs(here):
            return place
        place = best
