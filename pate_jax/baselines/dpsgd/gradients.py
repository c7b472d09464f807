"""The sum of clipped gradients in whole numbers, and the noise on it, from this project's own keys.

A sum of floating-point numbers depends on its order, and a record that comes or goes changes the order of all
others. So each record's gradient is clipped (by `jax_privacy`), rounded towards zero to a grid of `FINEST` of
the longest length, and added as whole numbers, which have no rounding and no order: one record moves the sum
by the stated length at most. The length itself is computed in float32: gradients are clipped to a little less
than stated, by the most that its rounding can be.

The draw of the noise is float32 (`aggregate.noise`), and it is added to the sum in float64. What comes out is
rounded to a grid that is fixed beforehand, so which values are possible never depends on the records.
docs/proofs/dpsgd.md says what is claimed of it, and what is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree
from jax_privacy.clipping import clip_pytree
from jaxtyping import Array, Bool, Float, Int

from pate_jax.aggregate import noise
from pate_jax.baselines.dpsgd.calibration import RESERVED, Plan
from pate_jax.errors import PateError
from pate_jax.mechanisms import Noise, laws
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


GRID_BITS = 12  # the grid is so many powers of two finer than the noise
_LARGEST = 700.0  # an epsilon whose exponential is a number


def noisy(
    total: Int[np.ndarray, " parameter"], clip: float, multiplier: float, key: jax.Array
) -> Float[np.ndarray, " parameter"]:
    """The sum of clipped gradients, in units of the gradient, with noise of scale `multiplier * clip`.

    >>> drawn = noisy(np.zeros(4, np.int64), 1.0, 2.0, noise.seeded_key(1))
    >>> drawn.shape, len(set(drawn.tolist()))
    ((4,), 4)
    """
    scale = multiplier * clip
    drawn = np.asarray(_standard(key, len(total)), np.float64)
    grid = 2.0 ** (math.floor(math.log2(scale)) - GRID_BITS)
    moved = total.astype(np.float64) * (clip / FINEST) + drawn * scale
    found: Float[np.ndarray, " parameter"] = np.round(moved / grid) * grid
    return found


@partial(jax.jit, static_argnums=1)
def _standard(key: jax.Array, count: int) -> jax.Array:
    return noise.draw(Noise("gaussian", 1.0), key, (count,))


def check_reserve(plan: Plan, parameters: int) -> None:
    """Refuse a training whose draws may stray from their law by more than what is kept of delta for it."""
    strays = plan.steps * parameters * laws.distance(Noise("gaussian", 1.0))
    largest = max(plan.epsilon, plan.replaced)  # both are stated, at the same delta
    if (1 + math.exp(min(largest, _LARGEST))) * strays > RESERVED * plan.delta:
        raise PateError(
            f"steps={plan.steps} of {parameters:,} parameters draw too much noise for delta={plan.delta:g} "
            f"at epsilon={largest:g}: raise delta, or ask for fewer steps"
        )
