"""The first look at a private table in several files: every record is checked, and what follows is counted.

The survey of a file is a pure function of its path and of public things, and surveys add up. Of each record
8 bytes are kept, a hash of its id, so that an id that two files hold is found; records of equal hashes are
looked up and compared by their ids themselves.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int, UInt64

from pate_jax.data import duplicates, notes, overlap, relation, table_files, tables, trial_mark
from pate_jax.data.dataset import Dataset, Part, check_blanks, numbered_ids
from pate_jax.data.raw import Raw, each_by_itself
from pate_jax.data.scans import Batch, Beyond, Names, Reading, Scan
from pate_jax.data.table_files import Stamp
from pate_jax.data.tables import Table
from pate_jax.errors import PateError
from pate_jax.system.progress import track
from pate_jax.system.tasks import HERE, Engine

_MULTIPLIERS = np.random.default_rng(24).integers(1, 1 << 63, 4096, np.uint64) * np.uint64(2) + np.uint64(1)
_SAMPLE = 20_000  # records that are compared with public ones for near copies
_TELLING = 6  # columns of public inputs that private records are first compared in
_BUCKETS = 64  # of hashes, of which one is sorted at a time
_WHOLE = re.compile(r"-?[0-9]{1,20}")  # of 64 bits at most, as columns of whole numbers are

Hashes = UInt64[np.ndarray, " _"]


class Watch:
    """Inputs and names of public parts, with which private records are compared as they are read."""

    def __init__(self, others: Mapping[str, Part], stable: bool) -> None:
        inputs = np.concatenate([part.inputs for part in others.values()])
        self._digests = {*duplicates.digests(inputs)}
        different = [len(np.unique(column)) for column in inputs.T]
        self._telling = np.argsort(different)[-_TELLING:]  # columns, by which most records differ from all
        self._hashes = np.unique(hashes_of(inputs[:, self._telling]))
        self._names = frozenset[str]().union(
            *(overlap.forms_of_people(one.ids, stable) for one in others.values())
        )
        users = (one.users for one in others.values() if one.users is not None)
        self._users = frozenset[str]().union(*(overlap.forms_of_people(one, stable) for one in users))
        self._numbers = [int(one) for one in self._names if _WHOLE.fullmatch(one)]

    def rows(self, batch: Batch) -> Int[np.ndarray, " row"]:
        """The records whose input, id or user is also of a public part."""
        inputs = batch.inputs
        maybe = np.flatnonzero(np.isin(hashes_of(inputs[:, self._telling]), self._hashes))
        equal = [one in self._digests for one in duplicates.digests(inputs[maybe])]
        people = self._named(batch)
        if self._users and batch.reading.user_column is not None:
            people = people | overlap.named(batch.users.names, self._users)[batch.users.codes]
        return np.union1d(maybe[np.array(equal, bool)], np.flatnonzero(people))

    def _named(self, batch: Batch) -> Bool[np.ndarray, " record"]:
        if not self._names or batch.reading.id_column is None:
            return np.zeros(len(batch), bool)
        whole = batch.whole_ids
        if whole is not None:
            least, most = np.iinfo(whole.dtype).min, np.iinfo(whole.dtype).max
            return np.isin(
                whole, np.array([one for one in self._numbers if least <= one <= most], whole.dtype)
            )
        return overlap.named(batch.ids, self._names)


class Survey(NamedTuple):
    """What was found in a file, or in several."""

    records: int
    digests: Mapping[Path, str]
    stamps: Mapping[Path, Stamp]
    hashes: tuple[Hashes, ...]  # of ids
    users: tuple[Hashes, ...]  # that differ, of each file
    letters: Mapping[str, int]  # of the longest id and the longest user
    missing: Mapping[str, int]  # values of each column
    unseen: Mapping[str, int]  # values of each column that are in no known category
    shared: Part  # records whose input or id a public part has too
    sample: np.ndarray  # the inputs of some records

    def plus(self, other: Survey) -> Survey:
        """Both together."""
        return Survey(
            self.records + other.records,
            {**self.digests, **other.digests},
            {**self.stamps, **other.stamps},
            self.hashes + other.hashes,
            self.users + other.users,
            {role: max(most, other.letters[role]) for role, most in self.letters.items()},
            _added(self.missing, other.missing),
            _added(self.unseen, other.unseen),
            _joined(self.shared, other.shared),
            np.concatenate([self.sample, other.sample]),
        )


def _joined(some: Part, others: Part) -> Part:
    labels = np.concatenate([np.asarray(part.labels) for part in (some, others)])
    ids = np.concatenate([some.ids, others.ids])
    of = [part.users for part in (some, others) if part.users is not None]
    return Part(np.concatenate([some.inputs, others.inputs]), labels, ids, np.concatenate(of) if of else None)


def _added(some: Mapping[str, int], others: Mapping[str, int]) -> dict[str, int]:
    return {name: some.get(name, 0) + others.get(name, 0) for name in {**some, **others}}


def of_file(scan: Scan, path: Path, watch: Watch) -> Survey:
    """The survey of one file, whose records are checked by the rules of a table in memory."""
    found: list[Survey] = []
    before = Stamp.of(path)
    for batch in scan.batches(path):
        batch.labels  # noqa: B018  # checked now
        rows = watch.rows(batch)
        shared = Part(batch.inputs[rows], batch.labels[rows], _names(batch, rows), _users(batch, rows))
        some = 0 if found else max(1, _SAMPLE // len(scan.files))
        first = batch.inputs[:some].copy()  # a view would hold the whole batch
        own = () if scan.reading.id_column is None else (_hashes_of_ids(batch),)
        of = () if scan.reading.user_column is None else (_hashes_of_users(batch),)
        notes_of = batch.encoded.missing, batch.encoded.unseen
        found.append(Survey(len(batch), {}, {}, own, of, batch.letters, *notes_of, shared, first))
    if not found:
        raise PateError(f"{path} holds no records: remove it, or give at least one")
    own_digest = table_files.digest(path)
    if Stamp.of(path) != before:
        raise PateError(f"{path} was changed while it was read: begin again when nobody writes to it")
    total = _sum(found)
    users = () if scan.reading.user_column is None else (np.unique(np.concatenate(total.users)),)
    return total._replace(digests={path: own_digest}, stamps={path: before}, users=users)


def _names(batch: Batch, rows: Int[np.ndarray, " row"]) -> np.ndarray:
    if batch.reading.id_column is None:
        return numbered_ids("row", batch.first + rows)
    return batch.ids[rows] if len(rows) else np.array([], np.str_)


def _users(batch: Batch, rows: Int[np.ndarray, " row"]) -> np.ndarray | None:
    return None if batch.reading.user_column is None else batch.users.each[rows]


def _sum(surveys: Sequence[Survey]) -> Survey:
    total = surveys[0]
    for one in surveys[1:]:
        total = total.plus(one)
    return total


class People(NamedTuple):
    """The users of a table. Two of ten million have equal hashes with a chance of 3 in a million."""

    number: int
    digest: str


@dataclass(frozen=True)
class Surveyed:
    """A table that was surveyed: its files as they were then, and what was found in all of them."""

    scan: Scan
    survey: Survey
    people: People | None  # where records name users

    @property
    def part(self) -> Part:
        """The private part, of which the shapes alone are known."""
        records, width = self.survey.records, self.scan.reading.width
        shapes = [((records, width), np.float32), ((records,), np.int32), ((records,), np.str_)]
        shapes += [] if self.people is None else [((records,), np.str_)]
        return Part(*(Beyond(shape, kind, self.scan.place) for shape, kind in shapes))  # type: ignore[arg-type]

    @property
    def notes(self) -> dict[str, dict]:
        """What an owner is told of the values, and nobody else."""
        counted: dict[str, dict] = {
            "unseen_categories": {name: count for name, count in self.survey.unseen.items() if count},
            "missing_values": notes.told_of_missing(self.survey.missing, self.scan.reading.plan),
        }
        return {name: counts for name, counts in counted.items() if counts}

    @property
    def digest(self) -> str:
        """One digest of all files."""
        return self.scan.digest

    @property
    def shared(self) -> Part:
        """The records whose input or id a public part has too."""
        return self.survey.shared

    @property
    def sample(self) -> np.ndarray:
        """The inputs of some records."""
        return self.survey.sample

    @cached_property
    def count_up(self) -> frozenset[str]:
        """Of ids and users, which are 0, 1, 2 ... or 1, 2, 3 ... in the order of files, after a prefix."""
        named = (role for role in self.scan.reading.roles if role != "labels")
        return frozenset(role for role in named if _count_up(self.scan, role))

    def check(self) -> None:
        """Refuse files that were changed since."""
        self.scan.check()

    def names(self, least: int, but: Set[str]) -> Names:
        """The ids and users of at least so many letters, without some."""
        records = 0 if self.scan.reading.id_column is None else self.survey.records
        return Names(self.scan, records + (self.people.number if self.people else 0), least, but)

    def inputs(self) -> Iterator[np.ndarray]:
        """The inputs of all records, batch by batch."""
        return (batch.inputs for path in self.scan.files for batch in self.scan.batches(path))


def columns_of(place: Path, names: Mapping[str, str | None]) -> Raw:
    """The columns that all files have, and no record yet; `names` are those of labels, ids and users."""
    each_by_itself(names)
    files = table_files.found(place)
    there = table_files.check_alike(files)
    roles = [name for name in names.values() if name is not None]
    for name in roles:
        if name not in there:
            raise PateError(f"{files[0]} has no column {name!r}; {tables.columns_like(name, there)}")
    own = Table({name: [] for name in there if name not in (*roles, trial_mark.NAME)})
    ids, users = (None if names[role] is None else np.array([], np.str_) for role in ("ids", "users"))
    return Raw(own, np.array([], np.int64), ids, users, trial=trial_mark.NAME in there)


def opened(
    dataset: Dataset,
    place: Path,
    names: Mapping[str, str | None],
    numbered: bool,
    stable: bool,
    engine: Engine = HERE,
) -> Dataset:
    """The data set with the private table that these files hold, every record of which was looked at."""
    roles = str(names["labels"]), names["ids"], names["users"]
    reading = Reading(dataset.columns, *roles, dataset.class_names, numbered)
    scan = Scan(table_files.found(place), reading, str(place))
    found = of(scan, overlap.parts(dataset), stable, engine)
    return replace(dataset, private=found.part, scan=found, private_notes=found.notes)


def of(scan: Scan, others: Mapping[str, Part], stable: bool, engine: Engine = HERE) -> Surveyed:
    """The survey of all files: an id that occurs twice is refused, wherever its records lie."""
    one = partial(of_file, scan, watch=Watch(others, stable))
    each = track(engine.each(one, scan.files), "records of all files, checked", total=len(scan.files))
    surveys = dict(each)
    found = _sum([surveys[place] for place in range(len(scan.files))])
    table_files.warn_of_copies(found.digests)
    read = replace(scan, digests=found.digests, stamps=found.stamps)
    users = None if scan.reading.user_column is None else _people(found.users)
    made = Surveyed(read, found._replace(hashes=(), users=()), users)
    _refuse_twice(made.scan, found.hashes)
    present = {name: found.records - count for name, count in found.missing.items()}
    notes.warn_of_strangers(found.unseen, present)
    return made


def beside(dataset: Dataset, others: Mapping[str, Part]) -> Dataset:
    """The data set, whose files are looked at again if it has some, for what they share with other parts."""
    if not isinstance(dataset.scan, Surveyed):
        return dataset
    return replace(dataset, scan=of(dataset.scan.scan, others, dataset.ids_are == "stable"))


def hashes_of(rows: np.ndarray) -> UInt64[np.ndarray, " row"]:
    """A hash of each row of numbers as float32: a sum of its words, each times a number of its place.

    >>> one, other, same = hashes_of(np.array([[0.0, 1.0], [1.0, 0.0], [-0.0, 1.0]])).tolist()
    >>> one == same, one == other
    (True, False)
    """
    words = (np.asarray(rows, np.float32) + np.float32(0)).view(np.uint32).reshape(len(rows), -1)
    return _hashed(words)


def _hashed(words: np.ndarray) -> UInt64[np.ndarray, " row"]:
    width = words.shape[1]
    factors = np.resize(_MULTIPLIERS, width)
    return words.astype(np.uint64) @ factors


def _hashes_of_ids(batch: Batch) -> UInt64[np.ndarray, " record"]:
    whole = batch.whole_ids
    if whole is not None:
        return whole.astype(np.int64).view(np.uint64) * _MULTIPLIERS[0]  # odd, so that all stay different
    names = batch.ids
    check_blanks(batch.place, "id", names)
    return _hashed_texts(names)


def _hashes_of_users(batch: Batch) -> UInt64[np.ndarray, " user"]:
    found = batch.users
    check_blanks(batch.place, "user", found.each)
    return found.digests()[:, 0]


def _hashed_texts(names: np.ndarray) -> UInt64[np.ndarray, " record"]:
    """A hash of each text, whatever the width of its array.

    >>> narrow, wide = (_hashed_texts(np.array(names)) for names in (["ann", "b"], ["ann", "longer"]))
    >>> (narrow == wide).tolist()
    [True, False]
    """
    return _hashed(np.ascontiguousarray(names).view(np.uint32).reshape(len(names), -1))


def _refuse_twice(scan: Scan, hashes: Sequence[Hashes]) -> None:
    """Refuse an id that two records have."""
    twice = np.concatenate([np.zeros(0, np.uint64), *_repeated(hashes)])
    if not len(twice):
        return
    once: dict[str, Path] = {}
    for batch in scan.names():
        for row in np.flatnonzero(np.isin(_hashes_of_ids(batch), twice)):
            name = str(batch.ids[row])
            if name in once:
                raise PateError(
                    f"{once[name]} and {batch.path} have the id {name!r} twice; give each record its own id "
                    "(zeros before a whole number do not count)"
                )
            once[name] = batch.path


def _people(hashes: Sequence[Hashes]) -> People:
    number, digest = 0, hashlib.sha256()
    for own in _sorted(hashes):
        different = np.unique(own)
        number += len(different)
        digest.update(different.astype("<u8").tobytes())
    return People(number, digest.hexdigest())


def _repeated(hashes: Sequence[Hashes]) -> Iterator[Hashes]:
    """The hashes that occur more than once."""
    return (np.unique(own[1:][own[1:] == own[:-1]]) for own in _sorted(hashes))


def _sorted(hashes: Sequence[Hashes]) -> Iterator[Hashes]:
    """All hashes in their order, of which a share is sorted at a time."""
    for bucket in range(_BUCKETS):
        own = np.concatenate(
            [np.zeros(0, np.uint64), *(each[each >> np.uint64(58) == bucket] for each in hashes)]
        )
        own.sort()
        yield own


def _count_up(scan: Scan, role: str) -> bool:
    """As `relation.count_up` of all ids, or of users where each occurs first, up to what does not follow."""
    each = (name for batch in scan.names() for name in _named(batch, role))
    first = next(each)
    second = next((name for name in each if name != first), first)
    start = len(first[: relation.shared(first, second)].rstrip("0"))
    return any(_follow(scan, role, start, begin) for begin in (0, 1))


def _follow(scan: Scan, role: str, start: int, begin: int) -> bool:
    """Whether what is new has this number and those that follow it, after so many letters."""
    new = begin
    for batch in scan.names():
        whole = batch.whole_ids if role == "ids" and start == 0 else None
        if whole is not None:
            if not np.array_equal(whole, np.arange(new, new + len(whole))):
                return False
            new += len(whole)
            continue
        for name in _named(batch, role):
            number = relation.number(name[start:])
            if number is None or not begin <= int(number) <= new:
                return False
            new = max(new, int(number) + 1)
    return True


def _named(batch: Batch, role: str) -> list[str]:
    found = batch.ids if role == "ids" else batch.users.each
    return [str(name) for name in found.tolist()]
