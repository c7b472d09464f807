"""Bounds of a moved vote's effect on the answer, by the lead and the place of the class that loses it.

Relative to the best noisy count of all other classes, the class that loses the vote is at `x` and the one
that gains it at `x - lead`; the answer is one of the two or another class (`moved_vote`). For each lead, a
grid bounds the excess `e^{(a-1) D} - 1` of both directions on cells of places. Derived in docs/sanitised.md,
section 2.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import special

from pate_jax.accounting.bounds import argmax_worst_case
from pate_jax.accounting.bounds.argmax_cells import bends, box
from pate_jax.accounting.bounds.moved_vote import NO_MASS, GaussianVote, LatticeVote, Laws, excess, weighed
from pate_jax.accounting.exact import noise_law
from pate_jax.errors import PateError
from pate_jax.mechanisms import Noise

Curve = NDArray[np.float64]
FINE = 40  # cells per scale, for continuous noise
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
_VANISHED = 1e-280  # masses below this are left out, with everything that they could cost
_BEYOND = 4.0  # scales past the last place at which the sum of masses starts
_FORWARD = np.array([[True], [False]])  # the two directions


class VoteGrid(Protocol):
    """Cells of places `[places[i], places[i + 1])`; the last cell contains all larger places."""

    places: Curve
    lead_step: int  # a lead stands for all whole leads up to the next one
    last_lead: int  # the last lead stands for all larger leads

    def cells(self, lead: int) -> Curve:
        """An upper bound of the excess [order, direction, cell]."""


def vote_grid(noise: Noise, orders: Curve) -> VoteGrid:
    """The grid for this noise and these orders, which go up to three times the scale.

    >>> vote_grid(Noise("gaussian", 40.0), np.array([2.0])).cells(1).max() * 40**2 / 2 < 0.65
    np.True_
    """
    smallest, largest = argmax_worst_case.SCALES.get(noise.family, (math.inf, 0.0))
    if noise.family not in ("gaussian", "discrete_gaussian") or not smallest <= noise.scale <= largest:
        raise PateError(
            f"{noise.family} noise of scale {noise.scale!r} has no sanitised figure; take a Gaussian "
            "mechanism of scale 0.5 or more (discrete: 1 to 250), or the data-independent figure"
        )
    if orders.max() > argmax_worst_case.LARGEST_SHIFT * noise.scale:
        raise PateError(
            f"order={orders.max():g} is above {argmax_worst_case.LARGEST_SHIFT:g} times the noise scale "
            f"{noise.scale:g}; take a smaller order"
        )
    return _GaussianGrid(noise.scale, orders) if noise.family == "gaussian" else _LatticeGrid(noise, orders)


class _GaussianGrid:
    """Gaussian noise: `Pr[X > max(Y, 0)] = int_{-x}^inf phi(z) Phi(z + lead) dz`, tails of one integrand."""

    def __init__(self, sigma: float, orders: Curve) -> None:
        self.sigma, self.orders, self._vote = sigma, orders, GaussianVote(sigma)
        below, above = box(sigma, float(orders.max()))
        parts = max(1, math.ceil(FINE / sigma))  # of a vote
        step = max(1, int(sigma * parts / FINE))
        grid = np.arange(-math.ceil(below * parts / step) * step, math.ceil(above * parts) + step, step)
        far = np.arange(-grid[0], int((below + _BEYOND * sigma) * parts) + step, step)
        edges = np.unique(np.concatenate([-grid, parts - grid, far]))
        self._after, self._before = (np.searchsorted(edges, shift - grid) for shift in (parts, 0))
        ends = edges / (parts * sigma)
        half = np.diff(ends)[:, None] / 2
        self._nodes, self._weights = ends[:-1, None] + half * (1 + _NODES), half * _WEIGHTS
        self._density, self._below = _density(self._nodes), special.ndtr(self._nodes)
        self.places = grid / parts
        self.lead_step = max(1, int(sigma / FINE))
        self.last_lead = int(below + above) + 1
        by_lead, by_place = bends(orders, sigma, whole=False)
        between = 0 if self.lead_step == 1 else self.lead_step  # between adjacent whole leads there is none
        self._bent = np.exp((by_lead * between**2 + by_place * (step / parts) ** 2) / 8)

    def cells(self, lead: int) -> Curve:
        """An upper bound of the excess [order, direction, cell], also for leads up to the next one."""
        last = lead if self.lead_step == 1 else lead + self.lead_step
        pair, end = self._pair(lead)
        if last != lead:
            other_pair, other_end = self._pair(last)
            pair, end = np.maximum(pair, other_pair), np.maximum(end, other_end) * self._bent[:, None]
        inside = np.maximum(pair[..., :-1], pair[..., 1:]) * self._bent[:, None, None]
        inside += self._third(lead, last)
        return np.concatenate([inside, end[..., None]], axis=2)

    def _pair(self, lead: int) -> tuple[Curve, Curve]:
        """The terms of the two classes at each place, and all three at the last place."""
        law = self._laws(lead)
        order, forward = self.orders[:, None, None], _FORWARD
        terms = [excess(q, loss, order, forward) for q, loss in zip(law.log_q, law.loss, strict=True)]
        return terms[0] + terms[1], np.sum([term[..., -1] for term in terms], axis=0)

    def _third(self, lead: int, last: int) -> Curve:
        """The largest term of the third outcome in each cell: its largest mass at the two extreme losses."""
        low, high = self.places[:-1], self.places[1:]
        least, most = self._vote.others(high, low - last)[1], self._vote.others(low, high - lead)[1]
        log_q, change = self._vote.others(low, low - last)
        mass = np.where(_FORWARD, log_q, log_q + change)
        order = self.orders[:, None, None]
        return np.maximum(*(weighed(mass, loss, order, _FORWARD) for loss in (least, most)))

    def _laws(self, lead: int) -> Laws:
        before, after = self._tails(lead)[:, self._before], self._tails(lead - 2)[:, self._after]
        log_p, log_q = np.log(np.maximum([before, after], _VANISHED))
        vanished = np.minimum(before, after) <= _VANISHED
        mass, loss = np.where(vanished, NO_MASS, log_q), np.where(vanished, 0.0, log_p - log_q)
        other, change = self._vote.others(self.places, self.places - lead)
        return Laws(np.stack([*mass, other]), np.stack([*loss, change]))

    def _tails(self, lead: int) -> Curve:
        """`Pr[a wins]` and `Pr[b wins]` [2, edge] if a is at minus the edge."""
        shifted = self._nodes + lead / self.sigma
        with np.errstate(under="ignore"):
            cells = np.stack([self._density * special.ndtr(shifted), _density(shifted) * self._below])
            sums = (cells * self._weights).sum(axis=2)[:, ::-1].cumsum(axis=1)[:, ::-1]
        return np.concatenate([sums, np.zeros((2, 1))], axis=1)


def _density(z: Curve) -> Curve:
    with np.errstate(under="ignore"):
        return np.exp(-z * z / 2 - noise_law.HALF_LOG_2PI)


class _LatticeGrid:
    """Whole-number noise: whole places only, under both rules for ties, one of which shifts the lead by 1."""

    lead_step = 1

    def __init__(self, noise: Noise, orders: Curve) -> None:
        below, above = box(noise.scale, float(orders.max()))
        self.orders, self.last_lead = orders, int(below + above) + 1
        self.places = np.arange(-math.ceil(below), math.ceil(above) + 1.0)
        reach = int(2 * below + above) + 4
        self._votes = [(int(a_wins), LatticeVote(noise, reach, a_wins)) for a_wins in (False, True)]

    def cells(self, lead: int) -> Curve:
        """The larger excess [order, direction, place] of the two rules for ties."""
        excesses = [self._excess(vote, lead - shift) for shift, vote in self._votes]
        return np.maximum(*excesses)

    def _excess(self, vote: LatticeVote, lead: int) -> Curve:
        law = vote.laws(np.full(len(self.places), float(lead)), self.places)
        order = self.orders[:, None, None]
        terms = [excess(q, loss, order, _FORWARD) for q, loss in zip(law.log_q, law.loss, strict=True)]
        result: Curve = np.sum(terms, axis=0)
        return result
