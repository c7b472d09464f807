"""Salted digests of owners' ids: they show whether two owners hold the same record, and name nobody.

All owners share a salt, which whoever compares the digests must not have: with it, ids that can be guessed
(numbers of insurance, dates of birth) could be tried one after the other.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import UInt64

from pate_jax.errors import PateError
from pate_jax.system import storage

KIND = "fingerprints"
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
