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

from pate_jax.errors import at_least
from pate_jax.models.flax_nets import Model, Params
from pate_jax.models.spaces import Space

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
