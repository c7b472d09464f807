"""The division of private records among teachers: disjoint shards by keyed hash, and a certificate of it.

A record's teacher is a keyed hash of its id, or of its user's id, and its place inside the shard is another
keyed hash. Neither depends on any other record, so adding, removing or changing one record (or all records of
one user) changes one shard and leaves every other shard as it was, row by row. All privacy figures of this
package rest on this.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pate_jax.data.dataset import Part
from pate_jax.errors import PateError, at_least, one_of
from pate_jax.system import headcount
from pate_jax.system.progress import track
from pate_jax.system.storage import digest

_SHARD, _ORDER, _SET = b"pate shard", b"pate order", b"pate set"  # the three uses of the key
KEY_BYTES = (16, 64)
_AT_ONCE = 1 << 16  # ids that are texts of Python at a time
_Columns = Mapping[str, np.ndarray]


class Shards(NamedTuple):
    """Each teacher's records: `rows[t, :counts[t]]` are rows of the private part; the rest is padding."""

    rows: np.ndarray  # int32 [teachers, longest]
    counts: np.ndarray  # int32 [teachers]

    def of(self, teacher: int) -> np.ndarray:
        """The rows of one teacher, in the order of its shard.

        >>> Shards(np.array([[4, 0], [1, 3]]), np.array([1, 2])).of(0).tolist()
        [4]
        """
        return self.rows[teacher, : self.counts[teacher]]


def fresh_key() -> bytes:
    """A partition key from the operating system's entropy.

    >>> len(fresh_key())
    32
    """
    return secrets.token_bytes(32)


def seeded_key(seed: int) -> bytes:
    """A reproducible partition key: everyone who knows the seed can compute it.

    >>> seeded_key(7) == seeded_key(7), seeded_key(7) == seeded_key(8)
    (True, False)
    """
    return hashlib.sha256(f"pate partition seed {seed}".encode()).digest()


def assign(ids: Sequence[str] | np.ndarray, teachers: int, *, key: bytes) -> np.ndarray:
    """The teacher of each record: int32 [n], a keyed BLAKE2b hash of the id modulo the number of teachers.

    Pass each record's user in place of its id to keep the records of one user with one teacher.

    >>> first, second, third = assign(["ann", "bob", "ann"], 2, key=seeded_key(1)).tolist()
    >>> first == third
    True
    """
    check_enough(ids, teachers)
    return teacher_of(ids, teachers, key=key)


def teacher_of(ids: Sequence[str] | np.ndarray, teachers: int, *, key: bytes) -> np.ndarray:
    """As `assign`, of some of all records."""
    words = _hashes(ids, key=key, use=_SHARD, words=1)[:, 0]
    return (words % np.uint64(teachers)).astype(np.int32)


def order_of(ids: Sequence[str] | np.ndarray, *, key: bytes) -> np.ndarray:
    """What the records of a shard are ordered by, the second word first: uint64 [n, 2]."""
    high, low = _hashes(ids, key=key, use=_ORDER, words=2).T
    return np.stack([low, high], axis=1)


def cut(assignment: np.ndarray, ids: Sequence[str] | np.ndarray, teachers: int, *, key: bytes) -> Shards:
    """The shards of an assignment; inside a shard, records are ordered by another keyed hash of their ids.

    >>> ids = ["a", "b", "c", "d", "e"]
    >>> shards = cut(np.array([1, 0, 1, 1, 0]), ids, 2, key=seeded_key(1))
    >>> shards.counts.tolist(), sorted(shards.of(0).tolist()), sorted(shards.of(1).tolist())
    ([2, 3], [1, 4], [0, 2, 3])
    """
    assignment = np.asarray(assignment)
    if len(assignment) != len(ids):
        raise PateError(
            f"{len(assignment)} assignments are given for {len(ids)} ids; give one for each record"
        )
    if len(assignment) and not (assignment.min() >= 0 and assignment.max() < teachers):
        raise PateError(f"assignment must lie in 0..{teachers - 1} for teachers={teachers}")
    _check_unique(ids)
    order = np.lexsort((*order_of(ids, key=key).T, assignment))
    counts = np.bincount(assignment, minlength=teachers).astype(np.int32)
    starts = np.cumsum(counts) - counts
    rows = np.zeros((teachers, max(1, int(counts.max(initial=0)))), np.int32)
    place = np.arange(len(order)) - np.repeat(starts, counts)
    rows[assignment[order], place] = order
    return Shards(rows, counts)


