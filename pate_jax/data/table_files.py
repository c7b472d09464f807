"""The files of one table that may be larger than memory: found by a folder or a pattern, and read in batches.

All of them are Parquet files, or all CSV files, with the same columns of the same types. Their order is that
of their paths, and nothing that is counted depends on it.
"""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pate_jax.data import tables
from pate_jax.data.tables import Table
from pate_jax.errors import PateError
from pate_jax.system.progress import warn

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIXES = (".parquet", ".csv", ".tsv")
ROWS = 32_000  # records of a batch: 16 blocks of those that voters are looked at in
_WILD = ("*", "?", "[")
_TEXT = "text"  # the type of every column of a CSV file
_PIECE = 1 << 20  # bytes that are read at once


class Stamp(NamedTuple):
    """What tells at once that a file was written to."""

    size: int
    changed: int  # in nanoseconds

    @classmethod
    def of(cls, path: Path) -> Stamp:
        """That of a file as it is now."""
        try:
            found = path.stat()
        except OSError as error:
            raise PateError(f"{path} cannot be read: {error}") from error
        return cls(found.st_size, found.st_mtime_ns)


def are_several(path: Path | str) -> bool:
    """Whether a path stands for several files of one table: a pattern, or a folder with tables in it.

    >>> are_several("hospital/*.parquet"), are_several("hospital.parquet")
    (True, False)
    """
    path = Path(path).expanduser()
    if path.is_dir():
        return any(_is_table(one) for one in path.iterdir())
    return not path.exists() and any(mark in str(path) for mark in _WILD)


def refuse_several(path: Path) -> None:
    """Refuse several files where one is wanted."""
    if are_several(path):
        raise PateError(
            f"{path} stands for several files of one table, which only the private part of "
            "`pate run` may be: give one file here"
        )


def found(pattern: Path | str) -> tuple[Path, ...]:
    """The files of a folder or a pattern, of one format; a file that is named twice is refused."""
    pattern = Path(pattern).expanduser()
    there = pattern.iterdir() if pattern.is_dir() else map(Path, glob.glob(str(pattern)))
    files = sorted(one for one in there if not one.name.startswith(("_", ".")) and not one.is_dir())
    if not files:
        raise PateError(
            f"{pattern} matches no file: name a folder with tables, or a pattern such as 'f/*.csv'"
        )
    strangers = [one for one in files if not _is_table(one)]
    if strangers:
        raise PateError(f"{strangers[0]} is no table ({', '.join(SUFFIXES)}): give a pattern without it")
    formats = sorted({one.suffix.lower() for one in files})
    if len(formats) > 1:
        raise PateError(f"{pattern} names files of several formats, {' and '.join(formats)}: give all alike")
    once: dict[Path, Path] = {}
    for one in files:
        other = once.setdefault(one.resolve(), one)
        if other is not one:
            raise PateError(f"{other} and {one} are one file, whose records would vote twice: leave one out")
    return tuple(files)


def _is_table(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and path.is_file()


def header(path: Path) -> dict[str, str]:
    """The columns of a file, and the type of each."""
    if path.suffix.lower() != ".parquet":
        return dict.fromkeys(next(tables.csv_batches(path, 1)), _TEXT)
    schema = _opened(path).schema_arrow
    return dict(zip(tables.checked(schema.names, path), map(str, schema.types), strict=True))


def check_alike(files: Sequence[Path]) -> dict[str, str]:
    """The columns that all files have, with their types; other columns or types in one file are refused."""
    first, wanted = files[0], header(files[0])
    for other in files[1:]:
        here = header(other)
        for name in sorted(wanted.keys() ^ here.keys()):
            has, lacks = (first, other) if name in wanted else (other, first)
            raise PateError(
                f"{has} has the column {name!r}, and {lacks} lacks it: give all files of a table "
                "the same columns"
            )
        for name, kind in wanted.items():
            if here[name] != kind:
                raise PateError(
                    f"the column {name!r} is {kind} in {first} and {here[name]} in {other}: give it one type "
                    "in all files of a table"
                )
    return wanted


def batches(path: Path, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch | Table]:
    """The records of a file, so many at a time, with these columns at least."""
    if path.suffix.lower() != ".parquet":
        yield from tables.csv_batches(path, ROWS)
        return
    from pyarrow import ArrowException

    file = _opened(path)
    wanted = (
        None if columns is None else [name for name in file.schema_arrow.names if name.strip() in columns]
    )
    try:
        for batch in file.iter_batches(batch_size=ROWS, columns=wanted, use_threads=False):
            yield batch.rename_columns([name.strip() for name in batch.schema.names])
    except (ArrowException, OSError) as error:
        raise PateError(f"{path} is not a readable Parquet file: {_first_line(error)}") from error


def _opened(path: Path) -> pa.parquet.ParquetFile:
    from pyarrow import ArrowException, parquet

    try:
        return parquet.ParquetFile(path, buffer_size=_PIECE, pre_buffer=False)
    except (ArrowException, OSError) as error:
        raise PateError(f"{path} is not a readable Parquet file: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else "it is damaged"


def digest(path: Path) -> str:
    """BLAKE2b of a file's bytes, of which few are held at a time.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as empty:
    ...     len(digest(Path(empty.name)))
    64
    """
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, _blake).hexdigest()
    except OSError as error:
        raise PateError(f"{path} cannot be read: {error}") from error


def _blake() -> hashlib.blake2b:
    return hashlib.blake2b(digest_size=32)


def warn_of_copies(digests: Mapping[Path, str]) -> None:
    """Warn of files that are equal byte for byte."""
    once: dict[str, Path] = {}
    for path, own in digests.items():
        other = once.setdefault(own, path)
        if other is not path:
            warn(f"{other} and {path} are equal byte for byte: if one is a copy, its records vote twice")
