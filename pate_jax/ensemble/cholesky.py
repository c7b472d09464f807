"""Systems of linear equations with a positive definite matrix, by matrix products and nothing else.

XLA on CPUs hands `jnp.linalg.cholesky` to the LAPACK that SciPy brings, which has threads of its own. With a
device for each core they waited for each other: 40 times slower on two devices, and sometimes for ever. What
it computes also depends on the number of its threads, by the last bits.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

SIZE = 96  # columns of a block: with fewer, products are slow
_ELIMINATED = 32  # columns, together: with more, each step of elimination is slow


def solve(
    matrix: Float[Array, "rows rows"], right: Float[Array, "rows columns"]
) -> Float[Array, "rows columns"]:
    """`matrix^-1 right`, from the blocked Cholesky factors of a positive definite matrix.

    Only the lower half of the matrix is read, and whole blocks of `SIZE` columns on its diagonal.

    >>> solve(jnp.array([[4.0, 2], [2, 5]]), jnp.array([[8.0], [12]])).ravel().tolist()
    [1.0, 2.0]
    """
    inverses, below, middle = [], [], []
    while len(matrix):
        inverse = inverse_factor(matrix[:SIZE, :SIZE])
        lower = _product(matrix[SIZE:, :SIZE], inverse.T)
        middle.append(_product(inverse, right[:SIZE]))
        matrix = matrix[SIZE:, SIZE:] - _product(lower, lower.T)
        right = right[SIZE:] - _product(lower, middle[-1])
        inverses.append(inverse)
        below.append(lower)
    found = right  # no rows are left
    for inverse, lower, part in zip(inverses[::-1], below[::-1], middle[::-1], strict=True):
        found = jnp.concatenate([_product(inverse.T, part - _product(lower.T, found)), found])
    return found


def inverse_factor(block: Float[Array, "size size"]) -> Float[Array, "size size"]:
    """`L^-1` where `block = L L'`, from those of its first columns and of what is left."""
    if len(block) <= _ELIMINATED:
        return _eliminated(block)
    first = inverse_factor(block[:_ELIMINATED, :_ELIMINATED])
    lower = _product(block[_ELIMINATED:, :_ELIMINATED], first.T)
    last = inverse_factor(block[_ELIMINATED:, _ELIMINATED:] - _product(lower, lower.T))
    corner = jnp.zeros((len(first), len(last)))
    return jnp.block([[first, corner], [-_product(last, _product(lower, first)), last]])


def _eliminated(block: Array) -> Array:
    """The same for few columns: what elimination makes of the identity beside the block, rows scaled."""
    size = len(block)

    def eliminate(column: Array, beside: Array) -> Array:
        pivot = beside[column]
        shares = jnp.where(jnp.arange(size) > column, beside[:, column] / pivot[column], 0.0)
        return beside - shares[:, None] * pivot

    done = jax.lax.fori_loop(0, size, eliminate, jnp.concatenate([block, jnp.eye(size)], axis=1))
    return done[:, size:] * jax.lax.rsqrt(jnp.diagonal(done))[:, None]


def _product(left: Array, right: Array) -> Array:
    return jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)