def divide(part: Part, teachers: int, *, key: bytes, by: str = "record") -> Shards:
    """The shards of a private part, by record, or by user so that a user's records reach only one teacher.

    >>> part = Part(np.zeros((4, 1)), np.zeros(4, np.int32), np.array(list("abcd")))
    >>> int(divide(part, 2, key=seeded_key(1)).counts.sum())
    4
    """
    return cut(assign(units_of(part, by), teachers, key=key), part.ids, teachers, key=key)


def check_enough(units: Sequence[str] | np.ndarray, teachers: int) -> None:
    """Refuse more teachers than there are records, or users, to divide among them."""
    check_number(len(set(_texts(units))), teachers)


def check_number(units: int, teachers: int) -> None:
    """The same for so many of them."""
    at_least(1, teachers=teachers)
    there = headcount.coarse(units)  # rounded, because a refusal reveals the number
    if there < teachers:
        raise PateError(
            f"teachers={teachers} is more than the {there} records or users to divide (rounded down to two "
            f"digits); ask for at most {there} teachers"
        )


def units_of(part: Part, by: str) -> np.ndarray:
    """The name of each row's unit of privacy: the record's id or its user's."""
    one_of(("record", "user"), by=by)
    if by == "user" and part.users is None:
        raise PateError(
            "by='user' needs the user of every private record; give a users array or --user-column"
        )
    return part.ids if by == "record" or part.users is None else part.users


def certificate(shards: Shards, part: Part, *, key: bytes, by: str = "record") -> dict[str, Any]:
    """A certificate: digests of each teacher's records, and sums that prove that the shards divide the table.

    Every id has a keyed 256-bit hash. The hashes of a shard's ids are added modulo 2^256, and so are those of
    the whole table. If the totals and the counts are equal, every record is in exactly one shard; anyone can
    add them up from the certificate alone. With `by="user"` the same holds for users. The certificate is made
    from private data and belongs with them.

    >>> part = Part(np.zeros((4, 1)), np.zeros(4, np.int32), np.array(list("abcd")))
    >>> proof = certificate(divide(part, 2, key=seeded_key(1)), part, key=seeded_key(1))
    >>> proof["records"], sum(shard["records"] for shard in proof["shards"])
    (4, 4)
    """
    faults = _faults(shards, part, key=key, by=by)
    if faults:
        raise PateError(f"the shards are not a partition: {faults[0]}; cut them again from the ids")
    return _summary([shards.of(teacher) for teacher in range(len(shards.counts))], part, key=key, by=by)


def check_certificate(certificate: Mapping[str, Any], shards: Shards, part: Part, *, key: bytes) -> list[str]:
    """What is wrong with a certificate, with the shards, or between the two; an empty list if nothing is.

    >>> part = Part(np.zeros((4, 1)), np.zeros(4, np.int32), np.array(list("abcd")))
    >>> shards = divide(part, 2, key=seeded_key(1))
    >>> proof = certificate(shards, part, key=seeded_key(1))
    >>> check_certificate(proof, shards, part, key=seeded_key(1))
    []
    >>> check_certificate(proof, shards, part._replace(inputs=part.inputs + 1), key=seeded_key(1))[0][9:]
    ': the digest of the contents is not the certified one'
    """
    by = _checked(certificate)["by"]
    fed = [shards.of(teacher) for teacher in range(len(shards.counts))]
    faults = [*check_sums(certificate), *_faults(shards, part, key=key, by=by)]
    return faults if _outside(fed, part) else faults + _differences(certificate, fed, part, key=key)


def check_fed(
    certificate: Mapping[str, Any], fed: Sequence[np.ndarray], part: Part, *, key: bytes
) -> list[str]:
    """What is wrong with the rows that each teacher really got (`fed[t]`, in any order and any number).

    >>> part = Part(np.zeros((4, 1)), np.zeros(4, np.int32), np.array(list("abcd")))
    >>> shards = divide(part, 2, key=seeded_key(1))
    >>> proof = certificate(shards, part, key=seeded_key(1))
    >>> check_fed(proof, [np.tile(shards.of(0), 3), shards.of(1)[::-1]], part, key=seeded_key(1))
    []
    """
    distinct = [np.unique(rows).astype(np.int64) for rows in fed]
    return _outside(distinct, part) or _differences(_checked(certificate), distinct, part, key=key)


