"""One file of votes from those of several owners who asked their own teachers the same queries."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from pate_jax.errors import PateError
from pate_jax.voting.votes import Votes


def merge(parts: Sequence[Votes], names: Sequence[str]) -> Votes:
    """The votes of the teachers of all parts, which must be on the same queries in the same order.

    `names` are those of the parts in messages. Every part must name its queries, by digests of the inputs or
    by ids, and what two parts both say of a query must be the same. Teachers' labels are kept if every part
    has them, and then stand in the order of the parts.

    >>> first = Votes(np.array([[2, 0], [1, 1]]), ids=np.array(["a", "b"]))
    >>> second = Votes(np.array([[0, 1], [0, 1]]), ids=np.array(["a", "b"]))
    >>> merge([first, second], ["A", "B"]).votes.tolist()
    [[2, 1], [1, 2]]
    """
    if len(parts) < 2:
        raise PateError(f"{len(parts)} votes files are given: name the files of at least two owners")
    first = parts[0]
    if not len(first.votes):
        raise PateError(f"{names[0]} holds votes on no query: write one row for each query into it")
    for part, name in zip(parts[1:], names[1:], strict=True):
        _check_sizes(first, part, names[0], name)
    named = [field for field in ("digests", "ids") if all(getattr(part, field) is not None for part in parts)]
    if not named:
        raise PateError(
            f"{', '.join(names)} do not all name their queries in one way, so nobody can tell whether they "
            "are the same: give each file `ids`, one for each query, or the `digests` that `pate vote` writes"
        )
    for part, name in zip(parts[1:], names[1:], strict=True):
        for field in named:
            _check_same(field, first, part, names[0], name)
        _check_truth(first, part, names[0], name)
    _check_given_once(parts, names)
    return Votes(
        np.stack([part.votes for part in parts]).sum(0, dtype=np.int64),
        _teacher_labels(parts),
        ids=first.ids if "ids" in named else None,
        labels=next((part.labels for part in parts if part.labels is not None), None),
        digests=first.digests if "digests" in named else None,
        trial=any(part.trial for part in parts),
    )


def _check_sizes(first: Votes, other: Votes, one: str, name: str) -> None:
    for axis, what in enumerate(("queries", "classes")):
        mine, theirs = first.votes.shape[axis], other.votes.shape[axis]
        if mine != theirs:
            raise PateError(
                f"{one} has {mine} {what} and {name} has {theirs}: let both owners' teachers answer the same "
                "list of queries over the same classes, and write the files again"
            )


def _check_same(field: str, first: Votes, other: Votes, one: str, name: str) -> None:
    """Refuse names of queries that differ, and say how."""
    mine, theirs = np.asarray(getattr(first, field)), np.asarray(getattr(other, field))
    differ = np.flatnonzero(mine != theirs)
    if not differ.size:
        return
    what = "inputs" if field == "digests" else "ids"
    if np.array_equal(np.sort(mine), np.sort(theirs)):
        raise PateError(
            f"{one} and {name} have the same queries in another order (the first at row {differ[0]}): write "
            "both in one order"
        )
    raise PateError(
        f"{one} and {name} are on other queries: the {what} of {differ.size} of {len(mine)} rows differ, the "
        f"first in row {differ[0]}; let both owners' teachers answer one list of public inputs"
    )


def _check_truth(first: Votes, other: Votes, one: str, name: str) -> None:
    if first.labels is None or other.labels is None or np.array_equal(first.labels, other.labels):
        return
    row = int(np.flatnonzero(first.labels != other.labels)[0])
    raise PateError(
        f"{one} says that the true label of row {row} is {first.labels[row]}, and {name} that it is "
        f"{other.labels[row]}: number the classes in one order, and write the files again"
    )


def _check_given_once(parts: Sequence[Votes], names: Sequence[str]) -> None:
    """Refuse equal votes, whatever their names and types: a copy would count an owner's records twice."""
    for (part, name), (other, again) in combinations(zip(parts, names, strict=True), 2):
        if np.array_equal(part.votes, other.votes):
            raise PateError(
                f"{name} and {again} hold the same votes on all {len(part.votes)} queries, and a record "
                "whose votes are given twice moves two: give each owner's votes once; if teachers of two "
                "owners do agree on every query, let all of them answer a longer list"
            )


def _teacher_labels(parts: Sequence[Votes]) -> np.ndarray | None:
    found = [part.teacher_labels for part in parts if part.teacher_labels is not None]
    return np.concatenate(found) if len(found) == len(parts) else None
