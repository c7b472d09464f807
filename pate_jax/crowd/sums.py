"""Every voter casts one vector: sums of vectors by class, in whole numbers.

A record adds its vector to the row of its class, or, of two classes, the vector or its negative to the only
row. A user adds the mean of its records' tables, cut to whole numbers towards zero: by the triangle
inequality it is no longer than one record's, which is counted once more in whole numbers, and a table of
which it is not true would be left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from pate_jax.crowd.vectors import Scaling, bounded
from pate_jax.crowd.voters import Voters, each_block, padded
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums
from pate_jax.models.spaces.space import Space


def sums(
    space: Space, scaling: Scaling, people: Voters, release: ClassSums, *, devices: int | None = None
) -> Int[np.ndarray, "class direction"]:
    """The exact sums. They are private: `aggregate.crowds` adds the noise."""
    entries = len(scaling.weights) + (scaling.constant > 0)
    if (release.directions, release.length) != (entries, scaling.length):
        raise PateError(
            f"vectors of {entries} entries and length {scaling.length} are given for a release of "
            f"{release.directions} and {release.length}"
        )
    total = np.zeros(release.shape, np.int64)
    if people.users is None:

        def work(coordinates: jax.Array, rows: np.ndarray) -> Any:
            vectors = bounded(coordinates, scaling.weights, scaling.length, scaling.constant)
            return _summed(vectors, padded(people.labels[rows], -1), release.classes)

        for block in each_block(space, people.inputs, None, work, count=devices):
            total += block
        return total
    for table in _tables_of_users(space, scaling, people, people.users, release, devices):
        total += table
    return total


@partial(jax.jit, static_argnums=2)
def _summed(vectors: Array, labels: Array, classes: int) -> Array:
    """The sums of one block, of 1,000 vectors of length 8,000 at most: far below 2^31."""
    if classes == 2:
        signs = jnp.where(labels < 0, 0, 2 * labels - 1)
        return (vectors * signs[:, None]).sum(0, keepdims=True)
    rows = jnp.where(labels < 0, classes, labels)
    return jax.ops.segment_sum(vectors, rows, classes + 1)[:classes]


def _tables_of_users(
    space: Space,
    scaling: Scaling,
    people: Voters,
    users: Int[np.ndarray, " record"],
    release: ClassSums,
    devices: int | None,
) -> Iterator[Int[np.ndarray, "class direction"]]:
    """One bounded table for each user, whose records are read one after another."""
    order = np.argsort(users, kind="stable")

    def work(coordinates: jax.Array, rows: np.ndarray) -> Any:
        return bounded(coordinates, scaling.weights, scaling.length, scaling.constant)[: len(rows)], rows

    whose, held, records = None, np.zeros(release.shape, np.int64), 0
    for vectors, rows in each_block(space, people.inputs, order, work, count=devices):
        owners = users[rows]
        cuts = [0, *(np.flatnonzero(owners[1:] != owners[:-1]) + 1).tolist(), len(rows)]
        for start, end in itertools.pairwise(cuts):
            if whose is not None and owners[start] != whose:
                yield _mean(held, records, release)
                held, records = np.zeros(release.shape, np.int64), 0
            whose, records = owners[start], records + end - start
            held += _table(vectors[start:end], people.labels[rows[start:end]], release)
    if len(users):
        yield _mean(held, records, release)


def _table(vectors: np.ndarray, labels: np.ndarray, release: ClassSums) -> np.ndarray:
    """The sum of the tables of some records."""
    made = np.zeros(release.shape, np.int64)
    if release.classes == 2:
        made[0] = ((2 * labels.astype(np.int64) - 1)[:, None] * vectors).sum(0)
    else:
        np.add.at(made, labels, vectors.astype(np.int64))
    return made


def _mean(table: np.ndarray, records: int, release: ClassSums) -> np.ndarray:
    mean = np.sign(table) * (np.abs(table) // records)
    return mean if (mean**2).sum() <= release.length**2 else np.zeros_like(mean)
