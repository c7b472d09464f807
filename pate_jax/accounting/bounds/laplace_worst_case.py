"""The worst case of the argmax under Laplace noise, continuous and discrete, with any number of classes.

A close race of three classes costs up to a third more than one of two. But the place of the best of the other
classes is random, because of its own noise, so an answer costs the mean over that noise. A recursion over the
places of the best of the others bounds this mean (docs/proofs/worst_case.md, section 5). Losses and masses
are monotone in both places, so the corners of a box bound everything inside it.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pate_jax.accounting.bounds import noisy_max
from pate_jax.accounting.bounds.moved_vote import Laws, excess, weighed
from pate_jax.accounting.exact import noise_law
from pate_jax.accounting.inputs import Curve
from pate_jax.mechanisms import Noise

Rows = NDArray[np.int64]
REACH = 60.0  # scales after which an exponential is negligible
ABOVE = 12.0  # scales above both classes from which on the places of the best of the others are one cell
OUT = 40.0  # scales above both classes from which on no mass is left
LEFT_OUT = 1e-19  # more than all terms further out
_ROUNDS = 60
_WIDTHS = (0.16, 0.08, 0.04, 0.02, 0.01)  # widths of the cells near equal counts, in scales, by round
COARSER = 2  # how many times wider the cells of the places of the others are
_BANDS = (0.0, 1.0, 4.0, 16.0, np.inf)  # ends of the bands of leads, in scales, that share their places


class LaplaceVote:
    """The laws of a moved vote under Laplace noise, in closed form; the outcomes are those of `moved_vote`.

    Their probabilities are integrals (for whole-number noise, sums) of piecewise exponentials.

    >>> law = LaplaceVote(20.0).laws(np.array([1.0]), np.array([1000.0]))
    >>> np.exp(law.log_q).round(4).ravel().tolist()
    [0.4875, 0.5125, 0.0]
    """

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def laws(self, lead: Curve, x: Curve) -> Laws:
        """The laws at points `(x, x - lead)`, in votes."""
        y = x - lead
        p, q = self._three(x, y), self._three(x - 1, y + 1)
        return Laws(q, p - q)

    def _three(self, x: Curve, y: Curve) -> Curve:
        u, v = x / self.scale, y / self.scale
        return np.stack([log_wins(u, v), log_wins(v, u), _log_below(-u) + _log_below(-v)])


class WholeLaplaceVote(LaplaceVote):
    """The laws under whole-number noise at whole points, where either `a` or `b` wins their ties.

    >>> law = WholeLaplaceVote(20.0, a_wins=True).laws(np.array([1.0]), np.array([1000.0]))
    >>> np.exp(law.log_q).round(4).ravel().tolist()
    [0.4937, 0.5063, 0.0]
    """

    def __init__(self, scale: float, a_wins: bool) -> None:
        super().__init__(scale)
        self.a_wins = a_wins

    def _three(self, x: Curve, y: Curve) -> Curve:
        noise, tie = Noise("discrete_laplace", self.scale), float(self.a_wins)
        neither = noise_law.log_cdf(noise, -x) + noise_law.log_cdf(noise, -y)
        a, b = (log_wins_whole(self.scale, *pair) for pair in ((x, y + 1 - tie), (y, x + tie)))
        return np.stack([a, b, neither])


Vote = LaplaceVote | WholeLaplaceVote
Race = tuple[Vote, Vote | None]


def log_wins(x: Curve, y: Curve) -> Curve:
    """`log Pr[X > max(Y, 0)]` of unit Laplace laws around x and y, integrated from kink to kink.

    >>> bool(abs(np.exp(log_wins(np.zeros(1), np.zeros(1)))[0] - 3 / 8) < 1e-15)
    True
    """
    top = np.maximum(np.maximum(x, y), 0)
    total = np.exp(x - top) / 2 - np.exp(x + y - 2 * top) / 8  # from the last kink on
    low = np.maximum(np.minimum(x, y), 0)
    total += np.exp(2 * low - x - y) * -np.expm1(-2 * low) / 8  # below both
    width = top - low
    flat = np.exp(-np.abs(x - y)) * width / 4
    rising = np.exp(top - x) * -np.expm1(-width) / 2 - flat
    total += np.where(x < y, flat, rising)
    result: Curve = np.log(total)
    return result


def log_wins_whole(scale: float, x: Curve, y: Curve) -> Curve:
    """`log sum_{s >= 1} f(s - x) F(s - y)` of discrete Laplace noise, for whole x and y.

    >>> total = np.exp(log_wins_whole(2.0, np.zeros(1), np.zeros(1)))
    >>> s = np.arange(1, 99.0)
    >>> noise = Noise("discrete_laplace", 2.0)
    >>> terms = np.exp(noise_law.log_density(noise, s) + noise_law.log_cdf(noise, s))
    >>> bool(abs(total[0] - terms.sum()) < 1e-15)
    True
    """
    r, gap = math.exp(-1 / scale), -math.expm1(-1 / scale)
    both = 1 + r
    top, low = np.maximum(np.maximum(x, y), 1), np.maximum(np.minimum(x, y), 1)
    width = top - low
    # f(k) = gap/both r^|k|; F(k) = r^-k/both up to 0, and 1 - r^(k+1)/both from there
    total = np.exp((x - top) / scale) / both - np.exp((x + y - 1 - 2 * top) / scale) / both**3
    total += np.exp((2 * low - 2 - x - y) / scale) * -np.expm1((2 - 2 * low) / scale) / both**3
    flat = np.exp(-np.abs(x - y) / scale) * width * gap / both**2
    rising = np.exp((top - x - 1) / scale) * -np.expm1(-width / scale) / both - flat * r
    result: Curve = np.log(total + np.where(x < y, flat, rising))
    return result


def _log_below(x: Curve) -> Curve:
    """`log F(x)` of the unit Laplace law."""
    falling = np.log1p(-np.exp(-np.maximum(x, 0)) / 2)
    return np.where(x < 0, x - math.log(2), falling)


class _Cells(NamedTuple):
    """Intervals of leads, each with its row (an order)."""

    row: Rows
    lead: Curve  # [N, 2]


def largest_excess(noise: Noise, orders: Curve, tolerance: float) -> Curve:
    """An upper bound [A], up to the tolerance, of the excess of any moved vote, averaged over the others.

    >>> found = largest_excess(Noise("laplace", 20.0), np.array([2.0]), 1e-2)
    >>> bool(0.49 < np.log1p(found[0]) / (2 / 20**2) < 0.51)
    True
    """
    alone = np.expm1(
        (orders - 1) * noisy_max.pure_curve(1 / noise.scale, orders)
    )  # one of the classes out of reach
    best = alone
    races = _races(noise)
    for vote, _ in races:
        best = _two_classes(vote, noise, orders, best, tolerance)
    for race in races:
        best = _many_classes(race, noise, orders, best, tolerance)
    return best + LEFT_OUT * orders


def _races(noise: Noise) -> list[Race]:
    """The laws of the outcome, each with the law for a class that wins its ties with the others."""
    if noise.family == "laplace":
        return [(LaplaceVote(noise.scale), None)]
    a_wins, b_wins = (WholeLaplaceVote(noise.scale, rule) for rule in (True, False))
    return [(a_wins, b_wins), (b_wins, a_wins)]


def _two_classes(vote: Vote, noise: Noise, orders: Curve, best: Curve, tolerance: float) -> Curve:
    """The largest excess if no other class is in reach, by branch and bound over the lead."""
    best, cells = best.copy(), _first(noise, len(orders), 0.5)
    for _ in range(_ROUNDS):
        rows = np.arange(len(cells.row))
        value, bound = _two_within(vote, noise, cells.lead, rows, orders[cells.row])
        np.maximum.at(best, cells.row, value)
        open_ = np.log1p(bound) > np.log1p(best[cells.row]) * (1 + tolerance)
        if noise.is_discrete:
            open_ &= np.diff(cells.lead).ravel() > 0
        if not open_.any():
            break
        left = cells.row[open_], bound[open_]
        cells = _halves(_Cells(cells.row[open_], cells.lead[open_]), noise.is_discrete)
    else:
        np.maximum.at(best, *left)
    return best


def _many_classes(race: Race, noise: Noise, orders: Curve, best: Curve, tolerance: float) -> Curve:
    """The largest excess with any number of other classes, by finer and finer cells of leads."""
    best, cells = best.copy(), _first(noise, len(orders), _WIDTHS[0])
    for width in _WIDTHS:
        value, bound = _averages(race, noise, cells, orders, width)
        np.maximum.at(best, cells.row, value)
        open_ = np.log1p(bound) > np.log1p(best[cells.row]) * (1 + tolerance)
        left = cells.row[open_], np.expm1(np.log1p(bound[open_]) / (1 + tolerance))
        cells = _halves(_Cells(cells.row[open_], cells.lead[open_]), noise.is_discrete)
        if not open_.any():
            break
    np.maximum.at(best, *left)
    return best


def _averages(race: Race, noise: Noise, cells: _Cells, orders: Curve, width: float) -> tuple[Curve, Curve]:
    """An estimate of each cell's mean excess, and an upper bound; 0 where two classes cost more."""
    value, bound = np.zeros((2, len(cells.row)))
    size = np.abs(cells.lead).min(axis=1) / noise.scale
    for low, high in itertools.pairwise(_BANDS):
        some = np.flatnonzero((low <= size) & (size < high))
        if len(some):
            part = _Cells(cells.row[some], cells.lead[some])
            value[some], bound[some] = _mean_excess(race, noise, part, orders, width)
    return value, bound


