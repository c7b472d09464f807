"""Small honest runs that several test files examine; whoever needs one first makes it, for all processes.

Nobody writes into them: a test that changes a run changes a copy.
"""

import functools
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np

from pate_jax import voting
from pate_jax.ensemble import TeacherConfig
from pate_jax.mechanisms import ConfidentDiscreteGaussian, DiscreteGaussianMax
from pate_jax.runs import batches, pipeline, stages
from pate_jax.runs.crowds import students
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.settings import DataChoice, PartitionChoice, RunConfig
from pate_jax.runs.tune import candidates as tuning
from pate_jax.runs.tune.settings import Setting, TuneConfig
from pate_jax.student import Auto, Linear, Ridge, Supervised
from pate_jax.student.settings import Settings
from pate_jax.system import locks, storage

TEACHERS, QUERIES = 6, 18
NEAR = {"neighbours": {"queries": 20, "space": "identity"}, "sums": {}}  # each voter casts two votes there
UNCOUNTED = Path("none")  # tests go on with copies of these runs, which a register refuses
STUDENT = Supervised(net="table", steps=8, batch_size=8)


def _folder() -> Path:
    """One folder for all processes of a session of tests, which conftest.py makes and removes."""
    return Path(os.environ["PATE_HONEST_RUNS"])


def _once(name: str, make: Callable[[Path], object]) -> Path:
    """The path `name`, whose files `make` writes unless another process has."""
    path, done = _folder() / name, _folder() / f"{name}.done"
    with locks.held(_folder() / f"{name}.lock", path, wait=True):
        if not done.exists():
            make(path)
            done.touch()
    return path


def _write_table(folder: Path, private: int = 80) -> None:
    """A user's own table: people with two records each, 40 of them, and public inputs drawn alike."""
    folder.mkdir(exist_ok=True)
    random, centres = np.random.default_rng(5), np.eye(3, 4) * 3
    for name, count in (("private", private), ("public", 30), ("test", 20)):
        labels = random.integers(0, 3, count).astype(np.int32)
        arrays = {"inputs": (centres[labels] + random.normal(size=(count, 4))).astype(np.float32)}
        entries = (7 * row % count for row in range(count))  # ids that do not count up like row numbers
        arrays |= {"labels": labels, "ids": np.array([f"{name}-entry-{entry:03d}" for entry in entries])}
        if name == "private":
            half = count // 2
            arrays["users"] = np.array([f"patient-{7 * (row // 2) % half:03d}" for row in range(count)])
        np.savez(folder / f"{name}.npz", **arrays)


@functools.cache
def table() -> DataChoice:
    """The table of people, as files of the user's own."""
    folder = _once("table", _write_table)
    return DataChoice(**{name: folder / f"{name}.npz" for name in ("private", "public", "test")})


def by_teachers(out: Path, seed: int | None = None, **changes: object) -> RunConfig:
    """A run by user on the user's own files whose teachers are nets, or what `changes` say."""
    config = RunConfig(
        data=table(),
        partition=PartitionChoice(teachers=TEACHERS, by="user", seed=seed),
        teacher=TeacherConfig(net="table", epochs=1, min_steps=3, batch_size=8, devices=1),
        student=STUDENT,
        queries=QUERIES,
        mechanism=ConfidentDiscreteGaussian(3.0, 3.0, 1.5),
        out=out,
        register=UNCOUNTED,
    )
    return replace(config, **changes)


@functools.cache
def whole(seed: int | None = None) -> RunDirectory:
    """A whole run by user on the user's own files: private, or with a seed."""
    return RunDirectory(_once(f"whole-{seed}", lambda out: pipeline.run(by_teachers(out, seed))))


@functools.cache
def without_ids() -> RunDirectory:
    """A run by record on the same table, whose records are called by their row numbers; no student yet."""

    def make(out: Path) -> None:
        with np.load(table().private, allow_pickle=False) as file:
            np.savez(_folder() / "rows.npz", inputs=file["inputs"], labels=file["labels"])
        choice = DataChoice(private=_folder() / "rows.npz", public=table().public)
        config = TeacherConfig(net="table", epochs=1, min_steps=3, batch_size=8, devices=1)
        run = RunDirectory(out)
        with run.writing():
            inputs = stages.begin(run, choice, PartitionChoice(teachers=TEACHERS), config)
            stages.train(inputs)
            stages.settle(inputs, DiscreteGaussianMax(6.0), None, 1e-5)
            stages.vote(inputs, QUERIES)
            batches.answer(run, DiscreteGaussianMax(6.0))
            stages.account(run, 1e-5)

    return RunDirectory(_once("without-ids", make))


@functools.cache
def elsewhere() -> RunDirectory:
    """A run from a votes file that somebody else made, with the public inputs given by hand."""

    def make(out: Path) -> None:
        public = table().public
        with np.load(public, allow_pickle=False) as file:
            labels, ids = file["labels"], file["ids"]
        votes = np.where(np.eye(3, dtype=bool)[labels], 30, 5)
        run = RunDirectory(out)
        with run.writing():
            batches.adopt(run, voting.Votes(votes, ids=ids), None, relation="record")
            batches.answer(run, DiscreteGaussianMax(6.0))
            stages.account(run, 1e-5)
            stages.teach(run, STUDENT, public)
            stages.tell(run)

    return RunDirectory(_once("elsewhere", make))


@functools.cache
def budgeted() -> RunDirectory:
    """Two batches of votes made elsewhere, under one budget; no student yet."""

    def make(out: Path) -> None:
        run, random = RunDirectory(out), np.random.default_rng(3)
        with run.writing():
            for batch in range(2):
                ids = np.array([f"pool-{batch}-{row}" for row in range(25)])
                votes = random.multinomial(50, [0.5, 0.3, 0.2], size=25)
                batches.adopt(run, voting.Votes(votes, ids=ids), None, more=batch > 0, relation="record")
                batches.answer(run, DiscreteGaussianMax(20.0), 4.0, 1e-5)
            stages.account(run)

    return RunDirectory(_once("budgeted", make))


