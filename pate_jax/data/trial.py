"""A table or archive divided into private, public and test parts, for a trial of what a run would give.

Such public rows have no privacy: they are shown to everyone. Each user, or record, falls into one part.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pate_jax.data import columns, inspection, labels, own_files, tables, texts, trial_mark
from pate_jax.errors import PateError
from pate_jax.system import storage

PARTS = ("private", "public", "test")


class Trial(NamedTuple):
    """The files of a trial, and what `pate run` must be told of them."""

    files: dict[str, Path]
    rows: dict[str, int]
    classes: tuple[str, ...]  # to be declared, because the public parts do not show them all
    equal: int  # public and test rows whose columns equal those of a private one
    people: int  # users, or records, of the private part
    names: Mapping[str, str]  # of the columns of labels, ids and users, given or guessed
    texts: tuple[str, ...] = ()  # columns that are probably free text


def rows_of(units: np.ndarray, public: float, test: float, seed: int) -> dict[str, np.ndarray]:
    """The rows of each part: all rows of a unit (a user or a record) fall into one part.

    >>> {part: rows.tolist() for part, rows in rows_of(np.array(["a", "a", "b", "c"]), 0.4, 0.3, 1).items()}
    {'private': [3], 'public': [0, 1], 'test': [2]}
    """
    if not (public > 0 and test >= 0 and public + test < 1):
        raise PateError(
            f"public={public:g} must be above 0, test={test:g} at least 0, and both together below 1"
        )
    different = np.unique(units)
    counts = round(public * len(different)), round(test * len(different))
    if not counts[0] or (test and not counts[1]) or sum(counts) >= len(different):
        raise PateError(
            f"{len(different)} users or records are too few for the shares {public:g} and {test:g}; give more"
        )
    order = np.random.default_rng(seed).permutation(different)
    parts = dict(zip(("public", "test"), np.split(order[: sum(counts)], [counts[0]]), strict=True))
    found = {"private": np.flatnonzero(~np.isin(units, order[: sum(counts)]))}
    found |= {part: np.flatnonzero(np.isin(units, chosen)) for part, chosen in parts.items()}
    return {part: rows for part, rows in found.items() if len(rows)}


def divide(
    path: Path,
    out: Path,
    names: Mapping[str, str | None],
    *,
    public: float = 0.2,
    test: float = 0.1,
    seed: int = 0,
) -> Trial:
    """Write the parts of a table or an .npz into a folder; `names` are those of labels, ids and users.

    Columns that are not named are guessed as `data.inspection` does. Every part carries the mark of a trial.
    """
    kind = own_files.kind_of([path])
    if kind == "folder":
        raise PateError(f"{path} is a folder of images: move some of them into folders of their own by hand")
    if kind == "table":
        return _table(_unmarked(tables.read(path)), path, out, names, (public, test, seed))
    arrays = storage.read_foreign_arrays(path)
    called = [arrays[role] for role in ("users", "ids") if role in arrays]
    count = {name: len(array) if array.ndim else -1 for name, array in arrays.items()}
    if len(set(count.values())) != 1:
        raise PateError(f"{path} has arrays of different lengths: {count}; give one value for each record")
    units = called[0] if called else np.arange(next(iter(count.values())))
    rows = rows_of(units, public, test, seed)
    people = len(np.unique(units[rows["private"]]))
    written = {part: _archive(arrays, chosen) for part, chosen in rows.items()}
    return _written(out, ".npz", written, rows, (), 0, people, {})


def _table(
    table: tables.Table, path: Path, out: Path, given: Mapping[str, str | None], how: tuple[float, float, int]
) -> Trial:
    names = inspection.roles(table, given)
    called = [np.array(table[name]) for role in ("users", "ids") if (name := names.get(role))]
    units = called[0] if called else np.arange(len(next(iter(table.values()))))
    rows = rows_of(units, *how)
    parts = {
        part: {name: [values[row] for row in chosen] for name, values in table.items()}
        for part, chosen in rows.items()
    }
    label = names.get("labels")
    classes = (
        ()
        if label is None
        else _hidden([parts[part][label] for part in rows if part != "private"], table[label])
    )
    public = {name: column for name, column in parts["public"].items() if name not in names.values()}
    gone = columns.left_out(public, {})
    read = texts.guessed(public, gone)
    features = [name for name in public if name not in gone or name in read]
    private = {*_records(parts["private"], features)}
    equal = sum(
        record in private for part in rows if part != "private" for record in _records(parts[part], features)
    )
    written = {
        part: tables.to_csv(trial_mark.marked(content, len(rows[part]))) for part, content in parts.items()
    }
    people = len(np.unique(units[rows["private"]]))
    made = _written(out, ".csv", written, rows, classes, equal, people, names)
    return made._replace(texts=read)


def _unmarked(table: tables.Table) -> tables.Table:
    """A table without the mark of an earlier trial, which its parts get again."""
    return table.only(name for name in table if name != trial_mark.NAME)


def _hidden(public: list[list[str]], every: list[str]) -> tuple[str, ...]:
    """All classes, if the public parts do not show every one, or show numbers that do not start at 0."""
    shown = {label for part in public for label in part}
    hidden = () if shown >= {*every} else tuple(sorted({*every}))
    return labels.names_of_numbers(every) or hidden


def _records(table: Mapping[str, list[str]], features: list[str]) -> list[tuple[str, ...]]:
    return list(zip(*(table[name] for name in features), strict=True))


def _archive(arrays: Mapping[str, np.ndarray], rows: np.ndarray) -> bytes:
    stream = io.BytesIO()
    chosen = {name: array[rows] for name, array in arrays.items()}
    np.savez(stream, allow_pickle=False, **trial_mark.marked_arrays(chosen, len(rows)))  # type: ignore[arg-type]
    return stream.getvalue()


def _written(
    out: Path,
    suffix: str,
    contents: Mapping[str, bytes],
    rows: Mapping[str, np.ndarray],
    classes: tuple[str, ...],
    equal: int,
    people: int,
    names: Mapping[str, str],
) -> Trial:
    files = {part: out / f"{part}{suffix}" for part in contents}
    there = next((path for path in files.values() if path.exists()), None)
    if there is not None:
        raise PateError(f"{there} is there already: choose another --out, or remove it")
    for part, content in contents.items():
        storage.write_bytes(files[part], content, mode=0o600)
    return Trial(files, {part: len(chosen) for part, chosen in rows.items()}, classes, equal, people, names)
