"""The largest excess of a moved vote, by branch and bound over cells of leads and places.

A cell is a parallelogram: an interval of leads times an interval of places. Its corners bound all of it: the
logarithms of the terms of a and b bend downwards by no more than a known constant, and the third term's mass
and loss are monotone. One grid of cells bounds the excess from every lead on and up to every place. Cells
that may hold the overall largest excess are then cut until the bound is tight. Derived in
docs/proofs/worst_case.md, sections 3 and 4.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pate_jax.accounting.bounds.moved_vote import (
    GaussianVote,
    LatticeVote,
    Laws,
    WideLatticeVote,
    excess,
    third,
    weighed,
)
from pate_jax.accounting.bounds.worst_reading import highest
from pate_jax.accounting.inputs import Curve

Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]
Vote = GaussianVote | LatticeVote | WideLatticeVote
TOLERANCE = 1e-3  # relative: how far the overall bound may end above a value that is attained
STEEP = 0.05  # the bend of a logarithm from which on a cell is bounded by its rising masses too
_ROUNDS = 40
_LEAD_PARTS, _PLACE_PARTS = 6, 3  # parts of a cell in which the third outcome's term is bounded
# the ends of the grid's cells, in scales
_LEADS = np.array([*np.arange(40) / 20, *np.arange(20, 40) / 10, 4, 4.5, 5.5, 6.5, 8, 10, 12, 15, 19, 24])
_PLACES = np.array(
    [
        *np.arange(-20, -5),
        *np.arange(-10, -5) / 2,
        *np.arange(-50, 80) / 20,
        4,
        4.5,
        5,
        5.5,
        *np.arange(6, 25),
    ]
)


class Suprema(NamedTuple):
    """Upper bounds of the excess: over all pairs, and in each cell of a grid of leads and places."""

    largest: Curve  # [A]
    leads: Curve  # [K + 1], the ends of the cells
    places: Curve  # [J + 1]
    cells: Curve  # [2, A, K, J]: the law before the move over the law after it, and the reverse

    def larger(self, other: Suprema) -> Suprema:
        """The larger of both bounds, cell by cell, each grid counted from its own first lead."""
        return self._replace(
            largest=np.maximum(self.largest, other.largest), cells=np.maximum(self.cells, other.cells)
        )


class _Cells(NamedTuple):
    """Parallelograms of leads and places, each with its row (an order and a direction)."""

    row: Rows
    lead: Curve  # [2, N]
    x: Curve  # [2, N]


class _Others(NamedTuple):
    """A mass and a loss for each direction that bound the third outcome's term in each cell."""

    forward: tuple[Curve, Curve]
    backward: tuple[Curve, Curve]


class _Grid(NamedTuple):
    """The cells between all ends, the places of their corners in the law, and what bounds third outcomes."""

    leads: Curve
    places: Curve
    lead: Curve  # [2, N]
    x: Curve  # [2, N]
    corner: Rows  # [2, 2, N]
    law: Laws
    others: _Others


class _Bound(NamedTuple):
    """The upper bound of each cell, and whether to cut its leads and its places."""

    most: Curve
    wide: Mask
    tall: Mask


def _chosen(bound: _Bound, which: Mask | tuple[Rows, Rows]) -> _Bound:
    return _Bound(bound.most[which], bound.wide[which], bound.tall[which])


