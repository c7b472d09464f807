"""Is there anything in a release beyond public inputs and released answers? Shown by making it from these.

The student of a run is trained again from public inputs, the released answers and its own key, in a folder
that holds nothing else, with a data set whose private part is empty, while no file of the run or of the
private data can be opened. If the same numbers come out, whoever studies the student learns nothing beyond
those inputs and answers, for it follows from them. Students that hold inputs are looked at: each must be a
public input. Derived in docs/proofs/attacks.md.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pate_jax import accounting, data
from pate_jax.audit.attacks import attributes
from pate_jax.audit.attacks.attack import OF_RECORDS, Attack, Flags, Way
from pate_jax.audit.attacks.attributes import Inferred
from pate_jax.audit.retraining import compared
from pate_jax.audit.subject import Subject
from pate_jax.data import duplicates
from pate_jax.errors import PateError
from pate_jax.models import trees
from pate_jax.runs import students
from pate_jax.runs.crowds import stages, steps
from pate_jax.runs.crowds.inputs import Crowd
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.inputs import Inputs
from pate_jax.runs.queries import asked_inputs
from pate_jax.runs.release.findings import Finding, failed
from pate_jax.runs.secret import Secret
from pate_jax.student import Student
from pate_jax.system import storage

_KEY = "student"  # the one stream of the run's secret that a student needs
_RELEASED = (
    "settings.json",
    "ledger.jsonl",
    "ledger.jsonl.head.json",
    "results.json",
    "answers*.npz",
    "public_side*.npz",
    "scored",
)
_HELD = ("examples", "patches/examples")  # where students hold inputs
_UNKNOWN = "a file that no release has"
_HOLDS = {
    "parameters.npz": "the numbers of the student, made again from public inputs and answers",
    "student.json": "the student's net, its scaling (constants or public statistics), classes and columns",
    "statement.json": "figures that read nothing from the private data, and what was asked for",
    "MODEL_CARD.md": "the same in words, with figures of public data",
    "predict.py": "a program of this package, the same for everybody",
    "encoder.py": "a program of this package, the same for everybody",
    "encoder.onnx": "the encoder of photos, the same for everybody",
    "report.html": "the statement, public inputs with their answers, and figures of public data",
}


class Held(NamedTuple):
    """Inputs that a student holds."""

    inputs: int
    public: int  # of them are public inputs
    private: int  # of them equal a private record too


class Reconstructed(NamedTuple):
    """What came of it."""

    student: Finding
    same_bytes: bool
    files: dict[str, str]  # of release/, and what each holds
    held: Held | None  # None: the student holds no inputs
    inferred: Inferred | None  # None: there are no other records of the same source with labels

    @property
    def holds(self) -> bool:
        """Whether nothing was found that does not follow from public inputs and answers."""
        only_public = self.held is None or self.held.public == self.held.inputs
        told = self.inferred is None or self.inferred.holds
        known = _UNKNOWN not in self.files.values()
        return self.student.outcome == "passed" and only_public and told and known

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "warning": OF_RECORDS,
            "student": self.student._asdict(),
            "same_bytes": self.same_bytes,
            "files": self.files,
            "held": None if self.held is None else self.held._asdict(),
            "attribute": None if self.inferred is None else self.inferred.to_dict(),
        }

    def text(self) -> str:
        """For a terminal."""
        return "\n".join([f"reconstruction ({OF_RECORDS}):", *(f"  {one}" for one in self.sentences())])

    def sentences(self) -> Iterator[str]:
        """What it says, for people."""
        bytes_too = ", and its files are equal byte for byte" * self.same_bytes
        yield f"{self.student.outcome}: {self.student.text}, with nothing private within reach{bytes_too}."
        for name, holds in self.files.items():
            yield f"release/{name}: {holds}."
        if self.held is not None:
            yield (
                f"The student holds {self.held.inputs:,} inputs; {self.held.public:,} of them are public "
                f"inputs, and {self.held.private:,} equal a private record too."
            )
        if self.inferred is not None:
            yield self.inferred.sentence()


@dataclass(frozen=True)
class OneKey(Secret):
    """The secret of a run of which only the student's key is known."""

    only: bytes = b""

    def derive(self, purpose: str) -> bytes:
        """That key; anything else is refused."""
        if purpose != _KEY:
            raise PateError(f"the student asked for the key {purpose!r}, which is not public")
        return self.only


@dataclass(frozen=True, init=False)
class Released(RunDirectory):
    """A folder that holds what a run has released, and nothing else of it."""

    key: bytes

    def __init__(self, root: Path | str, key: bytes) -> None:
        super().__init__(root)
        object.__setattr__(self, "key", key)

    @property
    def secret(self) -> OneKey:
        """The key of the student."""
        return OneKey(self.keys, self.ledger, self.root, only=self.key)


def rebuilt(learn: Callable[[Inputs], Student], run: RunDirectory, opened: Inputs, folder: Path) -> Student:
    """The student, trained again by `learn` in a folder that holds released files alone."""
    there = Released(folder, run.secret.derive(_KEY))
    for path in (path for pattern in _RELEASED for path in run.private.glob(pattern)):
        _copied(path, there.private / path.name)
    choice, public = opened.choice, without_private(opened.dataset)
    inputs = dataclasses.replace(opened, run=there, opened=public)
    kept = (run.root, choice.private, choice.manual_dir, choice.data_dir)
    with sealed([path for path in kept if path is not None]):
        return learn(inputs)