@functools.cache
def crowd(voters: str, by: str = "record", seed: int | None = None) -> RunDirectory:
    """A whole run whose records, or users, vote by themselves, on the user's own files."""

    def make(out: Path) -> None:
        partition, of = PartitionChoice(by=by, seed=seed), {"voters": voters, **NEAR[voters]}
        pipeline.run(
            RunConfig(table(), partition, epsilon=4.0, student=STUDENT, out=out, register=UNCOUNTED, **of)
        )

    return RunDirectory(_once(f"crowd-{voters}-{by}-{seed}", make))


@functools.cache
def many() -> DataChoice:
    """A larger table of the same kind: 200 people."""
    folder = _once("many", functools.partial(_write_table, private=400))
    return DataChoice(**{name: folder / f"{name}.npz" for name in ("private", "public", "test")})


def of_steps(out: Path, by: str = "record", seed: int | None = None, steps: int = 3) -> RunConfig:
    """A run of sums in several steps."""
    cut = PartitionChoice(by=by, seed=seed)
    more = {"voters": "sums", "epsilon": 8.0, "steps": steps, "student": Linear(), "register": UNCOUNTED}
    return RunConfig(many(), cut, out=out, **more)


@functools.cache
def in_steps(by: str = "record", seed: int | None = None) -> RunDirectory:
    """A whole run in three steps."""
    make = functools.partial(of_steps, by=by, seed=seed)
    return RunDirectory(_once(f"steps-{by}-{seed}", lambda out: pipeline.run(make(out))))


@functools.cache
def most() -> DataChoice:
    """A still larger table: 400 people, of whom 40 are held out where students are compared."""
    folder = _once("most", functools.partial(_write_table, private=800))
    return DataChoice(**{name: folder / f"{name}.npz" for name in ("private", "public", "test")})


def images(folder: Path) -> DataChoice:
    """Small pictures whose class is which quarter is bright."""
    random = np.random.default_rng(8)
    for name, count in (("private", 600), ("public", 40), ("test", 20)):
        labels = random.integers(0, 3, count).astype(np.int32)
        seen = random.normal(90, 50, (count, 12, 12, 1))
        for label, (top, left) in enumerate(((0, 0), (0, 6), (6, 0))):
            seen[labels == label, top : top + 6, left : left + 6] += 50
        ids = np.array([f"{name}-picture-{7 * row % count:03d}" for row in range(count)])
        inputs = np.clip(seen, 0, 255).astype(np.uint8)
        np.savez(folder / f"{name}.npz", inputs=inputs, labels=labels, ids=ids)
    files = {name: folder / f"{name}.npz" for name in ("private", "public", "test")}
    return DataChoice(**files, ids_are_stable=True)


def comparing(out: Path, by: str = "record", seed: int | None = None) -> RunConfig:
    """A run of sums, of one table, whose classifier some voters compare with other students."""
    partition = PartitionChoice(by=by, seed=seed)
    return RunConfig(most(), partition, voters="sums", steps=1, epsilon=8.0, out=out, register=UNCOUNTED)


def rivals(config: object, crowd: object) -> list[Settings]:
    """In place of the rule: tables are compared too, with students that need little training."""
    return [Ridge(), STUDENT] if isinstance(config, Auto) else []


@functools.cache
def compared(by: str = "record", seed: int | None = None) -> RunDirectory:
    """A whole run that compares three students."""

    def make(out: Path) -> None:
        with patch.object(students, "rivals", rivals):
            pipeline.run(comparing(out, by, seed))

    return RunDirectory(_once(f"compared-{by}-{seed}", make))


def stop_at_write(patch, kill: int) -> list[int]:
    """Stop the write of this number, from 1, as Ctrl-C would; the number returned in a list counts them."""
    written = [0]

    def dying(real):
        def write(path, content, **more):
            written[0] += 1
            if written[0] == kill:
                raise KeyboardInterrupt
            real(path, content, **more)

        return write

    for name in ("write_bytes", "append_bytes"):
        patch.setattr(storage, name, dying(getattr(storage, name)))
    return written


LISTED = (Setting("sums", student=Linear()), Setting("neighbours", queries=12, student=Ridge()))
_THREE = 6  # the seed with which three candidates are drawn, of both settings


def _write_classes(folder: Path) -> None:
    """Records of two classes, four for each of 120 users."""
    folder.mkdir(exist_ok=True)
    random = np.random.default_rng(3)
    for name, count in (("private", 480), ("public", 60), ("test", 40)):
        labels = random.integers(0, 2, count).astype(np.int32)
        arrays = {"inputs": (np.eye(2, 3)[labels] * 2 + random.normal(size=(count, 3))).astype(np.float32)}
        entries = random.permutation(3 * count)[:count]
        arrays |= {"labels": labels, "ids": np.array([f"{name}-{entry:04d}" for entry in entries])}
        if name == "private":
            arrays["users"] = np.array([f"user-{7 * (row // 4) % 120:03d}" for row in range(count)])
        np.savez(folder / f"{name}.npz", **arrays)


@functools.cache
def choice() -> TuneConfig:
    """A finished choice of settings by user, with a seed: three candidates, of both settings."""
    folder = _once("classes", _write_classes)
    data = DataChoice(**{name: folder / f"{name}.npz" for name in ("private", "public", "test")})
    config = TuneConfig(data, LISTED, "user", _THREE, 3.0, candidates=3.0)
    return replace(config, out=_once("choice", lambda out: tuning.run(replace(config, out=out))))
