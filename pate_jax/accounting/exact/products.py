"""Matrix products without threads of BLAS, which cost several times what they bring at these sizes.

OpenBLAS starts its threads for a product of more than 262,144 multiplications, and they wait for each other
in loops that take a processor's whole time. So products of many nodes are sums of smaller ones.
"""

from __future__ import annotations

import numpy as np

ALONE = 250_000  # multiplications of one product
WIDE = 10_000  # numbers of a result from which on threads are worth their cost


def product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """`left @ right` for stacks of matrices [.., J, N] and [.., N, K].

    >>> left, right = np.arange(6.0).reshape(1, 2, 3), np.ones((1, 3, 2))
    >>> product(left, right).tolist()
    [[[3.0, 3.0], [12.0, 12.0]]]
    """
    (height, inner), width = left.shape[-2:], right.shape[-1]
    step = ALONE // max(1, height * width)
    if inner <= step or height * width > WIDE:
        plain: np.ndarray = left @ right
        return plain
    whole = inner // step * step
    lefts = left[..., :whole].reshape(*left.shape[:-1], -1, step).swapaxes(-3, -2)
    rights = right[..., :whole, :].reshape(*right.shape[:-2], -1, step, width)
    result: np.ndarray = (lefts @ rights).sum(axis=-3)
    result += left[..., whole:] @ right[..., whole:, :]
    return result
