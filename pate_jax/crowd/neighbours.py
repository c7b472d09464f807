"""Every voter votes for its own label at the public queries that are nearest to it.

Nearness is counted in whole numbers (`spaces.whole`), with ties to the query of the lower number, so the
queries of a record are a function of that record, the space and the queries. A user votes at the queries that
are nearest to any of its records, once at each, by the label of the nearest record there, and of equally near
ones the lowest label: a function of that user's records, in any order. No voter ever has two votes in one
cell, which `mechanisms.crowds` needs.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from pate_jax.crowd.queries import Queries
from pate_jax.crowd.vectors import Scaling, bounded
from pate_jax.crowd.voters import Voters, each_block, padded
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import NeighbourCounts
from pate_jax.models.spaces import whole
from pate_jax.models.spaces.space import Space


def counts(
    space: Space,
    queries: Queries,
    people: Voters,
    release: NeighbourCounts,
    *,
    devices: int | None = None,
) -> Int[np.ndarray, "query class"]:
    """Votes for each class at each query. They are private until `aggregate.crowds` has added the noise."""
    if release.queries != len(queries.rows):
        raise PateError(f"{len(queries.rows)} queries are given for a release of {release.queries}")

    def work(coordinates: jax.Array, rows: np.ndarray) -> Any:
        places, gaps = _nearest(coordinates, queries, release.votes)
        if people.users is None:
            return _counted(places, padded(people.labels[rows], -1), release.shape)
        return places[: len(rows)], gaps[: len(rows)]

    blocks = each_block(space, people.inputs, None, work, count=devices)
    if people.users is None:
        return sum((block.astype(np.int64) for block in blocks), np.zeros(release.shape, np.int64))
    found = list(blocks)
    places, gaps = (np.concatenate([block[part] for block in found]) for part in range(2))
    return _by_user(places, gaps, people.users, people.labels, release)


def nearest(
    space: Space, queries: Queries, inputs: np.ndarray, votes: int, *, devices: int | None = None
) -> Int[np.ndarray, "record votes"]:
    """The nearest queries of each record, the nearest first."""
    blocks = each_block(
        space,
        inputs,
        None,
        lambda found, rows: _nearest(found, queries, votes)[0][: len(rows)],
        count=devices,
    )
    return np.concatenate(list(blocks))


def _nearest(coordinates: Array, queries: Queries, votes: int) -> tuple[Array, Array]:
    scaling: Scaling = queries.scaling
    return _ranked(coordinates, scaling.weights, queries.vectors, queries.offsets, scaling.length, votes)


@partial(jax.jit, static_argnums=(4, 5))
def _ranked(
    coordinates: Array, weights: Array, vectors: Array, offsets: Array, length: int, votes: int
) -> tuple[Array, Array]:
    """The nearest queries of each row and their gaps: squared distances, less the row's own square."""
    rows = bounded(coordinates, weights, length, 0)
    gaps = offsets - 2 * whole.product(rows, vectors)
    negative, places = jax.lax.top_k(-gaps, votes)  # of equal ones the lower place comes first
    return places, -negative


@partial(jax.jit, static_argnums=2)
def _counted(places: Array, labels: Array, shape: tuple[int, int]) -> Array:
    """Counts of one block; rows of no record have the label -1 and add nothing."""
    ones = jnp.broadcast_to((labels >= 0)[:, None].astype(jnp.int32), places.shape)
    return jnp.zeros(shape, jnp.int32).at[places, jnp.maximum(labels, 0)[:, None]].add(ones)


def _by_user(
    places: Int[np.ndarray, "record votes"],
    gaps: Int[np.ndarray, "record votes"],
    users: Int[np.ndarray, " record"],
    labels: Int[np.ndarray, " record"],
    release: NeighbourCounts,
) -> Int[np.ndarray, "query class"]:
    """One user's votes: the nearest record at each query, then the nearest queries.

    Each record offers its own nearest ones only. None is missed: where a query is not among a record's
    nearest, as many others are nearer to that record, and so to its user.
    """
    users = np.repeat(users, release.votes)
    labels = np.repeat(labels, release.votes)
    query, gap = places.ravel(), gaps.ravel()
    order = np.lexsort((labels, gap, query, users))
    users, query, gap, labels = (each[order] for each in (users, query, gap, labels))
    first = np.flatnonzero(_begins(users) | _begins(query))
    users, query, gap, labels = (each[first] for each in (users, query, gap, labels))
    order = np.lexsort((query, gap, users))
    begin = _begins(users[order])
    rank = np.arange(len(order)) - np.maximum.accumulate(np.where(begin, np.arange(len(order)), 0))
    cast = order[rank < release.votes]
    table = np.zeros(release.shape, np.int64)
    np.add.at(table, (query[cast], labels[cast]), 1)
    return table


def _begins(values: np.ndarray) -> np.ndarray:
    """Where a value differs from the one before it."""
    return np.concatenate([np.ones(min(1, len(values)), bool), values[1:] != values[:-1]])
