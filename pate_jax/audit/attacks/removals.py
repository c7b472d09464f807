"""The votes that move when a teacher is trained again without one person, everything else bitwise unchanged.

A teacher follows from its own key and its own shard alone. So one training of the ensemble serves as many
people as there are teachers: each teacher is without one person of its own. Such a training is a wave. What
came of it is written at once, and a command that is repeated goes on with the next one.

How far a crowd's noisy tables move without one voter is exact as well, in deviations of their noise.
Every voter adds a table of its own to the sum, so without it each sum is less by just that table. All noise
is Gaussian, and its squares add up over the releases of a run. A voter who is held out moves scores, or a
comparison, alone. The public side and the released numbers stay as they were.
"""

from __future__ import annotations

import functools
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from pate_jax import ensemble, voting
from pate_jax.accounting.exact.pair import Moves
from pate_jax.crowd import tables
from pate_jax.crowd.voters import agreed
from pate_jax.data.partition import Shards, units_of
from pate_jax.ensemble import TeacherConfig, Teachers, checkpoint
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums, CrowdRelease, NeighbourCounts
from pate_jax.models.trees import Tree
from pate_jax.runs import answers
from pate_jax.runs import inputs as run_inputs
from pate_jax.runs.crowds import steps
from pate_jax.runs.crowds.inputs import Crowd
from pate_jax.runs.crowds.students import every
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.inputs import Inputs
from pate_jax.runs.ledger import CrowdLine
from pate_jax.runs.queries import asked_inputs
from pate_jax.student import spaces
from pate_jax.system import progress, storage
from pate_jax.system.tasks import HERE, Engine, opened_once

WAVE = 16  # people of a wave whose teachers learn step by step: a few minutes at most are lost by a stop
_KIND, _MADE_FROM = "risk-wave", "risk-made-from"