def _mean_excess(race: Race, noise: Noise, cells: _Cells, orders: Curve, width: float) -> tuple[Curve, Curve]:
    """The recursion of docs/proofs/worst_case.md, section 5, from the others' highest place to the lowest."""
    leads, which = np.unique(cells.lead, axis=0, return_inverse=True)
    which, order = which.ravel(), orders[cells.row]
    first, last, count = _places(noise, leads, COARSER * width)
    stay = np.exp(-count / noise.scale)[which]
    below, above = _in_boxes(race, leads, first, last, which, order)
    value, bound = below[:, 0], above[:, 0]
    for k in range(1, stay.shape[1]):
        value = np.maximum(value, below[:, k] - (below[:, k] - value) * stay[:, k])
        bound = np.maximum(bound, above[:, k] - (above[:, k] - bound) * stay[:, k])
    lowest = first[:, -1:]
    near = _in_boxes(race, leads, lowest, lowest, which, order)[1][:, 0]
    ends = _two_within(race[0], noise, leads, which, order)
    least, most = (_further_down(bound, near, two) for two in ends)
    settled = least <= ends[0]
    return np.where(settled, 0.0, value), np.where(settled, 0.0, most)


def _further_down(bound: Curve, near: Curve, two: Curve) -> Curve:
    """The bound further down, where the excess after `t` votes is `two + e^{-2 t/b} (near - two)`.

    `two` is the excess of two classes alone.
    """
    extra, start = np.maximum(near - two, 1e-300), bound - two
    risen = np.where(start < extra, np.maximum(start + extra, 0.0) ** 2 / (4 * extra), start)
    return two + risen


