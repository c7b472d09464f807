"""The worst case of test and argmax as one mechanism: a full reading excludes a close race.

A largest count of M leaves `T - M` votes for all other classes. So for M beyond half of the votes the vote
that moves either leaves a leader that is far ahead, or moves between two classes that are far behind. The
largest joint cost over M is derived in docs/worst_case.md, section 6.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from numpy.typing import NDArray

from pate_jax.accounting.bounds import argmax_worst_case, threshold, worst_reading
from pate_jax.accounting.exact import noise_law
from pate_jax.mechanisms import Noise, ThresholdTest

Curve = NDArray[np.float64]
LEADS = (*np.arange(1, 10) / 10, *np.arange(5, 10) / 5, 2.2, 2.5, 3.0, 3.5, 4.2)  # in scales of the noise
DEPTHS = (-2.5, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0)


def curve(noise: Noise, test: ThresholdTest, teachers: int, orders: Curve) -> Curve:
    """An upper bound [A] of the joint cost of test and argmax over all histograms of so many votes.

    The test must read the largest count. Infinite where `argmax_worst_case` claims nothing.

    >>> noise, test = Noise("gaussian", 40.0), ThresholdTest(200, Noise("gaussian", 150.0))
    >>> found = curve(noise, test, 250, np.array([9.5]))
    >>> bool(0.25 < found[0] / (9.5 / 40**2) < 0.27)
    True
    """
    half = (teachers + 1) // 2
    plain = argmax_worst_case.curve(noise, orders)
    out = np.full(len(orders), np.inf)
    good = np.isfinite(plain)
    if not good.any():
        return out
    out[good] = _up_to(test, plain[good], half, orders[good])
    if half < teachers:
        out[good] = np.maximum(out[good], _beyond(noise, test, teachers, orders[good]))
    return out


def _beyond(noise: Noise, test: ThresholdTest, teachers: int, orders: Curve) -> Curve:
    """The same over histograms whose largest count is beyond half of the votes."""
    half = (teachers + 1) // 2
    steps = [math.ceil((teachers + lead * noise.scale) / 2) - 1 for lead in LEADS]
    ends = [half, *sorted({step for step in steps if half < step < teachers}), teachers]
    leads = (-math.inf, *(lead * noise.scale for lead in LEADS))
    by_lead = argmax_worst_case.by_level(noise, orders, "lead", leads)
    found = np.zeros(len(orders))
    for first, last in itertools.pairwise(ends):
        level = int(np.searchsorted(leads, 2 * (first + 1) - teachers, side="right")) - 1
        found = np.maximum(found, _up_to(test, by_lead[:, level], last, orders))
        behind = _among_the_others(noise, teachers, first + 1, orders)
        passed = np.exp(threshold.log_answered(test, np.array([float(last)]))[0])
        found = np.maximum(found, np.log1p(passed * behind) / (orders - 1))
    return found


def _up_to(test: ThresholdTest, argmax: Curve, largest: int, orders: Curve) -> Curve:
    """The joint cost [A] at every largest count up to one, with the curve of what follows an answer."""
    room = max(float(largest) - test.threshold, -8 * test.noise.scale)
    ceiling = threshold.data_independent(test, orders) + argmax
    return np.minimum(worst_reading.supremum(test.noise, argmax, room, orders), ceiling)


def _among_the_others(noise: Noise, teachers: int, leader: int, orders: Curve) -> Curve:
    """The excess [A] of a vote that moves between two classes while a third one has `leader` votes or more.

    Averaged over the noise of the leader: the best of all others is at least what it reaches.
    """
    depths = (-math.inf, *(depth * noise.scale for depth in DEPTHS))
    costs = argmax_worst_case.by_level(noise, orders, "depth", depths)
    above = np.array([2 * leader - teachers - depth for depth in depths[1:]])  # leader less the others' room
    reached = np.concatenate([[1.0], np.exp(noise_law.log_tail(noise, -above)[0]), [0.0]])
    return np.expm1((orders - 1)[:, None] * costs) @ -np.diff(reached)
