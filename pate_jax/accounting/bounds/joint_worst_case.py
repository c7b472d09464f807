"""The worst case of test and argmax as one mechanism: a large reading excludes a close race.

A largest count of M leaves `T - M` votes for all other classes. So if M is more than half of the votes, the
vote that moves either leaves a leader that is far ahead, or moves between two classes that are far behind.
docs/proofs/worst_case.md, section 6, derives the largest joint cost over M.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from pate_jax.accounting.bounds import argmax_worst_case, threshold, worst_reading
from pate_jax.accounting.exact import noise_law
from pate_jax.mechanisms import Noise, ThresholdTest

Curve = NDArray[np.float64]
Counts = NDArray[np.int64]
FAR = 4.2  # the lead, in scales, from which on all largest counts share one bound
GROUPS = 150  # how many groups of largest counts there are up to that lead, each with its own bound


def curve(noise: Noise, test: ThresholdTest, teachers: int, classes: int, orders: Curve) -> Curve:
    """An upper bound [A] of the joint cost of test and argmax over all histograms of this many votes.

    The test must read the largest count. Infinite where `argmax_worst_case` claims nothing, and for Laplace
    noise, for which it has no bounds by lead and depth.

    >>> noise, test = Noise("gaussian", 40.0), ThresholdTest(200, Noise("gaussian", 150.0))
    >>> found = curve(noise, test, 250, 10, np.array([9.5]))
    >>> bool(0.22 < found[0] / (9.5 / 40**2) < 0.24)
    True
    """
    half, out = (teachers + 1) // 2, np.full(len(orders), np.inf)
    argmax = argmax_worst_case.curve(noise, orders)
    good = np.isfinite(argmax)
    if "laplace" in noise.family or not good.any():
        return out
    grid = orders[good]
    out[good] = _up_to(test, argmax[good], half, grid)
    if half < teachers:
        ends = _ends(half, teachers, noise.scale)
        first, last = ends[:-1] + 1, ends[1:]
        ahead = lone_leader_costs(noise, first, teachers, classes, grid)
        depths = argmax_worst_case.by_depth(noise, grid)
        out[good] = np.maximum(out[good], _up_to(test, ahead[:, -1].max(axis=0), teachers, grid))
        out[good] = np.maximum(out[good], _leader_moves(test, ahead[:, :-1], first[:-1], last[:-1], grid))
        out[good] = np.maximum(out[good], _leader_stays(noise, test, depths, teachers, first, last, grid))
    return out


def _ends(half: int, teachers: int, scale: float) -> Counts:
    """The ends of the groups of largest counts above `half`; the last group goes from `FAR` to all votes."""
    far = min(teachers - 1, math.ceil((teachers + FAR * scale) / 2))
    step = max(1, math.ceil((far - half) / GROUPS))
    return np.array([*range(half, far, step), far, teachers])


def _up_to(test: ThresholdTest, argmax: Curve, largest: int, orders: Curve) -> Curve:
    """The joint cost [A] over all largest counts up to `largest`, given the curve of the argmax."""
    room = max(float(largest) - test.threshold, -8 * test.noise.scale)
    ceiling = threshold.data_independent(test, orders) + argmax
    return np.minimum(worst_reading.supremum(test.noise, argmax, room, orders), ceiling)


def _leader_moves(test: ThresholdTest, argmax: Curve, first: Counts, last: Counts, orders: Curve) -> Curve:
    """The largest joint cost [A] at the largest counts of each group, with its own curves [2, M, A]."""
    if not len(first):
        return np.zeros(len(orders))
    bend = worst_reading.bend_of_excess(orders, test.noise) * (last - first)[:, None] ** 2
    most = np.zeros(len(orders))
    with np.errstate(divide="ignore", over="ignore", under="ignore", invalid="ignore"):
        laws = [
            worst_reading.law(test.noise, (m - np.float64(test.threshold))[:, None]) for m in (first, last)
        ]
        for curve_of_way, upwards in zip(argmax, (np.True_, np.False_), strict=True):
            extra = (orders - 1) * curve_of_way
            low, high = (worst_reading.log_excess(law, orders, extra, upwards) for law in laws)
            highest = worst_reading.highest(low, high, np.maximum(bend, 1e-100))
            most = np.maximum(most, np.logaddexp(0.0, highest).max(axis=0))
    return most / (orders - 1) * (1 + worst_reading.ROUNDING)


def _leader_stays(
    noise: Noise,
    test: ThresholdTest,
    depths: argmax_worst_case.Levels,
    teachers: int,
    first: Counts,
    last: Counts,
    orders: Curve,
) -> Curve:
    """The largest cost [A] of a vote that moves between two classes behind the leader.

    It is a mean over the leader's noise: the best of all other classes is at least the leader's noisy count.
    """
    above = (2 * first - teachers)[:, None] - depths.levels[1:]  # least lead over any other class, less depth
    reached = np.exp(noise_law.log_tail(noise, -above)[0])
    share = -np.diff(reached, axis=1, prepend=1.0, append=0.0)  # probability between two depths
    behind = share @ np.expm1((orders - 1) * depths.costs.T)
    passed = np.exp(threshold.log_answered(test, last.astype(np.float64))[0])
    result: Curve = np.log1p((passed[:, None] * behind).max(axis=0)) / (orders - 1)
    return result


def lone_leader_costs(noise: Noise, leader: Counts, teachers: int, classes: int, orders: Curve) -> Curve:
    """The largest cost [2, M, A] of a moved vote that lowers a largest count of M or more.

    A leader with M of T votes that is p ahead of the class that gains the vote leaves `p - (2M - T)` votes
    for all other classes. A close race between the leader and the best of these would cost most, but with so
    few votes it is rare (docs/proofs/worst_case.md, section 6).

    The first row is the law before the move over the law after it, the second the reverse. Each M must be
    more than half of the votes, and the curve of `argmax_worst_case` must be finite.

    >>> noise, leaders, orders = Noise("gaussian", 40.0), np.array([126, 150, 240]), np.array([5.0])
    >>> (lone_leader_costs(noise, leaders, 250, 10, orders)[..., 0] / (5 / 40**2)).round(2)
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
