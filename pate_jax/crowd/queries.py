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
from pate_jax.models.spaces.medoids import cover

LENGTH = 4000  # of vectors that are compared: its square is below 2^24
_TURNS, _PACE = 40, 0.1  # of balancing, and share of a typical gap that a handicap moves by
_REACH = 1 << 22  # a handicap at most


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
    pool = vectors(chosen.scaling, public).astype(np.float64)
    squares = (chosen.vectors.astype(np.float64) ** 2).sum(0) + (pool**2).sum(1)[:, None]
    gaps = squares - 2 * pool @ chosen.vectors
    usual = gaps.mean()
    nearest = np.sort(np.partition(gaps, min(most, gaps.shape[1]) - 1, axis=1)[:, :most], axis=1)
    return 1 - nearest.mean(0) / usual if usual > 0 else np.ones(nearest.shape[1])


def _balance(
    pool: Int[np.ndarray, "pool directions"],
    chosen: Int[np.ndarray, "query directions"],
    squares: Int[np.ndarray, " query"],
) -> Float[np.ndarray, " query"]:
    """Handicaps with which the pool falls to the queries in about equal parts."""
    gaps = squares - 2.0 * (pool.astype(np.float64) @ chosen.T)
    share = len(pool) / len(chosen)
    between = np.partition(gaps, min(1, len(chosen) - 1), axis=1)
    typical = float(np.median(between[:, min(1, len(chosen) - 1)] - between[:, 0]))
    handicaps = np.zeros(len(chosen))
    for _ in range(_TURNS):
        there = np.bincount((gaps + handicaps).argmin(1), minlength=len(chosen))
        handicaps += _PACE * typical * np.log((there + 1) / (share + 1))
    return handicaps
