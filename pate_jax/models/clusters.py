"""Clusters by k-means: its two steps, and points that stand for all others, the medoid of each cluster."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse

from pate_jax.system import progress

_BLOCK = 512  # points compared with all centres at a time: their gaps stay in the processor's cache


def nearest(
    points: Float[np.ndarray, "point entries"], centres: Float[np.ndarray, "centre entries"]
) -> Int[np.ndarray, " point"]:
    """The number of the centre that is nearest to each point, the first of equally near ones.

    >>> nearest(np.array([[0.0, 1.0], [9.0, 9.0]]), np.array([[8.0, 8.0], [0.0, 0.0]])).tolist()
    [1, 0]
    """
    doubled, squares = -2 * centres.T, (centres**2).sum(1)
    room = np.empty((min(_BLOCK, len(points)), len(centres)), np.result_type(points, centres))
    found = np.empty(len(points), np.int64)
    for start in range(0, len(points), _BLOCK):
        some = points[start : start + _BLOCK]
        gaps = np.matmul(some, doubled, out=room[: len(some)])
        gaps += squares
        gaps.argmin(1, out=found[start : start + _BLOCK])
    return found


def middles(
    points: Float[np.ndarray, "point entries"],
    kinds: Int[np.ndarray, " point"],
    before: Float[np.ndarray, "centre entries"],
) -> Float[np.ndarray, "centre entries"]:
    """The mean of the points of each kind; a kind without points stays where it was `before`.

    >>> points, before = np.array([[0.0], [2.0], [9.0]]), np.array([[5.0], [6.0], [7.0]])
    >>> middles(points, np.array([0, 0, 2]), before).tolist()
    [[1.0], [6.0], [9.0]]
    """
    number = len(before)
    # A sparse product adds up rows an eighth of the time that a count for each column takes.
    member = sparse.csr_array((np.ones(len(kinds)), kinds, np.arange(len(kinds) + 1)), (len(kinds), number))
    counts = np.bincount(kinds, minlength=number)[:, None]
    found = np.where(counts > 0, (member.T @ points) / np.maximum(counts, 1), before)
    return found.astype(before.dtype)


_LLOYD = 15  # rounds of assigning and averaging


def cover(
    points: Float[np.ndarray, "pool directions"], wanted: int, random: np.random.Generator
) -> Int[np.ndarray, " wanted"]:
    """The points nearest to the centres of `wanted` clusters: k-means++ and Lloyd's rounds.

    A cluster that lost all its points is replaced by the point farthest from all that are chosen.
    """
    centres = points[_spread(points, wanted, random)]
    for _ in progress.track(range(_LLOYD), "selecting queries", total=_LLOYD):
        moved = middles(points, nearest(points, centres), centres)
        if np.array_equal(moved, centres):
            break
        centres = moved
    own, distance = _nearest(points, centres)
    order = np.lexsort((distance, own))
    first = np.unique(own[order], return_index=True)[1]
    return _filled(points, order[first], wanted)


def _spread(points: np.ndarray, wanted: int, random: np.random.Generator) -> np.ndarray:
    """k-means++: each next row is drawn in proportion to its squared distance from those drawn already."""
    exact = points.astype(np.float64)  # in which products of coordinates, which are whole, are exact
    own = np.einsum("ij,ij->i", exact, exact)

    def apart(row: int) -> np.ndarray:
        return np.maximum(own + own[row] - 2 * (exact @ exact[row]), 0)

    rows = [int(random.integers(len(points)))]
    squares = apart(rows[0])
    for draw in random.random(wanted - 1):
        squares[rows[-1]] = 0
        total = np.cumsum(squares)
        left = np.setdiff1d(np.arange(len(points)), rows)[0] if total[-1] == 0 else None
        rows.append(int(np.searchsorted(total, draw * total[-1], "right")) if left is None else int(left))
        squares = np.minimum(squares, apart(rows[-1]))
    return np.array(rows)


def _nearest(points: np.ndarray, centres: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The nearest centre of each point, and the squared distance to it."""
    places = nearest(points, centres)
    return places, ((points - centres[places]) ** 2).sum(1)


def _filled(points: np.ndarray, chosen: np.ndarray, wanted: int) -> np.ndarray:
    missing = wanted - len(chosen)
    if not missing:
        return chosen
    far = _nearest(points, points[chosen])[1].astype(np.float64)
    for _ in range(missing):
        far[chosen] = -np.inf
        chosen = np.append(chosen, far.argmax())
        far = np.minimum(far, ((points - points[chosen[-1]]) ** 2).sum(1))
    return chosen
