"""A private table in several files, of which a batch is in memory at a time.

Everything that is asked of such a table is a map over its files and a sum: a pure function of a file's path
and of public things gives whole numbers, and these add up exactly, in any order and anywhere. The first map
is the survey, when a table is opened: it checks every record by the rules of a table in memory, counts, and
finds what the private part shares with others. A file that was changed since then is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Int, UInt64

from pate_jax.data import ids, labels, table_files
from pate_jax.data.columns import Column
from pate_jax.data.table_files import Encoded, Stamp
from pate_jax.data.tables import Table
from pate_jax.errors import PateError

if TYPE_CHECKING:
    import pyarrow as pa

_PLAIN = "^[0-9._:/-]*[A-Za-z][A-Za-z0-9._:/-]*$"


class Reading(NamedTuple):
    """How a table is read, by public things alone: a map over its files needs nothing else."""

    plan: tuple[Column, ...]
    label_column: str
    id_column: str | None
    user_column: str | None
    class_names: tuple[str, ...]
    numbered: bool  # whether labels are the numbers of classes

    @property
    def width(self) -> int:
        """How many features a record has."""
        return sum(column.width for column in self.plan)

    @property
    def roles(self) -> dict[str, str]:
        """The columns of labels, ids and users."""
        named = {"labels": self.label_column, "ids": self.id_column, "users": self.user_column}
        return {role: name for role, name in named.items() if name is not None}


@dataclass(frozen=True)
class Batch:
    """Some records of a file that come one after another; each kind of column is read when it is wanted."""

    content: pa.RecordBatch | Table
    reading: Reading
    path: Path
    first: int  # the row of its first record in the file

    @property
    def place(self) -> str:
        """What messages call it."""
        return f"{self.path} (rows counted from {self.first:,})"

    def __len__(self) -> int:
        content = self.content
        return len(next(iter(content.values()))) if isinstance(content, Table) else content.num_rows

    @cached_property
    def encoded(self) -> Encoded:
        """The features, and what of them was missing or unknown."""
        return table_files.encode(self.content, self.reading.plan, self.place)

    @property
    def inputs(self) -> np.ndarray:
        """The features."""
        return self.encoded.inputs

    @cached_property
    def labels(self) -> Int[np.ndarray, " record"]:
        """The labels as numbers of classes."""
        name, content = self.reading.label_column, self.content
        if isinstance(content, Table):
            return self._numbers(np.array(content[name], np.str_))
        own = table_files.different(content.column(name), name, self.place)
        try:
            return np.asarray(self._numbers(np.array(own.table[name], np.str_))[own.codes])
        except PateError:
            whole = table_files.as_texts(content, [name], self.place)[name]
            return self._numbers(np.array(whole, np.str_))

    def _numbers(self, texts: np.ndarray) -> Int[np.ndarray, " record"]:
        place, classes = self.place, self.reading.class_names
        if not self.reading.numbered:
            return labels.named(texts, classes, place)
        found = labels.whole(texts, place)
        outside = np.flatnonzero((found < 0) | (found >= len(classes)))
        if len(outside):
            raise PateError(
                f"{place} has the label {texts[outside[0]]} at row {outside[0]}, which is outside "
                f"0..{len(classes) - 1}; number the classes from 0, or declare classes"
            )
        return found

    @cached_property
    def ids(self) -> np.ndarray:
        """The ids as texts."""
        name, content = self.reading.id_column, self.content
        if name is None:
            raise PateError(f"{self.path} has no column of ids: name it with --id-column")
        if isinstance(content, Table):
            return ids.of_table(content.only([name]), name, self.place)
        if _are_plain(content.column(name)):
            return np.array(content.column(name).to_pylist(), np.str_)
        return ids.of_table(table_files.as_texts(content, [name], self.place), name, self.place)

    @property
    def whole_ids(self) -> np.ndarray | None:
        """The ids as whole numbers, where their column is one of these and lacks none."""
        name, content = self.reading.id_column, self.content
        return None if name is None or isinstance(content, Table) else _whole(content.column(name))

    @cached_property
    def users(self) -> Units:
        """Whose the records are."""
        name, content = self.reading.user_column, self.content
        if name is None:
            raise PateError(f"{self.path} has no column of users: name it with --user-column")
        if isinstance(content, Table):
            return Units.of(ids.of_table(content.only([name]), name, self.place))
        whole = _whole(content.column(name))
        if whole is not None:
            numbers, codes = np.unique(whole, return_inverse=True)
            return Units(np.array([str(one) for one in numbers.tolist()], np.str_), codes)
        if _are_plain(content.column(name)):
            return Units.of(np.array(content.column(name).to_pylist(), np.str_))
        own = table_files.different(content.column(name), name, self.place)
        try:
            return Units.of(ids.of_table(own.table, name, self.place), own.codes)
        except PateError:
            return Units.of(ids.of_table(table_files.as_texts(content, [name], self.place), name, self.place))

    @property
    def letters(self) -> dict[str, int]:
        """How many letters the longest id has, and the longest user."""
        found, whole = {}, self.whole_ids
        if whole is not None:
            found["ids"] = max(len(str(whole.min())), len(str(whole.max())))
        elif self.reading.id_column is not None:
            found["ids"] = self.ids.dtype.itemsize // 4
        if self.reading.user_column is not None:
            found["users"] = self.users.names.dtype.itemsize // 4
        return found


class Units(NamedTuple):
    """The different users of some records, and which of them each record is of."""

    names: np.ndarray
    codes: Int[np.ndarray, " record"]

    @classmethod
    def of(cls, names: np.ndarray, codes: Int[np.ndarray, " record"] | None = None) -> Units:
        """The users with these names, record by record, or of records with the names at these places.

        >>> found = Units.of(np.array(["b", "a", "b"]))
        >>> found.names.tolist(), found.each.tolist()
        (['a', 'b'], ['b', 'a', 'b'])
        """
        own, place = np.unique(names, return_inverse=True)
        return cls(own, place if codes is None else place[codes])

    @property
    def each(self) -> np.ndarray:
        """The user of each record."""
        return np.asarray(self.names[self.codes])

    def digests(self) -> UInt64[np.ndarray, "user 2"]:
        """Of each user 128 bits, by which it is told from all others."""
        texts = (one.encode(errors="surrogatepass") for one in self.names.tolist())
        made = b"".join(hashlib.blake2b(one, digest_size=16).digest() for one in texts)
        return np.frombuffer(made, "<u8").astype(np.uint64).reshape(-1, 2)


def _whole(values: pa.Array) -> np.ndarray | None:
    """The values of a column, where they are whole numbers and none is missing."""
    from pyarrow import types

    return values.to_numpy() if types.is_integer(values.type) and not values.null_count else None


def _are_plain(values: pa.Array) -> bool:
    """Whether all values are texts that are ids as they stand: with a letter, and without blanks."""
    from pyarrow import compute, types

    if not types.is_string(values.type) or values.null_count:
        return False
    return bool(compute.all(compute.match_substring_regex(values, _PLAIN)).as_py())


class Beyond:
    """In place of a column of private records that are not all in memory: it knows its shape alone."""

    def __init__(self, shape: tuple[int, ...], dtype: Any, place: str) -> None:
        self.shape, self.dtype, self.ndim, self._place = shape, np.dtype(dtype), len(shape), place

    def __len__(self) -> int:
        return self.shape[0]

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise PateError(
            f"{self._place} is read a batch at a time, and this needs all private records in memory: give "
            "one file that fits into memory, or do without"
        )

    __array__ = __getitem__ = __iter__ = __eq__ = __lt__ = __ge__ = __add__ = __getattr__ = _refuse  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True)
class Scan:
    """The files of a table and how they are read, with the digest that each had when it was surveyed."""

    files: tuple[Path, ...]
    reading: Reading
    place: str  # what the owner named, for messages
    digests: Mapping[Path, str] = field(default_factory=dict)
    stamps: Mapping[Path, Stamp] = field(default_factory=dict)

    def batches(self, path: Path) -> Iterator[Batch]:
        """The records of one file, so many at a time; refused in the end where the file was changed."""
        before = Stamp.of(path)
        first = 0
        wanted = {*(column.name for column in self.reading.plan), *self.reading.roles.values()}
        for content in table_files.batches(path, sorted(wanted)):
            batch = Batch(content, self.reading, path, first)
            first += len(batch)
            if len(batch):
                yield batch
        self._refuse_changed(path, before)

    def _refuse_changed(self, path: Path, before: Stamp) -> None:
        known = self.digests.get(path)
        if Stamp.of(path) != before or (known is not None and table_files.digest(path) != known):
            raise PateError(
                f"{path} was changed while it was read, or since the run read it first: restore it, or begin "
                "again when nobody writes to it"
            )

    def check(self) -> None:
        """Refuse files that were changed since the survey; those that nobody wrote to are not read again."""
        for path, before in self.stamps.items():
            if Stamp.of(path) != before:
                self._refuse_changed(path, Stamp.of(path))

    @property
    def digest(self) -> str:
        """One digest of all files, whatever their names and order."""
        return hashlib.sha256("".join(sorted(self.digests.values())).encode()).hexdigest()

    def names(self) -> Iterator[Batch]:
        """Batches of which ids and users alone may be read."""
        named = [name for role, name in self.reading.roles.items() if role != "labels"]
        for path in self.files if named else ():
            first = 0
            for content in table_files.batches(path, named):
                batch = Batch(content, self.reading, path, first)
                first += len(batch)
                yield batch


class Names(Set[str]):
    """The ids and users of all records, as a set of which a batch is in memory at a time."""

    def __init__(self, scan: Scan, records: int, least: int, but: Set[str]) -> None:
        self._scan, self._records, self._least, self._but = scan, records, least, but

    def __len__(self) -> int:
        return self._records

    def __iter__(self) -> Iterator[str]:
        reading = self._scan.reading
        for batch in self._scan.names():
            listed = [] if reading.id_column is None else batch.ids.tolist()
            listed += [] if reading.user_column is None else batch.users.names.tolist()
            long = (name for name in listed if len(name) >= self._least)
            yield from (name for name in long if name not in self._but)

    def __contains__(self, name: object) -> bool:
        return any(name == one for one in self)

    def __rand__(self, others: Set[Any]) -> set[Any]:  # type: ignore[override]
        return {name for name in self if name in others}

    __and__ = __rand__  # type: ignore[assignment]
