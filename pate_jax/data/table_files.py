"""The files of one table that may be larger than memory: found by a folder or a pattern, and read in batches.

All of them are Parquet files, or all CSV files, with the same columns of the same types. Their order is that
of their paths, and nothing that is counted depends on it.

A batch of Arrow's columns becomes the features that `columns.encode` makes of the same values, bit for bit.
Columns of numbers become numbers as they are. Of all others each different value is read once, by the same
rules as in a table of texts. Where something is wrong, the batch is read again as texts, for the sentence.
"""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from pate_jax.data import columns, forms, kinds, notes, tables
from pate_jax.data.columns import Column
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


class Encoded(NamedTuple):
    """The features of some records, and of each column how many values were missing or in no category."""

    inputs: Float[np.ndarray, "record features"]
    missing: dict[str, int]
    unseen: dict[str, int]


class Values(NamedTuple):
    """The different values of a column as texts, and which of them each record has."""

    table: Table
    codes: Int[np.ndarray, " record"]


def encode(batch: pa.RecordBatch | Table, plan: Sequence[Column], place: str) -> Encoded:
    """The features of a batch that has the columns of the plan, and others.

    >>> import pyarrow
    >>> batch = pyarrow.RecordBatch.from_pydict({"age": [30, None], "sex": ["m", "x"]})
    >>> found = encode(batch, [Column("age", filling=40.0), Column("sex", ("f", "m"))], "private")
    >>> found.inputs.tolist(), found.missing, found.unseen
    ([[30.0, 0.0, 1.0], [40.0, 0.0, 0.0]], {'age': 1, 'sex': 0}, {'sex': 1})
    """
    if isinstance(batch, Table):
        return _of_texts(batch, plan, place)
    shape = batch.num_rows, sum(column.width for column in plan)
    made = Encoded(np.empty(shape, np.float32, order="F"), {}, {})  # column by column, as they are written
    start = 0
    try:
        for column in plan:
            _fill(made, start, batch.column(column.name), column, place)
            start += column.width
    except PateError:
        _of_texts(as_texts(batch, [column.name for column in plan], place), plan, place)
        raise
    return made


def _of_texts(table: Table, plan: Sequence[Column], place: str) -> Encoded:
    table = table.only(column.name for column in plan)
    known = {column.name: column.categories for column in plan if column.categories is not None}
    inputs = columns.encode(table, plan, place)
    kinds.refuse_other_spellings(table, known, place)
    missing = {column.name: int(tables.missing(table[column.name]).sum()) for column in plan}
    return Encoded(inputs, missing, notes.unseen(table, plan))


def _fill(made: Encoded, start: int, values: pa.Array, column: Column, place: str) -> None:
    """Write the features of one column, and count what is missing."""
    features = made.inputs[:, start : start + column.width]
    if _is_plain(values, column):
        blank = _numeric(values, column, features, place)
        made.missing[column.name] = int(blank.sum())
        return
    own = different(values, column.name, place)
    found = _of_texts(own.table, [column], place)
    features[:] = found.inputs[own.codes]
    times = np.bincount(own.codes, minlength=len(own.table[column.name]))
    blank = tables.missing(own.table[column.name])
    made.missing[column.name] = int(times[blank].sum())
    if column.categories is not None:
        strange = ~np.isin(np.array(own.table[column.name], np.str_), column.categories) & ~blank
        if strange.any():
            made.unseen[column.name] = int(times[strange].sum())


def _is_plain(values: pa.Array, column: Column) -> bool:
    """Whether the values are numbers that become a number."""
    from pyarrow import types

    number = types.is_integer(values.type) or types.is_float32(values.type) or types.is_float64(values.type)
    numeric = column.categories is None and column.encoder is None and not column.logarithmic
    return number and numeric and column.form in (forms.NUMBER, forms.LIMITS)


def _numeric(
    values: pa.Array, column: Column, features: np.ndarray, place: str
) -> Bool[np.ndarray, " record"]:
    """Write the features of numbers; which of them are missing."""
    there = values.to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):
        wide = there if there.dtype == np.float32 else there.astype(np.float64, copy=False)
        numbers = (wide + wide.dtype.type(0)).astype(np.float32, copy=False)
    blank = np.zeros(len(numbers), bool)
    if not np.isfinite(numbers).all():
        blank = np.isnan(wide)
        if column.filling is not None:
            numbers[blank] = column.filling
        if not np.isfinite(numbers).all():
            raise PateError(f"{place} has numbers in {column.name!r} that are not finite: correct them")
    if column.width == 1:
        features[:, 0] = numbers
    else:
        features[:] = columns.features_of(numbers, blank, np.zeros_like(blank), column, place)
    return blank


def different(values: pa.Array, name: str, place: str) -> Values:
    """The different values of a column of any type, each read once.

    >>> import pyarrow
    >>> own = different(pyarrow.array(["a", None, "a"]), "grade", "private")
    >>> own.table["grade"], own.codes.tolist()
    (['a', ''], [0, 1, 0])
    """
    import pyarrow as pa

    listed = [name] if kinds.is_listed(values) else []
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    try:
        coded = values.dictionary_encode("encode")
        codes, own = coded.indices.to_numpy(zero_copy_only=False), coded.dictionary
    except pa.ArrowException:  # of types that it cannot tell apart
        codes, own = np.arange(len(values)), values
    return Values(tables.of({name: own.to_pylist()}, place, listed), codes)


def as_texts(batch: pa.RecordBatch, names: Sequence[str], place: str) -> Table:
    """Columns as texts, value by value."""
    held = {name: batch.column(name) for name in names}
    listed = [name for name, values in held.items() if kinds.is_listed(values)]
    return tables.of({name: values.to_pylist() for name, values in held.items()}, place, listed)
