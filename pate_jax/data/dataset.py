"""A dataset: private records, public inputs, a test part, and constants that scale the inputs.

Every record has its own id. If the records of one person must stay together, a part also names the user of
each record. Preprocessing consists of constants or of statistics of public data, never of private records.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from pate_jax.data import duplicates
from pate_jax.data.targets import Target
from pate_jax.errors import PateError, at_least

IMAGE_RANKS, TABLE_RANKS = (4,), (2,)
# Private ids come from the owner (`given`; they may still be row numbers), never change, or are row numbers.
Ids = Literal["given", "stable", "rows"]


class Part(NamedTuple):
    """Records: their inputs, labels, ids, users and features, row by row."""

    inputs: np.ndarray  # uint8 [n, height, width, channels] or float32 [n, features]
    labels: np.ndarray | None  # int32 [n]
    ids: np.ndarray  # text [n], all different
    users: np.ndarray | None = None  # text [n]: the user of each record
    features: np.ndarray | None = None  # float32 [n, features]: what the owner's encoder made of each input

    def take(self, rows: Any) -> Part:
        """The records at these rows.

        >>> part = Part(np.zeros((3, 2), np.float32), None, np.array(["a", "b", "c"]))
        >>> part.take([2, 0]).ids.tolist()
        ['c', 'a']
        """
        there = {name: column for name, column in self._asdict().items() if column is not None}
        return self._replace(**{name: column[rows] for name, column in there.items()})

    @property
    def contents(self) -> list[np.ndarray | None]:
        """What records hold, as a certificate digests it: whatever a vote may depend on."""
        return [self.inputs, self.labels, *([] if self.features is None else [self.features])]

    def encoded(self) -> Part:
        """The same records with their features for inputs, as the space `encoder` takes them.

        >>> part = Part(np.zeros((2, 9)), None, np.array(["a", "b"]), features=np.ones((2, 3)))
        >>> part.encoded().inputs.shape
        (2, 3)
        """
        if self.features is None:
            raise PateError(
                "the records have no features: give an array `features` beside `inputs` in each .npz, or "
                "name the encoder that makes them (module:function)"
            )
        return self._replace(inputs=self.features, features=None)


@dataclass(frozen=True)
class Preprocessing:
    """`x -> (x - offset) / scale` over the last axis, by constants or public statistics.

    >>> Preprocessing((0.0,), (4.0,)).apply(np.array([[1, 2]], np.uint8)).tolist()
    [[0.25, 0.5]]
    """

    offset: tuple[float, ...]
    scale: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.offset) != len(self.scale):
            raise PateError(
                f"offset has {len(self.offset)} numbers and scale {len(self.scale)}; make them equal"
            )
        if not all(np.isfinite([*self.offset, *self.scale])) or not all(self.scale):
            raise PateError(f"scale={self.scale} and offset must be finite and scale must not be 0")

    def apply(self, inputs: Any) -> Any:
        """Scale a NumPy or JAX array; the result is float32."""
        offset, scale = (np.array(values, np.float32) for values in (self.offset, self.scale))
        return (inputs.astype(np.float32) - offset) / scale


@dataclass(frozen=True)
class WithVectors(Preprocessing):
    """That of a table whose last features are an encoder's, which spaces take as they are."""

    encoded: int = 0  # how many


AS_STORED = Preprocessing((0.0,), (1.0,))


class Scanned(Protocol):
    """What a data set asks of a private part in several files, of which a batch is in memory at a time."""

    @property
    def digest(self) -> str:
        """One digest of all files, whatever their names and order."""

    @property
    def shared(self) -> Part:
        """The records whose input, id or user a public part has too."""

    @property
    def sample(self) -> np.ndarray:
        """The inputs of some records."""

    @property
    def count_up(self) -> Set[str]:
        """Of `ids` and `users`, which are row numbers in the order of the files."""

    def check(self) -> None:
        """Refuse files that were changed since the data set was opened."""

    def inputs(self) -> Iterator[np.ndarray]:
        """The inputs of all records, batch by batch."""

    def names(self, least: int, but: Set[str]) -> Set[str]:
        """The ids and users of at least so many letters, without some."""


