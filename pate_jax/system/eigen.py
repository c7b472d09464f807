"""Eigensystems of symmetric matrices, on one thread.

LAPACK finds them in thousands of small steps, after each of which its threads wait for each other. That takes
twice the CPU time on a quiet machine, and up to twenty times as long where another program wants a core too.
"""

from __future__ import annotations

import functools
import threading
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
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
