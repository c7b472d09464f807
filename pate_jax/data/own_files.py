"""The user's own data: .npz archives of arrays and .csv tables.

The rules that turn a row into numbers (classes, categories, scales) are declared by the user or taken from
the public part, never from private rows: if they came from private rows, adding or removing one record could
change all teachers. A private value outside the known categories becomes a group of zeros.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pate_jax.data import columns, overlap, relation
from pate_jax.data.columns import Table
from pate_jax.data.dataset import (
    Dataset,
    Part,
    Preprocessing,
    check,
    check_inputs,
    check_part,
    class_names_of,
    numbered_ids,
)
from pate_jax.errors import PateError
from pate_jax.system.storage import parse_json, read_bytes, read_foreign_arrays

File = Path | str
Declared = Mapping[str, Sequence] | File | None  # a mapping, or a JSON file of one
SUFFIXES = (".npz", ".csv")
COLUMNS = ("labels", "ids", "users")


class Raw(NamedTuple):
    """The content of one file: arrays, or the columns of a table."""

    inputs: np.ndarray | Table
    labels: np.ndarray | None
    ids: np.ndarray | None
    users: np.ndarray | None
    features: np.ndarray | None = None


def from_files(
    private: File,
    public: File,
    test: File | None = None,
    *,
    label_column: str | None = None,
    id_column: str | None = None,
    user_column: str | None = None,
    categories: Declared = None,
    scales: Declared = None,
    classes: int | Sequence[str] | None = None,
    ids_are_stable: bool = False,
    equal_rows_are_coincidences: bool = False,
) -> Dataset:
    """A dataset from the user's files, all .npz (`inputs`, `labels`, optional `ids`, `users`) or all .csv.

    An .npz may hold `features` too, vectors that an encoder made of the inputs, for the space `encoder`.
    `classes` is their number (labels 0..C-1) or their names; without it they come from the public or test
    labels. For tables, `categories` maps a column to its values and `scales` a numeric column to (offset,
    scale); each is a mapping or a JSON file. The public part decides about columns that neither names.
    A third number in `scales` replaces missing values. `ids_are_stable` declares that ids that count up like
    row numbers belong to their records nevertheless.
    Rows of other parts that equal private ones are refused, unless they are declared to be coincidences.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "mine.csv").write_text("id,age,sick\\na,30,yes\\nb,40,no\\n")
    >>> _ = (folder / "pool.csv").write_text("age,sick\\n20,no\\n60,yes\\n")
    >>> clinic = from_files(folder / "mine.csv", folder / "pool.csv", label_column="sick", id_column="id")
    >>> clinic.class_names, clinic.private.inputs.tolist(), clinic.preprocessing.offset
    (('no', 'yes'), [[30.0], [40.0]], (40.0,))
    """
    paths = {"private": private, "public": public, "test": test}
    files = {name: Path(path).expanduser() for name, path in paths.items() if path is not None}
    suffix = _one_suffix(files)
    if suffix == ".csv":
        names = {"labels": label_column, "ids": id_column, "users": user_column}
        if label_column is None:
            raise PateError(f"{private} is a table: name the column of its labels with --label-column")
        raw = {part: _read_table(path, names, part == "private") for part, path in files.items()}
    else:
        raw = {part: _read_arrays(path) for part, path in files.items()}
    class_names, numbered = _classes(raw, classes)
    assembled = _assemble(files, raw, class_names, numbered, _declared(categories), _declared(scales))
    dataset = check(assembled)
    if ids_are_stable and raw["private"].ids is None:
        raise PateError(f"--ids-are-stable speaks of ids, and {private} has none: give ids, or leave it out")
    places = {part: str(path) for part, path in files.items()}
    dataset = relation.declared(dataset, ids_are_stable)
    return overlap.declared(dataset, equal_rows_are_coincidences, places)


def pool(public: File, test: File | None = None, *, classes: int) -> Dataset:
    """A dataset of public inputs only (.npz), for votes that were made elsewhere; no private part."""
    paths = {"public": public, "test": test}
    files = {name: Path(path).expanduser() for name, path in paths.items() if path is not None}
    if _one_suffix(files) != ".npz":
        raise PateError(
            f"{public} is not an .npz: save the public inputs in one as `inputs`, in the order of the votes"
        )
    raw = {part: _read_arrays(path) for part, path in files.items()}
    nobody = np.array([], np.str_)
    raw["private"] = Raw(np.asarray(raw["public"].inputs)[:0], nobody, nobody, None)
    dataset = _assemble(files, raw, class_names_of(classes), True, {}, {})
    for name, part in (("public", dataset.public), ("test", dataset.test)):
        if part is not None:
            check_part(name, part, classes)
    return dataset


def _one_suffix(files: Mapping[str, Path]) -> str:
    suffixes = sorted({path.suffix.lower() for path in files.values()})
    if len(suffixes) != 1 or suffixes[0] not in SUFFIXES:
        raise PateError(f"{', '.join(map(str, files.values()))}: give all parts as .npz or all as .csv")
    return suffixes[0]


def _read_arrays(path: Path) -> Raw:
    arrays = read_foreign_arrays(path)
    if "inputs" not in arrays:
        raise PateError(f"{path} has no array 'inputs'; it holds {', '.join(sorted(arrays)) or 'nothing'}")
    for name in COLUMNS:
        if name in arrays and arrays[name].ndim != 1:
            raise PateError(
                f"{path} has {name} of shape {arrays[name].shape}; give one value for each record"
            )
    inputs = arrays["inputs"]
    if inputs.dtype.kind not in "buif":
        raise PateError(f"{path} has inputs of type {inputs.dtype}; give numbers")
    if inputs.ndim == 3:
        inputs = inputs[..., None]
    labels, ids, users = (arrays.get(name) for name in COLUMNS)
    return Raw(inputs, labels, ids, users, _features(arrays.get("features"), path))


def _features(found: np.ndarray | None, path: Path) -> np.ndarray | None:
    """Vectors beside the inputs, which an encoder of the owner's made of them."""
    if found is None:
        return None
    if found.dtype.kind not in "buif" or found.ndim != 2 or not found.shape[1]:
        raise PateError(
            f"{path} has features of type {found.dtype} and shape {found.shape}; give numbers [n, features]"
        )
    with np.errstate(over="ignore"):
        return found.astype(np.float32)