@dataclass(frozen=True)
class Removals:
    """The people of a run by teachers, and where the waves of their removal are kept."""

    inputs: Inputs
    folder: Path

    @cached_property
    def votes(self) -> voting.Votes:
        """The votes on everything that was asked, with the labels of single teachers."""
        return answers.load_asked(self.inputs.run)

    @cached_property
    def labels(self) -> Int[np.ndarray, "teacher query"]:
        """The labels that the run's own teachers gave."""
        if self.votes.teacher_labels is None:
            raise PateError(
                f"the votes of {self.inputs.run.root} hold no labels of single teachers, so nobody's vote "
                "can be taken out: use a run whose teachers voted here"
            )
        return np.asarray(self.votes.teacher_labels)

    @cached_property
    def rows(self) -> dict[str, np.ndarray]:
        """The rows of each person's records."""
        units = units_of(self.inputs.dataset.private, self.inputs.cut.by)
        names, which = np.unique(units, return_inverse=True)
        order = np.argsort(which, kind="stable")
        ends = np.cumsum(np.bincount(which))[:-1]
        return dict(zip(names.tolist(), np.split(order, ends), strict=True))

    @cached_property
    def teacher_of(self) -> Int[np.ndarray, " record"]:
        """The teacher of each record."""
        shards = self.inputs.shards
        found = np.empty(int(shards.counts.sum()), np.int64)
        for teacher in range(len(shards.counts)):
            found[shards.of(teacher)] = teacher
        return found

    @cached_property
    def config(self) -> TeacherConfig:
        """The teachers' settings, in the width in which they were trained."""
        stored = checkpoint.folders(self.inputs.run.teachers)
        width = checkpoint.plan(stored[0]).width if stored else self.inputs.teacher.width
        return replace(self.inputs.teacher, width=width)

    def moves(self, persons: Sequence[str], engine: Engine = HERE) -> list[Moves]:
        """The moved votes of each of these people, from the waves that are kept and from new ones."""
        self.agree()
        found = self._found()
        waiting = [name for name in persons if name not in found]
        with progress.bar("people taken out", total=len(persons)) as steps:
            steps.advance(len(persons) - len(waiting), found=True)
            if waiting:
                self._control(waiting)
            there = self if engine is HERE else (self.inputs.run.root, self.folder)
            for _, made in engine.each(one_wave, [Wave(there, wave) for wave in self._waves(waiting)]):
                self._keep(made)
                found |= made
                steps.advance(len(made))
        return [found[name] for name in persons]

    def agree(self) -> None:
        """Refuse to go on in a folder whose contents were made from other votes."""
        path = self.folder / "made_from.json"
        body = {"labels": storage.digest(self.labels), "asked": storage.digest(self.votes.digests)}
        if not path.exists():
            storage.write_json(path, _MADE_FROM, body)
        if storage.read_json(path, _MADE_FROM) != body:
            raise PateError(f"{self.folder} belongs to other votes than the run's now: remove that folder")

    def _found(self) -> dict[str, Moves]:
        found: dict[str, Moves] = {}
        for path in sorted(self.folder.glob("wave-*.npz")):
            wave = storage.read_arrays(path, _KIND)
            parts = (np.split(wave[name], wave["ends"][:-1]) for name in Moves._fields)
            found |= dict(zip(wave["names"].tolist(), map(Moves, *parts), strict=True))
        return found

    def _keep(self, made: Mapping[str, Moves]) -> None:
        number = 1 + len(list(self.folder.glob("wave-*.npz")))
        ends = np.cumsum([len(one.queries) for one in made.values()])
        joined = {
            name: np.concatenate([getattr(one, name) for one in made.values()]) for name in Moves._fields
        }
        arrays = {"names": np.array(list(made)), "ends": ends, **joined}
        storage.write_arrays(self.folder / f"wave-{number:06d}.npz", _KIND, arrays)

    def _waves(self, persons: Sequence[str]) -> Iterator[dict[int, str]]:
        """People by their teachers, one of each teacher in a wave."""
        queues: dict[int, deque[str]] = defaultdict(deque)
        for name in persons:
            queues[int(self.teacher_of[self.rows[name][0]])].append(name)
        most = len(queues) if self.config.closed_form else WAVE
        while queues:
            first = sorted(queues)[:most]
            yield {teacher: queues[teacher].popleft() for teacher in first}
            queues = {teacher: queue for teacher, queue in queues.items() if queue}

    def without(self, wave: Mapping[int, str]) -> dict[str, Moves]:
        """The votes that move without each person of a wave."""
        shards, rest = self.inputs.shards, {}
        for teacher, name in wave.items():
            own = shards.of(teacher)
            rest[teacher] = own[~np.isin(own, self.rows[name])]
            if len(own) - len(rest[teacher]) != len(self.rows[name]):
                raise PateError(f"the records of {name!r} are not all with teacher {teacher}: verify the run")
        again = self._trained(rest)
        return {name: self._moved(teacher, again[teacher]) for teacher, name in wave.items()}

    def _moved(self, teacher: int, again: Int[np.ndarray, " query"]) -> Moves:
        queries = np.flatnonzero(again != self.labels[teacher])
        before = self.labels[teacher][queries]
        return Moves(queries, before.astype(np.int64), again[queries].astype(np.int64))

    def _control(self, waiting: Sequence[str]) -> None:
        """Refuse to go on where a teacher with all its records says something else than it did in the run."""
        shards, wave = self.inputs.shards, next(iter(self._waves(waiting)))
        same = sorted(wave)[: None if self.config.closed_form else 1]
        for teacher, again in self._trained({one: shards.of(one) for one in same}).items():
            wrong = int((again != self.labels[teacher]).sum())
            if wrong:
                raise PateError(
                    f"teacher {teacher}, trained again from all its own records, labels {wrong} of "
                    f"{len(again)} queries otherwise than in the run, so a difference would not be a "
                    "person's: use the machine and the versions that made the run, or `pate verify --deep`"
                )

    def _trained(self, rows: Mapping[int, np.ndarray]) -> dict[int, Int[np.ndarray, " query"]]:
        """The labels of some teachers, each trained from these rows with its own key and in its own place."""
        part = self.inputs.dataset.private
        return trained(self.inputs, self.config, rows, self._seen, np.asarray(part.labels), self._asked)

    @cached_property
    def _seen(self) -> np.ndarray:
        return self.inputs.seen.private.inputs

    @cached_property
    def _asked(self) -> np.ndarray:
        return self.inputs.seen_of(asked_inputs(self.inputs))


class Wave(NamedTuple):
    """One person of each teacher, and what takes them out: here, or made from its folders by a worker."""

    removals: Removals | tuple[Path, Path]
    people: Mapping[int, str]


def one_wave(one: Wave) -> dict[str, Moves]:
    """The votes that move without each person of a wave."""
    made = one.removals if isinstance(one.removals, Removals) else _opened(*one.removals)
    return made.without(one.people)


@opened_once
def _opened(root: Path, folder: Path) -> Removals:
    return Removals(run_inputs.open(RunDirectory(root), tolerant=True), folder)


def trained(
    inputs: Inputs,
    config: TeacherConfig,
    rows: Mapping[int, np.ndarray],
    seen: np.ndarray,
    labels: Int[np.ndarray, " record"],
    asked: np.ndarray,
) -> dict[int, Int[np.ndarray, " query"]]:
    """What some teachers say of what is `asked`, each trained from its rows of records as in the run."""
    counts, places = np.zeros_like(inputs.shards.counts), np.zeros_like(inputs.shards.rows)
    for teacher, own in rows.items():
        counts[teacher] = len(own)
        places[teacher, : len(own)] = own
    net, preprocessing, shards = inputs.net, inputs.dataset.preprocessing, Shards(places, counts)
    again = ensemble.fit(net, preprocessing, seen, labels, shards, key=inputs.teacher_key, config=config)
    some, order = (again, again.ids.tolist()) if config.closed_form else _only(again, sorted(rows))
    said = ensemble.predict(net, preprocessing, some, asked)
    return {teacher: said[order.index(teacher)] for teacher in sorted(rows)}


