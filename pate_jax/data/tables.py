"""Tables as columns of texts, from CSV and Parquet files, Excel workbooks and columns of Python values.

Every table becomes texts first, one value at a time, and remembers of what kinds its values were.
"""

from __future__ import annotations

import csv
import difflib
import io
import numbers
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from pate_jax.data import kinds
from pate_jax.data.kinds import EXACT, GONE, MISSING, Kinds
from pate_jax.errors import PateError
from pate_jax.system.progress import bar
from pate_jax.system.storage import UNREADABLE, parse_json, read_bytes

SUFFIXES = (".csv", ".tsv", ".parquet", ".xlsx")
_DECIMAL_COMMA = re.compile(r"([<>]=?\s*)?[+-]?[0-9]+,[0-9]+([eE][+-]?[0-9]+)?")
INDEX = "index"  # what the first column is called that a data frame wrote without a name
_NOT_COMPUTED = object()  # in place of the value of a formula that has none
_ROWS = 20_000  # between two updates of the progress bar
_LONGEST = 1 << 24  # letters in a cell of a CSV file


class Table(dict[str, list[str]]):
    """Columns of texts by name, and the kinds that their values had where the source told any."""

    def __init__(self, columns: Mapping[str, list[str]], kinds: Kinds | None = None) -> None:
        super().__init__(columns)
        self.kinds: Kinds = {} if kinds is None else kinds

    def called(self, names: Sequence[str]) -> Table:
        """The columns under other names, which are given in their order.

        >>> Table({"age": ["30"]}).called(["x0"])
        {'x0': ['30']}
        """
        new = dict(zip(self, names, strict=True))
        kinds_of = {new[name]: found for name, found in self.kinds.items()}
        return Table({new[name]: values for name, values in self.items()}, kinds_of)

    def only(self, names: Iterable[str]) -> Table:
        """The columns of these names, in this order.

        >>> Table({"age": ["30"], "sex": ["f"]}, {"sex": {"words": 0}}).only(["sex"]).kinds
        {'sex': {'words': 0}}
        """
        chosen = {name: self[name] for name in names}
        return Table(chosen, {name: found for name, found in self.kinds.items() if name in chosen})


def columns_like(name: str, table: Iterable[str]) -> str:
    """The columns of a table, and before them the one that may be meant by an unknown name.

    >>> columns_like("Died", ["age", "died"]), columns_like("x", ["age"])
    ("did you mean 'died'? Its columns are age, died", 'its columns are age')
    """
    there = list(table)
    folded = {one.casefold(): one for one in there}
    near = difflib.get_close_matches(name.casefold(), folded, 1)
    listed = f"columns are {', '.join(there)}"
    return f"did you mean {folded[near[0]]!r}? Its {listed}" if near else f"its {listed}"


def missing(values: Sequence[str]) -> np.ndarray:
    """Whether each value is missing: blank, NA, NaN or null, ignoring case and surrounding blanks.

    >>> missing(["3", " na ", "", "Null", "none"]).tolist()
    [False, True, True, True, False]
    """
    return np.array([value.strip().lower() in MISSING for value in values], bool)


def read(path: Path) -> Table:
    """The columns of a CSV file, a Parquet file or a workbook of one sheet, as texts without outer blanks.

    CSV files and sheets begin with the names of the columns. A CSV file that a run made of a data frame has
    the kinds of its values beside it.
    """
    table = {".parquet": _parquet, ".xlsx": _workbook}.get(path.suffix.lower(), _csv)(path)
    if not next(iter(table.values())):
        raise PateError(f"{path} holds no records; give at least one")
    return table


def of(columns: Mapping[Any, Iterable[Any]], place: str, listed: Collection[Any] = ()) -> Table:
    """A table from columns of Python values: numbers, words, dates, true and false, and missing ones.

    The columns in `listed` were declared to be of categories.

    >>> of({"age": [30.0, None], "seen": [np.datetime64("2024-05-01"), True]}, "frame")
    {'age': ['30', ''], 'seen': ['2024-05-01', 'True']}
    """
    header = checked([str(name).strip() for name in columns], place)
    held = [_listed(column) for column in columns.values()]
    values = [texts(name, column, place) for name, column in zip(header, held, strict=True)]
    lengths = {name: len(column) for name, column in zip(header, values, strict=True)}
    if len(set(lengths.values())) > 1:
        shortest, longest = min(lengths, key=lengths.__getitem__), max(lengths, key=lengths.__getitem__)
        raise PateError(
            f"{place} has {lengths[shortest]} values in the column {shortest!r} and {lengths[longest]} in "
            f"{longest!r}; give one for each record"
        )
    found = [kinds.of_column(column, name in listed) for name, column in zip(columns, held, strict=True)]
    return Table(dict(zip(header, values, strict=True)), dict(zip(header, found, strict=True)))


