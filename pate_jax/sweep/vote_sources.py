"""Where votes come from: a votes file, a run directory, or teachers that the sweep trains.

Votes are stored in the sweep's folder under the digest of their content.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from pate_jax import data, voting
from pate_jax.ensemble import TeacherConfig
from pate_jax.errors import PateError
from pate_jax.models import identity
from pate_jax.runs import queries, stages
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.inputs import Inputs, open_classes
from pate_jax.runs.queries import rows_of
from pate_jax.runs.record import refuse_crowd
from pate_jax.runs.settings import DataChoice, PartitionChoice, to_settings
from pate_jax.student.settings import Selection
from pate_jax.sweep import cells, students
from pate_jax.system import locks, storage
from pate_jax.system.tasks import opened_once
from pate_jax.voting import Votes
from pate_jax.voting.votes import votes_of

_LIST = "sweep-queries"  # the kind of the file of a list
_WHERE = {"data_dir", "manual_dir", "devices", "metric"}  # they never decide what comes out
NESTED: tuple[Selection, ...] = ("first", "random")  # a list of few queries is the beginning of a longer one


@dataclass(frozen=True)
class Ensemble:
    """Teachers of one data set, trained when their votes are first needed."""

    choice: DataChoice
    cut: PartitionChoice
    config: TeacherConfig
    folder: Path  # of the sweep

    @cached_property
    def digest(self) -> str:
        """The digest of everything that decides what the teachers say."""
        parts = (("data", self.choice), ("partition", self.cut), ("teacher", self.config))
        described: dict[str, object] = {name: _settings(one) for name, one in parts}
        if self.config.own_net:
            described["source"] = identity.source_of(identity.class_named(str(self.config.net)))
        return cells.digest(described)

    @property
    def home(self) -> Path:
        """The run directory of the teachers."""
        return self.folder / "teachers" / self.digest

    def votes(self, selection: Selection, size: int) -> Votes:
        """What the teachers say of a list of public inputs."""
        with self._alone() as inputs:
            path = inputs.run.votes.with_name(f"votes-{selection}-{size}.npz")
            if path.exists():
                return voting.load_votes(path)
            stages.train(inputs)
            cast = stages.votes_on(inputs, self._asked(inputs, selection, size))
            voting.save_votes(path, cast)
            return cast

    @contextmanager
    def _alone(self) -> Iterator[Inputs]:
        """The opened inputs, while no other worker is at the same teachers."""
        with locks.held(self.home / ".sweep.lock", self.home, wait=True), RunDirectory(self.home).writing():
            yield _begun(self)

    def _asked(self, inputs: Inputs, selection: Selection, size: int) -> data.Part:
        """The inputs of a list: the same for all ensembles of a data set, seed and space."""
        dataset = inputs.dataset
        described: dict[str, object] = {"data": _settings(self.choice), "seed": self.cut.seed}
        if selection == "space":
            described["teacher"] = _settings(self.config)
        name = cells.digest({**described, "selection": selection, "size": size})
        path = self.folder / "queries" / f"{name}.json"
        with locks.held(path.with_name(f".{name}.lock"), path, wait=True):
            if path.exists():
                ids = np.array(storage.read_json(path, _LIST)["ids"])
                return dataset.public.take(queries.rows_of(dataset.public.ids, ids))
            pool = dataset.public.take(queries.different(dataset.public, size, []))
            key = f"selection {self.cut.seed}".encode()
            seen = inputs.seen_by_space(pool) if selection == "space" else None
            asked = queries.select(pool, dataset.preprocessing, size, selection, key, seen)
            storage.write_json(path, _LIST, {"ids": asked.ids.tolist()})
            return asked


@opened_once
def opened(choice: DataChoice) -> data.Dataset:
    """A data set, opened or drawn once for all ensembles."""
    return open_classes(choice, "pate sweep")


@opened_once
def _begun(ensemble: Ensemble) -> Inputs:
    """The inputs of an ensemble, opened once for all of its lists."""
    run, choice = RunDirectory(ensemble.home), ensemble.choice
    return stages.begin(run, choice, ensemble.cut, ensemble.config, opened=opened(choice))


def _settings(one: DataChoice | PartitionChoice | TeacherConfig) -> dict[str, object]:
    kept = {name: value for name, value in to_settings(one).items() if name not in _WHERE}
    return kept if kept.get("net_args") else {name: kept[name] for name in kept if name != "net_args"}


JudgedOn = Literal["private", "public", "synthetic"]


@dataclass(frozen=True)
class Source:
    """Votes on one list of queries that settings are judged on, made when they are first needed."""

    name: str
    digest: str
    teachers: int
    classes: int
    available: int  # queries
    judged_on: JudgedOn
    origin: FileVotes | ListVotes
    net: str | None = None  # of teachers that were trained here
    selection: Selection | None = None  # by which their queries were chosen
    seed: int | None = None  # of their shards; None: votes that were there before

    @property
    def whole(self) -> bool:
        """Whether the beginning of the list is no list of its own, as of one input for each cluster."""
        return self.selection is not None and self.selection not in NESTED

    def votes(self) -> Votes:
        """The votes, which teachers cast now if they have not yet."""
        return self.origin.votes()


@dataclass(frozen=True)
class FileVotes:
    """Votes of a file that was there before, and where the inputs lie that were voted on."""

    path: Path
    digest: str  # of its content when the sweep began
    labels_are_teacher_labels: bool
    choice: DataChoice | None  # of the run that the file is in
    public: Path | None
    test: Path | None

    def votes(self) -> Votes:
        """The votes, unless others have taken their place."""
        votes = _read(self.path, self.labels_are_teacher_labels)
        if content_digest(votes) != self.digest:
            raise PateError(f"{self.path} has changed since the sweep began: repeat the command to sweep it")
        return votes

    def lesson(self, votes: Votes) -> students.Lesson:
        """What students of these votes learn from."""
        if self.choice is not None:
            return _lesson_of(open_classes(self.choice, "pate sweep"), votes)
        if self.public is None:
            raise PateError(
                f"students of {self.path} need the inputs that were voted on: give --public and --test"
            )
        dataset = data.pool(self.public, self.test, classes=votes.votes.shape[1])
        if len(dataset.public.ids) < len(votes.votes):
            raise PateError(
                f"{self.public} has {len(dataset.public.ids)} inputs for {len(votes.votes)} rows of votes"
            )
        return students.lesson(dataset, dataset.public.take(slice(len(votes.votes))))


@dataclass(frozen=True)
class ListVotes:
    """What teachers that are trained here say of one list of public inputs."""

    ensemble: Ensemble
    selection: Selection
    size: int

    def votes(self) -> Votes:
        """The votes, cast now if they have not been yet."""
        cast = self.ensemble.votes(self.selection, self.size)
        keep(self.ensemble.folder, cast)
        return cast

    def lesson(self, votes: Votes) -> students.Lesson:
        """What students of these votes learn from."""
        return _lesson_of(opened(self.ensemble.choice), votes)


@opened_once
def _read(path: Path, labels_are_teacher_labels: bool) -> Votes:
    return votes_of(path, labels_are_teacher_labels)


@opened_once
def lesson(source: Source) -> tuple[Votes, students.Lesson]:
    """The votes of a source and what students of them learn from, opened once for all students."""
    votes = source.votes()
    return votes, source.origin.lesson(votes)


def of_file(
    path: Path,
    folder: Path,
    judged_on: JudgedOn | None,
    *,
    labels_are_teacher_labels: bool = False,
    public: Path | None = None,
    test: Path | None = None,
) -> Source:
    """A votes file, or the votes of a run directory."""
    choice = None
    if path.is_dir():
        run = RunDirectory(path)
        refuse_crowd(run.record.read(), path)
        settings = run.record.read()
        choice = settings.data if "data" in settings else None
        path = run.existing(run.votes, "vote")
    votes = votes_of(path, labels_are_teacher_labels)
    digest = keep(folder, votes)
    synthetic = choice is not None and _is_synthetic(choice)
    return Source(
        name=path.stem if choice is None else f"{path.parent.parent.name}",
        digest=digest,
        teachers=int(votes.votes[0].sum()),
        classes=int(votes.votes.shape[1]),
        available=len(votes.votes),
        judged_on=judged_on or ("synthetic" if synthetic else "private"),
        origin=FileVotes(path, digest, labels_are_teacher_labels, choice, public, test),
    )


def of_ensemble(ensemble: Ensemble, selection: Selection, size: int, judged_on: JudgedOn | None) -> Source:
    """The votes of teachers that are trained here, on a list of so many public inputs."""
    choice = ensemble.choice
    listed = {"teachers": ensemble.digest, "selection": selection}
    return Source(
        name="own data" if choice.private else choice.dataset,
        digest=cells.digest(listed if selection in NESTED else {**listed, "size": size}),
        teachers=ensemble.cut.number,
        classes=opened(choice).classes,
        available=size,
        judged_on=judged_on or ("synthetic" if _is_synthetic(choice) else "private"),
        origin=ListVotes(ensemble, selection, size),
        net=ensemble.config.net,
        selection=selection,
        seed=ensemble.cut.seed,
    )


def keep(folder: Path, votes: Votes) -> str:
    """Store votes in the sweep's folder, and return the digest under which they lie there."""
    name = content_digest(votes)
    path = folder / "votes" / f"{name}.npz"
    if not path.exists():
        voting.save_votes(path, votes)
    return name


def content_digest(votes: Votes) -> str:
    """The digest of votes and of the labels that they are judged by.

    >>> import numpy as np
    >>> len(content_digest(Votes(np.array([[3, 1]]))))
    32
    """
    return storage.digest(votes.votes, votes.labels)[:32]


def _lesson_of(dataset: data.Dataset, votes: Votes) -> students.Lesson:
    if votes.ids is None:
        raise PateError("the votes file names no inputs, so no student can be taught: leave out --students")
    return students.lesson(dataset, dataset.public.take(rows_of(dataset.public.ids, votes.ids)))


def _is_synthetic(choice: DataChoice) -> bool:
    return choice.private is None and choice.dataset in data.SYNTHETIC
