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
from jaxtyping import Array, Float, Int, Num

from pate_jax.errors import PateError

FEATURES = 8000  # length of a vector that is measured along directions of length 2000: products are exact
LONGEST = math.isqrt(2**31 - 1)  # length of a vector whose square is still counted in 32 bits


def largest(columns: int, most: int = 8192) -> int:
    """The largest entry, up to `most`, with which the squares of so many columns add up to less than 2^31.

    >>> largest(4900), largest(16)
    (662, 8192)
    """
    return min(most, math.isqrt((2**31 - 1) // columns))


def rounded(numbers: Float[Array, "row column"]) -> Int[Array, "row column"]:
    """The nearest whole numbers, drawn in to `largest`, so that the length of a row can be counted exactly.

    NaN becomes 0 before it is converted, since what a processor makes of it is not defined.

    >>> rounded(jnp.array([[0.6, -2.4, 1e30, jnp.nan]])).tolist()
    [[1, -2, 8192, 0]]
    """
    most = largest(numbers.shape[1])
    numbers = jnp.where(jnp.isnan(numbers), 0, numbers)
    return jnp.clip(jnp.round(numbers), -most, most).astype(jnp.int32)


def shortened(rows: Int[Array, "row column"], length: int) -> Int[Array, "row column"]:
    """Rows no longer than `length`; a longer one keeps nearly its direction.

    Each entry x of a row becomes `x * length / root`, cut to a whole number towards zero, where `root` is the
    least whole number that is no less than the row's length. So the new length is at most `length`. That is
    counted once more, and a row of which it is not true would become zero: the bound rests on that count.
    All of it is in whole numbers: roots and quotients of float32 differ between processors and accelerators.
    Squares are counted in 32 bits, so `length` is at most 46340.

    >>> shortened(jnp.array([[3, 4], [30, 40]]), 10).tolist()
    [[3, 4], [6, 8]]
    """
    if length > LONGEST:
        raise PateError(
            f"length={length} of a vector must be at most {LONGEST}, to count its square in 32 bits"
        )
    square = (rows * rows).sum(1, keepdims=True)
    shrunk = jax.lax.div(rows * length, jnp.broadcast_to(root_above(jnp.maximum(square, 1)), rows.shape))
    kept = jnp.where(square <= length * length, rows, shrunk)
    return jnp.where((kept * kept).sum(1, keepdims=True) <= length * length, kept, 0)


def root_above(squares: Int[Array, " *shape"]) -> Int[Array, " *shape"]:
    """The least whole numbers that are no less than the square roots of these, which are positive.

    >>> root_above(jnp.array([1, 2, 4, 5, 2**31 - 1])).tolist()
    [1, 2, 2, 3, 46341]
    """
    wide = squares.astype(jnp.uint32)
    root = jnp.sqrt(squares.astype(jnp.float32)).astype(jnp.uint32) + 1  # 0 to 2 above the root's whole part
    for _ in range(2):
        root -= root * root > wide
    return (root + (root * root < wide)).astype(jnp.int32)


def product(
    rows: Num[Array | np.ndarray, "row column"], others: Num[Array | np.ndarray, "column other"]
) -> Int[Array, "row other"]:
    """The exact products of whole vectors, where lengths multiply to 2^24 at most.

    >>> product(jnp.array([[1, 2]]), jnp.array([[3.0], [4.0]])).tolist()
    [[11]]
    """
    left, right = (each.astype(jnp.float32) for each in (rows, others))
    return jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST).astype(jnp.int32)


def measured(
    numbers: Float[Array, "row feature"], along: Float[Array | np.ndarray, "feature direction"]
) -> Int[Array, "row direction"]:
    """How far rows go along whole-number directions of length 2000; whole numbers from the first rounding on.

    >>> measured(jnp.array([[2.6, -1.0]]), jnp.array([[1.0], [2.0]])).tolist()
    [[1]]
    """
    return product(shortened(rounded(numbers), FEATURES), along)


def directions(vectors: np.ndarray, length: int) -> np.ndarray:
    """Whole-number columns along these, as long as can be without being longer than `length`.

    >>> directions(np.array([[0.6], [-0.8]]), 100).ravel().tolist()
    [60.0, -80.0]
    """
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=0), 1e-30)
    return np.trunc(unit * length + np.copysign(1e-9, unit)).astype(np.float32)
