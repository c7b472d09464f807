"""Gaussian noise for a sum of gradients, from this project's own keys.

The draw is float32 (`aggregate.noise`), the sum is whole numbers, and both are added in float64. What comes
out is rounded to a grid that is fixed beforehand, so which values are possible never depends on the records.
docs/proofs/dpsgd.md says what is claimed of it, and what is not.
"""

from __future__ import annotations

import math
from functools import partial

import jax
import numpy as np
from jaxtyping import Float, Int

from pate_jax.aggregate import noise
from pate_jax.baselines.dpsgd.calibration import RESERVED, Plan
from pate_jax.baselines.dpsgd.clipping import FINEST
from pate_jax.errors import PateError
from pate_jax.mechanisms import Noise, laws

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