def to_csv(table: Mapping[str, Sequence[str]]) -> bytes:
    """The table as a CSV file.

    >>> to_csv({"age": ["30", ""], "name": ["Ada, Countess", "Bo"]})
    b'age,name\\n30,"Ada, Countess"\\n,Bo\\n'
    """
    stream = io.StringIO(newline="")
    returns = any(
        "\r" in value for values in table.values() for value in values
    )  # else the writer leaves them
    writer = csv.writer(stream, lineterminator="\n", quoting=csv.QUOTE_ALL if returns else csv.QUOTE_MINIMAL)
    writer.writerow(table)
    writer.writerows(zip(*table.values(), strict=True))
    try:
        return stream.getvalue().encode()
    except UnicodeEncodeError as error:
        raise PateError(f"a table holds a text that UTF-8 cannot write ({error}): correct it") from error


def kinds_file(path: Path) -> Path:
    """Where the kinds of a table's values lie that was stored as CSV.

    >>> kinds_file(Path("private.csv")).name
    'private.kinds.json'
    """
    return path.with_suffix(".kinds.json")


def _stored_kinds(path: Path, records: int) -> Kinds:
    file = kinds_file(path)
    if not file.exists():
        return {}
    found = parse_json(read_bytes(file), file)
    rows = [row for one in found.values() for row in (one.values() if isinstance(one, dict) else [None])]
    if not all(type(row) is int and 0 <= row < records for row in rows):
        raise PateError(f"{file} does not list the kinds of the values in {path.name}: restore it")
    return found


def _csv(path: Path) -> Table:
    content = read_bytes(path)
    pieces = []
    try:
        with bar(f"reading {path.name}", total=content.count(b"\n")) as progress:
            for piece in _csv_pieces(io.StringIO(content.decode("utf-8-sig"), newline=""), path, _ROWS):
                pieces.append(piece)
                progress.advance(_ROWS)
    except UnicodeDecodeError as error:
        raise PateError(f"{path} is not a CSV table in UTF-8: {error}") from error
    texts_of = {name: [value for piece in pieces for value in piece[name]] for name in pieces[0]}
    return Table(texts_of, _stored_kinds(path, len(next(iter(texts_of.values())))))


