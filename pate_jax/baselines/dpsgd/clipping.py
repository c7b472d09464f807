"""The sum of clipped gradients in whole numbers, so that one record moves it by the stated length at most.

A sum of floating-point numbers depends on its order, and a record that comes or goes changes the order of all
others. So each record's gradient is clipped (by `jax_privacy`), rounded towards zero to a grid of `FINEST` of
the longest length, and added as whole numbers, which have no rounding and no order. The length itself is
computed in float32: gradients are clipped to a little less than stated, by the most that its rounding can be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jax_privacy.clipping import clip_pytree
from jaxtyping import Array, Bool, Int

from pate_jax.errors import PateError
from pate_jax.models import Model

FINEST = 1 << 20  # parts of the longest length: 1024 gradients of it still sum to below 2^31
_MOST = 1 << 22  # parameters: of more, float32 does not tell a vector's length to a quarter
Params = Any


class Sums(NamedTuple):
    """Sums of clipped gradients, in units of `1 / FINEST` of the longest one."""

    apply: Callable[[Params, Array, Array, Array], Int[Array, " parameter"]]
    """(parameters, inputs [slot, ...], labels [slot], is padding [slot]) -> whole numbers"""


def shrunk(clip: float, parameters: int) -> float:
    """The length that float32 may compute for a vector, so that in truth it is at most `clip`.

    The rounding of a sum of n squares is at most n units of 2^-24, relative, in any order, and its root's is
    half of that; squares, root, quotient and product add a few units.

    >>> 0.99 < shrunk(1.0, 26_010) < 1.0
    True
    """
    if parameters > _MOST:
        raise PateError(f"a net of {parameters:,} parameters is too large for DP-SGD: at most {_MOST:,}")
    return clip * (1 - (parameters + 16) * 2.0**-24)


def sums(model: Model, preprocess: Callable[[Any], Any], clip: float, parameters: int) -> Sums:
    """The compiled sum over one microbatch."""
    bound, units = shrunk(clip, parameters), np.float32(FINEST / clip)

    def loss(params: Params, one: Array, label: Array) -> Array:
        logits = model.apply(params, preprocess(one[None]))
        found: Array = optax.softmax_cross_entropy_with_integer_labels(logits, label[None])[0]
        return found

    def clipped(params: Params, one: Array, label: Array, is_padding: Array) -> Params:
        gradient = jax.grad(loss)(params, one, label)
        short, _ = clip_pytree(gradient, bound, return_zero=is_padding)
        return jax.tree.map(lambda leaf: jnp.trunc(leaf * units).astype(jnp.int32), short)

    def apply(
        params: Params, inputs: Array, labels: Int[Array, " slot"], is_padding: Bool[Array, " slot"]
    ) -> Int[Array, " parameter"]:
        each = jax.vmap(clipped, in_axes=(None, 0, 0, 0))(params, inputs, labels, is_padding)
        total: Int[Array, " parameter"] = ravel_pytree(jax.tree.map(lambda leaf: leaf.sum(0), each))[0]
        return total

    return Sums(jax.jit(apply))
