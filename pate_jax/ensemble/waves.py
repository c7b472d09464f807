"""The loop over epochs, rounds and waves: a round fills the devices once, a wave is one checkpoint."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from pate_jax.ensemble import feeding
from pate_jax.ensemble import programs as compiled
from pate_jax.ensemble.feeding import Records
from pate_jax.ensemble.plan import Plan
from pate_jax.ensemble.settings import TeacherConfig
from pate_jax.ensemble.teacher import News, Shard, State, Teacher, steps_per_epoch
from pate_jax.models.trees import Tree


def report(
    machine: Machine, data: Records, mine: np.ndarray, news: News, pace: float, seconds: float
) -> dict[str, Any]:
    """What became of the teachers `mine`, as JSON; for the private part of a run, never for its release."""
    some = data.counts[mine] > 0
    return {
        "teachers": len(mine),
        "plan": dataclasses.asdict(machine.plan),
        "backend": machine.devices[0].platform,
        "devices": len(machine.devices),
        "seconds": seconds,
        "images_per_second": pace,
        "private": {
            "about": "derived from private records: not to be published",
            "shard_size": _spread(data.counts[mine]),
            "empty_shards": int((~some).sum()),
            "own_accuracy": _spread(news.accuracy[some]),
            "own_loss": _spread(news.loss[some]),
            "restarted": {str(mine[row]): int(news.attempt[row]) for row in np.flatnonzero(news.attempt)},
            "failed": mine[np.flatnonzero(news.failed)].tolist(),
        },
    }


def _spread(values: np.ndarray) -> dict[str, float] | None:
    """Minimum, mean and maximum of the finite values."""
    finite = np.asarray(values, np.float64)[np.isfinite(values)]
    if not len(finite):
        return None
    return {"min": float(finite.min()), "mean": float(finite.mean()), "max": float(finite.max())}


Tell = Callable[..., None]  # of a progress bar: how many images are done, and a note


@dataclasses.dataclass(frozen=True)
class Teachers:
    """Trained teachers of this process, in the order of `ids`; `report` is JSON.

    Each part is the ids of some teachers and a function that gives their stacked parameters: from memory, or
    from disk where all of them together would not fit.

    >>> Teachers.of({"bias": np.zeros((5, 3))}).params["bias"].shape
    (5, 3)
    """

    ids: np.ndarray
    report: dict[str, Any]
    parts: tuple[tuple[np.ndarray, Callable[[], Tree]], ...]

    @classmethod
    def of(cls, params: Tree, report: dict[str, Any] | None = None) -> Teachers:
        """Teachers from parameters that are stacked along a first axis.

        >>> import numpy as np
        >>> Teachers.of({"bias": np.zeros((5, 3))}).ids.tolist()
        [0, 1, 2, 3, 4]
        """
        ids = np.arange(len(jax.tree.leaves(params)[0]), dtype=np.int32)
        return cls(ids, report or {}, ((ids, lambda: params),))

    @property
    def params(self) -> Tree:
        """All parameters in memory, stacked along a first axis."""
        parts = [load() for _, load in self.parts]
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)


class Wave(NamedTuple):
    """The teachers of a wave, stacked: everything that has to be on disk to go on from here."""

    state: State
    news: News


class Machine(NamedTuple):
    """What trains a wave."""

    teacher: Teacher
    programs: compiled.Programs
    plan: Plan
    devices: compiled.Places
    config: TeacherConfig


def cut(ids: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Groups of `size` ids, the last one filled up with -1.

    >>> [group.tolist() for group in cut(np.arange(3), 2)]
    [[0, 1], [2, -1]]
    """
    for first in range(0, len(ids), size):
        group = ids[first : first + size]
        yield np.concatenate([group, np.full(size - len(group), -1, group.dtype)])


def rounds(ids: np.ndarray, counts: np.ndarray, plan: Plan, devices: int) -> Iterator[np.ndarray]:
    """The rounds of a wave.

    Where a teacher trains alone on its device, a round holds teachers of similar size, so none waits long for
    another. In a vmap the place of a teacher follows from its id alone, since bits may depend on the place.
    """
    if plan.width == 1:
        ids = ids[np.argsort(-counts[ids], kind="stable")]
    return cut(ids, plan.width * devices)


def empty(machine: Machine, data: feeding.Records, ids: np.ndarray) -> Wave:
    """A wave before training."""
    one = jax.tree.map(lambda leaf: leaf[0], feeding.take(data, ids[:1], machine.config))
    state = jax.eval_shape(machine.teacher.start, one, jax.ShapeDtypeStruct((), np.int32))
    _, news = jax.eval_shape(machine.teacher.turn, state, one)
    return jax.tree.map(lambda leaf: np.zeros((len(ids), *leaf.shape), leaf.dtype), Wave(state, news))


