"""The queries that neighbours vote at: public inputs, one for each of as many clusters of the pool.

They are medoids in the same space that voters are compared in: chosen in another one, some have hardly a
voter, and their labels drown in noise. For the same reason each gets a handicap, from the public pool, that
shifts the border with its neighbours until all have about as many public inputs on their side.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pate_jax.crowd.vectors import Scaling, vectors
from pate_jax.errors import PateError
from pate_jax.models.clusters import cover

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
