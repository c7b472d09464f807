"""Voters' vectors: a space's coordinates, weighed by how much they vary, on a grid, and bounded in length.

All of it follows from the space and from public settings. Coordinates and vectors are whole numbers, and the
one step between them, a product with a weight and its rounding, treats each number by itself.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from pate_jax.errors import PateError
from pate_jax.models import integers
from pate_jax.models.spaces.space import Space

LONGEST = 8000  # length of a vector at most: sums of a block stay far below 2^31
_BLOCK = 2048  # records at once, on the host


class Scaling(NamedTuple):
    """How coordinates become vectors of whole numbers."""

    weights: Float[np.ndarray, " directions"]
    length: int  # of a vector at most
    constant: int  # a last entry that all records have; 0: there is none


def scaling(
    space: Space,
    public: Int[np.ndarray, "pool directions"],
    *,
    length: int,
    power: float,
    full: float = 0.5,
    constant: float = 0.0,
) -> Scaling:
    """Weights that whiten by a power of public variances and give a share `full` of the pool full length.

    `constant` is the share of the length that a last entry has, the same for all, which counts each class's
    voters; at 0 there is none.

    >>> from pate_jax.models import spaces
    >>> pool = np.random.default_rng(0).normal(size=(80, 3)) * [9, 1, 3]
    >>> space = spaces.learn("identity", pool)
    >>> made = scaling(space, space.coordinates(pool), length=100, power=1.0)
    >>> sizes = np.linalg.norm(vectors(made, space.coordinates(pool)), axis=1)
    >>> bool(sizes.max() <= 100), bool(np.median(sizes) > 95)
    (True, True)
    """
    if not 8 <= length <= LONGEST:
        raise PateError(f"length={length} of a voter's vector must be from 8 to {LONGEST}")
    constants = int(constant * length)
    rest = inner_length(length, constants)
    flat = (space.variances / space.variances[0]) ** (-power / 2)
    sizes = np.linalg.norm(public * flat, axis=1)
    usual = np.quantile(sizes, 1 - full)
    return Scaling((flat * rest / max(usual, 1e-9)).astype(np.float32), length, constants)


def inner_length(length: int, constant: int) -> int:
    """The length that a vector has at most beside its constant.

    >>> inner_length(100, 60)
    80
    """
    return math.isqrt(length**2 - constant**2)


def vectors(scaling: Scaling, coordinates: Int[np.ndarray, "n directions"]) -> Int[np.ndarray, "n entries"]:
    """The vectors of any number of records, on the host; blocks of one size need one program."""
    found = np.empty((len(coordinates), len(scaling.weights) + (scaling.constant > 0)), np.int32)
    for start in range(0, len(found), _BLOCK):
        rows = coordinates[start : start + _BLOCK]
        block = np.zeros((_BLOCK, rows.shape[1]), rows.dtype)
        block[: len(rows)] = rows
        seen = bounded(block, scaling.weights, scaling.length, scaling.constant)
        found[start : start + _BLOCK] = np.asarray(seen)[: len(rows)]
    return found


@partial(jax.jit, static_argnums=(2, 3))
def bounded(
    coordinates: Int[Array | np.ndarray, "n directions"],
    weights: Float[Array | np.ndarray, " directions"],
    length: int,
    constant: int,
) -> Int[Array, "n entries"]:
    """Vectors of at most `length`, in whole numbers; traced inside the kernels of neighbours and sums."""
    rest = inner_length(length, constant)
    found = integers.shortened(integers.rounded(jnp.asarray(coordinates).astype(jnp.float32) * weights), rest)
    if not constant:
        return found
    return jnp.concatenate([found, jnp.full((len(found), 1), constant, jnp.int32)], 1)
