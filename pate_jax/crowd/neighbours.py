"""Every voter votes for its own label at the public queries that are nearest to it.

Nearness is counted in whole numbers (`models.integers`), with ties to the query of the lower number, so the
queries of a record are a function of that record, the space and the queries. A user votes at the queries that
are nearest to any of its records, once at each, by the label of the nearest record there, and of equally near
ones the lowest label: a function of that user's records, in any order. No voter ever has two votes in one
cell, which `mechanisms.crowds` needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Num

from pate_jax.crowd.queries import Queries
from pate_jax.crowd.vectors import bounded
from pate_jax.crowd.voters import Rows, Voters, check_labels, each_block, own_rows
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import NeighbourCounts
from pate_jax.models import integers
from pate_jax.models.spaces.space import Axes, Space, along
from pate_jax.system import devices as system

_NEAREST, _FARTHEST = -(1 << 31), (1 << 31) - 1  # beyond all gaps


class _Constants(NamedTuple):
    """What is public in the kernel: the space, and the queries in it."""

    axes: Axes
    weights: Float[Array | np.ndarray, " directions"]
    vectors: Float[Array | np.ndarray, "directions query"]
    offsets: Int[Array | np.ndarray, " query"]


class Cast(NamedTuple):
    """Votes one by one: whose, at which query, and for which class."""

    voters: Int[np.ndarray, " vote"]
    queries: Int[np.ndarray, " vote"]
    labels: Int[np.ndarray, " vote"]


def counts(
    space: Space,
    queries: Queries,
    people: Voters,
    release: NeighbourCounts,
    *,
    devices: int | None = None,
) -> Int[np.ndarray, "query class"]:
    """Votes for each class at each query. They are private until `aggregate.crowds` has added the noise.

    Where several processes run together, each is given the same voters, reads its own part of them, and
    returns the counts of all.
    """
    with system.failing_together():
        if release.queries != len(queries.rows):
            raise PateError(f"{len(queries.rows)} queries are given for a release of {release.queries}")
        check_labels(people.labels, release.classes)
    rows = own_rows(people)
    with system.failing_together():
        table = _own_counts(space, queries, people, rows, release, devices)
    return np.asarray(system.sum_over_processes(table))


def _own_counts(
    space: Space,
    queries: Queries,
    people: Voters,
    rows: Rows,
    release: NeighbourCounts,
    count: int | None,
) -> Int[np.ndarray, "query class"]:
    """The votes of the records in these rows."""
    found = _offers(space, queries, people.inputs, rows, release.votes, count)
    if people.users is None:
        table = np.zeros(release.shape, np.int64)
        for places, _, there in found:
            table += _counted(places, people.labels[there][:, None], release)
        return table
    places, gaps, there = _joined(found, release.votes)
    made = votes_by_user(places, gaps, people.users[there], people.labels[there], release.votes)
    return _counted(made.queries, made.labels, release)


def cast(space: Space, queries: Queries, people: Voters, votes: int) -> Cast:
    """Every single vote, by record or by the number of the user: private, and the counts are their number."""
    rows = range(len(people.labels))
    places, gaps, there = _joined(_offers(space, queries, people.inputs, rows, votes, None), votes)
    if people.users is None:
        return Cast(np.repeat(there, votes), places.ravel(), np.repeat(people.labels[there], votes))
    return votes_by_user(places, gaps, people.users[there], people.labels[there], votes)


def nearest(
    space: Space, queries: Queries, inputs: np.ndarray, votes: int, *, devices: int | None = None
) -> Int[np.ndarray, "record votes"]:
    """The nearest queries of each record, the nearest first."""
    if not 1 <= votes <= len(queries.rows):
        raise PateError(f"votes={votes} must be from 1 to the {len(queries.rows)} queries")
    found = _offers(space, queries, inputs, range(len(inputs)), votes, devices)
    return np.concatenate([places for places, _, _ in found])


def _offers(
    space: Space, queries: Queries, inputs: np.ndarray, rows: Rows, votes: int, count: int | None
) -> Iterator[tuple[np.ndarray, ...]]:
    """Of each block of records: the nearest queries of each, the nearest first, their gaps, and the rows."""
    scaling = queries.scaling
    constants = _Constants(space.axes, scaling.weights, queries.vectors, queries.offsets)

    def work(public: _Constants, seen: np.ndarray, there: np.ndarray) -> tuple[np.ndarray, ...]:
        places, gaps = _ranked(public, seen, length=scaling.length, votes=votes)
        return np.asarray(places)[: len(there)], np.asarray(gaps)[: len(there)], there

    return each_block(space, inputs, rows, work, constants, count=count)


def _joined(offers: Iterator[tuple[np.ndarray, ...]], votes: int) -> tuple[np.ndarray, ...]:
    """The offers of all blocks together."""
    none = np.zeros((0, votes), np.int32)
    each = [(none, none, np.zeros(0, np.int64)), *offers]
    return tuple(np.concatenate([offer[part] for offer in each]) for part in range(3))


@partial(jax.jit, static_argnames=("length", "votes"))
def _ranked(
    public: _Constants, seen: Array, *, length: int, votes: int
) -> tuple[Int[Array, "row votes"], Int[Array, "row votes"]]:
    """The nearest queries of records, from their features, and how far they are, with their handicaps."""
    rows = bounded(along(public.axes, seen), public.weights, length, 0)
    places, gaps = ranked(rows, public.vectors, public.offsets, votes)
    return places, gaps + (rows * rows).sum(1)[:, None]


def ranked(
    rows: Int[Array, "row directions"],
    queries: Num[Array | np.ndarray, "directions query"],
    offsets: Int[Array | np.ndarray, " query"],
    votes: int,
) -> tuple[Int[Array, "row votes"], Int[Array, "row votes"]]:
    """The nearest queries of each row and their gaps: squared distances, less the row's own square.

    Minima over the first axis take a twentieth of the time of `jax.lax.top_k` on a CPU.
    """
    gaps = jnp.asarray(offsets, jnp.int32)[:, None] - 2 * integers.product(queries.T, rows.T)
    numbers = jnp.arange(len(gaps), dtype=jnp.int32)[:, None]

    def following(last: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        gap, place = last
        left = (gaps > gap) | ((gaps == gap) & (numbers > place))
        gap = jnp.where(left, gaps, _FARTHEST).min(0)
        place = jnp.where(left & (gaps == gap), numbers, len(gaps)).min(0)  # of equal ones the lower number
        return (gap, place), (gap, place)

    zeros = gaps[0] ^ gaps[0]  # which vary over a mesh as the rows do
    gap, place = jax.lax.scan(following, (zeros + _NEAREST, zeros - 1), length=votes)[1]
    return place.T, gap.T


def _counted(query: np.ndarray, label: np.ndarray, release: NeighbourCounts) -> np.ndarray:
    """The table of these votes."""
    cells = (query.astype(np.int64) * release.classes + label).ravel()
    return np.bincount(cells, minlength=release.queries * release.classes).reshape(release.shape)


def votes_by_user(
    places: Int[np.ndarray, "record votes"],
    gaps: Int[np.ndarray, "record votes"],
    users: Int[np.ndarray, " record"],
    labels: Int[np.ndarray, " record"],
    votes: int,
) -> Cast:
    """One user's votes: the nearest record at each query, then the nearest queries.

    Each record offers its own nearest ones only. None is missed: where a query is not among a record's
    nearest, as many others are nearer to that record, and so to its user.
    """
    users, labels = np.repeat(users, votes), np.repeat(labels, votes)
    query, gap = places.ravel(), gaps.ravel()
    order = np.lexsort((labels, gap, query, users))
    users, query, gap, labels = (each[order] for each in (users, query, gap, labels))
    first = np.flatnonzero(_begins(users) | _begins(query))
    users, query, gap, labels = (each[first] for each in (users, query, gap, labels))
    order = np.lexsort((query, gap, users))
    begin = _begins(users[order])
    rank = np.arange(len(order)) - np.maximum.accumulate(np.where(begin, np.arange(len(order)), 0))
    chosen = order[rank < votes]
    return Cast(users[chosen], query[chosen], labels[chosen])


def _begins(values: np.ndarray) -> np.ndarray:
    """Where a value differs from the one before it."""
    return np.concatenate([np.ones(min(1, len(values)), bool), values[1:] != values[:-1]])
