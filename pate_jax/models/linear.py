"""Linear classifiers on a space that public inputs have taught: nets whose parameters have a closed form.

The inputs of such a net are a record's coordinates in the space and one constant, `CONSTANT`, in place of a
bias: a penalty on its parameters holds back what few records claim about how frequent the classes are.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from pate_jax.errors import PateError
from pate_jax.models.nets import Model, Params
from pate_jax.models.spaces import Space

CONSTANT = 0.2  # where public inputs are about 1 long; chosen on synthetic data (docs/teachers.md)


def on_space(space: Space, *, input_shape: tuple[int, ...], classes: int) -> Model:
    """The net `linear`: one matrix on the coordinates of a space.

    >>> from pate_jax.models import spaces
    >>> pool = np.random.default_rng(0).normal(size=(50, 3))
    >>> model = on_space(spaces.learn("identity", pool), input_shape=(3,), classes=2)
    >>> model.apply(model.init(jax.random.key(0)), model.front(pool)).shape
    (50, 2)
    """
    if classes < 2:
        raise PateError(f"classes={classes} must be at least 2")
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
    """The front of the net: coordinates, scaled by a power of two, which loses no bit, and the constant."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._unit = 2.0 ** -round(math.log2(space.variances.sum()) / 2)

    def __call__(self, inputs: np.ndarray) -> Float[np.ndarray, "record entries"]:
        """One row of float32 for each record, as a function of that record alone."""
        found = np.full((len(inputs), len(self._space.variances) + 1), CONSTANT, np.float32)
        found[:, :-1] = self._space.coordinates(inputs)
        found[:, :-1] *= np.float32(self._unit)
        return found
