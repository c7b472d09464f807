"""Python values as the user's own data: data frames, columns by name, and arrays.

A frame is whatever names its columns: a pandas or Polars frame, a PyArrow table, a data set with
`column_names`, or a dictionary. None of these packages is imported here.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from pate_jax.data import ids, kinds, tables, trial_mark
from pate_jax.data.tables import Table
from pate_jax.errors import PateError

Arrays = dict[str, np.ndarray]


def read(values: Any, place: str, names: Mapping[str, str | None] | None = None) -> Table | Arrays:
    """A table of texts, or arrays by the names that they have in an .npz.

    `names` tells which columns are the labels, the ids and the users; without it only the inputs are wanted.
    A column of images or vectors makes arrays of the whole; an array alone is taken for inputs, and a pair
    for inputs and labels.

    >>> read({"age": [30, None], "sick": ["yes", "no"]}, "private")
    {'age': ['30', ''], 'sick': ['yes', 'no']}
    >>> read((np.zeros((2, 3)), [1, 0]), "private")["labels"].tolist()
    [1, 0]
    """
    if isinstance(values, Table):
        return values
    if isinstance(values, tuple) and len(values) == 2 and not names_of(values[0]):
        return {"inputs": _plain(values[0], "inputs", place), "labels": _plain(values[1], "labels", place)}
    header = names_of(values)
    if header is None and hasattr(values, "__array__"):
        return {"inputs": _plain(values, "inputs", place)}
    if header is None:
        raise PateError(
            f"{place} is a {type(values).__name__}: give a data frame with the labels in one of its columns, "
            "a dictionary, an array of inputs, a pair of arrays, or the path of a file"
        )
    called = [str(name) for name in header]
    if len({*called}) < len(called):
        twice = next(name for name, times in Counter(called).items() if times > 1)
        raise PateError(f"{place} names the column {twice!r} twice: give each column a name of its own")
    held = {name: values[own] for name, own in zip(called, header, strict=True)} | _index(
        values, called, names
    )
    columns = {name: _values(column) for name, column in held.items()}
    vectors = [name for name, column in columns.items() if _holds_arrays(column)]
    if vectors:
        return _arrays(columns, vectors, place, names)
    return tables.of(columns, place, [name for name, column in held.items() if kinds.is_listed(column)])


def stored(content: Table | Arrays) -> tuple[str, bytes]:
    """The suffix and the bytes of the file that holds them; equal content makes equal bytes.

    >>> stored(Table({"age": ["30"]}))
    ('.csv', b'age\\n30\\n')
    """
    if isinstance(content, Table):
        return ".csv", tables.to_csv(content)
    stream = io.BytesIO()
    np.savez(stream, allow_pickle=False, **content)  # type: ignore[arg-type]
    return ".npz", stream.getvalue()


def _index(values: Any, called: list[str], names: Mapping[str, str | None] | None) -> dict[str, Any]:
    """The index of a data frame, where labels, ids or users are wanted that have its name."""
    index = getattr(values, "index", None)
    name = getattr(index, "name", None)
    wanted = name in (names or {}).values() and name not in called
    return {str(name): index} if name is not None and wanted else {}


def names_of(values: Any) -> list[Any] | None:
    """The names of the columns of anything that names them, or None."""
    if isinstance(values, Mapping):
        return list(values)
    for names in ("column_names", "columns"):
        if hasattr(values, names) and hasattr(values, "__getitem__"):
            return list(getattr(values, names))
    return None


def _values(column: Any) -> Any:
    if isinstance(column, np.ndarray) and (column.ndim != 1 or column.dtype.kind == "M"):
        return column if column.ndim != 1 else list(column)  # as numbers, dates would have lost their unit
    for listing in ("to_pylist", "tolist"):
        if hasattr(column, listing):
            return getattr(column, listing)()
    return list(column)


def _holds_arrays(column: Any) -> bool:
    """Whether a column holds an image or a vector in each row."""
    if isinstance(column, np.ndarray):
        return True
    first = next((value for value in column if value is not None), None)
    is_array = hasattr(first, "__array_interface__") and not isinstance(first, np.generic)
    return isinstance(first, np.ndarray | list | tuple) or is_array


def _arrays(
    columns: dict[str, Any], vectors: list[str], place: str, names: Mapping[str, str | None] | None
) -> Arrays:
    """Columns under the names that they have in an .npz; the one of images or vectors is the inputs."""
    inputs = "inputs" if "inputs" in columns else vectors[0]
    if names is None:
        return {"inputs": _plain(columns[inputs], inputs, place)}
    called = {inputs: "inputs", "features": "features", trial_mark.NAME: trial_mark.NAME}
    called |= {names.get(role) or role: role for role in ("labels", "ids", "users")}
    unknown = [name for name in columns if name not in called]
    if unknown:
        raise PateError(
            f"{place} has a column of arrays, {inputs!r}, and the column {unknown[0]!r} beside it, which is "
            "neither labels, ids, users nor features: leave it out, or give numbers, each in its own column"
        )
    return {called[name]: _named(called[name], column, name, place) for name, column in columns.items()}


def _named(role: str, column: Any, name: str, place: str) -> np.ndarray:
    """One array of an .npz: ids and users as texts, each by itself, so that none changes how others read."""
    if role in ("ids", "users"):
        return ids.of_values(column, role, place)
    return _plain(column, name, place)


def _plain(values: Any, name: str, place: str) -> np.ndarray:
    """An array of numbers or texts, from one or from the rows of a column."""
    rows = values if hasattr(values, "__array__") else [np.asarray(value) for value in values]
    shapes = {row.shape for row in rows} if isinstance(rows, list) else set()
    if len(shapes) > 1:
        shown = " and ".join(map(str, sorted(shapes)[:2]))
        raise PateError(f"{place} has arrays of the shapes {shown} in {name!r}; give all the same")
    found = np.asarray(rows)
    if found.dtype != object:
        return found
    if found.ndim != 1:
        raise PateError(f"{place} has {name!r} of mixed types; give numbers, or columns by name")
    return np.array(tables.of({name: found}, place)[name], np.str_)
