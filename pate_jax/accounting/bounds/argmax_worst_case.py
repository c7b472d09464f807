"""The worst case of answering with one index: what the noisy argmax costs on any votes.

`R(a)` is the largest divergence of the three outcomes of `moved_vote` over all places of the two classes that
a vote moves between, in both directions. It bounds the noisy argmax of every histogram, with any number of
teachers and classes and any history. The proof, and that of the search, is in docs/worst_case.md.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pate_jax.accounting.bounds.laplace_worst_case import largest_excess
from pate_jax.accounting.bounds.moved_vote import NO_MASS, GaussianVote, LatticeVote, excess, weighed
from pate_jax.mechanisms import Noise

Curve = NDArray[np.float64]
Rows = NDArray[np.int64]
Kind = Literal["lead", "depth"]
Vote = GaussianVote | LatticeVote
Mask = NDArray[np.bool_]
TOLERANCE = 2e-3  # relative: how far a bound may end above a value that is attained
ROUGHLY = 5e-3  # the same for the levels, which are terms of a larger sum
LEAST_SHARE = 0.1  # of the largest excess of all: a level with less counts as so much
ROUNDING = 1e-6  # relative: more than quadrature and rounding make of a sum of terms
LEFT_OUT = 1e-19  # times the order: more than all that lies outside the box that is searched
LARGEST_SHIFT = 3.0  # of order / scale; beyond it nothing is claimed
SCALES = {  # the smallest and the largest that are claimed
    "gaussian": (0.5, 1e5),
    "discrete_gaussian": (1.0, 250.0),
    "laplace": (0.5, 1e5),
    "discrete_laplace": (1.0, 100.0),
}
_ROUNDS = 40
_LEADS = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 9, 13, 18, 25])  # where the first cells end, in scales
_PLACES = np.array([-12, -8, -5, -3, -2, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 4, 6, 10])


class _Cells(NamedTuple):
    """Parallelograms of leads and places, each with the row (order and direction) it belongs to."""

    row: Rows
    lead: Curve  # [N, 2]
    x: Curve  # [N, 2]


def _chosen(cells: _Cells, which: NDArray[np.bool_]) -> _Cells:
    return _Cells(cells.row[which], cells.lead[which], cells.x[which])


class _Opened(NamedTuple):
    """Cells that stay, the most that they may hold, and whether leads and places are to be cut."""

    cells: _Cells
    bound: Curve
    wide: Mask
    tall: Mask


class _Search:
    """Branch and bound; `best[order, k]` is over the points whose level is at least `levels[k]`."""

    def __init__(
        self, vote: Vote, noise: Noise, orders: Curve, levels: Curve, kind: Kind, first_lead: float
    ) -> None:
        self.vote, self.whole, self.scale = vote, isinstance(vote, LatticeVote), noise.scale
        self.levels, self.by_lead, self.first_lead = levels, kind == "lead", first_lead
        self.orders, self.forward = np.tile(orders, 2), np.arange(2 * len(orders)) < len(orders)
        self.best = np.zeros((len(orders), len(levels)))
        self.tolerance = tolerance_of(levels)
        self.bend = _bend(self.orders, self.scale, self.whole)

    def run(self) -> Curve:
        """Upper bounds [A, K] of the largest excess, but for the tolerance."""
        cells = self._first(*box(self.scale, float(self.orders.max())))
        for _ in range(_ROUNDS):
            opened = self._open(cells)
            if not len(opened.bound):
                break
            cells = self._split(opened)
        else:
            row = opened.cells.row % len(self.best)
            np.maximum.at(self.best, (row, self._level(opened.cells)), opened.bound)
            self._settle()
        return self.best

    def _first(self, below: float, above: float) -> _Cells:
        leads, places = self.first_lead + _LEADS * self.scale, _PLACES * self.scale
        levels = self.levels[1:]  # no cell lies on both sides of a level
        leads = self._ends(self.first_lead, below + above, np.append(leads, levels if self.by_lead else []))
        places = self._ends(-below, above, np.append(places, [] if self.by_lead else -levels))
        p, x = (np.stack([ends[:-1], ends[1:]], axis=1) for ends in (leads, places))
        row, i, j = (part.ravel() for part in np.indices((len(self.orders), len(p), len(x))))
        return _Cells(row, p[i], x[j])

    def _ends(self, first: float, last: float, between: Curve) -> Curve:
        between = np.ceil(between) if self.whole else between
        return np.unique([first, *between[(between > first) & (between < last)], last])

    def _open(self, cells: _Cells) -> _Opened:
        """The cells that may hold more than the best point of their level, and how to cut them."""
        corner_p, corner_x = np.repeat(cells.lead, 2, axis=1), np.tile(cells.x, 2)
        points, where = np.unique(corner_p + 1j * corner_x, return_inverse=True)
        law = self.vote.laws(points.real, points.imag)
        where = where.reshape(corner_p.shape)
        order, forward = self.orders[cells.row][:, None], self.forward[cells.row][:, None]
        log_q, loss = law.log_q[:, where], law.loss[:, where]
        terms = excess(log_q, loss, order, forward)
        self._record(cells.row, corner_p, corner_x, terms.sum(axis=0))
        bound, wide, tall = self._bound(cells, log_q, loss, terms)
        best = self.best[cells.row % len(self.best), self._level(cells)]
        stays = np.log1p(bound) > np.log1p(best) * (1 + self.tolerance)
        if self.whole:
            wide, tall = _whole_cuts(cells, wide, tall)
            stays &= wide | tall
        return _Opened(_chosen(cells, stays), bound[stays], wide[stays], tall[stays])

    def _split(self, opened: _Opened) -> _Cells:
        """Each cell in two or four."""
        cells, parts = opened.cells, []
        for i, j in np.ndindex(2, 2):
            ends = []
            for pair, side, cut in ((cells.lead, i, opened.wide), (cells.x, j, opened.tall)):
                middle = pair.mean(axis=1)
                middle = np.floor(middle) if self.whole else middle
                middle = np.where(cut, middle, pair[:, 1 - side])
                ends.append(np.stack([middle, pair[:, 1]] if side else [pair[:, 0], middle], axis=1))
            chosen = (opened.wide | (i == 0)) & (opened.tall | (j == 0))
            parts.append(_Cells(cells.row[chosen], ends[0][chosen], ends[1][chosen]))
        row, lead, x = (np.concatenate(each) for each in zip(*parts, strict=True))
        return _Cells(row, lead, x)

    def _record(self, row: Rows, p: Curve, x: Curve, value: Curve) -> None:
        level = np.searchsorted(self.levels, p if self.by_lead else -x, side="right") - 1
        order = np.broadcast_to((row % len(self.best))[:, None], p.shape)
        good = level >= 0
        np.maximum.at(self.best, (order[good], level[good]), value[good])
        self._settle()

    def _settle(self) -> None:
        """A level holds all points of the levels above it."""
        self.best = np.maximum.accumulate(self.best[:, ::-1], axis=1)[:, ::-1]
        if len(self.levels) > 1:
            self.best = np.maximum(self.best, LEAST_SHARE * self.best[:, :1])

    def _level(self, cells: _Cells) -> Rows:
        """The highest level that a point inside each cell may have; an edge belongs to the next cell too."""
        highest = cells.lead[:, 1] if self.by_lead else -cells.x[:, 0]
        return np.maximum(np.searchsorted(self.levels, highest, side="left") - 1, 0)

    def _bound(self, cells: _Cells, log_q: Curve, loss: Curve, terms: Curve) -> tuple[Curve, Mask, Mask]:
        """The largest excess that a cell may hold, and whether to cut its leads and its places.

        The others are those of the three outcomes at the corners [3, N, 4].
        """
        pair = np.log(np.maximum((terms[0] + terms[1]).max(axis=1), 1e-300))
        along_p = self.bend[cells.row] * np.diff(cells.lead)[:, 0] ** 2 / 8
        along_x = self.bend[cells.row] * np.diff(cells.x)[:, 0] ** 2 / 4
        far = np.flatnonzero(along_p + along_x > TOLERANCE)
        row, parts = cells.row[far], (np.maximum(log_q[:2, far], NO_MASS), loss[:2, far])
        by_x = np.minimum(along_x[far], np.maximum(self._rising(row, *parts) - pair[far], 0.0))
        by_p = np.minimum(along_p[far], np.maximum(self._falling(row, *parts) - pair[far], 0.0))
        first = along_p[far] + by_x < by_p + along_x[far]  # one of the two directions is bounded by its bend
        along_x[far], along_p[far] = np.where(first, by_x, along_x[far]), np.where(first, along_p[far], by_p)
        with np.errstate(over="ignore"):
            both, other = np.exp(pair + along_p + along_x), self._other(cells)
        loose = other - terms[2].max(axis=1) > 0.3 * np.minimum(along_p + along_x, 1.0) * np.exp(pair)
        by_lead = np.abs(loss[2, :, 0] - loss[2, :, 2]) > np.abs(loss[2, :, 0] - loss[2, :, 1])
        wide, tall = 2 * along_p > along_x, 2 * along_x > along_p
        wide, tall = wide | (loose & by_lead), tall | (loose & ~by_lead)
        neither = ~(wide | tall)
        return both + other, wide | neither, tall | neither

    def _rising(self, row: Rows, log_q: Curve, loss: Curve) -> Curve:
        """Log of the most that two terms reach between two places at one lead: both masses rise with x."""
        order, forward = self.orders[row][:, None], self.forward[row][:, None]
        log_p = log_q + loss
        (low_p, high_p), (low_q, high_q) = ((log[..., [0, 2]], log[..., [1, 3]]) for log in (log_p, log_q))
        mass = np.where(forward, high_q, high_p)
        ends = [weighed(mass, d, order, forward) for d in (high_p - low_q, low_p - high_q)]
        return np.log(np.maximum(np.maximum(*ends).sum(axis=0).max(axis=1), 1e-300))

    def _falling(self, row: Rows, log_q: Curve, loss: Curve) -> Curve:
        """The same between two leads at one place: losses fall with the lead, and so does the mass of b."""
        order, forward = self.orders[row][:, None], self.forward[row][:, None]
        heavy = np.where(forward, log_q, log_q + loss)
        mass = np.stack([heavy[0][:, [2, 3]], heavy[1][:, [0, 1]]])
        ends = [weighed(mass, loss[..., corners], order, forward) for corners in ([0, 1], [2, 3])]
        return np.log(np.maximum(np.maximum(*ends).sum(axis=0).max(axis=1), 1e-300))

    def _other(self, cells: _Cells) -> Curve:
        """The largest term of the third outcome: its mass falls with x and y, its loss with x only."""
        (p0, p1), (x0, x1) = cells.lead.T, cells.x.T
        order, forward = self.orders[cells.row], self.forward[cells.row]
        least = self.vote.others(x1, x0 - p1)[1]
        most = self.vote.others(x0, x1 - p0)[1]
        log_q, change = self.vote.others(x0, x0 - p1)
        log_q = np.where(forward, log_q, log_q + change)
        return np.maximum(*(weighed(log_q, loss, order, forward) for loss in (least, most)))


def curve(noise: Noise, orders: Curve) -> Curve:
    """`R` [A]: no two neighbours' noisy argmaxes have a larger divergence, in either direction.

    Infinite where nothing is claimed: the other families, and beyond the limits of order and scale.

    >>> orders = np.array([2.0, 10.0])
    >>> (curve(Noise("gaussian", 40.0), orders) / (orders / 40**2)).round(2)
    array([0.64, 0.64])
    """
    return by_level(noise, orders, "lead", (-math.inf,))[:, 0]


def by_level(noise: Noise, orders: Curve, kind: Kind, levels: tuple[float, ...]) -> Curve:
    """The same [A, K] over the pairs of a level at least `levels[k]`, in votes, ascending.

    The level is the lead `x - y` of the class that loses the vote, or its depth `-x` below the best of the
    others; of two neighbours the pair is named so that the lead is at least 1.
    """
    out = np.full((len(orders), len(levels)), np.inf)
    smallest, largest = SCALES.get(noise.family, (math.inf, 0.0))
    if not smallest <= noise.scale <= largest:
        return out
    knots = _knots(noise.scale)
    inside = orders <= knots[-1]
    # e / (a (a-1)) is log-convex in the order, so the chord between two orders is above it
    place = np.maximum(orders[inside], knots[0])
    log_shares = _log_shares(noise, kind, levels)
    between = [np.interp(place, knots, column) for column in log_shares.T]
    excess = np.exp(np.stack(between, axis=1)) * (place * (place - 1))[:, None]
    out[inside] = np.log1p(excess) / (place - 1)[:, None]
    return out


@lru_cache(maxsize=256)
def _log_shares(noise: Noise, kind: Kind, levels: tuple[float, ...]) -> Curve:
    """Log of the largest excess over `a (a-1)` at the knots [knots, K], rounded up."""
    knots, ends = _knots(noise.scale), np.array(levels)
    if "laplace" in noise.family:
        found = np.repeat(largest_excess(noise, knots, TOLERANCE)[:, None], len(ends), axis=1)
    elif noise.family == "gaussian":
        found = _Search(GaussianVote(noise.scale), noise, knots, ends, kind, 1.0).run()
    else:
        found = np.zeros((len(knots), len(ends)))
        reach = sum(box(noise.scale, float(knots[-1]))) + 4
        for a_wins in (False, True):
            vote = LatticeVote(noise, int(reach), a_wins)
            shift = 1 if kind == "depth" else int(a_wins)  # what breaking ties may do to a level
            search = _Search(vote, noise, knots, ends - shift, kind, 1.0 - a_wins)
            search.best = found
            found = search.run()
    moments = np.log1p(found + LEFT_OUT * knots[:, None]) * (1 + tolerance_of(ends) + ROUNDING)
    return np.log(np.expm1(moments) / (knots * (knots - 1))[:, None])


def tolerance_of(levels: Curve) -> float:
    """How close the search has to come."""
    return TOLERANCE if len(levels) == 1 else ROUGHLY


def _knots(scale: float) -> Curve:
    """The orders that are searched, up to `LARGEST_SHIFT` scales."""
    last = LARGEST_SHIFT * scale
    knots = [1.001, 1.05, 1.2, 1.5, 2.0]
    while knots[-1] < last:
        knots.append(knots[-1] * (1.4 if knots[-1] < scale / 5 else 1.15))
    return np.array([*(knot for knot in knots if knot < last), last])


def _whole_cuts(cells: _Cells, wide: Mask, tall: Mask) -> tuple[Mask, Mask]:
    """The same cuts where whole numbers lie between the ends, or the only ones that there are."""
    can_p, can_x = np.diff(cells.lead)[:, 0] > 1, np.diff(cells.x)[:, 0] > 1
    wide, tall = wide & can_p, tall & can_x
    neither = ~(wide | tall)
    return wide | (neither & can_p), tall | (neither & can_x)


def _bend(orders: Curve, scale: float, whole: bool) -> Curve:
    """How far the logarithm of a term of class a or b may bend downwards, per square of a vote."""
    above = orders if whole else np.minimum(orders, 2 + math.sqrt(12) * (orders - 2) / scale)
    return np.where(orders < 2, 2 + (2 - orders) / scale**2, above) / scale**2


def box(scale: float, order: float) -> tuple[float, float]:
    """How far below and above the best of the others the places are searched, in votes.

    >>> [round(part) for part in box(40.0, 10.0)]
    [412, 578]
    """
    shift, step = order / scale, 1 / scale
    below = shift + math.sqrt(100 + 2 * shift**2) + step
    deep = math.sqrt(2) * shift + math.sqrt(2 * shift**2 + 100)
    return math.ceil(scale * below), math.ceil(scale * (math.sqrt(deep**2 + 100) + 2 * step))
