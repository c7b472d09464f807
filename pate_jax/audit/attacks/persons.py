"""Whose risk is wanted: everybody's, that of a sample, or that of the people in a list."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from pate_jax.errors import PateError
from pate_jax.system import storage

EVERYBODY = "all"


def chosen(names: Sequence[str], wanted: str, *, key: bytes) -> list[str]:
    """The names of the wanted people: all, as many as a number says, or those that a file lists.

    A sample is the people whose keyed hashes come first. So the same command names the same ones again, and a
    larger sample holds the smaller one.

    >>> names = ["ann", "bob", "eve"]
    >>> chosen(names, "all", key=b"k"), len(chosen(names, "2", key=b"k"))
    (['ann', 'bob', 'eve'], 2)
    >>> set(chosen(names, "1", key=b"k")) < set(chosen(names, "2", key=b"k"))
    True
    """
    if wanted == EVERYBODY:
        return list(names)
    if not wanted.isdecimal():
        return _listed(names, Path(wanted))
    number = int(wanted)
    if not 1 <= number <= len(names):
        raise PateError(f"people={wanted} must be from 1 to the {len(names):,} people of this run, or `all`")
    return sorted(names, key=lambda name: _hash(name, key))[:number]


def _hash(name: str, key: bytes) -> bytes:
    return hashlib.blake2b(name.encode(errors="surrogatepass"), key=key, digest_size=16).digest()


def _listed(names: Sequence[str], path: Path) -> list[str]:
    """The people in the first column of a file, whose first line may be a heading."""
    if not path.exists():
        raise PateError(
            f"people={str(path)!r} is no file: give `all`, a number, or a file with one id a line"
        )
    lines = storage.read_bytes(path).decode("utf-8-sig").splitlines()
    listed = [line.split(",")[0].strip().strip('"') for line in lines if line.strip()]
    known = set(names)
    if listed and listed[0] not in known:
        listed = listed[1:]
    unknown = [name for name in listed if name not in known]
    if unknown or not listed:
        what = f"{unknown[0]!r}, which is" if unknown else "nobody who is"
        raise PateError(f"{path} names {what} in this run: give ids as the private records have them")
    return list(dict.fromkeys(listed))
