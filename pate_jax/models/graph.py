"""Near inputs joined in a graph, along which answers to some are carried to all others (Zhou et al. 2004).

Only the slowest waves of the graph are looked at, so that a thousand lists of answers are carried at once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse
from scipy.sparse import linalg

from pate_jax.system.eigen import eigensystem

_NEAR, _WAVES = 10, 200  # neighbours of an input in the graph; and its waves that are kept
_CARRIED = 0.95  # of an answer, from an input to its neighbours
_BLOCK = 512

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
    places, gaps = _nearest(inputs.astype(np.float32), near)
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


def _nearest(inputs: Entries, near: int) -> tuple[Int[np.ndarray, "row near"], Float[np.ndarray, "row near"]]:
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
