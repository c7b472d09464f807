"""Where votes come from: a votes file, a run directory, or a data set whose teachers are trained once.

Votes are stored in the sweep's folder under the digest of their content. For each data set and number of
teachers, the teachers are trained in a folder of their own with the sweep's seed: such votes serve to judge
settings and can never be released.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pate_jax import data, voting
from pate_jax.ensemble import TeacherConfig
from pate_jax.errors import PateError
from pate_jax.runs import stages
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.inputs import open_data
from pate_jax.runs.queries import rows_of
from pate_jax.runs.record import refuse_crowd
from pate_jax.runs.settings import DataChoice, PartitionChoice, to_settings
from pate_jax.sweep import cells, students
from pate_jax.system import locks, storage
from pate_jax.voting import Votes
from pate_jax.voting.files import votes_of

JudgedOn = Literal["private", "public", "synthetic"]


@dataclass(frozen=True)
class Source:
    """Votes that settings are judged on, made when they are first needed."""

    name: str
    digest: str
    teachers: int
    available: int  # queries
    judged_on: JudgedOn
    votes: Callable[[], Votes]
    lesson: Callable[[Votes], students.Lesson]


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
    name = content_digest(votes)
    cached = folder / "votes" / f"{name}.npz"
    if not cached.exists():
        voting.save_votes(cached, votes)

    def lesson(_: Votes) -> students.Lesson:
        if choice is not None:
            return _lesson_of(choice, votes)
        if public is None:
            raise PateError(
                f"students of {path} need the inputs that were voted on: give --public and --test"
            )
        dataset = data.pool(public, test, classes=votes.votes.shape[1])
        if len(dataset.public.ids) < len(votes.votes):
            raise PateError(
                f"{public} has {len(dataset.public.ids)} inputs for {len(votes.votes)} rows of votes"
            )
        return students.lesson(dataset, dataset.public.take(slice(len(votes.votes))))

    synthetic = choice is not None and _is_synthetic(choice)
    return Source(
        name=path.stem if choice is None else f"{path.parent.parent.name}",
        digest=name,
        teachers=int(votes.votes[0].sum()),
        available=len(votes.votes),
        judged_on=judged_on or ("synthetic" if synthetic else "private"),
        votes=lambda: votes,
        lesson=lesson,
    )


def of_data(
    choice: DataChoice,
    teachers: int,
    config: TeacherConfig,
    folder: Path,
    judged_on: JudgedOn | None,
    *,
    queries: int,
    seed: int,
) -> Source:
    """The votes of teachers that are trained on a data set once, however many queries follow."""
    cut = PartitionChoice(teachers=teachers, seed=seed)
    where = {"data_dir", "manual_dir", "devices"}
    described = {
        part: {name: value for name, value in to_settings(one).items() if name not in where}
        for part, one in (("data", choice), ("partition", cut), ("teacher", config))
    }
    name = cells.digest(described)
    home = folder / "teachers" / name

    def votes() -> Votes:
        with locks.held(home / ".sweep.lock", home, wait=True):
            cast = _voted(home, choice, cut, config, queries)
            cached = folder / "votes" / f"{content_digest(cast)}.npz"
            if not cached.exists():
                voting.save_votes(cached, cast)
            return cast

    def lesson(cast: Votes) -> students.Lesson:
        return _lesson_of(RunDirectory(home).record.read().data, cast)

    label = "own data" if choice.private else choice.dataset
    return Source(
        name=label,
        digest=name,
        teachers=teachers,
        available=queries,
        judged_on=judged_on or ("synthetic" if _is_synthetic(choice) else "private"),
        votes=votes,
        lesson=lesson,
    )


def content_digest(votes: Votes) -> str:
    """The digest of votes and of the labels that they are judged by.

    >>> import numpy as np
    >>> len(content_digest(Votes(np.array([[3, 1]]))))
    32
    """
    return storage.digest(votes.votes, votes.labels)[:32]


def _voted(
    home: Path, choice: DataChoice, cut: PartitionChoice, config: TeacherConfig, queries: int
) -> Votes:
    """Train and vote as far as that is left; for more queries than before, the same teachers vote again."""
    run = RunDirectory(home)
    with run.writing():
        inputs = stages.begin(run, choice, cut, config)
        stages.train(inputs)
        settings = run.record.read()
        before = settings.vote(1).queries if "vote" in settings else 0
        if before > queries:
            queries = before
        elif 0 < before < queries:
            run.votes.unlink(missing_ok=True)
            run.record.forget("vote")
        return stages.vote(inputs, queries)


def _lesson_of(choice: DataChoice, votes: Votes) -> students.Lesson:
    dataset = open_data(choice)
    if votes.ids is None:
        raise PateError("the votes file names no inputs, so no student can be taught: leave out --students")
    return students.lesson(dataset, dataset.public.take(rows_of(dataset.public.ids, votes.ids)))


def _is_synthetic(choice: DataChoice) -> bool:
    return choice.private is None and choice.dataset in data.SYNTHETIC
