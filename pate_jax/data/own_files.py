"""The user's own data: .npz archives of arrays, tables in .csv or .parquet, and folders of images.

The rules that turn a row into numbers (classes, categories, scales) are declared by the user or taken from
the public part, never from private rows: if they came from private rows, adding or removing one record could
change all teachers. A private value outside the known categories becomes a group of zeros.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from pate_jax.data import columns, folders, labels, overlap, relation, tables, trial_mark
from pate_jax.data.dataset import (
    Dataset,
    Part,
    Preprocessing,
    check,
    check_inputs,
    check_part,
    numbered_ids,
)
from pate_jax.data.raw import Raw, in_float32, of_arrays, of_table
from pate_jax.errors import PateError
from pate_jax.system.progress import say, warn
from pate_jax.system.storage import parse_json, read_bytes

File = Path | str
Kind = Literal["arrays", "table", "folder"]
Declared = Mapping[str, Sequence] | File | None  # a mapping, or a JSON file of one
_PACKED = (".gz", ".zip", ".bz2", ".xz", ".zst")


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
    classes: int | str | Sequence[str] | None = None,
    image_size: int | None = None,
    ids_are_stable: bool = False,
    equal_rows_are_coincidences: bool = False,
    equal_ids_are_coincidences: bool = False,
    show_public: bool = False,
    test_is_private: bool = False,
) -> Dataset:
    """A dataset from the user's files: all .npz, all tables (.csv, .parquet), or all folders of images.

    An .npz holds `inputs`, `labels`, optional `ids` and `users`, and optional `features`, vectors that an
    encoder made of the inputs, for the space `encoder`. A folder holds a folder of images for each class.
    `classes` is their number (labels 0..C-1) or their names; without it they come from the public or test
    labels, and from the public ones alone if `test_is_private`, since they are published. For tables,
    `categories` maps a column to its values and `scales` a numeric column to (offset,
    scale); each is a mapping or a JSON file. The public part decides about columns that neither names.
    A third number in `scales` replaces missing values. Categories of the label column are the class names.
    Images are resized to `image_size` pixels each way, or must all have one size.
    `ids_are_stable` declares that ids that count up like row numbers belong to their records nevertheless.
    Rows of other parts that equal private ones, or have their ids or users, are refused, unless these are
    declared to be coincidences. `show_public` declares that public rows may go into a release as they are.

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
    raw = _read(files, {"labels": label_column, "ids": id_column, "users": user_column}, image_size)
    values = dict(declared(categories))
    if label_column in values and classes is None:
        classes = values.pop(label_column)
    hidden = ("private", "test") if test_is_private else ("private",)
    known = [part.labels for name, part in raw.items() if name not in hidden and part.labels is not None]
    class_names, numbered = labels.classes(known, classes)
    dataset = check(_assemble(raw, class_names, numbered, values, declared(scales)))
    if ids_are_stable and raw["private"].ids is None:
        raise PateError(
            f"--ids-are-stable speaks of ids, and {private} has none: give ids (a column that --id-column "
            "names, or the array ids of an .npz), or leave it out"
        )
    places = {part: str(path) for part, path in files.items()}
    dataset = replace(relation.declared(dataset, ids_are_stable), show_public=show_public)
    return overlap.declared(
        dataset, equal_rows_are_coincidences, places, ids_coincide=equal_ids_are_coincidences
    )


def pool(public: File, test: File | None = None, *, classes: int, show_public: bool = False) -> Dataset:
    """A dataset of public inputs only (.npz), for votes that were made elsewhere; no private part."""
    paths = [Path(path).expanduser() for path in (public, test) if path is not None]
    if kind_of(paths) != "arrays":
        raise PateError(
            f"{public} is not an .npz: save the public inputs in one as `inputs`, in the order of the votes"
        )
    return replace(public_parts(public, test, classes=classes), show_public=show_public)


