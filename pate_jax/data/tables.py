"""Tables as columns of texts, from CSV and Parquet files and from columns of Python values.

Every table becomes texts first, so a row means the same whichever way it comes in.
"""

from __future__ import annotations

import csv
import io
import numbers
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from pate_jax.errors import PateError
from pate_jax.system.progress import bar
from pate_jax.system.storage import UNREADABLE, read_bytes

Table = dict[str, list[str]]
SUFFIXES = (".csv", ".parquet")
MISSING = frozenset({"", "na", "nan", "null"})  # in any case
_GONE = ("nan", "NaT", "<NA>")  # how pandas and NumPy show a missing value that is no text
_EXACT = 2.0**53  # whole numbers below this are written without a point
_ROWS = 20_000  # between two updates of the progress bar


def missing(values: Sequence[str]) -> np.ndarray:
    """Whether each value is missing: blank, NA, NaN or null, ignoring case and surrounding blanks.

    >>> missing(["3", " na ", "", "Null", "none"]).tolist()
    [False, True, True, True, False]
    """
    return np.array([value.strip().lower() in MISSING for value in values], bool)


def read(path: Path) -> Table:
    """The columns of a CSV file with a header, or of a Parquet file, as texts without surrounding blanks."""
    table = _parquet(path) if path.suffix.lower() == ".parquet" else _csv(path)
    if not next(iter(table.values())):
        raise PateError(f"{path} holds no records; give at least one")
    return table


def of(columns: Mapping[Any, Iterable[Any]], place: str) -> Table:
    """A table from columns of Python values: numbers, words, dates, true and false, and missing ones.

    >>> of({"age": [30.0, None], "seen": [np.datetime64("2024-05-01"), True]}, "frame")
    {'age': ['30', ''], 'seen': ['2024-05-01', 'True']}
    """
    header = _checked([str(name).strip() for name in columns], place)
    values = [texts(name, column, place) for name, column in zip(header, columns.values(), strict=True)]
    lengths = {name: len(column) for name, column in zip(header, values, strict=True)}
    if len(set(lengths.values())) > 1:
        shortest, longest = min(lengths, key=lengths.__getitem__), max(lengths, key=lengths.__getitem__)
        raise PateError(
            f"{place} has {lengths[shortest]} values in the column {shortest!r} and {lengths[longest]} in "
            f"{longest!r}; give one for each record"
        )
    return dict(zip(header, values, strict=True))


def to_csv(table: Table) -> bytes:
    """The table as a CSV file.

    >>> to_csv({"age": ["30", ""], "name": ["Ada, Countess", "Bo"]})
    b'age,name\\n30,"Ada, Countess"\\n,Bo\\n'
    """
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(table)
    writer.writerows(zip(*table.values(), strict=True))
    return stream.getvalue().encode()


def _csv(path: Path) -> Table:
    content = read_bytes(path)
    try:
        text = io.StringIO(content.decode("utf-8-sig"), newline="")
        lines = csv.reader(text, skipinitialspace=True, strict=True)  # no quote left open swallows records
        header = _header(next(lines, []), path)
        rows = []
        with bar(f"reading {path.name}", total=content.count(b"\n")) as progress:
            for number, row in enumerate(lines, start=2):
                if len(row) not in (0, len(header)):
                    raise PateError(f"{path} line {number} has {len(row)} values for {len(header)} columns")
                if row:
                    rows.append(row)
                if number % _ROWS == 0:
                    progress.advance(_ROWS)
    except (csv.Error, UnicodeDecodeError) as error:
        raise PateError(f"{path} is not a CSV table in UTF-8: {error}") from error
    values = zip(*rows, strict=True) if rows else [()] * len(header)
    named = zip(_checked(header, path), values, strict=True)
    return {name: [value.strip() for value in column] for name, column in named}


def _header(first: list[str], path: Path) -> list[str]:
    """The names of the columns, which commas separate."""
    for mark, name in ((";", "semicolons"), ("\t", "tabs")):
        if len(first) == 1 and mark in first[0]:
            raise PateError(
                f"{path} separates its columns by {name}: take commas, and a point for the decimal mark"
            )
    return [name.strip() for name in first]


def _parquet(path: Path) -> Table:
    from pyarrow import ArrowException, parquet

    content = read_bytes(path)
    try:
        found = parquet.read_table(io.BytesIO(content))
        columns = [column.to_pylist() for column in found.columns]
    except (ArrowException, *UNREADABLE) as error:
        reason = str(error).splitlines()[0] if str(error) else "it is damaged"
        raise PateError(f"{path} is not a readable Parquet file: {reason}") from error
    return of(dict(zip(_checked(found.column_names, path), columns, strict=True)), str(path))


def _checked(header: list[str], place: Path | str) -> list[str]:
    """The names of all columns, each given once."""
    header = [name.strip() for name in header]
    if not header or "" in header or len(set(header)) < len(header):
        raise PateError(f"{place} must begin with a line that names each column once; it names {header}")
    return header


def texts(name: str, column: Iterable[Any], place: str) -> list[str]:
    """One column of Python values, each by itself.

    >>> texts("id", [7, 7.0, "b", None], "frame")
    ['7', '7', 'b', '']
    """
    values = column.tolist() if isinstance(column, np.ndarray) and column.dtype.kind != "M" else column
    return [_text(value, name, row, place) for row, value in enumerate(values)]


def _text(value: Any, name: str, row: int, place: str) -> str:
    """One value as the text that a CSV file would hold."""
    if isinstance(value, str):
        return value.strip()
    if value is None or str(value) in _GONE:
        return ""
    if isinstance(value, bool | np.bool_ | numbers.Integral | np.datetime64 | Decimal):
        return str(value)
    if isinstance(value, numbers.Real):
        number = float(value)
        return str(int(number)) if number.is_integer() and abs(number) < _EXACT else repr(number)
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    raise PateError(
        f"{place} has a {type(value).__name__} in the column {name!r} at row {row}; give numbers, words, "
        "dates, or true and false, and arrays in an .npz as `inputs`"
    )
