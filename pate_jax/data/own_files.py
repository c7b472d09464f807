"""The user's own data: .npz archives of arrays, tables in .csv, .parquet or .xlsx, and folders of images.

The rules that turn a row into numbers (classes, categories, scales) are declared by the user or taken from
the public part, never from private rows: if they came from private rows, adding or removing one record could
change all teachers. A private value outside the known categories becomes a group of zeros.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from pate_jax.data import (
    columns,
    encoders,
    fingerprints,
    folders,
    kinds,
    labels,
    notes,
    overlap,
    relation,
    survey,
    table_files,
    tables,
    texts,
    trial_mark,
)
from pate_jax.data.dataset import (
    Dataset,
    Part,
    Preprocessing,
    check,
    check_inputs,
    check_part,
    numbered_ids,
)
from pate_jax.data.raw import Raw, classes_of, in_float32, of_arrays, of_table, with_numbers, without
from pate_jax.errors import PateError
from pate_jax.system.progress import say, warn
from pate_jax.system.storage import parse_json, read_bytes
from pate_jax.system.tasks import HERE, Engine

File = Path | str
Kind = Literal["arrays", "table", "folder"]
Declared = Mapping[str, Sequence] | File | None  # a mapping, or a JSON file of one
_PACKED = (".gz", ".zip", ".bz2", ".xz", ".zst")


class _Read(NamedTuple):
    """Which columns an encoder reads, and which encoder."""

    columns: str | Sequence[str] | None
    encoder: str
    keep: Path | None = None  # a folder for what a slow one makes


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
    text_column: str | Sequence[str] | None = None,
    encoder: str = "",
    leave_out: str | Sequence[str] | None = None,
    target: str | None = None,
    target_range: str | None = None,
    ids_are_stable: bool = False,
    equal_rows_are_coincidences: bool = False,
    equal_ids_are_coincidences: bool = False,
    show_public: bool = False,
    test_is_private: bool = False,
    keep: Path | None = None,
    engine: Engine = HERE,
) -> Dataset:
    """A dataset from the user's files: all .npz, all tables (.csv, .parquet, .xlsx), or all folders.

    An .npz holds `inputs`, `labels`, optional `ids` and `users`, and optional `features`. A folder holds a
    folder of images for each class, resized to `image_size`. `classes` is their number or names; unset, they
    follow from public labels. A `target` is a number in their place, within `target_range`. `categories` maps
    a column to its values and `scales` one to (offset, scale, filling); the public part decides about others.
    `encoder` reads `text_column`; nothing is learned from `leave_out`. A private table in several files is
    looked at by an `engine`.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "mine.csv").write_text("id,age,sick\\na,30,yes\\nb,40,no\\n")
    >>> _ = (folder / "pool.csv").write_text("age,sick\\n20,no\\n60,yes\\n")
    >>> clinic = from_files(folder / "mine.csv", folder / "pool.csv", label_column="sick", id_column="id")
    >>> clinic.class_names, clinic.private.inputs.tolist(), clinic.preprocessing.offset
    (('no', 'yes'), [[30.0], [40.0]], (40.0,))
    """
    files, several = _given(private=private, public=public, test=test), table_files.are_several(private)
    named = {"labels": label_column or target, "ids": id_column, "users": user_column}
    read, gone = _Read(text_column, encoder, keep), texts.named(leave_out, "leave_out")
    raw = without(_read(files, named, image_size, read, several), gone)
    values, scaled = declared(categories, gone), declared(scales, gone)
    classes = values.pop(label_column or "", None) if classes is None else classes
    if several and target:
        raise PateError(f"--target {target} needs private records in one file, not several: {private}")
    hidden = ("private", "test") if test_is_private else ("private",)
    raw, said = with_numbers(raw, target, target_range) if target else (raw, classes_of(raw, hidden, classes))
    dataset = _assemble(raw, said, values, scaled, read)
    _check_has_ids(ids_are_stable, raw["private"], private)
    if several:
        dataset = survey.opened(dataset, files["private"], named, said.numbered, ids_are_stable, engine)
    places, same = {part: str(path) for part, path in files.items()}, equal_ids_are_coincidences
    dataset = replace(relation.declared(check(dataset), ids_are_stable), show_public=show_public)
    return overlap.declared(dataset, equal_rows_are_coincidences, places, ids_coincide=same)


def _given(**paths: File | None) -> dict[str, Path]:
    """The files of the parts that are given."""
    return {name: Path(path).expanduser() for name, path in paths.items() if path is not None}


def _check_has_ids(stable: bool, raw: Raw, private: File) -> None:
    """Refuse a word about ids where there are none."""
    if stable and raw.ids is None:
        raise PateError(
            f"--ids-are-stable speaks of ids, and {private} has none: give ids (a column that --id-column "
            "names, or the array ids of an .npz), or leave it out"
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
    text_column: str | Sequence[str] | None = None,
    encoder: str = "",
) -> Dataset:
    """What `from_files` makes of the same public files, with no private record in it.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "pool.csv"
    >>> _ = path.write_text("age,sick\\n20,no\\n60,yes\\n")
    >>> clinic = public_parts(path, label_column="sick")
    >>> len(clinic.private.inputs), clinic.public.inputs.tolist(), clinic.public.labels.tolist()
    (0, [[20.0], [60.0]], [0, 1])
    """
    files = _given(public=public, test=test)
    names, read = (
        {"labels": label_column, "ids": id_column, "users": user_column},
        _Read(text_column, encoder),
    )
    raw = _read(files, names, image_size, read)
    if label_column is not None and isinstance(raw["public"].inputs, dict) and raw["public"].labels is None:
        say(f"{public} has no column {label_column!r}: its rows have no labels")
    values = declared(categories)
    if label_column in values and classes is None:
        classes = values.pop(label_column)
    known = [part.labels for part in raw.values() if part.labels is not None]
    said = labels.Known(*labels.classes(known, classes))
    parts = {**raw, "private": raw["public"].without_records()}
    dataset = _assemble(parts, said, values, declared(scales), read)
    for name, part in (("public", dataset.public), ("test", dataset.test)):
        if part is not None:
            check_part(name, part, dataset.classes)
    return dataset


def kind_of(paths: Collection[Path]) -> Kind:
    """What the user's files are, all alike; a path that is not there is judged by its name."""
    kinds: dict[str, Kind] = {".npz": "arrays", **dict.fromkeys(tables.SUFFIXES, "table")}
    found = {"folder" if path.is_dir() else kinds.get(path.suffix.lower()) for path in paths}
    for path in paths:
        table_files.refuse_several(path)
        if not path.exists():
            raise PateError(f"{path} does not exist")
    packed = [str(path) for path in paths if path.suffix.lower() in _PACKED and path.is_file()]
    if packed:
        raise PateError(f"{', '.join(packed)}: unpack it first, and name the file inside")
    kind = found.pop()
    if found or kind is None:
        raise PateError(
            f"{', '.join(map(str, paths))}: give all parts as .npz, all as tables "
            f"({', '.join(tables.SUFFIXES)}), or all as folders of images"
        )
    return kind


