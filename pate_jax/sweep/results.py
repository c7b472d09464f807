"""The rows of a sweep: an append-only file of JSON lines, which one process writes, whoever does the cells.

A row is durable before the next one is taken. A process that is killed while it writes leaves at most a part
of a line at the end of the file; readers ignore it, and the next writer cuts it off. Where a cell has several
lines, later ones add to it.
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


def file_of(folder: Path) -> Path:
    """Where the rows of a sweep lie.

    >>> file_of(Path("sweep")).name
    'results.jsonl'
    """
    return folder / "results.jsonl"


def read(folder: Path) -> Rows:
    """Every cell of a sweep, by digest; all lines of a cell together make its row."""
    return of_file(file_of(folder))


def of_file(path: Path) -> Rows:
    """Every cell of one file, by digest; none where there is no file yet."""
    rows: Rows = {}
    for row in _lines(path)[0] if path.exists() else ():
        rows[row["cell"]] = {**rows.get(row["cell"], {}), **row}
    return rows


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Hold a file of results for one writer."""
    remedy = "wait for it to end; --workers 4 shares the cells of one command among processes"
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
