"""Whole numbers in place of continuous ones, so that the same record is the same vector everywhere.

Sums of whole numbers that stay below 2^24 are exact in float32, in any order, fused or not. A product of two
vectors is one, if the product of their lengths is: by the Cauchy-Schwarz inequality no partial sum is larger.
So products of vectors whose lengths are bounded here have the same bits in a batch of any size, at any place
in it, on any number of devices of any make.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

EXACT = 1 << 24  # whole numbers up to here are exact in float32


def largest(columns: int, most: int = 8192) -> int:
    """The largest entry, up to `most`, with which the squares of so many columns add up to less than 2^31.

    >>> largest(4900), largest(16)
    (662, 8192)
    """
    return min(most, math.isqrt((2**31 - 1) // columns))


def rounded(numbers: Float[Array, "row column"]) -> Int[Array, "row column"]:
    """The nearest whole numbers, drawn in to `largest`, so that the length of a row can be counted exactly.

    >>> rounded(jnp.array([[0.6, -2.4, 1e30]])).tolist()
    [[1, -2, 8192]]
    """
    most = largest(numbers.shape[1])
    return jnp.clip(jnp.round(numbers), -most, most).astype(jnp.int32)


def shortened(rows: Int[Array, "row column"], length: int) -> Int[Array, "row column"]:
    """Rows no longer than `length`, longer ones in nearly the same direction; counted in whole numbers alone.

    `root` is at least a row's length r, and `|x| length // root` at most `|x| length / r`, so the new length
    is at most `length`. That is counted once more, and a row of which it is not true would become zero.

    >>> shortened(jnp.array([[3, 4], [30, 40]]), 10).tolist()
    [[3, 4], [5, 7]]
    """
    square = (rows * rows).sum(1, keepdims=True)
    root = jnp.sqrt(square.astype(jnp.float32)).astype(jnp.int32) + 2
    shrunk = jnp.sign(rows) * (jnp.abs(rows) * length // root)
    kept = jnp.where(square <= length * length, rows, shrunk)
    return jnp.where((kept * kept).sum(1, keepdims=True) <= length * length, kept, 0)


def product(
    rows: Int[Array, "row column"], others: Float[Array | np.ndarray, "column other"]
) -> Int[Array, "row other"]:
    """The exact products of whole vectors, where lengths multiply to 2^24 at most.

    >>> product(jnp.array([[1, 2]]), jnp.array([[3.0], [4.0]])).tolist()
    [[11]]
    """
    found = jnp.matmul(rows.astype(jnp.float32), others, precision=jax.lax.Precision.HIGHEST)
    return found.astype(jnp.int32)


def directions(vectors: np.ndarray, length: int) -> np.ndarray:
    """Whole-number columns along these, as long as can be without being longer than `length`.

    >>> directions(np.array([[0.6], [-0.8]]), 100).ravel().tolist()
    [60.0, -80.0]
    """
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=0), 1e-30)
    return np.trunc(unit * length + np.copysign(1e-9, unit)).astype(np.float32)
