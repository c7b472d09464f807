"""One part of the user's own data as its file holds it, before labels and columns become numbers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pate_jax.data import ids, tables, trial_mark
from pate_jax.data.tables import Table
from pate_jax.errors import PateError
from pate_jax.system.storage import read_foreign_arrays

_ROLES = ("labels", "ids", "users")


class Raw(NamedTuple):
    """The content of one file: arrays, or the columns of a table."""

    inputs: np.ndarray | Table
    labels: np.ndarray | None
    ids: np.ndarray | None
    users: np.ndarray | None
    features: np.ndarray | None = None
    numbered: bool = False  # whether the ids are only numbers of rows, or of files
    trial: bool = False  # whether the file is marked as a part of a trial


def of_arrays(path: Path) -> Raw:
    """The arrays of an .npz archive: `inputs`, and optional `labels`, `ids`, `users` and `features`."""
    arrays = read_foreign_arrays(path)
    if "inputs" not in arrays:
        raise PateError(f"{path} has no array 'inputs'; it holds {', '.join(sorted(arrays)) or 'nothing'}")
    for name in _ROLES:
        if name in arrays and arrays[name].ndim != 1:
            raise PateError(
                f"{path} has {name} of shape {arrays[name].shape}; give one value for each record"
            )
    inputs = arrays["inputs"]
    if inputs.dtype.kind not in "buif":
        raise PateError(f"{path} has inputs of type {inputs.dtype}; give numbers")
    if inputs.ndim == 3:
        inputs = inputs[..., None]
    names = {
        role: ids.of_values(arrays[role], role, str(path)) for role in ("ids", "users") if role in arrays
    }
    features, marked = _features(arrays.get("features"), path), trial_mark.NAME in arrays
    return Raw(inputs, arrays.get("labels"), names.get("ids"), names.get("users"), features, trial=marked)


def _features(found: np.ndarray | None, path: Path) -> np.ndarray | None:
    """Vectors beside the inputs, which an encoder of the owner's made of them."""
    if found is None:
        return None
    if found.dtype.kind not in "buif" or found.ndim != 2 or not found.shape[1]:
        raise PateError(
            f"{path} has features of type {found.dtype} and shape {found.shape}; give numbers [n, features]"
        )
    return in_float32(found)


def in_float32(numbers: np.ndarray) -> np.ndarray:
    """Numbers as float32: each the same whichever type all of them have, and none minus zero.

    Whole numbers of 64 bits become float64 first, which they are already where one of them is a fraction.

    >>> in_float32(np.array([2**53 + 2**29 + 1])) == in_float32(np.array([2**53 + 2**29 + 1, 0.5]))[:1]
    array([ True])
    """
    with np.errstate(over="ignore"):
        wide = numbers.astype(np.float64) if numbers.dtype.itemsize > 4 else numbers
        found = wide.astype(np.float32)
    found += np.float32(0)
    return found


def each_by_itself(names: Mapping[str, str | None]) -> None:
    """Refuse a column that is named for two roles.

    >>> each_by_itself({"labels": "grade", "ids": "grade"})
    Traceback (most recent call last):
    ...
    pate_jax.errors.PateError: the column 'grade' is named for labels and ids: name another for one of them
    """
    for name in filter(None, names.values()):
        roles = [role for role, own in names.items() if own == name]
        if len(roles) > 1:
            raise PateError(
                f"the column {name!r} is named for {' and '.join(roles)}: name another for one of them"
            )


def of_table(path: Path, names: Mapping[str, str | None], private: bool) -> Raw:
    """A table whose columns of labels, ids and users have these names; the private part must have all."""
    each_by_itself(names)
    table = tables.read(path)
    marked = table.pop(trial_mark.NAME, None) is not None
    roles: dict[str, np.ndarray | None] = {}
    for role, name in names.items():
        roles[role] = None if name is None or name not in table else _taken(table, role, name, path)
        if name is not None and roles[role] is None and private:
            raise PateError(f"{path} has no column {name!r}; {tables.columns_like(name, table)}")
    if not table:
        raise PateError(
            f"{path} has no columns to learn from beside {', '.join(filter(None, names.values()))}"
        )
    return Raw(table, roles["labels"], roles["ids"], roles["users"], trial=marked)


def _taken(table: Table, role: str, name: str, path: Path) -> np.ndarray:
    """A column of labels, ids or users, which the table has no longer."""
    values = np.array(table[name], np.str_) if role == "labels" else ids.of_table(table, name, str(path))
    del table[name]
    return values