def _read_table(path: Path, names: Mapping[str, str | None], private: bool) -> Raw:
    table = columns.read(path)
    roles: dict[str, np.ndarray | None] = {}
    for role, name in names.items():
        roles[role] = np.array(table.pop(name), np.str_) if name in table else None
        if name is not None and roles[role] is None and private:
            raise PateError(f"{path} has no column {name!r}; its columns are {', '.join(table)}")
    if not table:
        raise PateError(
            f"{path} has no columns to learn from beside {', '.join(filter(None, names.values()))}"
        )
    return Raw(table, roles["labels"], roles["ids"], roles["users"])


def _declared(value: Declared) -> Mapping[str, Sequence]:
    if isinstance(value, str | Path):
        value = parse_json(read_bytes(value), value)
    value = {} if value is None else value
    if not isinstance(value, Mapping) or not all(isinstance(entry, list | tuple) for entry in value.values()):
        raise PateError("categories and scales must map a column's name to a list; see docs/data.md")
    return value


def _classes(raw: Mapping[str, Raw], classes: int | Sequence[str] | None) -> tuple[tuple[str, ...], bool]:
    """The class names, and whether labels are class numbers; private labels are not read."""
    if isinstance(classes, int | np.integer):
        return class_names_of(int(classes)), True
    if classes is not None:
        names = tuple(map(str, classes))
        if len(set(names)) != len(names):
            raise PateError(f"classes={list(names)} names a class twice")
        return names, False
    known = [part.labels for name, part in raw.items() if name != "private" and part.labels is not None]
    if not known or not sum(map(len, known)):
        raise PateError(
            "classes is not given and there are no public or test labels to take them from (private labels "
            "must not be used); pass the number of classes or their names"
        )
    values = np.concatenate([np.asarray(labels).astype(np.str_) for labels in known])
    if any(labels.dtype.kind == "U" for labels in known) and columns.missing(values.tolist()).any():
        raise PateError(
            "some public or test labels are missing, but the classes are taken from them: remove those rows, "
            "leave the label column out of that part, or pass the number of classes or their names"
        )
    try:
        return class_names_of(int(_whole(values, "public or test").max()) + 1), True
    except PateError:
        if all(labels.dtype.kind == "U" for labels in known):
            return tuple(sorted(set(values.tolist()))), False
        raise