def _read(
    files: Mapping[str, Path],
    names: Mapping[str, str | None],
    image_size: int | None,
    encoded: _Read,
    several: bool = False,
) -> dict[str, Raw]:
    """The content of every part; of a private one in several files there are no records yet."""
    there = {part: path for part, path in files.items() if not (several and part == "private")}
    kind = kind_of(there.values())
    if several and kind != "table":
        raise PateError(f"{files['private']} are tables, and {files['public']} is none: give all alike")
    photos = bool(encoded.encoder) and kind != "table" and encoders.reads_photos(encoded.encoder)
    if image_size is not None and kind != "folder" and not photos:
        raise PateError(f"--image-size {image_size} is for folders of images, and {files['public']} is none")
    if kind == "table":
        if names["labels"] is None and "private" in files:
            raise PateError(
                f"{files['private']} is a table: name the column of its labels with --label-column"
            )
        read = {part: of_table(path, names, part == "private") for part, path in there.items()}
        return {"private": survey.columns_of(files["private"], names), **read} if several else read
    reader = encoders.photos(encoded.encoder, image_size) if photos else None
    if kind == "arrays":
        arrays = {part: of_arrays(path) for part, path in files.items()}
        return (
            arrays
            if reader is None
            else {part: _seen(raw, reader, encoded.keep) for part, raw in arrays.items()}
        )
    if reader is not None:
        return {part: folders.encoded(path, reader, encoded.keep) for part, path in files.items()}
    shape = folders.shape_of(files["public"], image_size)
    return {part: folders.read(path, shape, image_size is not None) for part, path in files.items()}


def _seen(raw: Raw, reader: encoders.OfPhotos, keep: Path | None) -> Raw:
    """The photos of an array as an encoder sees them."""
    seen = folders.vectors(np.asarray(raw.inputs), reader, "inputs", keep)
    unread = (fingerprints.of_rows(np.asarray(raw.inputs)),)
    return raw._replace(inputs=seen, encoder=reader.known, unread=unread)


def declared(value: Declared, without: Sequence[str] = ()) -> dict[str, Sequence]:
    """The declared values by column, from a mapping or a JSON file of one, without some columns."""
    if isinstance(value, str | Path):
        value = parse_json(read_bytes(value), value)
    value = {} if value is None else value
    if not isinstance(value, Mapping) or not all(isinstance(entry, list | tuple) for entry in value.values()):
        raise PateError("categories and scales must map a column's name to a list; see docs/guide/data.md")
    return {name: one for name, one in value.items() if name not in without}