def _of_answers(asked: data.Part, inputs: Inputs) -> Student:
    """What the answers to these inputs teach."""
    return students.learn(inputs.run, students.taught(inputs.run), inputs.dataset, asked)


def _of_tables(inputs: Inputs) -> Student:
    """What the tables of a crowd teach."""
    run = inputs.run
    last = Crowd(inputs, run.record.read().crowd).at(len(steps.shown(run).tables))
    return stages.learn(last, students.taught(run))[0]


def without_private(dataset: data.Dataset) -> data.Dataset:
    """The same data set with no private record in it."""
    nobody = dataset.private.take(np.zeros(0, np.int64))
    return dataclasses.replace(dataset, private=nobody, test=None, private_notes={})


_shut: list[str] = []  # folders and files that must not be opened now
_watching: list[bool] = []


@contextmanager
def sealed(paths: Sequence[Path]) -> Iterator[None]:
    """Nothing at or below these paths can be opened meanwhile.

    >>> with sealed([Path("/not/public")]):
    ...     Path("/not/public/records.csv").open()
    Traceback (most recent call last):
    ...
    pate_jax.errors.PateError: /not/public/records.csv was opened, which is not public
    """
    if not _watching:
        sys.addaudithook(_refuse)  # it cannot be removed, and does nothing where nothing is shut
        _watching.append(True)
    _shut.extend(os.path.realpath(path) for path in paths)
    try:
        yield
    finally:
        _shut.clear()


def _refuse(event: str, given: tuple[Any, ...]) -> None:
    if event != "open" or not _shut or not isinstance(given[0], str | bytes | os.PathLike):
        return
    path = os.path.realpath(os.fsdecode(given[0]))
    if any(path == one or path.startswith(f"{one}{os.sep}") for one in _shut):
        raise PateError(f"{path} was opened, which is not public")


def _copied(path: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        shutil.copytree(path, to)
    else:
        shutil.copyfile(path, to)


def contents(folder: Path) -> dict[str, str]:
    """Every file of a release, and what it holds."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): _HOLDS.get(path.name, _UNKNOWN) for path in files}


def held(student: Student, dataset: data.Dataset, public: np.ndarray) -> Held | None:
    """Which inputs a student holds, and whose they are."""
    leaves = trees.flat(student.parameters)
    found = [leaves[name] for name in _HELD if name in leaves]
    if not found:
        return None
    kept = duplicates.digests(np.asarray(found[0], np.float32))
    known, private = (_seen(dataset, inputs) for inputs in (public, dataset.private.inputs))
    return Held(len(kept), sum(one in known for one in kept), sum(one in private for one in kept))


def _seen(dataset: data.Dataset, inputs: np.ndarray) -> set[str]:
    """Digests of inputs in the form in which a student holds them."""
    return {*duplicates.digests(np.asarray(dataset.preprocessing.apply(inputs), np.float32))}


def unfit(run: RunDirectory) -> str | None:
    """Why the student of a run cannot be made again from public things."""
    if not run.results.exists():
        return f"{run.root} has no student yet: run `pate student {run.root}` first"
    if "data" not in run.record.read():
        return f"{run.root} was made from votes alone and does not know its public inputs: leave out --only"
    return None


def of_teachers(run: RunDirectory, flags: Flags) -> Reconstructed:
    """Make the student of teachers' answers again."""
    del flags
    opened = _opened(run)
    asked = asked_inputs(opened)
    return _found(partial(_of_answers, asked), run, opened, asked.inputs)


def of_crowd(run: RunDirectory, flags: Flags) -> Reconstructed:
    """Make the student of a crowd's tables again."""
    del flags
    opened = _opened(run)
    return _found(_of_tables, run, opened, opened.dataset.public.inputs)


def _opened(run: RunDirectory) -> Inputs:
    opened = Subject(run).opened
    if not isinstance(opened, Inputs):
        raise PateError(opened.text)
    return opened


def _found(
    learn: Callable[[Inputs], Student], run: RunDirectory, opened: Inputs, public: np.ndarray
) -> Reconstructed:
    """Make the student again, look at what the release holds, and try to infer a hidden part."""
    released, dataset = Student.load(run.student), opened.dataset
    with tempfile.TemporaryDirectory() as name:
        again = rebuilt(learn, run, opened, Path(name) / "released")
        again.save(Path(name) / "student")
        finding = compared(
            released.parameters,
            again.parameters,
            "the student",
            "public inputs, released answers and its key",
        )
        if again.description != released.description:
            finding = failed("the student is another net than public inputs and answers give")
        same = all(
            file.read_bytes() == (run.student / file.name).read_bytes()
            for file in (Path(name) / "student").iterdir()
        )
    return Reconstructed(
        finding,
        same,
        contents(run.release),
        held(released, dataset, public),
        _inferred(run, released, dataset),
    )


def _inferred(run: RunDirectory, student: Student, dataset: data.Dataset) -> Inferred | None:
    """The attack on a hidden part, where there is a test part of the same source."""
    if dataset.test is None or dataset.test.labels is None:
        return None
    statement = accounting.Statement.from_dict(storage.read_json(run.statement, "statement"))
    allowed = 2 * statement.trade_off.guess - 1
    hidden = attributes.hidden_part(dataset.input_shape, dataset.columns)
    members, others, public = dataset.private, dataset.test, dataset.public.inputs
    return attributes.inferred(lambda some: student(some), members, others, public, hidden, allowed)


ATTACK = Attack("reconstruction", {"teachers": Way(of_teachers, unfit), "crowd": Way(of_crowd, unfit)})
