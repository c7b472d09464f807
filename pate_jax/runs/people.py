"""Whose records a run reads, in a form by which a register finds the same people again.

There are several ways to recognise people: the ids and users that an owner gives, the whole content of a
row, and values that hardly two rows share, whatever column they stand in. For each way a sample of keyed
digests is kept: all of them up to `KEPT`, else those whose digests without the key are smallest, so that a
value is in the samples of both tables or of neither. A digest follows from its record alone. Values are
compared as float32 or as text, so another order, format or number of columns changes nothing.

Unrelated tables share values too. By Cauchy and Schwarz two tables that are drawn independently share at most
`2 sqrt(r1 r2)` pairs on average, where `r` counts the equal pairs within each table.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pate_jax.data import fingerprints, relation
from pate_jax.data.columns import Column
from pate_jax.data.dataset import Dataset
from pate_jax.data.fingerprints import RARE, Hashes, hashed, of_numbers, of_rows, of_texts, of_values
from pate_jax.data.survey import Surveyed
from pate_jax.errors import PateError

KEPT = 4096  # digests of each way
NAMES = ("ids", "users")  # by which one shared digest, under either word, is one shared person
_COLUMNS, _WIDE = 32, 128  # whose values are kept at most; wider arrays are compared as images are
_FIRST = 1000  # rows that are looked at before all others
_ALIKE, _KINDS = 0.25, 30  # of chi-square for each kind of row, and the fewest kinds that it is asked of


class Sample(NamedTuple):
    """Digests of one way to recognise people, how often each occurs, and what they are a sample of."""

    digests: Hashes
    counts: NDArray[np.uint32]
    share: float  # of all different values, those that are kept
    repeats: int  # pairs of rows with an equal value

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        counts = "" if (self.counts == 1).all() else _text(self.counts)
        return {**self._asdict(), "digests": _text(self.digests), "counts": counts}


People = Mapping[str, Sample]  # by the way; empty where nobody knows whose records they are


def to_dict(people: People) -> dict[str, Any]:
    """As JSON."""
    return {way: sample.to_dict() for way, sample in people.items()}


def from_dict(described: Any) -> People:
    """The people that `to_dict` described."""
    try:
        return {way: _sample(**sample) for way, sample in described.items()}
    except (TypeError, ValueError, AttributeError) as error:
        raise PateError(f"a register holds digests that cannot be read ({error}): restore it") from error


def _sample(digests: str, counts: str, share: float, repeats: int) -> Sample:
    shown = np.frombuffer(base64.b64decode(digests), "<u8").astype(np.uint64)
    often = np.frombuffer(base64.b64decode(counts), "<u4").astype(np.uint32)
    return Sample(shown, often if counts else np.ones(len(shown), np.uint32), float(share), int(repeats))


def _text(numbers: np.ndarray) -> str:
    return base64.b64encode(numbers.astype(numbers.dtype.newbyteorder("<")).tobytes()).decode()


def of(dataset: Dataset, key: bytes) -> People:
    """The people of a data set's private part, under the key of a register."""
    part = dataset.private
    if dataset.scan is not None:
        return _of_scan(dataset.scan, dataset.columns, key)
    ids = None if relation.are_rows(dataset) else part.ids
    return made(part.inputs, dataset.columns, ids, part.users, key=key, unread=dataset.unread)


def made(
    inputs: np.ndarray,
    columns: Sequence[Column] = (),
    ids: np.ndarray | None = None,
    users: np.ndarray | None = None,
    *,
    key: bytes,
    unread: Sequence[Hashes] = (),
) -> People:
    """The people of these records; the ids are None where they are row numbers.

    `unread` are hashes of columns that inputs do not hold, or hold as an encoder sees them.

    >>> table, key = np.random.default_rng(0).normal(size=(40, 3)), bytes(32)
    >>> mine, more = made(table, key=key), made(np.vstack([table[::-1], np.ones(3)])[:, 1:], key=key)
    >>> same(mine, more), same(mine, made(table + 1, key=key))
    (True, False)
    """
    names = {way: _of_names(texts) for way, texts in (("ids", ids), ("users", users)) if texts is not None}
    values = [] if inputs.ndim > 2 else _values(np.asarray(inputs, np.float32), columns)
    as_a_whole = not values or (not columns and len(values) > _WIDE)
    rows: Hashes = of_rows(inputs) if as_a_whole else np.stack(values).sum(axis=0, dtype=np.uint64)
    ways = {**names, "contents": rows}
    named = [of_values(texts) for texts in (ids, users) if texts is not None]
    told = [one for one, counts in zip(values, _counters(inputs, columns), strict=False) if not counts]
    pictures = [rows] if inputs.ndim > 2 else []  # which another run may see by an encoder
    first = sorted([*named, *told, *pictures, *unread], key=np.min)
    rare = list(itertools.islice(filter(_tells_apart, first), _COLUMNS))
    if rare:
        ways["values"] = np.stack(rare, axis=1)
    return {way: _sampled(hashes.reshape(len(inputs), -1), key) for way, hashes in ways.items()}


