"""A space of likeness: how near an input lies to each of a thousand public landmarks of another space.

Nearness falls with the squared distance as a Gaussian does, so a linear function of it can follow classes of
any shape, which no linear function of the first space can. Distances are whole numbers and nearness is read
from a table, so an input's features are a function of that input and public things alone, bit for bit.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from pate_jax.errors import PateError
from pate_jax.models import integers
from pate_jax.models.spaces.fronts import Features
from pate_jax.models.spaces.space import BLOCK, Space, over

LANDMARKS = 1000
WIDTH = 0.3  # of the nearness, in the median squared distance of the pool; chosen on synthetic images
_LENGTH = 4000  # of a vector, and so products stay below 2^24
_TYPICAL = 2000  # of the pool's vectors
_STEPS = 1 << 12  # of the table, which ends where nothing is near any more
_FAR = 8  # widths away: there nearness is below 1/2900
_FAINT = 1e-6  # of the largest variance: these are the squares of a kernel's
_SEED, _SAMPLE = 0, 500


class Likeness(NamedTuple):
    """A front: nearness to public landmarks."""

    space: Space  # in which distances are measured
    weight: float  # of a coordinate on the grid of vectors
    landmarks: Float[np.ndarray, "directions landmark"]  # whole numbers
    squares: Int[np.ndarray, " landmark"]
    step: int  # squared distance from one entry of the table to the next
    table: Float[np.ndarray, " distance"]
    kind: str = "likeness"

    def __call__(self, inputs: np.ndarray) -> Features:
        """Nearness of each input to each landmark, from 0 to 1."""
        found = np.zeros((len(inputs), len(self.squares)), np.float32)
        for start in range(0, len(inputs), BLOCK):
            there = inputs[start : start + BLOCK]
            block = np.zeros((BLOCK, len(self.landmarks)), np.int32)
            block[: len(there)] = self.space.coordinates(there)
            near = _near(block, np.float32(self.weight), self.landmarks, self.squares, self.table, self.step)
            found[start : start + BLOCK] = np.asarray(near)[: len(there)]
        return found


def lifted(space: Space, public: np.ndarray, *, directions: int = 400) -> Space:
    """The space of likeness to public inputs, measured in another space.

    >>> from pate_jax.models import spaces
    >>> pool = np.random.default_rng(0).normal(size=(200, 3))
    >>> made = lifted(spaces.learn("identity", pool), pool, directions=20)
    >>> made.description()[:3]
    ('likeness', 200, 20)
    """
    return over(front(space, public), public, directions, faint=_FAINT)


def front(space: Space, public: np.ndarray) -> Likeness:
    """Landmarks among the public inputs, and the table of nearness."""
    chosen = np.random.default_rng(_SEED).permutation(len(public))[:LANDMARKS]
    coordinates = space.coordinates(public[chosen])
    weight = float(np.float32(_TYPICAL / max(np.sqrt(space.variances.sum()), 1e-9)))
    vectors = np.asarray(_vectors(coordinates, np.float32(weight)))
    squares = (vectors.astype(np.int64) ** 2).sum(1)
    some = vectors[:_SAMPLE].astype(np.int64)
    gaps = squares[:_SAMPLE, None] + squares[:_SAMPLE] - 2 * some @ some.T
    if not gaps.any():
        raise PateError("all public inputs are the same vector in this space: none is nearer than another")
    width = WIDTH * float(np.median(gaps[gaps > 0]))
    step = max(1, round(_FAR * width / _STEPS))
    table = np.exp(-step * np.arange(_STEPS) / width).astype(np.float32)
    table[-1] = 0.0
    return Likeness(space, weight, vectors.T.astype(np.float32), squares.astype(np.int32), step, table)


@jax.jit
def _vectors(
    coordinates: Int[Array | np.ndarray, "row directions"], weight: Float[Array | np.ndarray, ""]
) -> Int[Array, "row directions"]:
    return integers.shortened(integers.rounded(jnp.asarray(coordinates * weight)), _LENGTH)


@partial(jax.jit, static_argnames="step")
def _near(
    coordinates: Int[Array | np.ndarray, "row directions"],
    weight: Float[Array | np.ndarray, ""],
    landmarks: Float[Array | np.ndarray, "directions landmark"],
    squares: Int[Array | np.ndarray, " landmark"],
    table: Float[Array | np.ndarray, " distance"],
    step: int,
) -> Float[Array, "row landmark"]:
    """Nearness by exact squared distances, which are below 2^27."""
    rows = _vectors(coordinates, weight)
    gaps = (rows * rows).sum(1, keepdims=True) + squares - 2 * integers.product(rows, landmarks)
    return table[jnp.minimum(gaps // step, len(table) - 1)]
