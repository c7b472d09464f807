"""Repeated queries: each input is asked and answered only once.

Asking the same question many times averages the noise away. So an input that occurs twice among the queries
is asked once (`unique_queries`), an input that was answered before gets the stored answer (`repeats`), and
inputs that are nearly equal are reported (`near_duplicates`). NumPy and the standard library only.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from pate_jax.errors import PateError
from pate_jax.system.progress import track

_DIRECTIONS = 48  # how many directions the inputs are projected on
_BLOCK = 512  # rows that are compared with all others at a time
_LARGEST = 5_000_000  # the most pairs that are compared in full


class Unique(NamedTuple):
    """The queries to ask, and which of them answers each query."""

    first_rows: np.ndarray  # int64[asked]: rows to ask, each the first of its input
    inverse: np.ndarray  # int64[queries]: the position in `first_rows` that answers each query


class NearDuplicates(NamedTuple):
    """Pairs of different inputs within some distance of each other."""

    pairs: np.ndarray  # int64[found, 2]: rows, the smaller first, in ascending order
    distances: np.ndarray  # float64[found]: root mean square difference of the two inputs


def digests(inputs: np.ndarray) -> list[str]:
    """A digest of each input: 128 bits of BLAKE2b over its type, shape and content.

    >>> a, b, c = digests(np.array([[1.0, 2.0], [1.0, 3.0], [1.0, 2.0]]))
    >>> a == b, a == c
    (False, True)
    """
    rows = np.ascontiguousarray(_inputs(inputs))
    if rows.dtype.kind == "f":
        rows = rows + 0.0  # -0.0 and 0.0 are the same input
    head = f"{rows.dtype.str}{rows.shape[1:]};".encode()
    return [hashlib.blake2b(head + row.tobytes(), digest_size=16).hexdigest() for row in rows]


def unique_queries(inputs: np.ndarray) -> Unique:
    """The first row of each distinct input, and which of them answers each row.

    >>> first_rows, inverse = unique_queries(np.array([[7], [5], [7], [5]]))
    >>> first_rows, first_rows[inverse]
    (array([0, 1]), array([0, 1, 0, 1]))
    """
    position: dict[str, int] = {}
    first_rows: list[int] = []
    inverse: list[int] = []
    for row, digest in enumerate(digests(inputs)):
        if digest not in position:
            position[digest] = len(first_rows)
            first_rows.append(row)
        inverse.append(position[digest])
    return Unique(np.array(first_rows, np.int64), np.array(inverse, np.int64))


def repeats(inputs: np.ndarray, answered_digests: Collection[str]) -> np.ndarray:
    """Whether each input was answered before, by the digests that were stored with the answers.

    >>> inputs = np.array([[1], [2]])
    >>> repeats(inputs, digests(inputs)[1:])
    array([False,  True])
    """
    known = set(answered_digests)
    return np.array([one in known for one in digests(inputs)], bool)


def near_duplicates(inputs: np.ndarray, distance: float) -> NearDuplicates:
    """All pairs of different inputs whose root mean square difference is at most `distance`.

    The result is exact. A projection on a few perpendicular directions never increases a distance, so all
    pairs are compared by their projections on the directions of largest spread, and only pairs that are close
    there are compared in full. Equal inputs are not listed; `unique_queries` finds those.

    >>> near_duplicates(np.array([[0.0, 0.0], [9.0, 9.0], [0.1, 0.0]]), distance=0.2).pairs
    array([[0, 2]])
    """
    if not distance > 0:
        raise PateError(f"distance={distance!r} must be above 0")
    rows = _inputs(inputs)
    flat = rows.reshape(len(rows), math.prod(rows.shape[1:])).astype(np.float32)
    if not np.isfinite(flat).all():
        raise PateError("inputs hold NaN or infinity; replace them")
    pairs = _candidates(_projected(flat), distance * np.sqrt(max(1, flat.shape[1])))
    distances = _distances(flat, pairs)
    near = (distances <= distance) & (distances > 0)
    return NearDuplicates(pairs[near], distances[near])


def _inputs(inputs: np.ndarray) -> np.ndarray:
    rows = np.asarray(inputs)
    if rows.ndim < 2 or rows.dtype.kind not in "biuf":
        raise PateError(f"inputs is {rows.dtype}{rows.shape}; numbers [query, ...] are wanted")
    return rows


def _projected(flat: np.ndarray) -> np.ndarray:
    """The inputs projected on perpendicular directions of large spread, from one power iteration.

    The directions decide how many pairs must be compared in full, but never which pairs are reported.
    """
    if not len(flat):
        return np.zeros((0, 1))
    centred = flat - flat.mean(0, dtype=np.float64).astype(np.float32)
    start = np.random.default_rng(0).standard_normal((flat.shape[1], _DIRECTIONS)).astype(np.float32)
    directions, _ = np.linalg.qr((centred.T @ (centred @ start)).astype(np.float64))
    return centred @ directions


def _candidates(projections: np.ndarray, reach: float) -> np.ndarray:
    """Pairs of rows whose projections are within reach, with room for rounding, in ascending order."""
    norms = (projections**2).sum(1)
    limit = (reach * (1 + 1e-6)) ** 2 + 1e-6 * norms.max(initial=0)
    pairs, total = [np.zeros((0, 2), np.int64)], 0
    starts = range(0, len(projections), _BLOCK)
    for start in track(starts, "near-duplicates", total=len(starts)):
        block = slice(start, start + _BLOCK)
        squares = norms[block, None] + norms[start:] - 2 * projections[block] @ projections[start:].T
        rows, others = np.nonzero(squares <= limit)
        later = others > rows
        pairs.append(np.stack([rows[later], others[later]], 1) + start)
        total += len(pairs[-1])
        if total > _LARGEST:
            raise PateError(
                f"over {_LARGEST} pairs of queries may be within the distance: take a smaller one"
            )
    return np.concatenate(pairs)


def _distances(flat: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    size = max(1, flat.shape[1])
    step = max(1, (1 << 22) // size)
    parts = []
    for start in range(0, len(pairs), step):
        left, right = pairs[start : start + step].T
        difference = flat[left].astype(np.float64) - flat[right]
        parts.append(np.sqrt((difference**2).mean(1)))
    return np.concatenate(parts) if parts else np.zeros(0)
