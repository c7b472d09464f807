"""Points that are near each other: clusters by k-means, and a graph along which answers are carried.

Of k-means there are its two steps, and points that stand for all others, the medoid of each cluster.

Near inputs joined in a graph carry answers to some of them to all others (Zhou et al. 2004). Only the slowest
waves of the graph are looked at, so that a thousand lists of answers are carried at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse
from scipy.sparse import linalg

from pate_jax.system import progress
from pate_jax.system.eigen import eigensystem

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


_NEAR, _WAVES = 10, 200  # neighbours of an input in the graph; and its waves that are kept
_CARRIED = 0.95  # of an answer, from an input to its neighbours

Entries = Float[np.ndarray, "row entries"]
Told = Float[np.ndarray, "query lists classes"]


class Graph(NamedTuple):
    """The slowest waves of a graph of near inputs."""

    decays: Float[np.ndarray, " wave"]
    waves: Float[np.ndarray, "row wave"]


def graph(inputs: Entries) -> Graph:
    """The graph of the inputs that are near to each other.

    >>> two_heaps = np.random.default_rng(0).normal(size=(60, 2)) + 30 * (np.arange(60) % 2)[:, None]
    >>> said = spread(graph(two_heaps), np.array([0, 1]), np.eye(2)[:, None, :], np.arange(60))
    >>> bool((said.argmax(2).ravel() == np.arange(60) % 2).all())
    True
    """
    near = min(_NEAR, len(inputs) - 1)
    places, gaps = _neighbours(inputs.astype(np.float32), near)
    usual = max(float(np.median(gaps[:, -1])), 1e-12)
    alike = np.exp(-gaps / usual).ravel()
    rows = np.repeat(np.arange(len(inputs)), near)
    one_way = sparse.csr_array((alike, (rows, places.ravel())), (len(inputs), len(inputs)))
    both = one_way + one_way.T
    evened = sparse.diags_array(1 / np.sqrt(np.maximum(both.sum(1), 1e-9)))
    matrix = evened @ both @ evened
    if len(inputs) <= 2 * _WAVES:
        values, waves = eigensystem(matrix.toarray())
    else:
        begin = np.random.default_rng(0).normal(size=len(inputs))
        values, waves = linalg.eigsh(matrix, k=_WAVES, which="LA", tol=1e-3, v0=begin)
    return Graph(values, waves.astype(np.float32))


def spread(
    known: Graph, asked: Int[np.ndarray, " query"], told: Told, others: Int[np.ndarray, " row"]
) -> Float[np.ndarray, "row lists classes"]:
    """What the answers to some inputs say of others, along the graph."""
    centred = (told - 1 / told.shape[2]).reshape(len(asked), -1).astype(np.float32)
    carried = known.waves / (1 - _CARRIED * np.minimum(known.decays, 1)).astype(np.float32)
    said = carried[others] @ (known.waves[asked].T @ centred)
    return np.asarray(said.reshape(len(others), *told.shape[1:]))


def _neighbours(
    inputs: Entries, near: int
) -> tuple[Int[np.ndarray, "row near"], Float[np.ndarray, "row near"]]:
    """The nearest others of each input, the farthest of them last, and their squared distances."""
    squares = np.einsum("ij,ij->i", inputs, inputs)
    places, gaps = np.empty((2, len(inputs), near), np.float64)
    for start in range(0, len(inputs), _BLOCK):
        some = np.arange(start, min(start + _BLOCK, len(inputs)))
        apart = squares[some, None] + squares - 2 * inputs[some] @ inputs.T
        apart[np.arange(len(some)), some] = np.inf
        nearest = np.argpartition(apart, near - 1, axis=1)[:, :near]
        far = np.take_along_axis(apart, nearest, 1)
        order = far.argsort(1)
        places[some] = np.take_along_axis(nearest, order, 1)
        gaps[some] = np.maximum(np.take_along_axis(far, order, 1), 0)
    return places.astype(np.int64), gaps
