"""How near rows of numbers are to others, for classifiers that hold some rows."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def nearness(
    ones: Float[Array | np.ndarray, "one features"],
    others: Float[Array | np.ndarray, "other features"],
    reach: float | Array,
) -> Float[Array, "one other"]:
    """1 at the same place, and falling as a Gaussian: `exp(-1)` where the squared distance is the reach.

    >>> [f"{one:.3f}" for one in nearness(np.zeros((1, 2)), np.array([[0.0, 0.0], [1.0, 1.0]]), 2.0)[0]]
    ['1.000', '0.368']
    """
    products = jnp.matmul(ones, others.T, precision=jax.lax.Precision.HIGHEST)
    gaps = (ones**2).sum(1)[:, None] + (others**2).sum(1) - 2 * products
    return jnp.exp(-jnp.maximum(gaps, 0) / reach)