class _Hidden:
    """In place of a column of private records."""

    def _refuse(self, *_: Any) -> Any:
        raise PateError(
            "private records are read here, where only public inputs and releases may be: read those that "
            "`count` is given, in `count` alone"
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # which Python asks of any object
            raise AttributeError(name)
        self._refuse()

    __array__ = __getitem__ = __len__ = __iter__ = __eq__ = _refuse
    __hash__ = None  # type: ignore[assignment]


_HIDDEN: Any = _Hidden()


@dataclass(frozen=True)
class Dataset:
    """A private part for the teachers, a public part for the queries, and a test part.

    >>> from pate_jax import data
    >>> drawn = data.load("strokes", size=30)
    >>> len(drawn.private.labels), drawn.classes, drawn.input_shape
    (30, 10, (28, 28, 1))
    """

    name: str
    kind: str  # "image" or "table"
    private: Part
    public: Part  # its labels, where known, judge and measure, and teach nobody
    test: Part | None
    classes: int
    class_names: tuple[str, ...]
    preprocessing: Preprocessing
    synthetic: bool
    description: str
    private_notes: Mapping[str, Any] = field(default_factory=dict)  # from private rows: never publish
    # Inputs that are both private and public: refused, declared coincidences, or part of a published archive.
    equal_rows: Literal["refused", "declared", "published"] = "refused"
    equal_ids: Literal["refused", "declared"] = "refused"  # that name different people in two parts
    columns: tuple[Any, ...] = ()  # of a table read from text: what `data.columns` made of each column
    ids_are: Ids = "given"  # `pate_jax.data.relation` derives from it whom the guarantee covers
    trial: bool = False  # whether its parts are those of one private file, by the mark of `pate split`
    target: Target | None = None  # where labels are steps of a number's range, and classes its two ends
    # Of several labels, each with its two classes: a record's label is a number with a bit for each.
    several: tuple[tuple[str, tuple[str, ...]], ...] = ()
    # Hashes of what private inputs do not hold as it was: a register knows people again by them.
    unread: tuple[np.ndarray, ...] = ()
    scan: Any = None  # a `Scanned`, where private ones lie in several files; `private` knows shapes alone
    show_public: bool = True  # whether public rows may go into a release; an owner's own only if she says so

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one record's input."""
        return self.public.inputs.shape[1:]

    def seen_in(self, space: str, encoder: str = "") -> Dataset:
        """The data set as a space sees it: `encoder` without a function takes features for inputs."""
        if space != "encoder" or encoder:
            return self
        test = None if self.test is None else self.test.encoded()
        return replace(self, private=self.private.encoded(), public=self.public.encoded(), test=test)

    @property
    def without_records(self) -> Dataset:
        """The data set for whoever may not read private records: even their number is not in it."""
        kept: dict[str, Any] = {
            name: None if part is None else _HIDDEN for name, part in self.private._asdict().items()
        }
        return replace(self, private=Part(**kept), private_notes={}, scan=None, unread=())

    @cached_property
    def private_digests(self) -> tuple[str, ...]:
        """A digest of each private input, computed once; an input with one of these must not be public."""
        part = self.private if self.scan is None else self.scan.shared
        return tuple(duplicates.digests(part.inputs))


def check(dataset: Dataset) -> Dataset:
    """The dataset, checked; a PateError says what is wrong with it.

    The number of classes, the shape of an input and the kind are public, and every part must agree with them.
    """
    at_least(
        2,
        ": if the public labels show only one, name all of them, such as --classes no,yes",
        classes=dataset.classes,
    )
    if len(dataset.class_names) != dataset.classes:
        raise PateError(f"{len(dataset.class_names)} class names are given for classes={dataset.classes}")
    for name, part in (("private", dataset.private), ("public", dataset.public), ("test", dataset.test)):
        if part is not None:
            if name != "private" or dataset.scan is None:  # whose records were checked as they were read
                check_part(name, part, dataset.classes if dataset.target is None else None)
            if part.inputs.shape[1:] != dataset.input_shape:
                raise PateError(
                    f"{name} inputs have shape {part.inputs.shape[1:]} and public inputs "
                    f"{dataset.input_shape}; give the records of all parts the same shape"
                )
    if dataset.private.labels is None:
        raise PateError("private has no labels; teachers learn from labels")
    _check_features(dataset)
    return dataset


def _check_features(dataset: Dataset) -> None:
    """Features are there for all parts or for none, and of one width."""
    named = {"private": dataset.private, "public": dataset.public, "test": dataset.test}
    parts = {name: part.features for name, part in named.items() if part is not None}
    shapes = {name: None if found is None else found.shape[1:] for name, found in parts.items()}
    if len(set(shapes.values())) > 1:
        sizes = ", ".join(f"{name} {'none' if has is None else list(has)}" for name, has in shapes.items())
        raise PateError(f"features of each record: {sizes}; give all parts the same number, or none")
    for name, found in parts.items():
        if found is not None:
            _check_finite(f"{name} features", found)


def check_part(name: str, part: Part, classes: int | None) -> None:
    """Refuse a part whose columns do not fit together, or labels beyond the classes, if it has classes."""
    check_inputs(name, part.inputs)
    rows = len(part.inputs)
    for column, values in part._asdict().items():
        if values is not None and len(values) != rows:
            raise PateError(f"{name} has {len(values)} {column} for {rows} inputs; give one for each record")
    if part.labels is not None and classes is not None:
        _check_labels(name, part.labels, classes)
    check_blanks(name, "id", part.ids)
    if part.users is not None:
        check_blanks(name, "user", part.users)
    _check_ids(name, part.ids)


def check_inputs(name: str, inputs: np.ndarray) -> None:
    """Refuse inputs that are neither images nor tables, and NaN or infinity."""
    if inputs.ndim and len(inputs) == 0:
        raise PateError(f"{name} holds no records; give at least one")
    if inputs.ndim not in (*IMAGE_RANKS, *TABLE_RANKS) or 0 in inputs.shape:
        raise PateError(
            f"{name} inputs have shape {inputs.shape}; give images as [n, height, width, channels] "
            "or tables as [n, features]"
        )
    if inputs.dtype.kind == "f":
        _check_finite(f"{name} inputs", inputs)


def _check_finite(name: str, numbers: np.ndarray) -> None:
    finite = np.isfinite(numbers.reshape(len(numbers), -1)).all(1)
    if not finite.all():
        raise PateError(
            f"{name} hold NaN or infinity in {len(numbers) - finite.sum()} records "
            f"(first at row {int(np.argmin(finite))}); fill or remove them"
        )


def stored_as(inputs: np.ndarray, dtype: np.dtype, place: str) -> np.ndarray:
    """The inputs in the type in which the run stores its own, so that an input has one form and one digest.

    Whole numbers from 0 to 255 of any type can be stored as bytes; anything else is refused, never rounded.

    >>> stored_as(np.array([[0.0, 255.0]], np.float32), np.dtype(np.uint8), "pool.npz").tolist()
    [[0, 255]]
    """
    if dtype == np.uint8 and inputs.dtype != np.uint8:
        wrong = inputs[~((inputs >= 0) & (inputs <= 255) & (inputs == np.floor(inputs)))]
        if wrong.size:
            raise PateError(
                f"{place} has inputs of {wrong[0]:g}, but those of this run are whole numbers from 0 to 255: "
                "give pixels in their stored form, without any scaling"
            )
    return inputs.astype(dtype)


def _check_labels(name: str, labels: np.ndarray, classes: int) -> None:
    outside = (labels < 0) | (labels >= classes)
    if outside.any():
        row = int(np.argmax(outside))
        raise PateError(
            f"{name} label {labels[row]} at row {row} is outside 0..{classes - 1}; "
            "number the classes from 0, or declare classes"
        )


def check_blanks(name: str, what: str, names: np.ndarray) -> None:
    """Refuse records without an id, or without a user."""
    blank = np.flatnonzero(names == "")
    if len(blank):
        raise PateError(
            f"{name} has no {what} in {len(blank)} records (first at row {blank[0]}), which would count "
            f"as one {what}'s: fill in each, or remove these records"
        )


def _check_ids(name: str, ids: np.ndarray) -> None:
    if len(set(ids.tolist())) != len(ids):
        values, counts = np.unique(ids, return_counts=True)
        raise PateError(
            f"{name} has the id {str(values[np.argmax(counts)])!r} {counts.max()} times; "
            "give each record its own id (zeros before a whole number do not count)"
        )


def numbered_ids(prefix: str, numbers: Any) -> np.ndarray:
    """Ids made of a prefix and the number of a record in its archive.

    >>> numbered_ids("mnist-train", [0, 7]).tolist()
    ['mnist-train-0', 'mnist-train-7']
    """
    return np.array([f"{prefix}-{number}" for number in np.asarray(numbers).tolist()], dtype=np.str_)


def class_names_of(classes: int) -> tuple[str, ...]:
    """Names for classes that have none: their numbers.

    >>> class_names_of(3)
    ('0', '1', '2')
    """
    return tuple(str(label) for label in range(classes))


def slug(name: str) -> str:
    """A name for a folder: lower case, with hyphens in place of everything but letters and digits.

    >>> slug("My table (2).csv")
    'my-table-2-csv'
    """
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
