"""The certificate of votes that were joined from several owners': whom a run on such votes can cover.

An owner's teachers change together, so the whole vote of an owner is one vote only if it has one teacher. A
group of g teachers would cost g^2 times as much (docs/proofs/parties.md), and one teacher of all the owner's
records serves better. So the relation `party` is of owners that have one teacher each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pate_jax.errors import PateError
from pate_jax.system import storage
from pate_jax.voting import Votes

KIND, CERTIFICATE = "votes-of-owners", "certificate.json"
Certificate = Mapping[str, Any]


def beside(file: Path) -> Certificate | None:
    """The certificate that `pate merge` wrote beside a votes file; None where there is none.

    >>> beside(Path("nowhere/votes.npz")) is None
    True
    """
    path = file.resolve().parent / CERTIFICATE
    if not path.exists():
        return None
    body = storage.parse_json(storage.read_bytes(path), path)
    return storage.read_json(path, KIND) if body.get("artefact") == KIND else None


def check_teachers(names: Sequence[str], teachers: Sequence[int]) -> None:
    """Refuse to promise something to an owner that moves many votes of a query.

    >>> check_teachers(["A", "B"], [1, 1])
    """
    for name, number in zip(names, teachers, strict=True):
        if number != 1:
            raise PateError(
                f"{name} has {number} teachers, and --relation party covers an owner's whole vote, which is "
                f"{number} votes on each query: let each owner train one teacher on all of its records, or "
                "compare ids and declare --relation record, user or contents"
            )


def check(certificate: Certificate, relation: str | None, votes: Votes) -> None:
    """Refuse a declaration that the certificate of these votes does not cover."""
    teachers = int(votes.votes.sum(1).max(initial=0))
    for fault in faults(certificate, relation, storage.digest(votes.votes), teachers):
        raise PateError(f"{fault}; whom joined votes cover is settled by `pate merge`")


def faults(certificate: Certificate, relation: str | None, digest: str, teachers: int) -> Iterator[str]:
    """Why votes of this digest cannot be answered under a relation."""
    try:
        named, compared = certificate["relation"], certificate["relation"] == "party" or certificate["salt"]
        numbers = [owner["teachers"] for owner in certificate["owners"]]
        yours, together = certificate["votes"], sum(numbers)
    except (KeyError, TypeError) as error:
        yield f"the certificate of the joined votes is damaged ({error!r})"
        return
    if yours != digest:
        yield "the certificate beside the votes is of other votes: each has a folder of its own"
    if named != relation:
        yield f"the votes were joined under --relation {named}, and the run declares {relation}"
    if not compared:
        yield f"no ids of the owners were compared, and --relation {named} holds only if none is with two"
    if named == "party" and set(numbers) != {1}:
        yield f"the owners have {numbers} teachers, and --relation party is of owners that have one each"
    if together != teachers:
        yield f"the owners have {together} teachers together, and {teachers} voted"
