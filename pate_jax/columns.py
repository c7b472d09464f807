"""Columns of a table to numbers: numeric ones as they are, categorical ones as one-hot groups.

A plan says for each column what it is. It is made from the public part and the user's declarations; private
rows are only ever encoded by it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pate_jax.artefact import read_bytes
from pate_jax.dataset import Preprocessing
from pate_jax.errors import PateError
from pate_jax.progress import bar

Table = dict[str, list[str]]
ROWS = 20_000  # between two moves of the progress bar


class Column(NamedTuple):
    """One column: a group of categories, or a number with a declared scale or one from public statistics."""

    name: str
    categories: tuple[str, ...] | None = None
    scale: tuple[float, float] | None = None
    logarithmic: bool = False  # a number that enters as log(1 + x)

    @property
    def width(self) -> int:
        """Features that the column becomes."""
        return 1 if self.categories is None else len(self.categories)


def from_dict(description: Mapping[str, Any]) -> Column:
    """The column that `Column._asdict` described.

    >>> from_dict(Column("sex", ("f", "m"))._asdict())
    Column(name='sex', categories=('f', 'm'), scale=None, logarithmic=False)
    """
    categories, scale = description["categories"], description["scale"]
    return Column(
        str(description["name"]),
        None if categories is None else tuple(map(str, categories)),
        None if scale is None else (float(scale[0]), float(scale[1])),
        bool(description["logarithmic"]),
    )


def read(path: Path) -> Table:
    """The columns of a CSV file with a header, as text without surrounding blanks."""
    content = read_bytes(path)
    try:
        lines = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), skipinitialspace=True)
        header = [name.strip() for name in next(lines, [])]
        rows = []
        with bar(f"reading {path.name}", total=content.count(b"\n")) as progress:
            for number, row in enumerate(lines, start=2):
                if len(row) not in (0, len(header)):
                    raise PateError(f"{path} line {number} has {len(row)} values for {len(header)} columns")
                if row:
                    rows.append(row)
                if number % ROWS == 0:
                    progress.advance(ROWS)
    except (csv.Error, UnicodeDecodeError) as error:
        raise PateError(f"{path} is not a CSV table in UTF-8: {error}") from error
    twice = {name for name in header if header.count(name) > 1}
    if not header or twice or "" in header:
        raise PateError(f"{path} must begin with a line that names each column once; it names {header}")
    if not rows:
        raise PateError(f"{path} holds no records; give at least one")
    values = zip(*rows, strict=True)
    return {name: [value.strip() for value in column] for name, column in zip(header, values, strict=True)}


def plan(public: Table, categories: Mapping[str, Sequence], scales: Mapping[str, Sequence]) -> list[Column]:
    """What each column is, from declarations and the public part alone.

    >>> [column.name for column in plan({"age": ["30", "41"], "sex": ["f", "m"]}, {"sex": ["m", "f"]}, {})]
    ['age', 'sex']
    """
    for option, declared in (("categories", categories), ("scales", scales)):
        unknown = sorted(set(declared) - set(public))
        if unknown:
            raise PateError(
                f"{option} names the column {unknown[0]!r}; the public part has {', '.join(public)}"
            )
    columns = []
    for name, values in public.items():
        if name in categories:
            known = tuple(map(str, categories[name]))
            if not known or len(set(known)) != len(known):
                raise PateError(
                    f"categories of {name!r} must name at least one value and none twice: {list(known)}"
                )
            columns.append(Column(name, categories=known))
        elif name in scales:
            columns.append(Column(name, scale=_scale(name, scales[name])))
        else:
            columns.append(Column(name, None if _numeric(values) else tuple(sorted(set(values)))))
    return columns


def _scale(name: str, declared: Sequence) -> tuple[float, float]:
    try:
        offset, scale = map(float, declared)
    except (TypeError, ValueError, OverflowError) as error:
        raise PateError(f"scales of {name!r} must be [offset, scale], not {list(declared)}") from error
    return offset, scale


def _numeric(values: Sequence[str]) -> bool:
    try:
        np.array(values, np.str_).astype(np.float64)
    except ValueError:
        return False
    return True


def encode(table: Table, plan: Sequence[Column], place: str) -> np.ndarray:
    """float32 [rows, features] of a part by the plan; a value of no known category is a group of zeros.

    >>> encode({"sex": ["m", "x"]}, [Column("sex", ("f", "m"))], "private").tolist()
    [[0.0, 1.0], [0.0, 0.0]]
    """
    if set(table) != {column.name for column in plan}:
        names = {column.name for column in plan}
        missing, more = sorted(names - set(table)), sorted(set(table) - names)
        if missing:
            raise PateError(
                f"{place} lacks the column {missing[0]!r} that the public part has; give it there too"
            )
        raise PateError(
            f"{place} has the column {more[0]!r} and the public part has not; give it to both or none"
        )
    return np.concatenate([_encode(table[column.name], column, place) for column in plan], axis=1)


def _encode(values: Sequence[str], column: Column, place: str) -> np.ndarray:
    if column.categories is not None:
        positions = {category: number for number, category in enumerate(column.categories)}
        places = np.array([positions.get(value, -1) for value in values])
        return (places[:, None] == np.arange(column.width)).astype(np.float32)
    with np.errstate(over="ignore"):
        if _numeric(values):
            numbers = np.array(values, np.str_).astype(np.float64).astype(np.float32)
            if np.isfinite(numbers).all():
                return (_logarithm(numbers, column, place) if column.logarithmic else numbers)[:, None]
        finite = [_numeric([value]) and bool(np.isfinite(np.float32(float(value)))) for value in values]
    row = finite.index(False)
    raise PateError(
        f"{place} has {column.name}={values[row]!r} at row {row}, which is no finite number; "
        "correct it, remove the row, or declare the column's categories"
    )


def _logarithm(numbers: np.ndarray, column: Column, place: str) -> np.ndarray:
    if numbers.min(initial=0) < 0:
        row = int(numbers.argmin())
        raise PateError(
            f"{place} has {column.name}={numbers[row]:g} at row {row}; it must not be negative: correct it"
        )
    return np.log1p(numbers)


def unseen(table: Table, plan: Sequence[Column]) -> dict[str, int]:
    """How many values of each column are in no known category (of private data: sensitive)."""
    counts = {}
    for column in plan:
        if column.categories is not None:
            known = set(column.categories)
            counts[column.name] = sum(value not in known for value in table[column.name])
    return {name: count for name, count in counts.items() if count}


def preprocessing(public: np.ndarray, plan: Sequence[Column]) -> Preprocessing:
    """Declared scales, public statistics for other numbers, and nothing for one-hot groups."""
    measured, offset, scale, place = standard(public), [], [], 0
    for column in plan:
        if column.categories is not None:
            offset += [0.0] * column.width
            scale += [1.0] * column.width
        else:
            offset.append(measured.offset[place] if column.scale is None else column.scale[0])
            scale.append(measured.scale[place] if column.scale is None else column.scale[1])
        place += column.width
    return Preprocessing(tuple(offset), tuple(scale))


def standard(public: np.ndarray) -> Preprocessing:
    """Mean and standard deviation of public inputs over the last axis; a scale of 1 where nothing varies."""
    flat = public.reshape(-1, public.shape[-1]).astype(np.float64)
    spread = flat.std(0)
    return Preprocessing(tuple(flat.mean(0).tolist()), tuple(np.where(spread > 1e-12, spread, 1.0).tolist()))
