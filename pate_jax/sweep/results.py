"""The rows of a sweep: append-only files of JSON lines, one for each shard, read as one.

A line is durable before the next cell begins. A process that is killed while it writes leaves at most a part
of a line at the end of its file; readers ignore it, and the next writer cuts it off. Where a cell has several
lines, later ones add to it. Whose votes it was judged on may be declared anew; declarations are numbered,
since lines of several files have no order.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pate_jax.errors import PateError
from pate_jax.system import locks, storage

_KIND = "sweep-row"
Row = Mapping[str, Any]
Rows = dict[str, dict[str, Any]]


def file_of(folder: Path, shard: tuple[int, int]) -> Path:
    """Where a shard writes: `results.jsonl`, or `results-I-of-N.jsonl` where there are several.

    >>> file_of(Path("sweep"), (2, 4)).name, file_of(Path("sweep"), (1, 1)).name
    ('results-2-of-4.jsonl', 'results.jsonl')
    """
    place, number = shard
    return folder / ("results.jsonl" if number == 1 else f"results-{place}-of-{number}.jsonl")


def read(folder: Path) -> Rows:
    """Every cell of every shard's file, by digest; all lines of a cell together make its row."""
    rows: Rows = {}
    for path in sorted(folder.glob("results*.jsonl")):
        _add(rows, path)
    return rows


def of_file(path: Path) -> Rows:
    """Every cell of one file, by digest; none where there is no file yet."""
    rows: Rows = {}
    if path.exists():
        _add(rows, path)
    return rows


def _add(rows: Rows, path: Path) -> None:
    for row in _lines(path)[0]:
        before = rows.get(row["cell"], {})
        if row.get("declared", 0) < before.get("declared", 0):
            row = {**row, **{name: before[name] for name in ("judged_on", "declared")}}
        rows[row["cell"]] = {**before, **row}


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Hold a file of results for one writer."""
    remedy = "wait for it to end, or give each command a part of the cells, as --shard 1/2 and --shard 2/2"
    with locks.held(path.with_name(f".{path.name}.lock"), path, remedy=remedy):
        os.chmod(path.parent, 0o700)
        yield


def append(path: Path, rows: Iterable[Row]) -> None:
    """Append rows durably after the last whole line of the file."""
    lines = [
        json.dumps({"artefact": _KIND, "schema": storage.SCHEMA, **row}, allow_nan=False) for row in rows
    ]
    if lines:
        content = "".join(f"{line}\n" for line in lines).encode()
        storage.append_bytes(path, content, after=_lines(path)[1] if path.exists() else 0)


def merge(folder: Path) -> Path:
    """Write all rows, one line a cell, into `results.jsonl`; the shards' files stay as they are."""
    path = file_of(folder, (1, 1))
    with writing(path):
        lines = [json.dumps(row, allow_nan=False) for row in read(folder).values()]
        storage.write_bytes(path, "".join(f"{line}\n" for line in lines).encode(), mode=0o600)
    return path


def _lines(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The rows of one file and the length of its whole lines; a torn line at the end is left out."""
    content = storage.read_bytes(path)
    length = content.rfind(b"\n") + 1
    rows = []
    for number, line in enumerate(content[:length].splitlines(), 1):
        row = storage.parse_json(line, f"{path} line {number}")
        if (
            row.get("artefact") != _KIND
            or row.get("schema") != storage.SCHEMA
            or not isinstance(row.get("cell"), str)
        ):
            raise PateError(
                f"{path} line {number} is no row of a sweep that this version of pate_jax reads; "
                "remove the line, and its cell is done again"
            )
        rows.append(row)
    return rows, length
