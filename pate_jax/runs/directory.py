"""A run directory: where each file lies, and its one writer.

`private/` holds all that must not leave; `release/` holds all that may.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pate_jax.errors import PateError
from pate_jax.runs.record import BASELINE, CROWD, LABELS, METHOD, PARTY, TUNE, Record
from pate_jax.runs.secret import Secret
from pate_jax.system import locks, storage


class _Place:
    """A file or folder of a run, named after the folder that it lies in."""

    def __init__(self, folder: str, name: str) -> None:
        self.folder, self.name = folder, name

    def __get__(self, run: RunDirectory, _: type) -> Path:
        folder: Path = getattr(run, self.folder)
        return folder / self.name


@dataclass(frozen=True, init=False)
class RunDirectory:
    """The paths of a run, the record of its settings, and its secret.

    >>> import tempfile
    >>> RunDirectory(tempfile.mkdtemp()).votes.name
    'votes.npz'
    """

    root: Path

    private = _Place("root", "private")
    release = _Place("root", "release")
    settings = _Place("home", "settings.json")
    keys = _Place("home", "keys.json")
    certificate = _Place("home", "certificate.json")
    teacher_report = _Place("home", "teachers.json")
    votes = _Place("home", "votes.npz")
    public_side = _Place("home", "public_side.npz")
    table = _Place("home", "table.npz")
    comparison = _Place("home", "comparison.npz")
    data = _Place("private", "data")
    encoded = _Place("private", "encoded")
    teachers = _Place("private", "teachers")
    answers = _Place("private", "answers.npz")
    rows = _Place("private", "rows.npz")
    ledger = _Place("private", "ledger.jsonl")
    limits = _Place("private", "limits.jsonl")
    statement = _Place("private", "statement.json")
    results = _Place("private", "results.json")
    config = _Place("private", "config.toml")
    sheet = _Place("private", "sheet.json")
    report = _Place("private", "report.html")
    risk = _Place("private", "risk")
    attacks = _Place("private", "attacks.json")
    poisoning = _Place("private", "poisoning")
    public_statement = _Place("release", "statement.json")
    student = _Place("release", "student")
    public_report = _Place("release", "report.html")

    def __init__(self, root: Path | str) -> None:
        object.__setattr__(self, "root", Path(root))
        if self.root.exists() and not self.root.is_dir():
            raise PateError(f"{self.root} is a file where a run directory is wanted")

    @property
    def home(self) -> Path:
        """The folder of what each of several processes makes for itself (`processes`)."""
        return self.private

    @property
    def record(self) -> Record:
        """The settings that its stages were made with."""
        return Record(self.settings, self.root)

    @property
    def secret(self) -> Secret:
        """What its noise, shards and teachers follow from."""
        return Secret(self.keys, self.ledger, self.root, self.release)

    def existing(self, path: Path, made_by: str) -> Path:
        """The path of a file that an earlier stage must have made."""
        if not path.exists():
            raise PateError(f"{path} does not exist: run `pate {made_by}` first")
        return path

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the run for one writer; a second process is refused with the holder's name."""
        close(self.private)
        with locks.held(self.private / ".lock", self.root):
            storage.remove_leftovers(self.root)
            try:
                yield
            finally:
                storage.remove_leftovers(self.root)

    def votes_of(self, batch: int) -> Path:
        """The votes on one batch of queries; the first batch has the plain name.

        >>> RunDirectory("run").votes_of(2).name
        'votes-0002.npz'
        """
        return _numbered(self.votes, batch)

    def answers_of(self, batch: int) -> Path:
        """The answers to one batch."""
        return _numbered(self.answers, batch)

    def rows_of(self, batch: int) -> Path:
        """Which query answers each row of a batch that was handed in; absent where each answers its own."""
        return _numbered(self.rows, batch)

    def public_side_of(self, step: int) -> Path:
        """What the voters of one step of a crowd are compared in and asked; the first has the plain name."""
        return _numbered(self.public_side, step)

    def table_of(self, step: int) -> Path:
        """The exact table of one step of a crowd."""
        return _numbered(self.table, step)

    def certificate_of(self, step: int) -> Path:
        """Who voted in one step of a crowd."""
        return _numbered(self.certificate, step)

    @property
    def score(self) -> Path:
        """How many held-out voters agree with the student of a candidate, exactly."""
        return self.home / "score.npz"

    @property
    def scored(self) -> Path:
        """The folder of the student that they judge."""
        return self.home / "scored"

    def compared(self, method: str) -> Path:
        """The folder of one of the students that held-out voters compared.

        >>> RunDirectory("run").compared("ridge").name
        'ridge'
        """
        return self.home / "compared" / method

    @property
    def batches(self) -> int:
        """How many batches have been voted on: batches are numbered from 1, without gaps."""
        return next(batch for batch in itertools.count() if not self.votes_of(batch + 1).exists())


Kind = Literal["teachers", "crowd", "party", "training", "choice", "method", "labels"]
_KINDS: dict[str, Kind] = {
    PARTY: "party",
    TUNE: "choice",
    BASELINE: "training",
    CROWD: "crowd",
    METHOD: "method",
    LABELS: "labels",
}


def kind_of(run: RunDirectory) -> Kind:
    """Which kind of run this is, by the stage that no other kind records; votes from elsewhere have teachers.

    >>> kind_of(RunDirectory("run"))
    'teachers'
    """
    found = run.record.read()
    return next((kind for stage, kind in _KINDS.items() if stage in found), "teachers")


def close(folder: Path) -> None:
    """Make a folder that nobody but its owner can look into, or shut one that is there.

    >>> import tempfile
    >>> private = Path(tempfile.mkdtemp()) / "private"
    >>> close(private)
    >>> oct(private.stat().st_mode & 0o777)
    '0o700'
    """
    try:
        storage.make_folder(folder, mode=0o700)
        os.chmod(folder, 0o700)
    except OSError as error:
        raise PateError(storage.cannot_write(folder, error)) from error


def _numbered(path: Path, batch: int) -> Path:
    return path if batch == 1 else path.with_name(f"{path.stem}-{batch:04d}{path.suffix}")
