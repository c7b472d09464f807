"""The cost of a vote that a lone leader loses, when few votes are left for the classes that do not move.

A leader with M of T votes that is p ahead of the class that gains the vote leaves `p - (2M - T)` votes for
all other classes. A close race between the leader and the best of these would cost most, but with so few
votes it is rare. Derived in docs/worst_case.md, section 6.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pate_jax.accounting.bounds import argmax_worst_case
from pate_jax.accounting.exact import noise_law
from pate_jax.mechanisms import Noise

Curve = NDArray[np.float64]
Counts = NDArray[np.int64]


def costs(noise: Noise, leader: Counts, teachers: int, classes: int, orders: Curve) -> Curve:
    """The largest cost [2, M, A] of a moved vote that lowers a largest count of M or more.

    The first row is the law before the move over the law after it, the second the reverse. Each M must be
    more than half of the votes, and the curve of `argmax_worst_case` must be finite.

    >>> noise, leaders, orders = Noise("gaussian", 40.0), np.array([126, 150, 240]), np.array([5.0])
    >>> (costs(noise, leaders, 250, 10, orders)[..., 0] / (5 / 40**2)).round(2)
    array([[0.64, 0.47, 0.  ],
           [0.64, 0.53, 0.  ]])
    """
    means = _means(noise, leader.tobytes(), teachers, classes)
    return np.stack([argmax_worst_case.costs(noise, mean, orders).T for mean in means])


@lru_cache(maxsize=64)
def _means(noise: Noise, leaders: bytes, teachers: int, classes: int) -> list[Curve]:
    """The mean excess [knots, M] in either direction, the same for all orders that are asked for."""
    found, leader = argmax_worst_case.shares(noise), np.frombuffer(leaders, np.int64)
    ahead = (2 * leader - teachers)[:, None]
    ends = np.append(np.ceil(found.leads[1:-1]) - 1, np.inf)  # the largest whole lead before the next cell
    room = np.minimum(ends - ahead, (teachers - leader)[:, None])  # votes left for all others [M, K]
    reached = _best_reaches(noise, leader[:, None] - found.places[1:-1], np.maximum(room, 0), classes - 2)
    return [np.where((room >= 0).T, _mean(cells, reached), 0.0).max(axis=1) for cells in found.cells]


def _mean(cells: Curve, reached: Curve) -> Curve:
    """The mean excess [knots, K, M] in the cells of each lead, over the place of the best of the others."""
    most = np.maximum.accumulate(cells[:, :, ::-1], axis=2)[:, :, ::-1]  # from each place on
    less = -np.diff(most, axis=2)
    result: Curve = most[:, :, -1:] + np.einsum("akj,mkj->akm", less, reached, optimize=True)
    return result


def _best_reaches(noise: Noise, place: Curve, votes: Curve, others: int) -> Curve:
    """The largest probability [M, K, J] that the best of `others` classes with these votes exceeds a place.

    It is largest if one class has all the votes, because the log of a distribution function is concave.
    """
    alone = noise_law.log_cdf(noise, place[:, None, :] - votes[:, :, None])
    rest = max(others - 1, 0) * noise_law.log_cdf(noise, place)
    result: Curve = -np.expm1(alone + rest[:, None, :])
    return result