def _whole(labels: np.ndarray, place: str) -> np.ndarray:
    """Labels as whole numbers."""
    try:
        numbers = labels.astype(np.float64)
    except (ValueError, TypeError) as error:
        raise PateError(f"{place} labels are not numbers ({error}); pass the names of the classes") from error
    broken = ~np.isfinite(numbers) | (numbers != np.floor(numbers))
    if broken.any():
        row = int(np.argmax(broken))
        raise PateError(
            f"{place} label {labels[row]} at row {row} is not a whole number; number the classes from 0"
        )
    return np.clip(numbers, -1, 2**31 - 1).astype(np.int32)


def _named(labels: np.ndarray, class_names: Sequence[str], place: str) -> np.ndarray:
    """Labels given by class name, as numbers."""
    positions = {name: number for number, name in enumerate(class_names)}
    values = labels.astype(np.str_).tolist()
    unknown = [row for row, value in enumerate(values) if value not in positions]
    if unknown:
        raise PateError(
            f"{place} label {values[unknown[0]]!r} at row {unknown[0]} is not one of the classes "
            f"{list(class_names)}; declare it in classes or correct the row"
        )
    return np.array([positions[value] for value in values], np.int32)


def _assemble(
    files: Mapping[str, Path],
    raw: Mapping[str, Raw],
    class_names: tuple[str, ...],
    numbered: bool,
    categories: Mapping[str, Sequence],
    scales: Mapping[str, Sequence],
) -> Dataset:
    inputs, preprocessing, notes, plan = _inputs(raw, categories, scales)
    parts = {}
    for name, file in raw.items():
        labels = file.labels
        if labels is not None:
            labels = _whole(labels, name) if numbered else _named(labels, class_names, name)
        ids = (
            numbered_ids("row", np.arange(len(inputs[name])))
            if file.ids is None
            else file.ids.astype(np.str_)
        )
        users = None if file.users is None else file.users.astype(np.str_)
        parts[name] = Part(inputs[name], labels, ids, users, file.features)
    return Dataset(
        name="own",
        kind="image" if parts["private"].inputs.ndim == 4 else "table",
        private=parts["private"],
        public=parts["public"],
        test=parts.get("test"),
        classes=len(class_names),
        class_names=class_names,
        preprocessing=preprocessing,
        synthetic=False,
        description="the owner's own data",  # goes into the release, so it names no file
        private_notes=notes,
        columns=plan,
        ids_are="rows" if raw["private"].ids is None else "given",
    )


def _inputs(
    raw: Mapping[str, Raw], categories: Mapping[str, Sequence], scales: Mapping[str, Sequence]
) -> tuple[dict[str, np.ndarray], Preprocessing, dict[str, dict], tuple[columns.Column, ...]]:
    """The array of each part, the preprocessing, counts over private rows, and the columns."""
    tables = {name: file.inputs for name, file in raw.items() if isinstance(file.inputs, dict)}
    if tables:
        plan = columns.plan(tables["public"], categories, scales)
        encoded = {name: columns.encode(table, plan, name) for name, table in tables.items()}
        counted: dict[str, dict] = {
            "unseen_categories": columns.unseen(tables["private"], plan),
            "missing_values": columns.filled(tables["private"], plan),
        }
        notes = {name: counts for name, counts in counted.items() if counts}
        return encoded, columns.preprocessing(encoded["public"], plan), notes, tuple(plan)
    arrays = {name: np.asarray(file.inputs) for name, file in raw.items()}
    if all(array.dtype == np.uint8 and array.ndim == 4 for array in arrays.values()):
        return arrays, Preprocessing((0.0,), (255.0,)), {}, ()
    with np.errstate(over="ignore"):
        arrays = {name: array.astype(np.float32) for name, array in arrays.items()}
    for name, array in arrays.items():
        if array.ndim == 0 or len(array) or name != "private":  # a pool has no private records
            check_inputs(name, array)
    return arrays, columns.standard(arrays["public"]), {}, ()
