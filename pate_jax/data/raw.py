"""One part of the user's own data as its file holds it, before labels and columns become numbers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pate_jax.data import fingerprints, ids, labels, tables, targets, trial_mark
from pate_jax.data.encoders import Known
from pate_jax.data.tables import Table
from pate_jax.errors import PateError
from pate_jax.system.progress import say
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
    encoder: Known | None = None  # that made the inputs of photos
    trial: bool = False  # whether the file is marked as a part of a trial
    unread: tuple[np.ndarray, ...] = ()  # hashes of a private part's columns that nothing is learned from

    def without_records(self) -> Raw:
        """A part of the same columns in which nobody is."""
        inputs: np.ndarray | Table
        if isinstance(self.inputs, Table):
            inputs = Table({name: values[:0] for name, values in self.inputs.items()})
        else:
            inputs = self.inputs[:0]
        features = None if self.features is None else self.features[:0]
        return Raw(inputs, np.array([], np.int64), np.array([], np.str_), None, features)


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


def without(parts: Mapping[str, Raw], names: tuple[str, ...]) -> dict[str, Raw]:
    """Parts without some columns of their tables; a name that no part has is refused.

    >>> part = Raw(Table({"age": ["30"], "ward": ["a"]}), None, None, None)
    >>> without({"public": part}, ("ward",))["public"].inputs
    {'age': ['30']}
    """
    found = {part: raw.inputs for part, raw in parts.items() if isinstance(raw.inputs, Table)}
    for name in names:
        if not any(name in table for table in found.values()):
            known = columns_of(found)
            raise PateError(f"--leave-out {name} is a column of no table: {tables.columns_like(name, known)}")
    kept = {part: table.only(one for one in table if one not in names) for part, table in found.items()}
    for part, table in kept.items():
        if not table:
            raise PateError(f"--leave-out {','.join(names)} leaves no column of the {part} table: name fewer")
    cut = {part: raw._replace(inputs=kept.get(part, raw.inputs)) for part, raw in parts.items()}
    if "private" in kept:
        unread = fingerprints.of_columns(found["private"], but=kept["private"])
        cut["private"] = cut["private"]._replace(unread=unread)
    return cut


def columns_of(parts: Mapping[str, Table]) -> list[str]:
    """The columns of all tables, each once."""
    return list(dict.fromkeys(name for table in parts.values() for name in table))


def classes_of(
    raw: Mapping[str, Raw], hidden: Collection[str], declared: int | str | Sequence[str] | None
) -> labels.Known:
    """The classes that are declared, or that the labels of all parts show but those that are hidden."""
    known = [part.labels for name, part in raw.items() if name not in hidden and part.labels is not None]
    return labels.Known(*labels.classes(known, declared))


def with_numbers(
    raw: Mapping[str, Raw], name: str, declared: str | None
) -> tuple[dict[str, Raw], labels.Known]:
    """All parts with steps of a number's range for labels, without the records that have no number."""
    raw = {part: _numbered(file, name, part) for part, file in raw.items()}
    target, steps = targets.read(name, {part: file.labels for part, file in raw.items()}, declared)
    said = labels.Known(target.ends, True, target)
    return {part: file._replace(labels=steps[part]) for part, file in raw.items()}, said


def _numbered(file: Raw, name: str, part: str) -> Raw:
    """A part without the records that have no number, which is said; each record decides for itself.

    Records without ids would be renumbered by that, so there they are refused.
    """
    if file.labels is None:
        return file
    there = ~np.array(tables.missing(file.labels.tolist()), bool)
    if there.all():
        return file
    if file.ids is None and part == "private":
        raise PateError(
            f"{len(there) - there.sum()} private records have no {name!r}, and none has an id: name the "
            "column of ids with --id-column, and they are left out, or remove them"
        )
    say(f"{len(there) - there.sum():,} of {len(there):,} rows of the {part} part have no {name!r}: left out")
    columns = {one: values for one, values in file._asdict().items() if isinstance(values, np.ndarray)}
    kept = file._replace(**{one: values[there] for one, values in columns.items()})
    kept = kept._replace(unread=tuple(hashes[there] for hashes in file.unread))
    if isinstance(file.inputs, Table):
        rows = np.flatnonzero(there).tolist()
        chosen = {one: [values[row] for row in rows] for one, values in file.inputs.items()}
        kept = kept._replace(inputs=Table(chosen, file.inputs.kinds))
    return kept
