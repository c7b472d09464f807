"""How near rows of numbers are to others, for classifiers that hold some rows."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def nearness(
    ones: Float[Array, "one features"], others: Float[Array, "other features"], reach: Array
) -> Float[Array, "one other"]:
    """1 at the same place, and falling as a Gaussian: `exp(-1)` where the squared distance is the reach.

    >>> found = nearness(jnp.zeros((1, 2)), jnp.array([[0.0, 0.0], [1.0, 1.0]]), jnp.array(2.0))
    >>> [f"{one:.3f}" for one in found[0]]
    ['1.000', '0.368']
    """
    products = jnp.matmul(ones, others.T, precision=jax.lax.Precision.HIGHEST)
    gaps = (ones**2).sum(1)[:, None] + (others**2).sum(1) - 2 * products
    return jnp.exp(-jnp.maximum(gaps, 0) / reach)


def squared_gaps(
    ones: Float[np.ndarray, "one features"], others: Float[np.ndarray, "other features"]
) -> Float[np.ndarray, "one other"]:
    """Squared distances in double precision: what least squares on nearness needs where rows are equal.

    >>> squared_gaps(np.array([[0.0, 3.0]]), np.array([[4.0, 0.0], [0.0, 3.0]])).tolist()
    [[25.0, 0.0]]
    """
    ones, others = ones.astype(np.float64), others.astype(np.float64)
    gaps = (ones**2).sum(1)[:, None] + (others**2).sum(1) - 2 * ones @ others.T
    return np.asarray(np.maximum(gaps, 0))
