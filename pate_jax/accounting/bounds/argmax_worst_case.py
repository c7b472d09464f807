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

from pate_jax.accounting.bounds.argmax_cells import TOLERANCE, Search, Suprema, box
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


def curve(noise: Noise, orders: Curve) -> Curve:
    """`R` [A]: no two neighbours' noisy argmaxes have a larger divergence, in either direction.

    Infinite where nothing is claimed: the other families, and beyond the limits of order and scale.

    >>> orders = np.array([2.0, 10.0])
    >>> (curve(Noise("gaussian", 40.0), orders) / (orders / 40**2)).round(2)
    array([0.64, 0.64])
    """
    smallest, largest = SCALES.get(noise.family, (math.inf, 0.0))
    if not smallest <= noise.scale <= largest:
        return np.full(len(orders), np.inf)
    return costs(noise, shares(noise).largest[:, None], orders)[:, 0]


def by_depth(noise: Noise, orders: Curve) -> Levels:
    """The same by the depth `-x` of the class that loses the vote below the best of the others."""
    top, _, places, cells = shares(noise)
    to_place = np.maximum.accumulate(cells.max(axis=(0, 2)), axis=1)
    lower = 1 if noise.is_discrete else 0  # how ties are broken may lower a depth by one
    depths = np.append(-np.inf, lower - places[-2:0:-1])
    return Levels(depths, costs(noise, np.hstack([top[:, None], to_place[:, -2::-1]]), orders))


def costs(noise: Noise, at_knots: Curve, orders: Curve) -> Curve:
    """Costs [A, N] at any orders from `e / (a (a-1))` at the knots [knots, N]; infinite past the last."""
    knots = _knots(noise.scale)
    out = np.full((len(orders), at_knots.shape[1]), np.inf)
    inside, logs = orders <= knots[-1], np.log(at_knots)
    # e / (a (a-1)) is log-convex in the order, so the chord between two orders is above it
    place = np.maximum(orders[inside], knots[0])
    right = np.clip(np.searchsorted(knots, place), 1, len(knots) - 1)
    share = ((place - knots[right - 1]) / (knots[right] - knots[right - 1]))[:, None]
    excess = np.exp((1 - share) * logs[right - 1] + share * logs[right])
    out[inside] = np.log1p(excess * (place * (place - 1))[:, None]) / (place - 1)[:, None]
    return out


@lru_cache(maxsize=16)
def shares(noise: Noise) -> Suprema:
    """The largest excesses over `a (a-1)` at the knots, rounded up; Laplace noise has a single cell.

    The leads are those of the votes, but how ties are broken may raise one by a vote.
    """
    knots = _knots(noise.scale)
    if "laplace" in noise.family:
        top, ends = largest_excess(noise, knots, TOLERANCE), np.array([-np.inf, np.inf])
        found = Suprema(top, ends, ends, top[None, :, None, None])
    elif noise.family == "gaussian":
        found = Search(GaussianVote(noise.scale), noise.scale, knots, 1.0).run()
    else:
        below, above = box(noise.scale, float(knots[-1]))
        votes = [LatticeVote(noise, int(2 * below + above) + 4, a_wins) for a_wins in (False, True)]
        # a class that wins ties needs a lead that is smaller by one
        runs = [Search(vote, noise.scale, knots, 1.0 - vote.a_wins).run() for vote in votes]
        found = runs[0].larger(runs[1])
    return found._replace(
        largest=_share(found.largest, knots), cells=_share(found.cells, knots[:, None, None])
    )


def _share(excess: Curve, knots: Curve) -> Curve:
    moments = np.log1p(excess + LEFT_OUT * knots) * (1 + TOLERANCE + ROUNDING)
    return np.expm1(moments) / (knots * (knots - 1))


def _knots(scale: float) -> Curve:
    """The orders that are searched, up to `LARGEST_SHIFT` scales."""
    last = LARGEST_SHIFT * scale
    knots = [1.001, 1.05, 1.2, 1.5, 2.0]
    while knots[-1] < last:
        knots.append(knots[-1] + 0.1 * max(scale, knots[-1]))
    return np.array([*(knot for knot in knots if knot < last), last])