def train(
    machine: Machine,
    data: feeding.Records,
    ids: np.ndarray,
    wave: Wave,
    *,
    save: Callable[[Callable[[], Wave]], None],
    tell: Tell,
) -> Wave:
    """Train a wave's teachers to their end, from where `wave` stopped; `save` is called after each epoch."""
    for group in rounds(ids, data.counts, machine.plan, len(machine.devices)):
        real = group >= 0
        rows = rows_of(ids, group[real])
        feed = feeding.take(data, group, machine.config)
        begun = (wave.news.epoch[rows] > 0) | (wave.news.attempt[rows] > 0)
        if (begun & (wave.news.epoch[rows] >= feed.epochs[real])).all():
            tell(float((feed.count * feed.epochs).sum()), found=True)
            continue
        resident, state = begin(machine, feed)
        now = _enter(machine, state, wave, rows, real)
        del state  # the first step donates its memory
        tell(float((feed.count * now[1].epoch).sum()), found=True)
        for now in _epochs(machine, *now, feed, resident, tell):  # noqa: B020
            save(partial(store, wave, *now, rows, real))
        store(wave, *now, rows, real)
    return wave


def rows_of(ids: np.ndarray, teachers: np.ndarray) -> np.ndarray:
    """The rows of a wave that belong to these of its teachers.

    >>> rows_of(np.array([7, 8, 9]), np.array([9, 7])).tolist()
    [2, 0]
    """
    row_of = {int(teacher): row for row, teacher in enumerate(ids)}
    return np.array([row_of[int(teacher)] for teacher in teachers])


def begin(machine: Machine, feed: Shard) -> tuple[Shard, State]:
    """A round's shards on the devices, and the states that its teachers start with."""
    resident = compiled.place(feed, machine.devices, machine.plan.width)
    return resident, machine.programs.start(resident, spread(np.zeros(len(feed.count), np.int32), machine))


def _epochs(
    machine: Machine,
    state: State,
    news: News,
    feed: Shard,
    resident: Shard,
    tell: Tell,
) -> Iterator[tuple[State, News]]:
    """Run epochs until every teacher of the round has done its own number of them."""
    steps = steps_per_epoch(feed.count, machine.config)
    while (busy := news.epoch < feed.epochs).any():
        began = time.monotonic()
        state = machine.programs.steps(state, resident, int(steps[busy].max()))
        state, latest = machine.programs.turn(state, resident)
        news = _merge(busy, compiled.fetch(latest), news)
        again = busy & news.failed & (news.attempt + 1 < machine.config.attempts)
        if again.any():
            fresh = machine.programs.start(resident, spread(news.attempt + 1, machine))
            state = machine.programs.choose(spread(again, machine), fresh, state)
            news = news._replace(epoch=np.where(again, 0, news.epoch), attempt=news.attempt + again)
        images = float(feed.count[busy].sum())
        pace = images / (time.monotonic() - began)
        epoch, last = int(news.epoch[busy].max()), int(feed.epochs[busy].max())
        tell(images, f"epoch {epoch}/{last}, {pace:,.0f} images/s, loss {np.mean(news.loss[busy]):.3f}")
        yield state, news


def _enter(
    machine: Machine, state: State, wave: Wave, rows: np.ndarray, real: np.ndarray
) -> tuple[State, News]:
    """Continue a round where its wave stopped: from the stored states, or from those just started."""

    def placed(stored):
        whole = np.zeros((len(real), *stored.shape[1:]), stored.dtype)
        whole[real] = stored[rows]
        return whole

    stored, news = jax.tree.map(placed, (wave.state, wave.news))
    begun = (news.epoch > 0) | (news.attempt > 0)
    if begun.any():
        before = compiled.place(stored, machine.devices, machine.plan.width)
        state = machine.programs.choose(spread(begun, machine), before, state)
    return state, news


def store(wave: Wave, state: State, news: News, rows: np.ndarray, real: np.ndarray) -> Wave:
    """Copy a round's states into the wave: at the round's end, and whenever a checkpoint is due."""
    latest = jax.tree.leaves((compiled.fetch(state), news))
    for leaf, new in zip(jax.tree.leaves(wave), latest, strict=True):
        leaf[rows] = np.asarray(new)[real]
    return wave


def _merge(which: np.ndarray, new: Tree, old: Tree) -> Tree:
    return jax.tree.map(partial(np.where, which), new, old)


def spread(values: np.ndarray, machine: Machine) -> np.ndarray:
    """One value for each place of a round."""
    return np.asarray(values).reshape(len(machine.devices), machine.plan.width)
