"""Salted digests of owners' ids: they show whether two owners hold the same record, and name nobody.

All owners share a salt, which whoever compares the digests must not have: with it, ids that can be guessed
(numbers of insurance, dates of birth) could be tried one after the other. Below are the hashes of values of
any kind that a register compares, under a key of its own.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt64
from numpy.typing import NDArray

from pate_jax.data.targets import number
from pate_jax.errors import PateError
from pate_jax.system import storage

Hashes = NDArray[np.uint64]  # without a key, of values: they must not leave this process
KIND = "fingerprints"
RARE = 0.05  # of the rows may repeat a value that another row has, where values tell rows apart
_WORDS = 4  # 256 bits
_IS_SALT = re.compile("[0-9a-f]{64}").fullmatch
_IDS, _SALT = b"pate ids", b"pate salt"  # the two uses of the salt


class Fingerprints(NamedTuple):
    """The digests of one owner's ids, sorted, and what they belong to."""

    digests: UInt64[np.ndarray, "ids 4"]
    by: str  # whose ids they are: "record" or "user"; "contents" of records whose ids are row numbers
    salt: str  # a digest of the salt
    votes: str  # the digest of the votes in which these records or users took part

    @property
    def of(self) -> str:
        """What has the ids: a record or a user."""
        return "user" if self.by == "user" else "record"


def new_salt(path: Path) -> None:
    """Write a fresh salt, which the owners then share among themselves; one that is there is kept."""
    if path.exists():
        raise PateError(
            f"{path} exists: share it with the other owners, or remove it if nobody has used it yet"
        )
    storage.write_bytes(path, f"{secrets.token_hex(32)}\n".encode(), mode=0o600)


def read_salt(path: Path) -> bytes:
    """The salt of a file that `new_salt` wrote."""
    text = storage.read_bytes(path).decode(errors="replace").strip()
    if not _IS_SALT(text):
        raise PateError(
            f"{path} holds no salt (64 hexadecimal digits): let one owner write it by `pate party salt "
            f"{path}`, and copy that file to all others"
        )
    return bytes.fromhex(text)


def made(ids: Sequence[str] | np.ndarray, *, by: str, salt: bytes, votes: str) -> Fingerprints:
    """The fingerprints of ids; an id that occurs several times, such as a user's, has one.

    >>> mine = made(["ann", "bob", "ann"], by="user", salt=bytes(32), votes="")
    >>> yours = made(["cem", "bob"], by="user", salt=bytes(32), votes="")
    >>> len(mine.digests), overlaps([mine, yours])
    (2, [(0, 1, 1)])
    """
    texts = sorted({str(one) for one in ids})
    if not texts:
        raise PateError("there are no ids: name the private records whose teachers voted")
    if any(not text for text in texts):
        raise PateError("an id is empty: give each record its own id")
    blake = hashlib.blake2b
    joined = b"".join(
        blake(text.encode(errors="surrogatepass"), key=salt, digest_size=8 * _WORDS, person=_IDS).digest()
        for text in texts
    )
    words = np.frombuffer(joined, "<u8").reshape(-1, _WORDS).astype(np.uint64)
    commitment = blake(b"", key=salt, digest_size=8 * _WORDS, person=_SALT).hexdigest()
    return Fingerprints(words[np.lexsort(words.T)], by, commitment, votes)


def overlaps(owners: Sequence[Fingerprints]) -> list[tuple[int, int, int]]:
    """Which two owners share ids, and how many: (first owner, second owner, number)."""
    sets = [set(map(bytes, owner.digests)) for owner in owners]
    pairs = combinations(range(len(sets)), 2)
    return [(one, two, len(both)) for one, two in pairs if (both := sets[one] & sets[two])]


def save(path: Path, found: Fingerprints) -> None:
    """Write fingerprints; who has the file and not the salt learns how many ids there are."""
    texts = {name: np.array(getattr(found, name)) for name in ("by", "salt", "votes")}
    storage.write_arrays(path, KIND, {"digests": found.digests, **texts}, mode=0o600)


def load(path: Path) -> Fingerprints:
    """Read what `save` wrote; refused where it holds something else."""
    arrays = storage.read_arrays(path, KIND)
    digests = arrays.get("digests")
    texts = [str(arrays.get(name, "")) for name in ("by", "salt", "votes")]
    fits = digests is not None and digests.dtype == np.uint64 and digests.shape[1:] == (_WORDS,)
    if digests is None or not fits or not len(digests) or texts[0] not in ("record", "user", "contents"):
        raise PateError(f"{path} holds no digests of ids: write it again by `pate party ids`")
    if len({*map(bytes, digests)}) != len(digests):
        raise PateError(f"{path} holds a digest twice: write it again by `pate party ids`")
    return Fingerprints(digests, *texts)


def of_numbers(column: NDArray[np.float32]) -> Hashes:
    """A hash of each number, by a mixing of its bits (splitmix64)."""
    bits = (column.astype(np.float32) + np.float32(0)).view(np.uint32).astype(np.uint64)
    with np.errstate(over="ignore"):
        mixed = (bits + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        return np.asarray(mixed ^ (mixed >> np.uint64(31)), np.uint64)


def of_values(texts: np.ndarray) -> Hashes:
    """A hash of each text by its value: that of its number where it is one."""
    found = of_texts(texts)
    with np.errstate(over="ignore"):
        numbers = np.array([number(text) for text in texts.tolist()]).astype(np.float32)
    found[~np.isnan(numbers)] = of_numbers(numbers[~np.isnan(numbers)])
    return found


def of_texts(texts: np.ndarray) -> Hashes:
    """A hash of each text."""
    return hashed(text.encode(errors="surrogatepass") for text in texts.tolist())


def hashed(contents: Iterable[bytes]) -> Hashes:
    """A hash of each of some bytes."""
    joined = b"".join(hashlib.blake2b(one, digest_size=8).digest() for one in contents)
    return np.frombuffer(joined, "<u8").astype(np.uint64)


def count(numbers: np.ndarray) -> bool:
    """Whether a column has whole numbers so close together that those of other people are the same ones.

    >>> count(np.arange(100.0)), count(np.arange(100.0) + 0.5), count(np.arange(3.0) * 1e6)
    (True, False, False)
    """
    room = float(numbers.max() - numbers.min()) + 1
    return len(numbers) > RARE * room and bool((numbers == np.floor(numbers)).all())


def of_columns(table: Mapping[str, Sequence[str]], but: Collection[str] = ()) -> tuple[Hashes, ...]:
    """Hashes of the values of a table's columns, without some, and without those that only count.

    >>> table = {"note": ["it hurts", "no pain"], "age": ["30", "31"], "x": ["0.25", "0.5"]}
    >>> len(of_columns(table, but=["x"]))
    1
    """
    found = []
    for name, values in table.items():
        if name in but or not len(values):
            continue
        numbers = np.array([number(value) for value in values])
        if np.isnan(numbers).all():
            found.append(hashed(value.encode(errors="surrogatepass") for value in values))
        elif not count(numbers[~np.isnan(numbers)]):
            found.append(of_values(np.array(values, np.str_)))
    return tuple(found)


def of_rows(inputs: np.ndarray) -> Hashes:
    """A hash of each row as float32, whatever the type that it is stored in."""
    flat = inputs.reshape(len(inputs), -1)
    return hashed((np.asarray(row, np.float32) + np.float32(0)).tobytes() for row in flat)