class Search:
    """The suprema for one law of the moved vote, at several orders and in both directions."""

    def __init__(self, vote: Vote, scale: float, orders: Curve, first_lead: float) -> None:
        self.vote, self.scale, self.first_lead = vote, scale, first_lead
        self.whole = not isinstance(vote, GaussianVote)
        self.orders, self.forward = np.tile(orders, 2), np.arange(2 * len(orders)) < len(orders)
        self.best = np.zeros(len(orders))  # the largest excess that is attained
        self.by_lead, self.by_place = bends(self.orders, scale, self.whole)

    def run(self, which: Rows | None = None) -> Suprema:
        """The bounds at all orders, or at some by their places; only `largest` is within the tolerance."""
        some = np.arange(len(self.best)) if which is None else which
        rows, grid = np.concatenate([some, some + len(self.best)]), self._grid
        bound = self._bounds(rows, grid)
        most = bound.most.reshape(2, len(some), len(grid.leads) - 1, len(grid.places) - 1)
        stays = self._may_hold_more(np.repeat(rows, grid.lead.shape[1]), bound.most.ravel())
        row, cell = np.divmod(np.flatnonzero(stays), grid.lead.shape[1])
        part = _chosen(bound, (row, cell))
        largest = self._refined(_Cells(rows[row], grid.lead[:, cell], grid.x[:, cell]), part)[some]
        return Suprema(largest, grid.leads, grid.places, np.minimum(most, largest[:, None, None]))

    def _ends(self, below: float, above: float) -> tuple[Curve, Curve]:
        """The ends of the grid's cells: leads and places."""
        leads, places = _LEADS * self.scale, _PLACES * self.scale
        if self.whole:
            leads, places = np.round(leads), np.round(places)
        leads, places = leads[leads < below + above], places[(places > -below) & (places < above)]
        return self.first_lead + np.unique([*leads, below + above]), np.unique([-below, *places, above])

    @cached_property
    def _grid(self) -> _Grid:
        """All cells between the ends, and what bounds them at any order."""
        leads, places = self._ends(*box(self.scale, float(self.orders.max())))
        i, j = (part.ravel() for part in np.indices((len(leads) - 1, len(places) - 1)))
        lead, x = np.stack([leads[i], leads[i + 1]]), np.stack([places[j], places[j + 1]])
        corner = np.array([[i, i], [i + 1, i + 1]]) * len(places) + np.array([[j, j + 1], [j, j + 1]])
        law = self.vote.laws(np.repeat(leads, len(places)), np.tile(places, len(leads)))
        return _Grid(leads, places, lead, x, corner, law, self._others(lead, x))

    def _bounds(self, rows: Rows, grid: _Grid) -> _Bound:
        """The bounds of all cells of the grid for each of these rows [R, N]."""
        near = Laws(*(part.take(grid.corner, axis=1) for part in grid.law))
        parts = []
        for row in rows.tolist():
            terms = excess(*grid.law, self.orders[row], self.forward[row])
            self._record(row, terms.sum(axis=0).max())
            cells = _Cells(np.full(grid.lead.shape[1], row), grid.lead, grid.x)
            parts.append(self._bound(cells, near, terms.take(grid.corner, axis=1), grid.others))
        return _Bound(*(np.stack(each) for each in zip(*parts, strict=True)))

    def _refined(self, cells: _Cells, bound: _Bound) -> Curve:
        """An upper bound [A] of the excess in these cells, cut until it is within the tolerance."""
        for _ in range(_ROUNDS):
            if not len(cells.row):
                return self.best
            cells = self._split(cells, bound)
            points, where = np.unique(cells.lead[:, None] + 1j * cells.x[None, :], return_inverse=True)
            law, where = self.vote.laws(points.real, points.imag), where.reshape(2, 2, -1)
            near = Laws(law.log_q.take(where, axis=1), law.loss.take(where, axis=1))
            terms = excess(*near, self.orders[cells.row], self.forward[cells.row])
            self._record(cells.row, _most_of(terms.sum(axis=0)))
            bound = self._bound(cells, near, terms, self._others(cells.lead, cells.x))
            stays = self._may_hold_more(cells.row, bound.most)
            cells = _Cells(cells.row[stays], cells.lead[:, stays], cells.x[:, stays])
            bound = _chosen(bound, stays)
        self._record(cells.row, bound.most)
        return self.best

    def _record(self, row: Rows | int, value: Curve) -> None:
        np.maximum.at(self.best, row % len(self.best), value)

    def _may_hold_more(self, row: Rows, bound: Curve) -> Mask:
        return np.log1p(bound) > np.log1p(self.best[row % len(self.best)]) * (1 + TOLERANCE)

    def _split(self, cells: _Cells, bound: _Bound) -> _Cells:
        """Each cell cut into two or four."""
        parts = []
        for i, j in np.ndindex(2, 2):
            ends = []
            for (low, high), side, cut in ((cells.lead, i, bound.wide), (cells.x, j, bound.tall)):
                middle = (low + high) / 2
                middle = np.floor(middle) if self.whole else middle
                ends.append(
                    np.stack(
                        [np.where(cut & (side == 1), middle, low), np.where(cut & (side == 0), middle, high)]
                    )
                )
            chosen = (bound.wide | (i == 0)) & (bound.tall | (j == 0))
            parts.append(_Cells(cells.row[chosen], ends[0][:, chosen], ends[1][:, chosen]))
        row, lead, x = zip(*parts, strict=True)
        return _Cells(np.concatenate(row), np.concatenate(lead, axis=1), np.concatenate(x, axis=1))

    def _bound(self, cells: _Cells, near: Laws, terms: Curve, others: _Others) -> _Bound:
        """The upper bound of each cell, from its four corners [3, lead, place, N]."""
        pair = np.log(np.maximum(terms[0] + terms[1], 1e-300))
        (long,), (high,) = np.diff(cells.lead, axis=0), np.diff(cells.x, axis=0)
        by_lead, by_place = self.by_lead[cells.row] * long**2, self.by_place[cells.row] * high**2
        at_lead = highest(pair[:, 0], pair[:, 1], by_place)
        far = np.flatnonzero((by_place > 8 * STEEP) & (cells.x[0] > 0))
        at_lead[:, far] = np.minimum(at_lead[:, far], self._rising(cells.row[far], near, far))
        both = highest(at_lead[0], at_lead[1], by_lead)
        far = np.flatnonzero(by_lead > 8 * STEEP)
        at_place = self._falling(cells.row[far], near, far)
        both[far] = np.minimum(both[far], highest(at_place[0], at_place[1], by_place[far]))
        both, other = np.exp(both), self._other(cells.row, others)
        corner, along_place = np.exp(_most_of(pair)), np.exp(np.maximum(*at_lead))
        loose = other - _most_of(terms[2]) > 0.3 * (both - corner)
        third = np.abs(near.loss[2, 0, 0] - near.loss[2, [1, 0], [0, 1]])
        wide = (2 * (both - along_place) > along_place - corner) | (loose & (third[0] > third[1]))
        tall = (2 * (along_place - corner) > both - along_place) | (loose & (third[0] <= third[1]))
        neither = ~(wide | tall)
        wide, tall = wide | neither, tall | neither
        if not self.whole:
            return _Bound(both + other, wide, tall)
        wide, tall = (wide | (high <= 1)) & (long > 1), (tall | (long <= 1)) & (high > 1)
        return _Bound(np.where(wide | tall, both + other, _most_of(terms.sum(axis=0))), wide, tall)

    def _rising(self, row: Rows, near: Laws, far: Rows) -> Curve:
        """Log of an upper bound [lead, N] of two terms between two places: both masses rise with x."""
        log_q = near.log_q[:2].take(far, axis=-1)
        log_p = log_q + near.loss[:2].take(far, axis=-1)
        mass = np.where(self.forward[row], log_q[:, :, 1], log_p[:, :, 1])
        return self._most(row, mass, log_p[:, :, 1] - log_q[:, :, 0], log_p[:, :, 0] - log_q[:, :, 1])

    def _falling(self, row: Rows, near: Laws, far: Rows) -> Curve:
        """Log of an upper bound [place, N] between two leads: losses and the mass of b fall with the lead."""
        log_q, loss = near.log_q[:2].take(far, axis=-1), near.loss[:2].take(far, axis=-1)
        heavy = np.where(self.forward[row], log_q, log_q + loss)
        return self._most(row, np.stack([heavy[0, 1], heavy[1, 0]]), loss[:, 0], loss[:, 1])

    def _most(self, row: Rows, mass: Curve, *losses: Curve) -> Curve:
        ends = [weighed(mass, loss, self.orders[row], self.forward[row]) for loss in losses]
        result: Curve = np.log(np.clip(np.maximum(*ends).sum(axis=0), 1e-300, 1e300))
        return result

    def _others(self, lead: Curve, x: Curve) -> _Others:
        """Bounds by `Q phi(d) = Q d^2 (phi(d)/d^2)`: `Q d^2` is bounded in parts, the last factor rises."""
        (p0, p1), (x0, x1) = self._parts(lead, _LEAD_PARTS), self._parts(x, _PLACE_PARTS)
        # the mass falls with x and y, the loss falls with x and rises with y
        first, last = (self.vote.below(end, -1) for end in (x0, x1))
        low, high = (self.vote.below(y, 1) for y in (x0 - p1[:, None], x1 - p0[:, None]))
        log_q, change = third(first, low)
        least, most = third(last, low)[1], third(first, high)[1]
        square = 2 * np.log(np.maximum(np.maximum(-least, most), 1e-100))
        pairs = []
        for mass, loss in ((log_q, most), (log_q + change, -least)):
            highest_loss, little = loss.max(axis=(0, 1)), 0.01 / self.scale
            far = np.where(np.abs(highest_loss) > little, highest_loss, little)
            pairs.append(((mass + square).max(axis=(0, 1)) - 2 * np.log(np.abs(far)), far))
        return _Others(*pairs)

    def _parts(self, ends: Curve, count: int) -> tuple[Curve, Curve]:
        """The lower and the upper ends [count, N] of equal parts."""
        share = (np.arange(count + 1) / count)[:, None]
        if not self.whole:
            cuts = ends[0] + (ends[1] - ends[0]) * share
            return cuts[:-1], cuts[1:]
        cuts = ends[0] + np.floor((ends[1] - ends[0] + 1) * share)
        return cuts[:-1], np.maximum(cuts[1:] - 1, cuts[:-1])

    def _other(self, row: Rows, others: _Others) -> Curve:
        order, forward = self.orders[row], self.forward[row]
        mass, loss = (np.where(forward, *pair) for pair in zip(others.forward, others.backward, strict=True))
        return weighed(mass, loss, order, np.True_)


