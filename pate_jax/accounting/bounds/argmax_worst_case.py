"""The worst case of answering with one index: what the noisy argmax costs on any votes.

`R(a)` is the largest divergence of the three outcomes of `moved_vote` over all places of the two classes that
a vote moves between, in both directions. It bounds the noisy argmax of every histogram, with any number of
teachers and classes and any history. The proof, and that of the search, is in docs/worst_case.md.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pate_jax.accounting.bounds.argmax_cells import TOLERANCE, Search, box
from pate_jax.accounting.bounds.laplace_worst_case import largest_excess
from pate_jax.accounting.bounds.moved_vote import GaussianVote, LatticeVote
from pate_jax.mechanisms import Noise

Curve = NDArray[np.float64]
ROUNDING = 1e-6  # relative: more than quadrature and rounding make of a sum of terms
LEFT_OUT = 1e-18  # times the order: more than all that lies outside the box that is searched
LARGEST_SHIFT = 3.0  # of order / scale; beyond it nothing is claimed
SCALES = {  # the smallest and the largest that are claimed
    "gaussian": (0.5, 1e5),
    "discrete_gaussian": (1.0, 250.0),
    "laplace": (0.5, 1e5),
    "discrete_laplace": (1.0, 100.0),
}


class Levels(NamedTuple):
    """Costs [A, K] of the pairs of a level at least `levels[k]`, in votes; the first level is every pair."""

    levels: Curve
    costs: Curve

    def at_least(self, level: float) -> Curve:
        """The cost [A] of all pairs of at least one level."""
        return self.costs[:, int(np.searchsorted(self.levels, level, side="right")) - 1]


def curve(noise: Noise, orders: Curve) -> Curve:
    """`R` [A]: no two neighbours' noisy argmaxes have a larger divergence, in either direction.

    Infinite where nothing is claimed: the other families, and beyond the limits of order and scale.

    >>> orders = np.array([2.0, 10.0])
    >>> (curve(Noise("gaussian", 40.0), orders) / (orders / 40**2)).round(2)
    array([0.64, 0.64])
    """
    return by_lead(noise, orders).costs[:, 0]


def by_lead(noise: Noise, orders: Curve) -> Levels:
    """The same by the lead `x - y` of the class that loses the vote, so named that the lead is at least 1."""
    return _between_knots(noise, orders, kind=0)


def by_depth(noise: Noise, orders: Curve) -> Levels:
    """The same by the depth `-x` of that class below the best of the others."""
    return _between_knots(noise, orders, kind=1)


def _between_knots(noise: Noise, orders: Curve, kind: int) -> Levels:
    smallest, largest = SCALES.get(noise.family, (math.inf, 0.0))
    if not smallest <= noise.scale <= largest:
        return Levels(np.array([-np.inf]), np.full((len(orders), 1), np.inf))
    knots = _knots(noise.scale)
    levels, log_shares = _log_shares(noise)[kind]
    out = np.full((len(orders), len(levels)), np.inf)
    inside = orders <= knots[-1]
    # e / (a (a-1)) is log-convex in the order, so the chord between two orders is above it
    place = np.maximum(orders[inside], knots[0])
    right = np.clip(np.searchsorted(knots, place), 1, len(knots) - 1)
    share = ((place - knots[right - 1]) / (knots[right] - knots[right - 1]))[:, None]
    excess = np.exp((1 - share) * log_shares[right - 1] + share * log_shares[right])
    out[inside] = np.log1p(excess * (place * (place - 1))[:, None]) / (place - 1)[:, None]
    return Levels(levels, out)


@lru_cache(maxsize=256)
def _log_shares(noise: Noise) -> tuple[Levels, Levels]:
    """Log of the largest excess over `a (a-1)` at the knots [knots, K], rounded up: by lead, by depth."""
    knots = _knots(noise.scale)
    if "laplace" in noise.family:
        every = Levels(
            np.array([-np.inf]), _log_share(largest_excess(noise, knots, TOLERANCE)[:, None], knots)
        )
        return every, every
    if noise.family == "gaussian":
        lower, found = 0, Search(GaussianVote(noise.scale), noise.scale, knots, 1.0).run()
    else:
        below, above = box(noise.scale, float(knots[-1]))
        votes = [LatticeVote(noise, int(2 * below + above) + 4, a_wins) for a_wins in (False, True)]
        # how ties are broken may lower a level by one: in the first search the leads are those of the votes
        runs = [Search(vote, noise.scale, knots, 1.0 - vote.a_wins).run() for vote in votes]
        lower, found = 1, runs[0].larger(runs[1])
    top = found.largest[:, None]
    by_lead, by_depth = np.hstack([top, found.from_lead[:, 1:]]), np.hstack([top, found.to_place[:, -2::-1]])
    return (
        Levels(np.append(-np.inf, found.leads[1:]), _log_share(by_lead, knots)),
        Levels(np.append(-np.inf, lower - found.places[-2::-1]), _log_share(by_depth, knots)),
    )


def _log_share(excess: Curve, knots: Curve) -> Curve:
    moments = np.log1p(excess + LEFT_OUT * knots[:, None]) * (1 + TOLERANCE + ROUNDING)
    return np.log(np.expm1(moments) / (knots * (knots - 1))[:, None])


def _knots(scale: float) -> Curve:
    """The orders that are searched, up to `LARGEST_SHIFT` scales."""
    last = LARGEST_SHIFT * scale
    knots = [1.001, 1.05, 1.2, 1.5, 2.0]
    while knots[-1] < last:
        knots.append(knots[-1] + 0.1 * max(scale, knots[-1]))
    return np.array([*(knot for knot in knots if knot < last), last])
