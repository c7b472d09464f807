"""Inputs that the private part has in common with another one: refused, unless they are known coincidences.

Public inputs must not be made of private records: answers are about them, a student may hold them, and no
noise hides them. So a row of the public, the test or a further part whose input is also a private one, as the
run stores both, is refused. Different people may be alike all the same, where columns are few: that is for
the owner to declare, who knows where the rows come from. Nothing is ever dropped in silence, since what is
left of a public part would then be a function of private records.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from pate_jax.data import duplicates
from pate_jax.data.dataset import Dataset, Part
from pate_jax.errors import SharedInputs

_NAMED = 10  # rows in the message


def rows(private: Collection[str], other: np.ndarray) -> np.ndarray:
    """The rows of another part whose input is also a private one, by the digests of these.

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
    """Refuse others, by their file or name, that hold private inputs of a data set."""
    for place, part in others.items():
        shared = rows(dataset.private_digests, part.inputs)
        if len(shared):
            named = ", ".join(map(str, shared[:_NAMED])) + ", ..." * (len(shared) > _NAMED)
            raise SharedInputs(
                f"{place}: {len(shared)} of {len(part.inputs)} inputs are private ones too (rows {named}, "
                "counted from 0), and what is public must not be made of private records: remove these rows "
                "(docs/data.md lists them all), or, where different records are alike, as in a table of few "
                "columns, declare that with --equal-rows-are-coincidences"
            )


def declared(dataset: Dataset, coincidences: bool, places: Mapping[str, str] | None = None) -> Dataset:
    """The data set, where its parts share no inputs, or where shared ones are declared coincidences.

    `places` names the files of its parts.
    """
    if coincidences:
        return replace(dataset, equal_rows="declared")
    if dataset.equal_rows == "refused":
        refuse(dataset, {(places or {}).get(name, name): part for name, part in parts(dataset).items()})
    return dataset
