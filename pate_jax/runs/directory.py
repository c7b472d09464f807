"""A run directory: where each file lies, the settings it was made with, its keys and its one writer.

`private/` holds all that must not leave; `release/` holds all that may. The settings of each stage are
written when the stage first runs and obeyed after that: another value is refused with the field's name.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pate_jax.errors import PateError
from pate_jax.system import locks, storage


class RunDirectory:
    """The paths of a run and the settings that its stages were made with.

    >>> import tempfile
    >>> RunDirectory(tempfile.mkdtemp()).votes.name
    'votes.npz'
    """

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root)
        if self.root.exists() and not self.root.is_dir():
            raise PateError(f"{self.root} is a file where a run directory is wanted")
        self.private = self.root / "private"
        self.release = self.root / "release"
        self.settings = self.private / "settings.json"
        self.keys = self.private / "keys.json"
        self.certificate = self.private / "certificate.json"
        self.teachers = self.private / "teachers"
        self.teacher_report = self.private / "teachers.json"
        self.votes = self.private / "votes.npz"
        self.answers = self.private / "answers.npz"
        self.rows = self.private / "rows.npz"
        self.ledger = self.private / "ledger.jsonl"
        self.statement = self.private / "statement.json"
        self.results = self.private / "results.json"
        self.report = self.private / "report.html"
        self.public_statement = self.release / "statement.json"
        self.student = self.release / "student"
        self.public_report = self.release / "report.html"

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
            yield

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

    @property
    def batches(self) -> int:
        """How many batches have been voted on: batches are numbered from 1, without gaps."""
        return next(batch for batch in itertools.count() if not self.votes_of(batch + 1).exists())

    def agree(self, stage: str, settings: Mapping[str, Any], but_not: Sequence[str] = ()) -> None:
        """Record a stage's settings, or refuse those that differ from the recorded ones."""
        recorded = self.recorded()
        if stage not in recorded:
            storage.write_json(self.settings, "settings", {**recorded, stage: dict(settings)})
            return
        for name in sorted({*settings, *recorded[stage]} - {*but_not}):
            old, new = recorded[stage].get(name), settings.get(name)
            newer = (
                name not in recorded[stage] and new is False
            )  # a switch that an older version had not: off
            if old != new and not newer:
                raise PateError(
                    f"{self.root} was made with {stage} setting {name}={old!r}, not {new!r}; "
                    "repeat the first command to continue it, or choose another --out"
                )

    def recorded(self) -> dict[str, Any]:
        """The settings of all stages so far."""
        recorded = storage.read_json(self.settings, "settings") if self.settings.exists() else {}
        for stage, settings in recorded.items():
            if not isinstance(settings, dict):
                raise PateError(f"{self.settings}: {stage}={settings!r} are no settings; restore the file")
        return recorded

    def secret(self, seed: int | None) -> None:
        """Draw the run's 256-bit secret from the operating system once, or keep its seed where it has one."""
        if not self.keys.exists():
            if self.ledger.exists():
                raise PateError(
                    f"{self.keys} is missing, and {self.ledger} shows that its noise was used: restore it "
                    "from a backup, or choose another --out"
                )
            entropy = None if seed is not None else secrets.token_hex(32)
            storage.write_json(self.keys, "keys", {"seed": seed, "entropy": entropy}, mode=0o600)
        if self.seed != seed:
            raise PateError(f"{self.root} was made with seed={self.seed}, not {seed}; choose another --out")

    @property
    def seed(self) -> int | None:
        """The seed of a reproducible run; None where the run is private."""
        return self._stored_keys()["seed"]

    def _stored_keys(self) -> dict[str, Any]:
        stored = storage.read_json(self.keys, "keys")
        seed, entropy = stored.get("seed"), stored.get("entropy")
        good = isinstance(entropy, str) and re.fullmatch("[0-9a-f]{64}", entropy) if seed is None else True
        if "seed" not in stored or not good or not (seed is None or type(seed) is int):
            raise PateError(
                f"{self.keys} holds neither a seed nor 256 bits of entropy; restore it from a backup"
            )
        return stored

    def derive(self, purpose: str) -> bytes:
        """32 bytes for one purpose, from the run's secret or seed."""
        stored = self._stored_keys()
        root = bytes.fromhex(stored["entropy"]) if stored["seed"] is None else b"seed %d" % stored["seed"]
        return hashlib.blake2b(purpose.encode(), key=root, digest_size=32, person=b"pate_jax run").digest()


def close(folder: Path) -> None:
    """Make a folder that nobody but its owner can look into, or shut one that is there.

    >>> import tempfile
    >>> private = Path(tempfile.mkdtemp()) / "private"
    >>> close(private)
    >>> oct(private.stat().st_mode & 0o777)
    '0o700'
    """
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        os.chmod(folder, 0o700)
    except OSError as error:
        raise PateError(storage.cannot_write(folder, error)) from error


def _numbered(path: Path, batch: int) -> Path:
    return path if batch == 1 else path.with_name(f"{path.stem}-{batch:04d}{path.suffix}")