class _Lowest:
    """The smallest hashes of a stream, and how often each occurred: what `_sampled` keeps of all at once."""

    def __init__(self) -> None:
        self.hashes, self.counts = np.zeros(0, np.uint64), np.zeros(0, np.int64)
        self.seen = 0

    def add(self, hashes: Hashes) -> None:
        """Look at more of them."""
        self.seen += len(hashes)
        full = len(self.hashes) == KEPT
        near = hashes[hashes <= self.hashes[-1]] if full else hashes
        self.merge(*np.unique(near, return_counts=True))

    def merge(self, hashes: Hashes, counts: NDArray[np.int64]) -> None:
        """Add hashes that were counted."""
        both, place = np.unique(np.concatenate([self.hashes, hashes]), return_inverse=True)
        often = np.zeros(len(both), np.int64)
        np.add.at(often, place, np.concatenate([self.counts, counts]))
        self.hashes, self.counts = both[:KEPT], often[:KEPT]

    @property
    def share(self) -> float:
        """Of all different hashes, those that are kept: about, where they are not all kept."""
        return 1.0 if len(self.hashes) < KEPT else min(1.0, float(self.hashes[-1]) / 2.0**64)

    def sample(self, key: bytes) -> Sample:
        """What is kept of the stream."""
        pairs = int((self.counts * (self.counts - 1) // 2).sum() / self.share)
        return _keyed(self.hashes, self.counts, self.share, pairs, key)

    def tells_apart(self) -> bool:
        """Whether hardly two rows have the same value, as far as the kept ones show it."""
        return self.seen - len(self.hashes) / self.share <= RARE * self.seen


class _Stream:
    """One column of values as it is read: do they tell records apart, and are they more than counters?"""

    def __init__(self) -> None:
        self.lowest, self.whole, self.least, self.most = _Lowest(), True, math.inf, -math.inf
        self.first: Hashes = np.zeros(0, np.uint64)

    def add(self, hashes: Hashes, numbers: np.ndarray) -> None:
        """Look at more of them; the numbers are those that hashes are of, if they are of any."""
        self.lowest.add(hashes)
        if len(self.first) < _FIRST:
            self.first = np.concatenate([self.first, hashes])[:_FIRST]
        self.whole = self.whole and bool((numbers == np.floor(numbers)).all())
        self.least = min(self.least, float(numbers.min(initial=math.inf)))
        self.most = max(self.most, float(numbers.max(initial=-math.inf)))

    @property
    def tells(self) -> bool:
        """Whether a shared value is a shared person, as far as the kept ones show it."""
        counts = self.whole and self.lowest.seen > RARE * (self.most - self.least + 1)
        apart = _repeated(self.first) <= RARE * len(self.first)
        return apart and not counts and self.lowest.tells_apart()


def _of_scan(scan: Surveyed, columns: Sequence[Column], key: bytes) -> People:
    """The people of a table in several files, of which a batch is in memory at a time."""
    contents, values = _Lowest(), dict[int, _Stream]()
    names = {role: _Lowest() for role in scan.scan.reading.roles if role in NAMES}
    starts = np.cumsum([0, *(column.width for column in columns)]).tolist()
    for batch in (batch for path in scan.scan.files for batch in scan.scan.batches(path)):
        own = _values(batch.inputs, columns)
        contents.add(np.stack(own).sum(axis=0, dtype=np.uint64))
        seen = [(hashes, batch.inputs[:, start]) for hashes, start in zip(own, starts, strict=False)]
        for role, lowest in names.items():
            texts = batch.ids if role == "ids" else batch.users.each
            lowest.add(_of_names(texts))
            seen.append((of_values(texts), np.array([math.nan])))  # they are no counters
        for place, (hashes, numbers) in enumerate(seen):
            values.setdefault(place, _Stream()).add(hashes, numbers)
    told = sorted((one for one in values.values() if one.tells), key=lambda one: int(one.lowest.hashes[0]))
    rare = _Lowest()
    for one in told[:_COLUMNS]:
        rare.merge(one.lowest.hashes, one.lowest.counts)
    named = {role: lowest for role, lowest in names.items() if role == "users" or role not in scan.count_up}
    found = {**named, "contents": contents, **({"values": rare} if told else {})}
    return {way: lowest.sample(key) for way, lowest in found.items()}


def same(one: People, other: People) -> bool:
    """Whether two runs share more people than chance allows."""
    ways = (one.keys() & other.keys()) - {*NAMES}
    return _share_a_name(one, other) or any(_shares(one[way], other[way], way) for way in ways)


def _share_a_name(one: People, other: People) -> bool:
    """Whether an id or a user of one is an id or a user of the other, where they may have more rows."""
    mine, theirs = ([people[way].digests for way in NAMES if way in people] for people in (one, other))
    return any(len(np.intersect1d(each, every, assume_unique=True)) > 0 for each in mine for every in theirs)


def _shares(one: Sample, other: Sample, way: str) -> bool:
    shared = len(np.intersect1d(one.digests, other.digests, assume_unique=True))
    if not shared:  # as in most pairs of a long register
        return False
    chance = 2 * math.sqrt((one.repeats + 1) * (other.repeats + 1)) * min(one.share, other.share)
    if shared > chance + 4 * math.sqrt(chance) + 1:
        return True
    return way == "contents" and _alike(one, other)


def _alike(one: Sample, other: Sample) -> bool:
    """Whether rows of few kinds occur so nearly as often in both that they are hardly two samples of a kind.

    Of two independent samples the statistic is chi-square, with one degree of freedom for each kind of row.
    """
    kinds, place = np.unique(np.concatenate([one.digests, other.digests]), return_inverse=True)
    counts = np.zeros((2, len(kinds)))
    counts[0, place[: len(one.digests)]] = one.counts
    counts[1, place[len(one.digests) :]] = other.counts
    statistic = float(((counts[0] - counts[1]) ** 2 / counts.sum(0)).sum())
    return statistic < _ALIKE * len(kinds) if len(kinds) >= _KINDS else statistic == 0


def _sampled(hashes: NDArray[np.uint64], key: bytes) -> Sample:
    """The sample of hashes [row, value]; a value that a row has twice counts once."""
    ordered = np.sort(hashes, axis=1)
    new = np.ones(ordered.shape, bool)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    different, counts = np.unique(ordered[new], return_counts=True)
    repeats = int((counts * (counts - 1) // 2).sum())
    kept = different[:KEPT]
    return _keyed(kept, counts[:KEPT], len(kept) / max(1, len(different)), repeats, key)


def _keyed(kept: Hashes, counts: NDArray[np.int64], share: float, repeats: int, key: bytes) -> Sample:
    """The sample that keeps these hashes, under a key."""
    keyed = [hashlib.blake2b(one.tobytes(), key=key, digest_size=8).digest() for one in kept]
    digests = np.frombuffer(b"".join(keyed), "<u8").astype(np.uint64)
    order = np.argsort(digests)
    often = np.minimum(counts, np.iinfo(np.uint32).max).astype(np.uint32)
    return Sample(digests[order], often[order], share, repeats)


def _counters(inputs: np.ndarray, columns: Sequence[Column]) -> list[bool]:
    """Which columns hold whole numbers so close together that those of other people are the same ones."""
    if inputs.ndim > 2:
        return []
    widths = [column.width for column in columns] or [1] * inputs.shape[1]
    places = np.cumsum([0, *widths[:-1]]).tolist()
    return [fingerprints.count(np.asarray(inputs[:, place], np.float64)) for place in places]


def _values(numbers: NDArray[np.float32], columns: Sequence[Column]) -> list[Hashes]:
    """A hash of each value [column][row]: of a number, or of the category that one-hot features show."""
    if not columns:
        return [of_numbers(column) for column in numbers.T]
    found, place = [], 0
    for column in columns:
        features = numbers[:, place : place + column.width]
        if column.encoder is not None:  # of equal texts the whole vectors are equal
            found.append(hashed(row.tobytes() for row in features + np.float32(0)))
        else:
            numeric = column.categories is None
            found.append(of_numbers(features[:, 0]) if numeric else _known(features, column))
        place += column.width
    return found


def _known(features: NDArray[np.float32], column: Column) -> Hashes:
    """A hash of the category of each row; those outside the known ones are alike."""
    hashes = np.append(of_values(np.array(column.categories, np.str_)), np.uint64(0))
    known: Hashes = hashes[np.where(features.any(1), features.argmax(1), len(hashes) - 1)]
    return known


def _of_names(names: np.ndarray) -> Hashes:
    return of_texts(np.array([_spelled(name) for name in names.tolist()], np.str_))


def _spelled(name: str) -> str:
    """A name as every spelling of it is compared.

    >>> [_spelled(name) for name in (" PAT-07", "pat-07 ", "0070", "70.0")]
    ['pat-07', 'pat-07', '70', '70']
    """
    plain = name.strip().casefold()
    number = plain.removesuffix(".0")
    return number.lstrip("0") or "0" if number.isdecimal() else plain


def _tells_apart(hashes: Hashes) -> bool:
    """Whether hardly two rows have the same value."""
    return all(_repeated(part) <= RARE * len(part) for part in (hashes[:_FIRST], hashes))


def _repeated(hashes: Hashes) -> int:
    ordered = np.sort(hashes)  # several times as fast as `np.unique`
    return int((ordered[1:] == ordered[:-1]).sum())
