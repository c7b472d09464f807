"""Inputs that the private part shares with another part: refused, unless they are declared coincidences.

Public inputs must not be made of private records: answers are about them, a student may contain them, and no
noise hides them. So a row of the public, the test or another part is refused if its input is also a private
one, in the form in which the run stores both. Different people may have equal rows in a table of few columns;
the owner, who knows where the rows come from, can declare this. No row is ever dropped silently, because the
rest of a public part would then depend on private records.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from pate_jax.data import duplicates
from pate_jax.data.dataset import Dataset, Part
from pate_jax.errors import SharedInputs

_NAMED = 10  # the most rows that the message names


def rows(private: Collection[str], other: np.ndarray) -> np.ndarray:
    """The rows of another part whose input is also a private one, given the digests of private inputs.

    >>> private = duplicates.digests(np.array([[1.0], [2.0]]))
    >>> rows(private, np.array([[3.0], [2.0], [2.0]])).tolist()
    [1, 2]
    """
    return np.flatnonzero(duplicates.repeats(other, private))


def parts(dataset: Dataset) -> dict[str, Part]:
    """The parts of a data set that must not hold private inputs."""
    named = {"public": dataset.public, "test": dataset.test}
    return {name: part for name, part in named.items() if part is not None}


def refuse(dataset: Dataset, others: Mapping[str, Part]) -> None:
    """Refuse other parts, given by file or name, that contain private inputs of a data set."""
    for place, part in others.items():
        shared = rows(dataset.private_digests, part.inputs)
        if len(shared):
            named = ", ".join(map(str, shared[:_NAMED])) + ", ..." * (len(shared) > _NAMED)
            raise SharedInputs(
                f"{place}: {len(shared)} of {len(part.inputs)} inputs are private ones too (rows {named}, "
                "counted from 0), and public inputs must not be made of private records: remove these rows "
                "(docs/data.md shows how to list them all). If different records are equal by chance, as in "
                "a table of few columns, declare that with --equal-rows-are-coincidences"
            )


def declared(dataset: Dataset, coincidences: bool, places: Mapping[str, str] | None = None) -> Dataset:
    """The data set, if its parts share no inputs or shared ones are declared coincidences.

    `places` are the files of its parts, for the message.
    """
    if coincidences:
        return replace(dataset, equal_rows="declared")
    if dataset.equal_rows == "refused":
        refuse(dataset, {(places or {}).get(name, name): part for name, part in parts(dataset).items()})
    return dataset
