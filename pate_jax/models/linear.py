"""Linear classifiers on a space that public inputs have taught: nets whose parameters have a closed form.

The inputs of such a net are a record's coordinates in the space and one constant, `CONSTANT`, in place of a
bias: a penalty on its parameters holds back what few records claim about how frequent the classes are.

A space of likeness (`lifted`) says how near an input lies to each of a thousand public landmarks of another
space. Nearness falls with the squared distance as a Gaussian does, so a linear function of it can follow
classes of any shape, which no linear function of the first space can. Distances are whole numbers and
nearness is read from a table, so an input's features are a function of that input and public things alone,
bit for bit.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from pate_jax.errors import PateError, at_least
from pate_jax.models import integers
from pate_jax.models.flax_nets import Model, Params
from pate_jax.models.spaces.fronts import Features
from pate_jax.models.spaces.space import BLOCK, Space, over

_POWERS = {"likeness": 0.5}  # of whitening
CONSTANT = 0.2  # where public inputs are about 1 long; chosen on synthetic data (benchmarks/NOTES.md)


def on_space(space: Space, *, input_shape: tuple[int, ...], classes: int) -> Model:
    """The net `linear`: one matrix on the coordinates of a space.

    >>> from pate_jax.models import spaces
    >>> pool = np.random.default_rng(0).normal(size=(50, 3))
    >>> model = on_space(spaces.learn("identity", pool), input_shape=(3,), classes=2)
    >>> model.apply(model.init(jax.random.key(0)), model.front(pool)).shape
    (50, 2)
    """
    at_least(2, classes=classes)
    entries = len(space.variances) + 1

    def init(key: Array) -> Params:
        """What a teacher without records answers: always one class, which its key chooses."""
        kernel = jnp.zeros((entries, classes))
        return {"kernel": kernel.at[-1].set(jax.random.normal(key, (classes,)))}

    def apply(
        params: Params, inputs: Float[Array | np.ndarray, "batch entries"]
    ) -> Float[Array, "batch classes"]:
        return jnp.matmul(inputs, params["kernel"], precision=jax.lax.Precision.HIGHEST)

    description = {"name": "linear", "input_shape": list(input_shape), "classes": classes, "entries": entries}
    description["space"] = space.description().digest  # coordinates of another space mean something else
    return Model(init, apply, description, Entries(space))


class Entries:
    """The front of the net: coordinates, each times a public weight, and the constant.

    The weight is the same power of two for all, which loses no bit, but in the space of likeness: there
    directions vary as the squares of a kernel's, whose own coordinates these weights give.
    """

    def __init__(self, space: Space) -> None:
        self._space = space
        shares = space.variances / space.variances[0]
        weights = shares ** (-_POWERS.get(space.front.kind, 0.0) / 2)
        length = math.sqrt((space.variances * weights**2).sum())
        self._weights = (weights * 2.0 ** -round(math.log2(length))).astype(np.float32)

    def __call__(self, inputs: np.ndarray) -> Float[np.ndarray, "record entries"]:
        """One row of float32 for each record, as a function of that record alone."""
        found = np.full((len(inputs), len(self._space.variances) + 1), CONSTANT, np.float32)
        found[:, :-1] = self._space.coordinates(inputs)
        found[:, :-1] *= self._weights
        return found


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
