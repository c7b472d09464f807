"""The crowd of a table in several files: each file's own table is counted batch by batch, and all are added.

A file's table is a pure function of its path, of how the files are read, and of the public side: whole
numbers, so that the sum is that of one table in memory, bit for bit, in any order of the files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from pate_jax import crowd as voting
from pate_jax.crowd.plan import Plan
from pate_jax.data import Dataset
from pate_jax.data.scans import Scan
from pate_jax.data.survey import Surveyed
from pate_jax.errors import PateError
from pate_jax.runs.crowds.inputs import Crowd, is_candidate
from pate_jax.system import devices
from pate_jax.system.progress import track

Table = Int[np.ndarray, "rows columns"]
_PERSON = b"pate files"  # one use of a run's key


def check(crowd: Crowd) -> None:
    """Refuse what needs all records of a table in several files at once."""
    place = surveyed(crowd.dataset).scan.place
    if crowd.choice.by != "record":
        raise PateError(
            f"--by {crowd.choice.by} needs all records of a user together, and {place} is read file by file: "
            "give one file, or leave out --by user"
        )
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


def table(plan: Plan, dataset: Dataset) -> Table:
    """The exact table of all files. It is private."""
    scan = surveyed(dataset).scan
    each = track(scan.files, "records of all files, counted", total=len(scan.files))
    total = np.zeros(plan.release.shape, np.int64)
    for path in each:
        total += table_of(path, scan, plan)
    return total


def table_of(path: Path, scan: Scan, plan: Plan) -> Table:
    """The exact table of one file."""
    total = np.zeros(plan.release.shape, np.int64)
    for people in _voters(path, scan):
        total += voting.table(plan, people)
    return total


def voters(dataset: Dataset) -> Iterator[voting.Voters]:
    """All voters, a batch at a time."""
    scan = surveyed(dataset).scan
    return (people for path in scan.files for people in _voters(path, scan))


def _voters(path: Path, scan: Scan) -> Iterator[voting.Voters]:
    return (voting.Voters(batch.inputs, batch.labels, None) for batch in scan.batches(path))


def certificate(dataset: Dataset, key: bytes) -> dict[str, Any]:
    """The certificate of files in place of records: keyed hashes of their digests, which add up.

    It has the form of `partition.certificate`, for one part that is everything.
    """
    found = surveyed(dataset)
    records, digests = found.survey.records, sorted(found.scan.digests.values())
    hashes = (
        hashlib.blake2b(one.encode(), key=key, digest_size=32, person=_PERSON).digest() for one in digests
    )
    total = sum(int.from_bytes(one, "little") for one in hashes) % 2**256
    sums = {"records": records, "record_sum": f"{total:064x}"}
    return {
        "by": "record",
        "teachers": 1,
        "files": len(digests),
        **sums,
        "key_digest": hashlib.sha256(b"pate partition key" + key).hexdigest(),
        "shards": [{"teacher": 0, **sums, "ids": found.digest, "contents": found.digest}],
    }


def differences(certified: dict[str, Any], dataset: Dataset, key: bytes) -> Iterator[str]:
    """What of a certificate is not that of these files."""
    now = certificate(dataset, key)
    yield from (f"{name} is not the certified one" for name in now if certified.get(name) != now[name])
