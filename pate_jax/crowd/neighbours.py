"""Every voter votes for its own label at the public queries that are nearest to it.

Nearness is counted in whole numbers (`models.integers`), with ties to the query of the lower number, so the
queries of a record are a function of that record, the space and the queries. A user votes at the queries that
are nearest to any of its records, once at each, by the label of the nearest record there, and of equally near
ones the lowest label: a function of that user's records, in any order. No voter ever has two votes in one
cell, which `mechanisms.crowds` needs.

The queries are public inputs, one for each of as many clusters of the pool. They are medoids in the same
space that voters are compared in: chosen in another one, some have hardly a voter, and their labels drown in
noise. For the same reason each gets a handicap, from the public pool, that shifts the border with its
neighbours until all have about as many public inputs on their side.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Num

from pate_jax.crowd.vectors import Scaling, bounded, vectors
from pate_jax.crowd.voters import Rows, Voters, check_labels, each_block, own_rows
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import NeighbourCounts
from pate_jax.models import integers
from pate_jax.models.clusters import cover
from pate_jax.models.spaces.space import Axes, Space, along
from pate_jax.system import devices as system

LENGTH = 4000  # of vectors that are compared: its square is below 2^24
_TURNS, _PACE = 40, 0.1  # of balancing, and share of a typical gap that a handicap moves by
_REACH = 1 << 22  # a handicap at most
_SOME = 64  # nearest queries of a public input among which it is balanced first
_AT_ONCE = 1 << 22  # distances in one array


class Queries(NamedTuple):
    """Public inputs by their rows, and what nearness to them is."""

    rows: Int[np.ndarray, " query"]
    vectors: Float[np.ndarray, "directions query"]  # whole numbers
    offsets: Int[np.ndarray, " query"]  # squared length and handicap
    scaling: Scaling


def choose(
    scaling: Scaling, public: Int[np.ndarray, "pool directions"], wanted: int, *, balanced: bool = True
) -> Queries:
    """As many queries as wanted among public inputs, given by their coordinates."""
    if not 1 <= wanted <= len(public):
        raise PateError(
            f"queries={wanted} must be from 1 to the {len(public)} public inputs: give more, or ask fewer"
        )
    if scaling.length > LENGTH:
        raise PateError(f"length={scaling.length} of vectors that are compared must be at most {LENGTH}")
    pool = vectors(scaling, public)
    rows = np.sort(cover(pool.astype(np.float32), wanted, np.random.default_rng(0)))
    chosen = pool[rows].astype(np.int64)
    squares = (chosen**2).sum(1)
    handicaps = _balance(pool, chosen, squares) if balanced else np.zeros(wanted)
    offsets = squares + np.clip(handicaps, -_REACH, _REACH).astype(np.int64)
    return Queries(rows, chosen.T.astype(np.float32), offsets.astype(np.int32), scaling)


def likeness(
    chosen: Queries, public: Int[np.ndarray, "pool directions"], most: int
) -> Float[np.ndarray, " rank"]:
    """How like public inputs are to their nearest query, the second nearest, and so on up to `most`.

    It is 1 for the same place and 0 for a query's mean square distance: the correlation of a random linear
    function's values at two places, if it prefers no direction.

    >>> pool = np.array([[-90], [-80], [80], [90]])
    >>> likeness(choose(Scaling(np.ones(1), 100, 0), pool, 2), pool, 2).round(1).tolist()
    [1.0, -1.0]
    """
    pool, queries = (one.astype(np.float64) for one in (vectors(chosen.scaling, public), chosen.vectors.T))
    own, squares = (pool**2).sum(1), (queries**2).sum(1)
    nearest = np.empty((len(pool), min(most, len(queries))))
    for rows in _pieces(np.arange(len(pool)), len(queries)):
        gaps = _gaps(pool[rows], queries, squares) + own[rows, None]
        nearest[rows] = np.sort(np.partition(gaps, nearest.shape[1] - 1, axis=1)[:, :most], axis=1)
    usual = own.mean() + squares.mean() - 2 * pool.mean(0) @ queries.mean(0)
    return 1 - nearest.mean(0) / usual if usual > 0 else np.ones(nearest.shape[1])


def _balance(
    pool: Int[np.ndarray, "pool directions"],
    chosen: Int[np.ndarray, "query directions"],
    squares: Int[np.ndarray, " query"],
) -> Float[np.ndarray, " query"]:
    """Handicaps with which the pool falls to the queries in about equal parts."""
    near = _near(pool, chosen, squares)
    share = len(pool) / len(chosen)
    two = np.partition(near.gaps, min(1, near.gaps.shape[1] - 1), axis=1)[:, :2]
    typical = float(np.median(two[:, -1] - two[:, 0]))
    handicaps = np.zeros(len(chosen))
    for _ in range(_TURNS):
        nearest = _nearest(near, handicaps)
        unsure = np.flatnonzero(nearest < 0)
        for rows in _pieces(unsure, len(chosen)):
            nearest[rows] = (_gaps(pool[rows], chosen, squares) + handicaps).argmin(1)
        there = np.bincount(nearest, minlength=len(chosen))
        handicaps += _PACE * typical * np.log((there + 1) / (share + 1))
    return handicaps


class _Near(NamedTuple):
    """The queries nearest to each public input, and what they are nearer by than all others."""

    queries: Int[np.ndarray, "pool some"]  # in ascending order of their numbers
    gaps: Float[np.ndarray, "pool some"]  # squared distance, less the input's own square
    others: Float[np.ndarray, " pool"]  # the least gap of all other queries, or less


def _near(pool: np.ndarray, chosen: np.ndarray, squares: np.ndarray) -> _Near:
    """A few candidates for each input, so that balancing need not look at all queries in every turn."""
    some = min(_SOME, len(chosen))
    near = np.empty((len(pool), some), np.int64)
    gaps, others = np.empty(near.shape), np.full(len(pool), np.inf)
    for rows in _pieces(np.arange(len(pool)), len(chosen)):
        each = _gaps(pool[rows], chosen, squares)
        if some < len(chosen):
            near[rows] = np.sort(np.argpartition(each, some - 1, axis=1)[:, :some], axis=1)
            others[rows] = np.take_along_axis(each, near[rows], axis=1).max(axis=1)
        else:
            near[rows] = np.arange(some)
        gaps[rows] = np.take_along_axis(each, near[rows], axis=1)
    return _Near(near, gaps, others)


def _nearest(near: _Near, handicaps: np.ndarray) -> Int[np.ndarray, " pool"]:
    """The nearest query of each input with these handicaps; -1 where it may be none of its candidates."""
    gaps = near.gaps + handicaps[near.queries]
    at = gaps.argmin(1)[:, None]
    sure = np.take_along_axis(gaps, at, axis=1)[:, 0] < near.others + handicaps.min()
    return np.where(sure, np.take_along_axis(near.queries, at, axis=1)[:, 0], -1)


def _gaps(pool: np.ndarray, chosen: np.ndarray, squares: np.ndarray) -> Float[np.ndarray, "pool query"]:
    """Squared distances less the inputs' own squares; all numbers are whole, so nothing is rounded."""
    gaps = pool.astype(np.float64) @ (-2.0 * chosen.T)
    gaps += squares
    return gaps


def _pieces(rows: Int[np.ndarray, " row"], queries: int) -> list[Int[np.ndarray, " piece"]]:
    """Rows in pieces whose distances to all queries take little memory."""
    return np.array_split(rows, -(-len(rows) * queries // _AT_ONCE)) if len(rows) else []


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
    """Votes for each class at each query. They are private until `aggregate.noise` has added the noise.

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