def _most_of(corners: Curve) -> Curve:
    """The largest of four corners [2, 2, N]."""
    result: Curve = np.maximum(
        np.maximum(corners[0, 0], corners[0, 1]), np.maximum(corners[1, 0], corners[1, 1])
    )
    return result


def bends(orders: Curve, scale: float, whole: bool) -> tuple[Curve, Curve]:
    """How far the log of a term of a or b may bend downwards, by lead and by place, per vote squared.

    A step of the place counts twice, because both x and y move.

    >>> [float(bend[0]) for bend in bends(np.array([6.0]), 20.0, whole=True)]
    [0.0075, 0.02]
    """
    lead, place = (
        np.where(orders < 2, 2 + (2 - orders) / scale**2, 2 + (orders - 2) * min(1, slow / scale)) / scale**2
        for slow in ((5.0, 10.0) if whole else (math.sqrt(12), math.sqrt(12)))
    )
    return lead, 2 * place


def box(scale: float, order: float) -> tuple[float, float]:
    """How far the search of places goes below and above the best of the others, in votes.

    >>> [round(part) for part in box(40.0, 10.0)]
    [412, 578]
    """
    shift, step = order / scale, 1 / scale
    below = shift + math.sqrt(100 + 2 * shift**2) + step
    deep = math.sqrt(2) * shift + math.sqrt(2 * shift**2 + 100)
    return math.ceil(scale * below), math.ceil(scale * (math.sqrt(deep**2 + 100) + 2 * step))
