"""Eigensystems of symmetric matrices, on one thread, and the leading directions of rows by iteration.

LAPACK finds them in thousands of small steps, after each of which its threads wait for each other. That takes
twice the CPU time on a quiet machine, and up to twenty times as long where another program wants a core too.
"""

from __future__ import annotations

import functools
import threading
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.linalg import lu, qr
from threadpoolctl import ThreadpoolController

_ALONE = threading.Lock()  # the number of threads is one of the whole process


class Eigensystem(NamedTuple):
    """The smallest value first."""

    values: Float[np.ndarray, " value"]
    directions: Float[np.ndarray, "entry value"]


def eigensystem(matrix: Float[np.ndarray, "entry entry"]) -> Eigensystem:
    """The eigensystem of a symmetric matrix.

    >>> eigensystem(np.array([[2.0, 1.0], [1.0, 2.0]])).values.round(6).tolist()
    [1.0, 3.0]
    """
    with _ALONE, _libraries().limit(limits=1, user_api="blas"):
        return Eigensystem(*np.linalg.eigh(matrix))


@functools.cache
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()


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
