"""The crowd of a table in several files: each file's own table is counted batch by batch, and all are added.

A file's table is a pure function of its path, of how the files are read, and of the public side: whole
numbers, so that the sum is that of one table in memory, bit for bit, in any order of the files and on any
number of workers. Where users vote, their records are put together first, in groups of whole users, and a
group takes the place of a file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from jaxtyping import Int

from pate_jax import crowd as voting
from pate_jax.crowd.plan import Plan
from pate_jax.data import Dataset, partition
from pate_jax.data.scans import Batch, Scan
from pate_jax.data.shuffle import Dealt, Group, Shuffle
from pate_jax.data.survey import Surveyed
from pate_jax.errors import PateError
from pate_jax.runs.crowds.inputs import Crowd, is_candidate
from pate_jax.system import devices
from pate_jax.system.progress import track

_SHUFFLED = "shuffled"  # where a crowd keeps it
Table = Int[np.ndarray, "rows columns"]
_FILES, _USERS = b"pate files", b"pate users"  # two uses of a run's key


def check(crowd: Crowd) -> None:
    """Refuse what needs all records of a table in several files at once."""
    place = surveyed(crowd.dataset).scan.place
    partition.units_of(crowd.dataset.private, crowd.choice.by)
    if devices.processes() > 1:
        raise PateError(f"{place} is read by one process: leave out --processes")
    if is_candidate(crowd.run):
        raise PateError(
            f"`pate tune` holds out voters by their ids, and {place} is read file by file: give one file"
        )


def surveyed(dataset: Dataset) -> Surveyed:
    """The files of a private part that lies in several."""
    if not isinstance(dataset.scan, Surveyed):
        raise PateError("the private records are in memory, and none of their files is scanned")
    return dataset.scan


@dataclass(frozen=True)
class ByUser:
    """How records are dealt to groups of whole users."""

    width: int  # features of a record

    @property
    def dtype(self) -> np.dtype:
        """A record: 128 bits for its user, its label and its features."""
        return np.dtype([("user", "<u8", (2,)), ("label", "<i4"), ("inputs", "<f4", (self.width,))])

    def __call__(self, batch: Batch, groups: int) -> Dealt:
        """Some records, each with all others of its user."""
        rows, users = np.empty(len(batch), self.dtype), batch.users
        rows["user"] = users.digests()[users.codes]
        rows["label"], rows["inputs"] = batch.labels, batch.inputs
        return Dealt((rows["user"][:, 0] % np.uint64(groups)).astype(np.int64), rows)


def shuffled(crowd: Crowd) -> Shuffle:
    """The records of all users, put together; done once for all steps of a run."""
    if _SHUFFLED not in crowd.kept:
        found = surveyed(crowd.dataset)
        deal, folder = ByUser(found.scan.reading.width), crowd.run.private
        crowd.kept[_SHUFFLED] = Shuffle(found.scan, found.survey.records, deal, folder, crowd.inputs.engine)
    return cast(Shuffle, crowd.kept[_SHUFFLED])


def table(crowd: Crowd) -> Table:
    """The exact table of all voters. It is private."""
    scan, plan, engine = surveyed(crowd.dataset).scan, crowd.plan, crowd.inputs.engine
    if crowd.choice.by == "record":
        return _added(engine.each(partial(table_of, scan=scan, plan=plan), scan.files), plan, len(scan.files))
    groups = shuffled(crowd).groups
    return _added(engine.each(partial(table_of_users, plan=plan), groups), plan, len(groups))


def _added(tables: Iterator[tuple[int, Table]], plan: Plan, number: int) -> Table:
    total = np.zeros(plan.release.shape, np.int64)
    for _, one in track(tables, "records of all files, counted", total=number):
        total += one
    return total


def table_of(path: Path, scan: Scan, plan: Plan) -> Table:
    """The exact table of one file."""
    total = np.zeros(plan.release.shape, np.int64)
    for people in _voters(path, scan):
        total += voting.table(plan, people)
    return total


def table_of_users(group: Group, plan: Plan) -> Table:
    """The exact table of the users of one group."""
    return np.asarray(voting.table(plan, users_of(group)))


def voters(crowd: Crowd) -> Iterator[voting.Voters]:
    """All voters, a batch of records or a group of users at a time."""
    scan = surveyed(crowd.dataset).scan
    if crowd.choice.by == "record":
        return (people for path in scan.files for people in _voters(path, scan))
    return (users_of(group) for group in shuffled(crowd).groups)


def _voters(path: Path, scan: Scan) -> Iterator[voting.Voters]:
    return (voting.Voters(batch.inputs, batch.labels, None) for batch in scan.batches(path))


def users_of(group: Group) -> voting.Voters:
    """The users of a group, numbered, and all their records."""
    rows = group.rows()
    order = np.lexsort(rows["user"].T)
    ordered = rows["user"][order]
    new = (ordered[1:] != ordered[:-1]).any(1)
    users = np.zeros(len(rows), np.int64)
    users[order[1:]] = np.cumsum(new)
    return voting.Voters(rows["inputs"], rows["label"], users)


def certificate(dataset: Dataset, key: bytes, by: str) -> dict[str, Any]:
    """The certificate of files in place of records: keyed hashes of their digests, which add up.

    It has the form of `partition.certificate`, for one part that is everything. Users have one sum, a keyed
    hash of all that tells them apart.
    """
    found = surveyed(dataset)
    records, digests = found.survey.records, sorted(found.scan.digests.values())
    total = sum(_hash(one, key, _FILES) for one in digests) % 2**256
    sums: dict[str, Any] = {"records": records, "record_sum": f"{total:064x}"}
    if by == "user" and found.people is not None:
        sums |= {"users": found.people.number, "user_sum": f"{_hash(found.people.digest, key, _USERS):064x}"}
    return {
        "by": by,
        "teachers": 1,
        "files": len(digests),
        **sums,
        "key_digest": hashlib.sha256(b"pate partition key" + key).hexdigest(),
        "shards": [{"teacher": 0, **sums, "ids": found.digest, "contents": found.digest}],
    }


def _hash(text: str, key: bytes, use: bytes) -> int:
    made = hashlib.blake2b(text.encode(), key=key, digest_size=32, person=use).digest()
    return int.from_bytes(made, "little")


def differences(certified: dict[str, Any], dataset: Dataset, key: bytes) -> Iterator[str]:
    """What of a certificate is not that of these files."""
    now = certificate(dataset, key, certified["by"])
    yield from (f"{name} is not the certified one" for name in now if certified.get(name) != now[name])