def csv_batches(path: Path, rows: int) -> Iterator[Table]:
    """The records of a CSV file, so many at a time; a file of none gives one empty table."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            yield from _csv_pieces(stream, path, rows)
    except UnicodeDecodeError as error:
        raise PateError(f"{path} is not a CSV table in UTF-8: {error}") from error
    except OSError as error:
        raise PateError(f"{path} cannot be read: {error}") from error


def _csv_pieces(stream: TextIO, path: Path, rows: int) -> Iterator[Table]:
    """So many records at a time, under the names of the first line; an empty table where there are none."""
    csv.field_size_limit(_LONGEST)
    try:
        mark = _separator(stream)
        # strict: no quote left open swallows records
        lines = csv.reader(stream, delimiter=mark, skipinitialspace=mark != "\t", strict=True)
        header = checked(_with_index([name.strip() for name in next(lines, [])]), path)
        held: list[list[str]] = []
        first = True
        for number, row in enumerate(lines, start=2):
            if len(row) not in (0, len(header)):
                raise PateError(f"{path} line {number} has {len(row)} values for {len(header)} columns")
            if row:
                held.append(row)
            if len(held) == rows:
                yield _piece(header, held, mark)
                held, first = [], False
        if held or first:
            yield _piece(header, held, mark)
    except csv.Error as error:
        raise PateError(f"{path} is not a CSV table in UTF-8: {error}") from error


def _piece(header: list[str], rows: list[list[str]], mark: str) -> Table:
    values = zip(*rows, strict=True) if rows else [()] * len(header)
    return Table(
        {name: [_plain(value, mark) for value in column] for name, column in zip(header, values, strict=True)}
    )


def _with_index(header: list[str]) -> list[str]:
    """The names of columns, the first of which has none where it is the index of a data frame.

    >>> _with_index(["", "age"]), _with_index(["age", ""])
    (['index', 'age'], ['age', ''])
    """
    return [INDEX, *header[1:]] if header[:1] == [""] and len(header) > 1 else header


def _separator(text: TextIO) -> str:
    """What separates columns, by the line of their names alone: commas, or else semicolons or tabs."""
    first = next(csv.reader(text, skipinitialspace=True), [])  # not strict: names may be in quotes
    text.seek(0)
    return next((mark for mark in (";", "\t") if len(first) == 1 and mark in first[0]), ",")


def _plain(value: str, separator: str) -> str:
    """A value as written with a decimal point, which is a comma where semicolons separate columns.

    >>> _plain(" 3,5 ", ";"), _plain("3,5", ",")
    ('3.5', '3,5')
    """
    value = value.strip()
    return value.replace(",", ".") if separator == ";" and _DECIMAL_COMMA.fullmatch(value) else value


def _parquet(path: Path) -> Table:
    from pyarrow import ArrowException, parquet

    content = read_bytes(path)
    try:
        found = parquet.read_table(io.BytesIO(content))
        columns = [column.to_pylist() for column in found.columns]
    except (ArrowException, *UNREADABLE) as error:
        reason = str(error).splitlines()[0] if str(error) else "it is damaged"
        raise PateError(f"{path} is not a readable Parquet file: {reason}") from error
    header = checked(found.column_names, path)
    listed = [name for name, column in zip(header, found.columns, strict=True) if kinds.is_listed(column)]
    return of(dict(zip(header, columns, strict=True)), str(path), listed)


def _workbook(path: Path) -> Table:
    """The only sheet of an Excel workbook that holds anything; of a formula its value is read."""
    try:
        import openpyxl
    except ImportError as error:
        raise PateError(
            f"{path} is an Excel workbook, which openpyxl reads: give `pip install openpyxl`, or save its "
            "sheet as .csv"
        ) from error
    content = read_bytes(path)
    try:
        book, plain = (
            openpyxl.load_workbook(io.BytesIO(content), read_only=True, data_only=values)
            for values in (True, False)
        )
        sheets = {one.title: _filled(one, other) for one, other in zip(book, plain, strict=True)}
    except UNREADABLE as error:
        raise PateError(f"{path} is not a readable Excel workbook: {error or 'it is damaged'}") from error
    held = {title: rows for title, rows in sheets.items() if rows}
    if len(held) != 1:
        raise PateError(
            f"{path} has {len(held)} sheets with values ({', '.join(held) or 'none'}): give a workbook that "
            "has one"
        )
    (rows,) = held.values()
    width = max(place for place, name in enumerate(rows[0], 1) if name is not None)
    for row in rows:
        if any(value is not None for value in row[width:]) or _NOT_COMPUTED in row:
            raise PateError(
                f"{path} has a formula without its value, or values beside the {width} columns that its "
                "first row names: open it where it was made, correct it, and save it"
            )
    header = _with_index(["" if name is None else str(name).strip() for name in rows[0][:width]])
    columns = [[row[place] if place < len(row) else None for row in rows[1:]] for place in range(width)]
    return of(dict(zip(checked(header, path), columns, strict=True)), str(path))


def _filled(sheet: Any, plain: Any) -> list[list[Any]]:
    """The rows of a sheet that hold anything; errors such as #N/A are missing values."""
    rows = []
    for cells, as_written in zip(sheet.iter_rows(), plain.iter_rows(), strict=True):
        row = [None if cell.data_type == "e" else cell.value for cell in cells]
        for place, cell in enumerate(as_written):
            if cell.data_type == "f" and cells[place].value is None:
                row[place] = _NOT_COMPUTED
        rows.append(row)
    return [row for row in rows if any(value is not None for value in row)]


def checked(header: list[str], place: Path | str) -> list[str]:
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
    return [_text(value, name, row, place) for row, value in enumerate(_listed(column))]


def _listed(column: Iterable[Any]) -> list[Any]:
    """The values of a column; dates of NumPy stay dates, since `tolist` makes numbers of some units."""
    if isinstance(column, np.ndarray) and column.dtype.kind != "M":
        return list(column.tolist())
    return list(column)


def _text(value: Any, name: str, row: int, place: str) -> str:
    """One value as the text that a CSV file would hold."""
    if isinstance(value, str):
        return value.strip()
    if value is None or str(value) in GONE:
        return ""
    if isinstance(value, np.datetime64):
        return str(value.astype("datetime64[D]") if np.datetime_data(value)[0] in "YMW" else value)
    if isinstance(value, Decimal):
        return _decimal(value)
    if isinstance(value, bool | np.bool_ | numbers.Integral):
        return str(value)
    if isinstance(value, numbers.Real):
        number = float(value)
        return str(int(number)) if number.is_integer() and abs(number) < EXACT else repr(number)
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    raise PateError(
        f"{place} has a {type(value).__name__} in the column {name!r} at row {row}; give numbers, words, "
        "dates, or true and false, and arrays in an .npz as `inputs`"
    )


def _decimal(value: Decimal) -> str:
    """A decimal without the zeros at its end, whose number may follow from other values.

    >>> _decimal(Decimal("7.00")), _decimal(Decimal("1.50"))
    ('7', '1.5')
    """
    if kinds.is_whole(value):
        return str(int(value))
    text = format(value, "f") if abs(value.adjusted()) < 400 else str(value)
    return text.rstrip("0") if "." in text and "E" not in text else text