def _assemble(
    raw: Mapping[str, Raw],
    said: labels.Known,
    categories: Mapping[str, Sequence],
    scales: Mapping[str, Sequence],
    read: _Read,
) -> Dataset:
    inputs, preprocessing, told, plan = _inputs(raw, categories, scales, read)
    parts = {}
    for name, file in raw.items():
        given = file.labels
        if given is not None and said.target is None:
            given = labels.whole(given, name) if said.numbered else labels.named(given, said.names, name)
        rows = numbered_ids("row", np.arange(len(inputs[name])))
        parts[name] = Part(
            inputs[name], given, rows if file.ids is None else file.ids, file.users, file.features
        )
    own, unread = raw["private"].inputs, raw["private"].unread
    if isinstance(own, tables.Table):  # whose texts are there as their encoder sees them, or not at all
        unread += fingerprints.of_columns(own, but={one.name for one in plan if one.encoder is None})
    trial = any(file.trial for file in raw.values())
    warn(trial_mark.SENTENCE if trial else None)
    return Dataset(
        name="own",
        kind="image" if parts["private"].inputs.ndim == 4 else "table",
        private=parts["private"],
        public=parts["public"],
        test=parts.get("test"),
        classes=len(said.names),
        class_names=said.names,
        preprocessing=preprocessing,
        synthetic=False,
        description="the owner's own data",  # goes into the release, so it names no file
        private_notes=told,
        columns=plan,
        ids_are="rows" if raw["private"].ids is None or raw["private"].numbered else "given",
        trial=trial,
        target=said.target,
        unread=unread,
        show_public=False,  # unless the owner says so
    )


def _inputs(
    raw: Mapping[str, Raw],
    categories: Mapping[str, Sequence],
    scales: Mapping[str, Sequence],
    encoded: _Read,
) -> tuple[dict[str, np.ndarray], Preprocessing, dict[str, dict], tuple[columns.Column, ...]]:
    """The array of each part, the preprocessing, counts over private rows, and the columns."""
    read = {name: file.inputs for name, file in raw.items() if isinstance(file.inputs, tables.Table)}
    if read:
        return _of_tables(read, categories, scales, encoded)
    if raw["public"].encoder is not None and not encoded.columns:
        return _of_photos(raw)
    if encoded.columns or encoded.encoder:
        flag = f"--encoder {encoded.encoder}" if encoded.encoder else f"--text-column {encoded.columns}"
        raise PateError(f"{flag} is for tables that hold text, or for folders of photos: leave it out")
    arrays = {name: np.asarray(file.inputs) for name, file in raw.items()}
    if arrays["public"].dtype == np.uint8 and arrays["public"].ndim == 4:
        pixels = {name: _pixels(array, name) for name, array in arrays.items()}
        return pixels, Preprocessing((0.0,), (255.0,)), {}, ()
    arrays = {name: in_float32(array) for name, array in arrays.items()}
    for name, array in arrays.items():
        if array.ndim == 0 or len(array) or name != "private":  # a pool has no private records
            check_inputs(name, array)
    return arrays, columns.standard(arrays["public"]), {}, ()


def _of_photos(
    raw: Mapping[str, Raw],
) -> tuple[dict[str, np.ndarray], Preprocessing, dict[str, dict], tuple[columns.Column, ...]]:
    """The same of photos that were encoded: one column holds what was seen in each."""
    inputs = {name: np.asarray(file.inputs) for name, file in raw.items()}
    plan = (columns.Column("photo", encoder=raw["public"].encoder),)
    return inputs, columns.preprocessing(inputs["public"], plan), {}, plan


def _of_tables(
    read: dict[str, tables.Table],
    categories: Mapping[str, Sequence],
    scales: Mapping[str, Sequence],
    encoded: _Read,
) -> tuple[dict[str, np.ndarray], Preprocessing, dict[str, dict], tuple[columns.Column, ...]]:
    """The same of tables."""
    by = texts.known(read["public"], encoded.columns, encoded.encoder)
    unread = _left_out(read["public"], {**categories, **scales, **dict.fromkeys(by, ())})
    read = {part: table.only(name for name in table if name not in unread) for part, table in read.items()}
    plan = columns.plan(read["public"], categories, scales, by)
    inputs = {name: columns.encode(table, plan, name, encoded.keep) for name, table in read.items()}
    known = {column.name: column.categories for column in plan if column.categories is not None}
    for name, table in read.items():
        kinds.refuse_other_spellings(table, known, name)
    counted: dict[str, dict] = {
        "unseen_categories": notes.unseen(read["private"], plan),
        "missing_values": notes.filled(read["private"], plan),
    }
    told = {name: counts for name, counts in counted.items() if counts}
    present = {name: len(own) - int(tables.missing(own).sum()) for name, own in read["private"].items()}
    notes.warn_of_strangers(counted["unseen_categories"], present)
    for name, value in columns.drowned(inputs["public"], plan).items():
        warn(
            f"the public part has {value:g} in the column {name!r}, beside which all other numbers there "
            "are alike: correct that value, or declare the column's --scales"
        )
    return inputs, columns.preprocessing(inputs["public"], plan), told, tuple(plan)


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
            "name a column of free text with --text-column, declare the categories of one, or give numbers"
        )
    for name, why in found.items():
        remedy = f"--text-column {name} reads it" if "texts" in why else "declare its --categories to keep it"
        say(f"the column {name!r} is left out: {why} ({remedy})")
    return [*found]
