"""Orthogonal iteration: the directions in which many rows of many numbers vary most."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.linalg import lu, qr


def leading(
    rows: Float[np.ndarray, "row entries"], start: Float[np.ndarray, "entries directions"], turns: int
) -> Float[np.ndarray, "entries directions"]:
    """As many orthonormal directions as `start` has, after this many turns from there, the strongest first.

    Between turns an LU factorisation keeps the directions apart, in a third of the time that QR takes.
    Either divides by an upper triangular matrix, so the directions are the same.

    >>> rows = np.diag([1.0, 9.0, 3.0])
    >>> np.abs(leading(rows, np.random.default_rng(0).normal(size=(3, 2)), 40)).round(3).T.tolist()
    [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    found = start.astype(rows.dtype)
    for _ in range(turns - 1):
        found = lu(rows.T @ (rows @ found), permute_l=True, check_finite=False)[0]
    return np.asarray(qr(rows.T @ (rows @ found), mode="economic", check_finite=False)[0])
