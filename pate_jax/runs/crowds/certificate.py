"""What a crowd's run shows of its voters: who they are, in digests, and how little each of them can say.

It is the certificate of a partition into one part, so that counts, hashes and digests of records and users
are checked as those of teachers' shards are, and beside it: how many votes one voter casts, or how long its
vector is at most, how far that moves the table, and which table was counted on which public side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from jaxtyping import Int

from pate_jax.data import Part, partition
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import CrowdTable, NeighbourCounts
from pate_jax.system import storage

Table = Int[np.ndarray, "rows columns"]
HELD_OUT = "held_out"


def certificate(
    part: Part, *, key: bytes, by: str, release: CrowdTable, table: Table, public: str, held_out: int = 0
) -> dict[str, Any]:
    """The certificate of a table that was counted on the public side with this digest. It is private.

    `held_out` says how many voters of the part did not vote.
    """
    proof = partition.certificate(partition.divide(part, 1, key=key, by=by), part, key=key, by=by)
    silent = {HELD_OUT: held_out} if held_out else {}
    return {**proof, **silent, **_said(release, table, public)}


def faults(found: Mapping[str, Any], release: CrowdTable, table: Table, public: str) -> Iterator[str]:
    """What of a certificate does not fit a release, the table that was counted for it, or itself."""
    yield from partition.check_sums(found)
    said = _said(release, table, public)
    yield from (
        f"{name} is certified as {found.get(name)!r}, and is {said[name]!r}"
        for name in said
        if found.get(name) != said[name]
    )
    yield from beyond(release, table, voters(found) - held_out(found))


def voters(found: Mapping[str, Any]) -> int:
    """How many voters are certified, those who are held out among them."""
    return int(found["users"] if found["by"] == "user" else found["records"])


def held_out(found: Mapping[str, Any]) -> int:
    """How many of them are held out; none in a run of one round."""
    silent = found.get(HELD_OUT, 0)
    if type(silent) is not int or not 0 <= silent <= voters(found):
        raise PateError(f"the certificate has {HELD_OUT}={silent!r}: restore it from a backup")
    return silent


def beyond(release: CrowdTable, table: Table, voters: int) -> Iterator[str]:
    """What of a table so many voters cannot have cast, if each keeps to the release's bound.

    >>> release = NeighbourCounts(queries=3, classes=2, votes=1, sigma=2.0)
    >>> list(beyond(release, np.array([[2, 0], [1, 1], [0, 0]]), voters=4))
    []
    >>> list(beyond(release, np.array([[2, 0], [1, 1], [4, 0]]), voters=4))
    ['4 voters of 1 vote each cast 4 votes at most, and the table holds 8']
    """
    if table.shape != release.shape:
        yield f"the table is {list(table.shape)}, and the release {list(release.shape)}"
    elif isinstance(release, NeighbourCounts):
        cast = voters * release.votes
        if int(table.sum()) > cast or (table < 0).any():
            each = f"{voters:,} voters of {release.votes} vote{'s' * (release.votes > 1)} each"
            yield f"{each} cast {cast:,} votes at most, and the table holds {table.sum():,}"
        if (most := int(table.sum(1).max(initial=0))) > voters:
            yield f"{voters:,} voters vote once at a query at most, and the table has one with {most:,} votes"
    elif float((table.astype(np.float64) ** 2).sum()) > (voters * float(release.length)) ** 2 * (1 + 1e-9):
        yield f"the table is longer than {voters:,} voters of length {release.length} can make it"


def _said(release: CrowdTable, table: Table, public: str) -> dict[str, Any]:
    bound = {"votes": release.votes} if isinstance(release, NeighbourCounts) else {"length": release.length}
    moves = {change: release.squared_shift(change) for change in ("changed", "joined")}
    return {
        "voters": release.name,
        "casts": {**bound, "squared_shift": moves},
        "table": storage.digest(table),
        "public_side": public,
    }
