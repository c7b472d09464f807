"""The loop over the rounds of a wave of linear teachers: each teacher is solved at once, in one step.

A thread cuts the shards of a round while the devices solve the one before, and the results of a round are
stored while they solve the next. A wave takes a second or so, so nothing is kept of an unfinished one.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from pate_jax.ensemble import feeding, programs, ridge, waves
from pate_jax.ensemble.plan import Plan
from pate_jax.ensemble.teacher import News, Shard, State
from pate_jax.ensemble.waves import Machine, Tell, Wave

Made = TypeVar("Made")


def longest(counts: np.ndarray, plan: Plan) -> int:
    """Places for the records of the longest shard."""
    return int(ridge.places(counts, ridge.sizes(plan, len(counts))).max())


def train(machine: Machine, data: feeding.Records, ids: np.ndarray, wave: Wave, tell: Tell) -> Wave:
    """Solve a wave's teachers."""
    waiting = None
    for group, feed in ahead(feeds(machine, data, ids)):
        real = group >= 0
        resident, state = waves.begin(machine, feed)
        state, news = machine.programs.turn(machine.programs.steps(state, resident, 1), resident)
        if waiting is not None:
            _store(wave, *waiting)
        waiting = state, news, waves.rows_of(ids, group[real]), real
        tell(float(feed.count.sum()))
    if waiting is not None:
        _store(wave, *waiting)
    return wave


def _store(wave: Wave, state: State, news: News, rows: np.ndarray, real: np.ndarray) -> None:
    waves.store(wave, state, programs.fetch(news), rows, real)


def feeds(machine: Machine, data: feeding.Records, ids: np.ndarray) -> Iterator[tuple[np.ndarray, Shard]]:
    """The rounds of a wave: the teachers of each, and their shards."""
    for length, group in rounds(ids, data.counts, machine.plan, len(machine.devices)):
        yield group, feeding.take(data._replace(length=length), group, machine.config)


def rounds(ids: np.ndarray, counts: np.ndarray, plan: Plan, devices: int) -> Iterator[tuple[int, np.ndarray]]:
    """The rounds of a wave, each with the places of its shards, which shape its program.

    One by one, a teacher may have any place, and devices share a round evenly. In a vmap its place follows
    from its id alone, since bits may depend on the place: a round is done once for each length, with the
    others' places left empty.
    """
    lengths, size = ridge.places(counts, ridge.sizes(plan, len(counts))), plan.width * devices
    for length in np.unique(lengths[ids]).tolist():
        if plan.one_by_one:
            for group in waves.cut(ids[lengths[ids] == length], size):
                yield length, group.reshape(plan.width, devices).T.ravel()
        else:
            for group in waves.cut(ids, size):
                mine = np.where(lengths[group] == length, group, -1)
                if (mine >= 0).any():
                    yield length, mine


def ahead(made: Iterator[Made]) -> Iterator[Made]:
    """The same, each made by a thread while the one before is in use.

    >>> list(ahead(iter([2, 3, 5])))
    [2, 3, 5]
    """
    with ThreadPoolExecutor(1) as thread:
        coming = thread.submit(next, made, None)
        while (one := coming.result()) is not None:
            coming = thread.submit(next, made, None)
            yield one
