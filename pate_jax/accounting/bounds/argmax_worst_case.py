"""The worst case of answering with one index: what the noisy argmax costs on any votes.

A vote moves between two classes. `R(a)` is the largest divergence of the three outcomes of `moved_vote`, over
all places of these two classes and in both directions. It bounds the noisy argmax of every histogram, with
any number of teachers and classes and any history. docs/proofs/worst_case.md proves this, and that the search
is right.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pate_jax.accounting.bounds.argmax_cells import TOLERANCE, Search, Suprema, box
from pate_jax.accounting.bounds.laplace_worst_case import largest_excess
from pate_jax.accounting.bounds.moved_vote import GaussianVote, LatticeVote, WideLatticeVote
from pate_jax.mechanisms import Noise

Curve = NDArray[np.float64]
ROUNDING = 1e-6  # relative: more than the error of quadrature and rounding in a sum of terms
LEFT_OUT = 1e-18  # times the order: more than everything outside the box that is searched
LARGEST_SHIFT = 3.0  # the largest order / scale for which the bound is claimed
SCALES = {  # the smallest and the largest scale for which the bound is claimed
    "gaussian": (0.5, 1e5),
    "discrete_gaussian": (1.0, 1e5),
    "laplace": (0.5, 1e5),
    "discrete_laplace": (1.0, 100.0),
}
WIDE = 250.0  # the widest discrete Gaussian noise whose masses are added up one by one


class Levels(NamedTuple):
    """Costs [A, K] of all pairs whose level is at least `levels[k]`, in votes; the first is of all pairs."""

    levels: Curve
    costs: Curve


def curve(noise: Noise, orders: Curve) -> Curve:
    """`R` [A]: the largest divergence between two neighbours' noisy argmaxes, in either direction.

    Infinite where the bound is not claimed: for other families, and beyond the limits of order and scale.

    >>> orders = np.array([2.0, 10.0])
    >>> (curve(Noise("gaussian", 40.0), orders) / (orders / 40**2)).round(2)
    array([0.64, 0.64])
    """
    smallest, largest = SCALES.get(noise.family, (math.inf, 0.0))
    if not smallest <= noise.scale <= largest:
        return np.full(len(orders), np.inf)
    of = _largest(noise)
    right = _right_knots(of.knots, orders[orders <= of.knots[-1]])
    return costs(noise, of.at(np.unique([right - 1, right]))[:, None], orders)[:, 0]


def by_depth(noise: Noise, orders: Curve) -> Levels:
    """`R` by the depth `-x`: how far the class that loses the vote is below the best of the others."""
    top, _, places, cells = shares(noise)
    to_place = np.maximum.accumulate(cells.max(axis=(0, 2)), axis=1)
    lower = 1 if noise.is_discrete else 0  # the rule for ties may lower a depth by one
    depths = np.append(-np.inf, lower - places[-2:0:-1])
    return Levels(depths, costs(noise, np.hstack([top[:, None], to_place[:, -2::-1]]), orders))


def costs(noise: Noise, at_knots: Curve, orders: Curve) -> Curve:
    """Costs [A, N] at any orders from `e / (a (a-1))` at the knots [knots, N]; infinite past the last."""
    knots = _knots(noise.scale)
    out = np.full((len(orders), at_knots.shape[1]), np.inf)
    inside, logs = orders <= knots[-1], np.log(at_knots)
    # e / (a (a-1)) is log-convex in the order, so it lies below the chord between two orders
    place = np.maximum(orders[inside], knots[0])
    right = _right_knots(knots, place)
    share = ((place - knots[right - 1]) / (knots[right] - knots[right - 1]))[:, None]
    excess = np.exp((1 - share) * logs[right - 1] + share * logs[right])
    out[inside] = np.log1p(excess * (place * (place - 1))[:, None]) / (place - 1)[:, None]
    return out


def _right_knots(knots: Curve, orders: Curve) -> NDArray[np.int64]:
    """The place of the knot above each order; the one before it is below, or the order itself is lower."""
    return np.clip(np.searchsorted(knots, orders), 1, len(knots) - 1)


class _Largest:
    """`e / (a (a-1))` of all pairs at the knots, each computed at its first use: a search asks for few."""

    def __init__(self, noise: Noise) -> None:
        self._noise, self.knots = noise, _knots(noise.scale)
        self._found = np.full(len(self.knots), np.nan)
        self._searches = () if "laplace" in noise.family else _searches(noise)

    def at(self, places: NDArray[np.int64]) -> Curve:
        """The whole curve, known at these places at least."""
        new = places[np.isnan(self._found[places])]
        if new.size:
            self._found[new] = _share(self._excess(new), self.knots[new])
        return self._found

    def _excess(self, places: NDArray[np.int64]) -> Curve:
        if not self._searches:
            return largest_excess(self._noise, self.knots[places], TOLERANCE)
        result: Curve = np.stack([search.run(places).largest for search in self._searches]).max(axis=0)
        return result


@lru_cache(maxsize=64)
def _largest(noise: Noise) -> _Largest:
    return _Largest(noise)


@lru_cache(maxsize=32)
def shares(noise: Noise) -> Suprema:
    """The largest excesses, divided by `a (a-1)`, at the knots, rounded up; Laplace noise has a single cell.

    The leads are those of the votes, but the rule for ties may raise a lead by one vote.
    """
    knots = _knots(noise.scale)
    if "laplace" in noise.family:
        top, ends = largest_excess(noise, knots, TOLERANCE), np.array([-np.inf, np.inf])
        suprema = Suprema(top, ends, ends, top[None, :, None, None])
    else:
        suprema, *others = (search.run() for search in _searches(noise))
        for other in others:
            suprema = suprema.larger(other)
    return suprema._replace(
        largest=_share(suprema.largest, knots), cells=_share(suprema.cells, knots[:, None, None])
    )


@lru_cache(maxsize=64)
def _searches(noise: Noise) -> tuple[Search, ...]:
    """One for the law of the moved vote, or one for each class that may win ties; what they found is kept."""
    knots = _knots(noise.scale)
    if noise.family == "gaussian":
        return (Search(GaussianVote(noise.scale), noise.scale, knots, 1.0),)
    # a class that wins ties needs a lead that is smaller by one vote
    return tuple(Search(vote, noise.scale, knots, 1.0 - vote.a_wins) for vote in _on_whole_numbers(noise))


def _on_whole_numbers(noise: Noise) -> tuple[LatticeVote | WideLatticeVote, ...]:
    """The laws where b wins the ties between the two, and where a does."""
    if noise.scale > WIDE:
        return WideLatticeVote(noise.scale, a_wins=False), WideLatticeVote(noise.scale, a_wins=True)
    below, above = box(noise.scale, LARGEST_SHIFT * noise.scale)
    vote = LatticeVote(noise, int(2 * below + above) + 4, a_wins=False)
    return vote, vote.mirrored()


def _share(excess: Curve, knots: Curve) -> Curve:
    moments = np.log1p(excess + LEFT_OUT * knots) * (1 + TOLERANCE + ROUNDING)
    return np.expm1(moments) / (knots * (knots - 1))


def _knots(scale: float) -> Curve:
    """The orders at which the search runs, up to `LARGEST_SHIFT` scales."""
    last = LARGEST_SHIFT * scale
    knots = [1.001, 1.05, 1.2, 1.5, 2.0]
    while knots[-1] < last:
        knots.append(knots[-1] + 0.1 * max(scale, knots[-1]))
    return np.array([*(knot for knot in knots if knot < last), last])