def check_sums(certificate: Mapping[str, Any]) -> list[str]:
    """What keeps the certificate alone from proving that its shards are disjoint and cover the table."""
    faults = []
    for unit in ("record", "user") if _checked(certificate)["by"] == "user" else ("record",):
        counts = sum(shard[f"{unit}s"] for shard in certificate["shards"])
        total = sum(int(shard[f"{unit}_sum"], 16) for shard in certificate["shards"]) % 2**256
        if counts != certificate[f"{unit}s"]:
            faults.append(f"the shards hold {counts} {unit}s and the table {certificate[f'{unit}s']}")
        if total != int(certificate[f"{unit}_sum"], 16):
            faults.append(
                f"the hashes of the shards' {unit}s do not add up to the table's: they are not a partition"
            )
    return faults


def _checked(certificate: Mapping[str, Any]) -> Mapping[str, Any]:
    users = ("users", "user_sum") if certificate.get("by") == "user" else ()
    fields = {"by", "teachers", "records", "record_sum", "key_digest", "shards", *users}
    missing = sorted(fields - set(certificate))
    shards = certificate.get("shards")
    if not isinstance(shards, list) or not all(isinstance(shard, dict) for shard in shards):
        raise PateError("the certificate lacks a list of shards; write it again from the shards")
    for shard in certificate.get("shards", ()):
        missing += sorted({"teacher", "records", "record_sum", "ids", "contents", *users} - set(shard))
    if missing:
        raise PateError(f"the certificate lacks {missing[0]!r}; write it again from the shards")
    for one in (certificate, *certificate["shards"]):
        for name, value in one.items():
            if not _plausible(name, value):
                raise PateError(f"the certificate has {name}={value!r}; write it again from the shards")
    return certificate


def _plausible(name: str, value: Any) -> bool:
    """Whether the value of a certificate's field has the right form."""
    if name in ("teacher", "teachers", "records", "users"):
        return type(value) is int and 0 <= value < 1 << 40
    if name in ("by", "ids", "contents", "key_digest"):
        return isinstance(value, str)
    is_sum = isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None
    return is_sum or not name.endswith("_sum")


def _faults(shards: Shards, part: Part, *, key: bytes, by: str) -> list[str]:
    """What keeps these shards from being the partition of this part."""
    teachers, records = len(shards.counts), len(part.ids)
    fed = [shards.of(teacher) for teacher in range(teachers)]
    if outside := _outside(fed, part):
        return outside
    rows, holder = np.concatenate(fed), np.repeat(np.arange(teachers), shards.counts)
    times = np.bincount(rows, minlength=records)
    faults = [
        f"record {str(part.ids[row])!r} is in the shards of teachers {holder[rows == row].tolist()}"
        for row in np.flatnonzero(times > 1)[:3]
    ]
    faults += [f"record {str(part.ids[row])!r} is in no shard" for row in np.flatnonzero(times == 0)[:3]]
    wrong = np.flatnonzero(teacher_of(units_of(part, by), teachers, key=key)[rows] != holder)
    faults += [
        f"record {str(part.ids[rows[place]])!r} is with teacher {holder[place]}, against its hash"
        for place in wrong[:3]
    ]
    order = order_of(part.ids, key=key)[rows]
    if not faults and not np.array_equal(np.lexsort((*order.T, holder)), np.arange(records)):
        faults.append("the records of a shard are not in the order of their hashes")
    return faults


def _outside(fed: Sequence[np.ndarray], part: Part) -> list[str]:
    return [
        f"teacher {teacher} has a row outside 0..{len(part.ids) - 1}"
        for teacher, rows in enumerate(fed)
        if rows.size and not (rows.min() >= 0 and rows.max() < len(part.ids))
    ]