def _only(teachers: Teachers, wanted: list[int]) -> tuple[Teachers, list[int]]:
    """Some of the teachers; where each trains by itself, its labels do not depend on its place."""
    parts = [
        (np.array([one]), partial(_alone, tree)) for one, tree in checkpoint.parameters_of(teachers, wanted)
    ]
    return Teachers(np.array(wanted), {}, tuple(parts)), [int(ids[0]) for ids, _ in parts]


def _alone(tree: Tree) -> Tree:
    """The parameters of one teacher as those of an ensemble of one."""
    return jax.tree.map(lambda leaf: leaf[None], tree)


class Shifts(NamedTuple):
    """Of each voter, by name: the length of its shift if it is removed, and a bound if it is changed."""

    names: np.ndarray
    removed: Float[np.ndarray, " voter"]
    changed: Float[np.ndarray, " voter"]  # whatever its new contents are


def shifts_of(crowd: Crowd) -> Shifts:
    """The shifts of all voters of a crowd's run, over all that it has released."""
    names, which = np.unique(units_of(crowd.dataset.private, crowd.choice.by), return_inverse=True)
    shown, held = steps.shown(crowd.run), crowd.held_out
    _check([*shown.numbers, *shown.tables, *shown.scores, *shown.comparisons])
    removed, changed = np.zeros((2, len(names)))
    removed += sum(1 / line.event.sigma**2 for line in shown.numbers)
    for line in shown.tables:
        here, release = crowd.at(steps.step_of(line)), line.event
        own = tables.own_squares(here.plan, here.people)
        _add(removed, which, ~held, crowd, own / release.sigma**2)
        _add(changed, which, ~held, crowd, _furthest(release, own) / release.sigma**2)
    for line in shown.scores:
        own = agreed(crowd.judges, lambda seen: spaces.labels(crowd.scored, seen))
        _add(removed, which, held, crowd, own / line.event.sigma**2)
        _add(changed, which, held, crowd, np.ones(len(own)) / line.event.sigma**2)
    for line in shown.comparisons:
        gone, other = _compared(crowd)
        _add(removed, which, held, crowd, gone / line.event.sigma**2)
        _add(changed, which, held, crowd, other / line.event.sigma**2)
    return Shifts(names, np.sqrt(removed), np.sqrt(changed))


def _compared(crowd: Crowd) -> tuple[Float[np.ndarray, " voter"], Float[np.ndarray, " voter"]]:
    """How far held-out voters move a comparison of students, squared: removed, and changed at most.

    A voter of `m` of `k` students moves it by `k m (k - m)` in square. If it changes, it may lose `lost` of
    the `m` and win `won` of the others, and moves it by `k^2 (won + lost) - k (won - lost)^2`.
    """
    students = every(crowd)
    rules = [functools.partial(spaces.labels, student) for student in students]
    k, right = len(students), np.sum([agreed(crowd.judges, rule) for rule in rules], axis=0)
    changed = [
        max(k * k * (won + lost) - k * (won - lost) ** 2 for won in range(k - m + 1) for lost in range(m + 1))
        for m in range(k + 1)
    ]
    gone = np.array([k * m * (k - m) for m in range(k + 1)], np.float64)
    return gone[right], np.array(changed, np.float64)[right]


def _add(
    total: Float[np.ndarray, " voter"],
    which: Int[np.ndarray, " record"],
    rows: np.ndarray,
    crowd: Crowd,
    own: Float[np.ndarray, " some"],
) -> None:
    """Add what the voters of these rows move, which is given by record or by the number of the user."""
    if crowd.choice.by == "record":
        total[which[rows]] += own
    else:
        there = np.unique(which[rows])
        total[there] += own[there]


def _furthest(release: CrowdRelease, own: Int[np.ndarray, " voter"]) -> Float[np.ndarray, " voter"]:
    """The largest square of the shift if a voter's table is exchanged for any other that is allowed.

    Counts: the voter's own cells fall by 1, and as many others as a voter may touch rise by 1. Sums: lengths
    add up by the triangle inequality.
    """
    if isinstance(release, NeighbourCounts):
        return np.asarray(own + release.votes, np.float64)
    if isinstance(release, ClassSums):
        found: np.ndarray = (np.sqrt(own) + release.length) ** 2
        return found
    raise PateError(f"{release} is no table of a crowd: restore the ledger from a backup")


def _check(lines: list[CrowdLine]) -> None:
    """Refuse noise that is not the rounded Gaussian, which every run draws."""
    for line in lines:
        if line.event.family != "rounded_gaussian":
            raise PateError(
                f"release {line.batch} has noise of the family {line.event.family!r}, whose shifts this "
                "command does not know: only runs with rounded Gaussian noise, the default, can be asked"
            )
