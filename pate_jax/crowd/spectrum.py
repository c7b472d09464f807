"""How much inputs vary along the principal directions of a public pool, seen from outside that pool.

A direction in which the pool happens to vary much was chosen for it, so other inputs vary less along it, and
more along the last ones. The fewer public inputs there are for each direction, the more it matters: of 800
vectors of 256 numbers the last variances are three times as large as they look. So each part of the pool
in turn is measured along the directions of the rest.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from pate_jax.system.eigen import eigensystem

_PARTS = 5


def held_out(points: Float[np.ndarray, "pool directions"]) -> Float[np.ndarray, " directions"]:
    """The mean squares of held-out points along the principal directions of the others, the smallest first.

    Points are measured from zero. A pool of fewer points than parts is measured as it is.

    >>> pool = np.random.default_rng(0).normal(size=(60, 30))
    >>> inside = np.linalg.eigvalsh(pool.T @ pool / 60)
    >>> bool(inside[0] < 0.2 < 0.7 < held_out(pool)[0])
    True
    """
    points = points.astype(np.float64)
    if len(points) < _PARTS:
        return np.maximum(eigensystem(points.T @ points / len(points)).values, 0)
    part = np.random.default_rng(0).permutation(len(points)) % _PARTS
    grams = [held.T @ held for held in (points[part == one] for one in range(_PARTS))]
    whole, squares = sum(grams), np.zeros(points.shape[1])
    for gram in grams:
        axes = eigensystem(whole - gram).directions
        squares += (axes * (gram @ axes)).sum(0)
    return np.maximum.accumulate(np.maximum(squares, 0) / len(points))