def public_parts(
    public: File,
    test: File | None = None,
    *,
    label_column: str | None = None,
    id_column: str | None = None,
    user_column: str | None = None,
    categories: Declared = None,
    scales: Declared = None,
    classes: int | str | Sequence[str] | None = None,
    image_size: int | None = None,
) -> Dataset:
    """What `from_files` makes of the same public files, with no private record in it.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "pool.csv"
    >>> _ = path.write_text("age,sick\\n20,no\\n60,yes\\n")
    >>> clinic = public_parts(path, label_column="sick")
    >>> len(clinic.private.inputs), clinic.public.inputs.tolist(), clinic.public.labels.tolist()
    (0, [[20.0], [60.0]], [0, 1])
    """
    paths = {"public": public, "test": test}
    files = {name: Path(path).expanduser() for name, path in paths.items() if path is not None}
    raw = _read(files, {"labels": label_column, "ids": id_column, "users": user_column}, image_size)
    if label_column is not None and isinstance(raw["public"].inputs, dict) and raw["public"].labels is None:
        say(f"{public} has no column {label_column!r}: its rows have no labels")
    values = dict(declared(categories))
    if label_column in values and classes is None:
        classes = values.pop(label_column)
    known = [part.labels for part in raw.values() if part.labels is not None]
    class_names, numbered = labels.classes(known, classes)
    parts = {**raw, "private": _nobody(raw["public"])}
    dataset = _assemble(parts, class_names, numbered, values, declared(scales))
    for name, part in (("public", dataset.public), ("test", dataset.test)):
        if part is not None:
            check_part(name, part, dataset.classes)
    return dataset


def _nobody(public: Raw) -> Raw:
    """A private part without records, whose columns are those of the public part."""
    inputs: np.ndarray | tables.Table
    if isinstance(public.inputs, tables.Table):
        inputs = tables.Table({name: values[:0] for name, values in public.inputs.items()})
    else:
        inputs = public.inputs[:0]
    features = None if public.features is None else public.features[:0]
    return Raw(inputs, np.array([], np.int64), np.array([], np.str_), None, features)


def kind_of(paths: Collection[Path]) -> Kind:
    """What the user's files are, all alike; a path that is not there is judged by its name."""
    kinds: dict[str, Kind] = {".npz": "arrays", **dict.fromkeys(tables.SUFFIXES, "table")}
    found = {"folder" if path.is_dir() else kinds.get(path.suffix.lower()) for path in paths}
    for path in paths:
        if not path.exists():
            raise PateError(f"{path} does not exist")
    packed = [str(path) for path in paths if path.suffix.lower() in _PACKED and path.is_file()]
    if packed:
        raise PateError(f"{', '.join(packed)}: unpack it first, and name the file inside")
    kind = found.pop()
    if found or kind is None:
        raise PateError(
            f"{', '.join(map(str, paths))}: give all parts as .npz, all as tables (.csv, .tsv, .parquet), or "
            "all as folders of images"
        )
    return kind


def _read(
    files: Mapping[str, Path], names: Mapping[str, str | None], image_size: int | None
) -> dict[str, Raw]:
    """The content of every part."""
    kind = kind_of(files.values())
    if image_size is not None and kind != "folder":
        raise PateError(f"--image-size {image_size} is for folders of images, and {files['public']} is none")
    if kind == "table":
        if names["labels"] is None and "private" in files:
            raise PateError(
                f"{files['private']} is a table: name the column of its labels with --label-column"
            )
        return {part: of_table(path, names, part == "private") for part, path in files.items()}
    if kind == "arrays":
        return {part: of_arrays(path) for part, path in files.items()}
    shape = folders.shape_of(files["public"], image_size)
    return {part: folders.read(path, shape, image_size is not None) for part, path in files.items()}


def declared(value: Declared) -> Mapping[str, Sequence]:
    """The declared values by column, from a mapping or a JSON file of one."""
    if isinstance(value, str | Path):
        value = parse_json(read_bytes(value), value)
    value = {} if value is None else value
    if not isinstance(value, Mapping) or not all(isinstance(entry, list | tuple) for entry in value.values()):
        raise PateError("categories and scales must map a column's name to a list; see docs/data.md")
    return value