def _two_within(vote: Vote, noise: Noise, leads: Curve, which: Rows, orders: Curve) -> tuple[Curve, Curve]:
    """Lower and upper bounds of the excess of two classes in each cell of leads."""
    x = math.ceil(REACH * noise.scale) + np.maximum(leads, 0)
    law = vote.laws(leads.ravel(), x.ravel())
    log_q, loss = (part.reshape(3, -1, 2)[:2, which] for part in law)
    near, far = (0, 1), (1, 0)  # the ends where a is less and more likely; for b the other way round
    ends = []
    for masses, losses in ((near, far), (far, near)):
        terms = [weighed(log_q[j, :, masses[j]], loss[j, :, losses[j]], orders, np.True_) for j in (0, 1)]
        ends.append(terms[0] + terms[1])
    return ends[0], ends[1] + LEFT_OUT


def _places(noise: Noise, leads: Curve, width: float) -> tuple[Curve, Curve, Curve]:
    """Ends [N, M] of the cells of places of the best of the others, downwards, and their lengths in votes.

    Places are relative to the class that loses the vote. The last cell ends where both classes are above it.
    """
    steps = np.arange(0, -2 * math.expm1(-ABOVE / 2) / width)
    over = -2 * np.log1p(-width * steps / 2)[::-1]
    under = -_graded(width, float(np.abs(leads).min(axis=1).max()) / noise.scale + 1)[1:]
    offsets = np.concatenate([over, under]) * noise.scale
    lowest = np.minimum(-1.0, -leads[:, 1:])
    top = np.maximum(0.0, -leads[:, :1])
    ends = np.maximum(top + (np.ceil(offsets) if noise.is_discrete else offsets), lowest)
    lowest = lowest - noise.is_discrete  # a cell of whole places holds its upper end only
    ends = np.concatenate([top + math.ceil(OUT * noise.scale), ends, lowest], axis=1)
    count = ends[:, :-1] - ends[:, 1:]
    first = np.minimum(ends[:, 1:] + 1, ends[:, :-1]) if noise.is_discrete else ends[:, 1:]
    return first, ends[:, :-1], count


