"""Repeated queries: each input is asked and answered only once.

Asking the same question many times averages the noise away. So an input that occurs twice among the queries
is asked once (`unique_queries`), and an input that was answered before gets the stored answer (`repeats`).
`nearness` measures inputs that are nearly equal. NumPy and the standard library only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from pate_jax.errors import PateError


class Unique(NamedTuple):
    """The queries to ask, and which of them answers each query."""

    first_rows: np.ndarray  # int64[asked]: rows to ask, each the first of its input
    inverse: np.ndarray  # int64[queries]: the position in `first_rows` that answers each query


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


def _inputs(inputs: np.ndarray) -> np.ndarray:
    rows = np.asarray(inputs)
    if rows.ndim < 2 or rows.dtype.kind not in "biuf":
        raise PateError(f"inputs is {rows.dtype}{rows.shape}; numbers [query, ...] are wanted")
    return rows