def _assemble(
    raw: Mapping[str, Raw],
    class_names: tuple[str, ...],
    numbered: bool,
    categories: Mapping[str, Sequence],
    scales: Mapping[str, Sequence],
) -> Dataset:
    inputs, preprocessing, notes, plan = _inputs(raw, categories, scales)
    parts = {}
    for name, file in raw.items():
        given = file.labels
        if given is not None:
            given = labels.whole(given, name) if numbered else labels.named(given, class_names, name)
        rows = numbered_ids("row", np.arange(len(inputs[name])))
        parts[name] = Part(
            inputs[name], given, rows if file.ids is None else file.ids, file.users, file.features
        )
    trial = any(file.trial for file in raw.values())
    warn(trial_mark.SENTENCE if trial else None)
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
        ids_are="rows" if raw["private"].ids is None or raw["private"].numbered else "given",
        trial=trial,
        show_public=False,  # unless the owner says so
    )


def _inputs(
    raw: Mapping[str, Raw], categories: Mapping[str, Sequence], scales: Mapping[str, Sequence]
) -> tuple[dict[str, np.ndarray], Preprocessing, dict[str, dict], tuple[columns.Column, ...]]:
    """The array of each part, the preprocessing, counts over private rows, and the columns."""
    read = {name: file.inputs for name, file in raw.items() if isinstance(file.inputs, tables.Table)}
    if read:
        unread = _left_out(read["public"], {**categories, **scales})
        read = {
            part: table.only(name for name in table if name not in unread) for part, table in read.items()
        }
        plan = columns.plan(read["public"], categories, scales)
        encoded = {name: columns.encode(table, plan, name) for name, table in read.items()}
        for name, table in read.items():
            columns.refuse_other_spellings(table, plan, name)
        counted: dict[str, dict] = {
            "unseen_categories": columns.unseen(read["private"], plan),
            "missing_values": columns.filled(read["private"], plan),
        }
        notes = {name: counts for name, counts in counted.items() if counts}
        _warn_of_strangers(read["private"], plan)
        for name, value in columns.drowned(encoded["public"], plan).items():
            warn(
                f"the public part has {value:g} in the column {name!r}, beside which all other numbers there "
                "are alike: correct that value, or declare the column's --scales"
            )
        return encoded, columns.preprocessing(encoded["public"], plan), notes, tuple(plan)
    arrays = {name: np.asarray(file.inputs) for name, file in raw.items()}
    if arrays["public"].dtype == np.uint8 and arrays["public"].ndim == 4:
        pixels = {name: _pixels(array, name) for name, array in arrays.items()}
        return pixels, Preprocessing((0.0,), (255.0,)), {}, ()
    arrays = {name: in_float32(array) for name, array in arrays.items()}
    for name, array in arrays.items():
        if array.ndim == 0 or len(array) or name != "private":  # a pool has no private records
            check_inputs(name, array)
    return arrays, columns.standard(arrays["public"]), {}, ()


def _warn_of_strangers(private: tables.Table, plan: Sequence[columns.Column]) -> None:
    """Tell the owner, and nobody else, of columns most of whose values are in no known category."""
    for name, count in columns.unseen(private, plan).items():
        present = len(private[name]) - int(tables.missing(private[name]).sum())
        if 2 * count > present:
            warn(
                f"{count:,} of {present:,} private values of the column {name!r} are in no known category "
                "and teach nothing: write them as the public part does, or declare --categories"
            )


def _pixels(array: np.ndarray, name: str) -> np.ndarray:
    """Images as the public ones are stored, whole numbers from 0 to 255; others are refused.

    One image of another type gives a whole array that type, and must not change how all others are read.
    """
    if array.dtype == np.uint8 or array.ndim != 4:  # other shapes are refused with all others
        return array
    with np.errstate(invalid="ignore"):
        found = array.astype(np.uint8)
    if not np.array_equal(found, array):
        raise PateError(
            f"the {name} images are {array.dtype} and hold other numbers than whole ones from 0 to 255, and "
            "the public images are uint8: give all of them alike"
        )
    return found


def _left_out(public: tables.Table, declared: Mapping[str, Sequence]) -> list[str]:
    """The columns that are not learned from, which is said on the terminal."""
    found = columns.left_out(public, declared)
    if len(found) == len(public):
        raise PateError(
            f"no column is left to learn from: {next(iter(found))!r} has {next(iter(found.values()))}; "
            "declare the categories of a column, or give numbers"
        )
    for name, why in found.items():
        say(f"the column {name!r} is left out: {why} (declare its --categories to keep it)")
    return [*found]