def _in_boxes(
    race: Race, leads: Curve, first: Curve, last: Curve, which: Rows, orders: Curve
) -> tuple[Curve, Curve]:
    """An estimate of the least excess and a bound, for places of the others from `first` to `last` [N, M]."""
    x = np.stack([-first, -last, -last])
    y = np.stack([-last - leads[:, 1:], -first - leads[:, :1], -last - leads[:, 1:]])
    vote, other = race
    least, most = _in_box(vote, x, y, which, orders[:, None])
    if isinstance(vote, WholeLaplaceVote) and other is not None:
        favoured = vote.a_wins
        by_other = _in_box(other, x + favoured, y + (not favoured), which, orders[:, None])
        most = np.maximum(most, by_other[1])
    return least, most


def _in_box(vote: Vote, x: Curve, y: Curve, which: Rows, orders: Curve) -> tuple[Curve, Curve]:
    """The estimate and the bound under one law, from three corners [3, N, M] of a box.

    Losses fall with x and rise with y. The masses of a, b and the others are largest at the corners (x1, y0),
    (x0, y1) and (x0, y0).
    """
    law = vote.laws((x - y).ravel(), x.ravel())
    log_q, loss = (part.reshape(3, *x.shape) for part in law)
    least = excess(log_q[:, :, which], loss[:, :, which], orders, np.True_).sum(axis=0).min(axis=0)
    mass = log_q[np.arange(3), np.arange(3)][:, which]
    ends = [weighed(mass, loss[:, corner][:, which], orders, np.True_) for corner in (0, 1)]
    return least, np.maximum(*ends).sum(axis=0)


def _graded(width: float, reach: float) -> Curve:
    """Places from 0 to `reach`, in scales: `width` apart at first, then further and further apart.

    >>> _graded(1.0, 6.0).round(2).tolist()
    [0.0, 1.3, 3.44, 6.0]
    """
    steps = math.ceil(2 * math.log1p(reach / 2) / width)
    result: Curve = np.minimum(2 * np.expm1(width * np.arange(steps + 1) / 2), reach)
    return result


def _first(noise: Noise, rows: int, width: float) -> _Cells:
    """Cells of leads, up to `REACH` scales on both sides, for each of the rows."""
    out = _graded(width, REACH) * noise.scale
    ends = np.unique(np.concatenate([1 - out, 1 + out]))
    if noise.is_discrete:
        ends = np.unique(np.round(ends))
        cells = np.stack([ends[:-1] + 1, ends[1:]], axis=1)
    else:
        cells = np.stack([ends[:-1], ends[1:]], axis=1)
    return _Cells(np.repeat(np.arange(rows), len(cells)), np.tile(cells, (rows, 1)))


def _halves(cells: _Cells, whole: bool) -> _Cells:
    """Each cell cut in two; a whole lead belongs to one half only, and a single lead is not cut."""
    middle = cells.lead.mean(axis=1)
    last, first = (np.floor(middle), np.floor(middle) + 1) if whole else (middle, middle)
    left, right = np.stack([cells.lead[:, 0], last], axis=1), np.stack([first, cells.lead[:, 1]], axis=1)
    row, lead = np.concatenate([cells.row, cells.row]), np.concatenate([left, right])
    real = lead[:, 0] <= lead[:, 1]
    return _Cells(row[real], lead[real])