def _summary(fed: Sequence[np.ndarray], part: Part, *, key: bytes, by: str) -> dict[str, Any]:
    """The certificate of teachers that have these rows."""
    units = {"record": part.ids} | ({"user": units_of(part, by)} if by == "user" else {})
    hashes = {unit: _hashes(names, key=key, use=_SET, words=4) for unit, names in units.items()}
    everything = np.arange(len(part.ids))
    return {
        "by": by,
        "teachers": len(fed),
        **_sums(everything, units, hashes),
        "key_digest": hashlib.sha256(b"pate partition key" + key).hexdigest(),
        "shards": [
            {"teacher": teacher, **_sums(rows, units, hashes), **_digests(rows, part)}
            for teacher, rows in enumerate(track(fed, "digests of the shards", total=len(fed)))
        ],
    }


def _sums(rows: np.ndarray, units: _Columns, hashes: _Columns) -> dict[str, Any]:
    """The numbers of distinct records and users in these rows, and the sums of their hashes."""
    sums: dict[str, Any] = {}
    for unit, names in units.items():
        chosen = rows if unit == "record" else rows[np.unique(names[rows], return_index=True)[1]]
        limbs = np.ascontiguousarray(hashes[unit][chosen]).view("<u4").sum(0, dtype=np.uint64)
        total = sum(int(limb) << (32 * place) for place, limb in enumerate(limbs)) % 2**256
        sums |= {f"{unit}s": len(chosen), f"{unit}_sum": f"{total:064x}"}
    return sums


def _digests(rows: np.ndarray, part: Part) -> dict[str, str]:
    """SHA-256 of the sorted ids, and of the contents in that order."""
    names = part.ids[rows].tolist()
    order = sorted(range(len(names)), key=names.__getitem__)
    ids = "".join(f"{len(names[place])}:{names[place]}," for place in order)
    ordered = rows[np.array(order, np.int64)]
    contents = digest(*part.take(ordered).contents)
    return {"ids": hashlib.sha256(_bytes(ids)).hexdigest(), "contents": contents}


def _differences(
    certified: Mapping[str, Any], fed: Sequence[np.ndarray], part: Part, *, key: bytes
) -> list[str]:
    actual = _summary(fed, part, key=key, by=certified["by"])
    words = {
        "ids": "the digest of the ids",
        "contents": "the digest of the contents",
        "records": "the count of records",
        "users": "the count of users",
        "teachers": "the number of teachers",
        "key_digest": "the key's digest",
    }
    differences = [
        f"{words[field]} is not the certified one"
        for field in ("teachers", "records", "users", "key_digest")
        if certified.get(field) != actual.get(field)
    ]
    differences += [
        f"teacher {shard['teacher']}: {words[field]} is not the certified one"
        for shard, other in zip(certified["shards"], actual["shards"], strict=False)
        for field in ("records", "users", "ids", "contents")
        if shard.get(field) != other.get(field)
    ]
    return differences


def _check_unique(ids: Sequence[str] | np.ndarray) -> None:
    texts = _texts(ids)
    if len(set(texts)) != len(texts):
        seen: set[str] = set()
        twice = next(text for text in texts if text in seen or seen.add(text))  # type: ignore[func-returns-value]
        raise PateError(f"id {twice!r} appears twice; give each record its own id")


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")  # any text that NumPy can store may be an id


def _texts(ids: Sequence[str] | np.ndarray) -> list[str]:
    return ids.tolist() if isinstance(ids, np.ndarray) else list(ids)


def _hashes(ids: Sequence[str] | np.ndarray, *, key: bytes, use: bytes, words: int) -> np.ndarray:
    """Keyed BLAKE2b of each id for one use: uint64 [n, words]."""
    if not KEY_BYTES[0] <= len(key) <= KEY_BYTES[1]:
        raise PateError(f"partition key has {len(key)} bytes; give {KEY_BYTES[0]} to {KEY_BYTES[1]} of them")
    blake, size = hashlib.blake2b, 8 * words
    found = np.empty((len(ids), words), np.uint64)
    for start in range(0, len(ids), _AT_ONCE):
        texts = _texts(ids[start : start + _AT_ONCE])
        joined = b"".join(
            [blake(_bytes(one), key=key, digest_size=size, person=use).digest() for one in texts]
        )
        found[start : start + len(texts)] = np.frombuffer(joined, "<u8").reshape(-1, words)
    return found
