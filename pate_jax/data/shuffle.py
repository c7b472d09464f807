"""The records of a table in several files, written once more so that those of a group lie together.

A group is what must be in memory at a time: all records of some users, or of some teachers. Each file is
written again by itself, as encoded rows of one size: some records at a time, in the order of their groups, so
that a group is read by a few seeks. What is written lies beside a run's private files and goes with the last
use of it; after a crash the next command of the run removes it, as it removes all that is half-written.
"""

from __future__ import annotations

import secrets
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from jaxtyping import Int

from pate_jax.data import partition
from pate_jax.data.dataset import Part
from pate_jax.data.partition import Shards
from pate_jax.data.scans import Batch, Scan
from pate_jax.errors import PateError
from pate_jax.system import storage
from pate_jax.system.progress import track
from pate_jax.system.tasks import HERE, Engine

_WAITING = 1 << 25  # bytes of records that are sorted and written at a time
_GROUP = 1 << 26  # bytes of records of a group, about


class Dealt(NamedTuple):
    """Some records as rows of one size, and the group of each."""

    groups: Int[np.ndarray, " record"]
    rows: np.ndarray  # of a structured type


class Deal(Protocol):
    """A pure function of records and of the number of groups."""

    @property
    def dtype(self) -> np.dtype:
        """The type of the rows."""

    def __call__(self, batch: Batch, groups: int) -> Dealt:
        """Some records dealt to groups."""


class Pieces(NamedTuple):
    """Where the records of a group lie in one file that was written again."""

    path: Path
    starts: list[int]  # in rows
    ends: list[int]


class Group(NamedTuple):
    """The records of a group, wherever they are read."""

    pieces: tuple[Pieces, ...]
    dtype: np.dtype

    def rows(self) -> np.ndarray:
        """The records, in the order of the files and of the rows in each."""
        return np.concatenate([rows for one in self.pieces for rows in _read(one, self.dtype)])


class _Spool(NamedTuple):
    """One file of a table, written again."""

    path: Path
    dtype: np.dtype
    ends: Int[np.ndarray, "pieces groups"]  # of each group in each piece, in rows

    def of(self, group: int) -> Pieces:
        starts = np.concatenate([[0], self.ends.ravel()[:-1]]).reshape(self.ends.shape)
        return Pieces(self.path, starts[:, group].tolist(), self.ends[:, group].tolist())


class _Job(NamedTuple):
    """A file that is to be written again."""

    scan: Scan
    source: Path
    target: Path
    deal: Deal
    groups: int


