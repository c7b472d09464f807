"""Points that stand for all others: the medoid of each of as many clusters as are wanted."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from pate_jax.models import clusters
from pate_jax.system import progress

_LLOYD = 15  # rounds of assigning and averaging


def cover(
    points: Float[np.ndarray, "pool directions"], wanted: int, random: np.random.Generator
) -> Int[np.ndarray, " wanted"]:
    """The points nearest to the centres of `wanted` clusters: k-means++ and Lloyd's rounds.

    A cluster that lost all its points is replaced by the point farthest from all that are chosen.
    """
    centres = points[_spread(points, wanted, random)]
    for _ in progress.track(range(_LLOYD), "selecting queries", total=_LLOYD):
        nearest = clusters.nearest(points, centres)
        moved = clusters.middles(points, nearest, centres)
        if np.array_equal(moved, centres):
            break
        centres = moved
    nearest, distance = _nearest(points, centres)
    order = np.lexsort((distance, nearest))
    first = np.unique(nearest[order], return_index=True)[1]
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
    places = clusters.nearest(points, centres)
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