class Shuffle:
    """A table in groups, which are read one at a time; its files are removed with it."""

    def __init__(self, scan: Scan, records: int, deal: Deal, folder: Path, engine: Engine = HERE) -> None:
        number, token = max(1, -(-records * deal.dtype.itemsize // _GROUP)), secrets.token_hex(8)
        targets = [folder / f".records-{token}-{place:05d}.tmp" for place in range(len(scan.files))]
        pairs = zip(scan.files, targets, strict=True)
        jobs = [_Job(scan, source, target, deal, number) for source, target in pairs]
        self.remove = weakref.finalize(self, _removed, targets)
        try:
            each = track(engine.each(_spooled, jobs), "records of all files, put together", total=len(jobs))
            found = dict(each)
        except BaseException:
            self.remove()
            raise
        spools = [found[place] for place in range(len(jobs))]
        every = (tuple(spool.of(group) for spool in spools) for group in range(number))
        self.groups = [Group(pieces, spools[0].dtype) for pieces in every]


@dataclass(frozen=True)
class ByTeacher:
    """How records are dealt to groups of whole teachers, as `partition.divide` deals them."""

    teachers: int
    key: bytes
    by: str
    width: int  # features of a record
    letters: Mapping[str, int]  # of ids and users at most

    @property
    def dtype(self) -> np.dtype:
        """A record: its teacher, its place in the shard, its names, its label and its features."""
        names = [(role, f"<U{most}") for role, most in self.letters.items()]
        ends = [("labels", "<i4"), ("inputs", "<f4", (self.width,))]
        return np.dtype([("teacher", "<i4"), ("order", "<u8", (2,)), *names, *ends])

    def __call__(self, batch: Batch, groups: int) -> Dealt:
        """Some records, each with all others of its teacher."""
        rows = np.empty(len(batch), self.dtype)
        for role in ("labels", "inputs", "ids"):
            rows[role] = getattr(batch, role)
        if "users" in self.letters:
            rows["users"] = batch.users.each
        rows["order"] = partition.order_of(batch.ids, key=self.key)
        if self.by == "user":
            teacher = partition.teacher_of(batch.users.names, self.teachers, key=self.key)[batch.users.codes]
        else:
            teacher = partition.teacher_of(batch.ids, self.teachers, key=self.key)
        rows["teacher"] = teacher
        return Dealt(teacher.astype(np.int64) * groups // self.teachers, rows)


def shards(
    scan: Scan, records: int, deal: ByTeacher, folder: Path, engine: Engine = HERE
) -> tuple[Part, Shards]:
    """All records in the order of their shards, in mapped files, and the shards.

    The files lose their names as soon as they are mapped, so they go with the last use of the records,
    whatever happens.
    """
    shuffle, token = Shuffle(scan, records, deal, folder, engine), secrets.token_hex(8)
    paths = {name: folder / f".shards-{token}-{name}.tmp" for name in ("inputs", "labels", *deal.letters)}
    counts, written = np.zeros(deal.teachers, np.int64), 0
    try:
        for group in shuffle.groups:
            rows = group.rows()
            if not len(rows):
                continue
            rows = rows[np.lexsort((*rows["order"].T, rows["teacher"]))]
            counts += np.bincount(rows["teacher"], minlength=deal.teachers)
            for name, path in paths.items():
                column = np.ascontiguousarray(rows[name])
                storage.append_bytes(path, column.tobytes(), after=written * column[:1].nbytes)
            written += len(rows)
        mapped = {name: _mapped(path, deal.dtype[name], written) for name, path in paths.items()}
    finally:
        shuffle.remove()
        _removed([*paths.values()])
    starts, places = np.cumsum(counts) - counts, np.arange(max(1, int(counts.max())))
    there = np.where(places < counts[:, None], starts[:, None] + places, 0)
    part = Part(mapped["inputs"], mapped["labels"], mapped["ids"], mapped.get("users"))
    return part, Shards(there.astype(np.int32), counts.astype(np.int32))


def _mapped(path: Path, dtype: np.dtype, records: int) -> np.ndarray:
    try:
        return np.memmap(path, dtype.base, "r", shape=(records, *dtype.shape))
    except OSError as error:
        raise PateError(f"{path} could not be read ({error.strerror}): repeat the command") from error


def _read(pieces: Pieces, dtype: np.dtype) -> list[np.ndarray]:
    found = [np.zeros(0, dtype)]
    try:
        with pieces.path.open("rb") as stream:
            for start, end in zip(pieces.starts, pieces.ends, strict=True):
                stream.seek(start * dtype.itemsize)
                found.append(np.fromfile(stream, dtype, end - start))
                if len(found[-1]) < end - start:
                    raise PateError(f"{pieces.path} was cut short while it was read: repeat the command")
    except OSError as error:
        raise PateError(f"{pieces.path} could not be read ({error.strerror}): repeat the command") from error
    return found


def _spooled(job: _Job) -> _Spool:
    """Write one file again."""
    waiting, ends = list[Dealt](), list[np.ndarray]()
    for batch in job.scan.batches(job.source):
        waiting.append(job.deal(batch, job.groups))
        if sum(part.rows.nbytes for part in waiting) >= _WAITING:
            ends.append(_appended(job, waiting, ends))
            waiting.clear()
    if waiting:
        ends.append(_appended(job, waiting, ends))
    return _Spool(job.target, job.deal.dtype, np.stack(ends))


def _appended(job: _Job, waiting: Sequence[Dealt], before: Sequence[np.ndarray]) -> np.ndarray:
    """Where each group of a piece ends, which is written after those before it."""
    groups, rows = (np.concatenate(parts) for parts in zip(*waiting, strict=True))
    written = int(before[-1][-1]) if before else 0
    order = np.argsort(groups, kind="stable")
    storage.append_bytes(job.target, rows[order].tobytes(), after=written * rows.itemsize)
    return np.asarray(written + np.cumsum(np.bincount(groups, minlength=job.groups)))


def _removed(paths: Sequence[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
