"""The largest cost of an answer, given only the two largest counts of its votes.

The cost of a histogram depends on all its counts. Here it is bounded over all histograms with the same two
largest counts, over both directions and every move, with test and argmax as one mechanism. The bound is a
function of a place in the plane, and one voter moves that place by at most one vote in either count. Proved
in docs/proofs/sanitised.md, section 2.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import special

from pate_jax.accounting.bounds import threshold, worst_case
from pate_jax.accounting.bounds.argmax_cells import bends, box
from pate_jax.accounting.bounds.moved_vote import NO_MASS, GaussianVote, LatticeVote, Laws, excess, weighed
from pate_jax.accounting.bounds.worst_case import LEFT_OUT, ROUNDING
from pate_jax.accounting.exact import noise_law
from pate_jax.accounting.exact.noise_law import caps
from pate_jax.accounting.inputs import Curve
from pate_jax.errors import PateError
from pate_jax.mechanisms import Mechanism, Noise, ThresholdTest
from pate_jax.system.progress import track

Whole = NDArray[np.int64]
SIDE = 250  # the most boxes along the largest count; with more teachers a box is several votes wide
SUMMED = 1e-13  # of the largest excess: more than the rounding of a sum over places
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

    Relative to the best noisy count of all other classes, the class that loses the vote is at `x` and the one
    that gains it at `x - lead`; the answer is one of the two or another class (`moved_vote`). For each lead,
    the grid bounds the excess `e^{(a-1) D} - 1` of both directions on cells of places.

    >>> vote_grid(Noise("gaussian", 40.0), np.array([2.0])).cells(1).max() * 40**2 / 2 < 0.65
    np.True_
    """
    smallest, largest = worst_case.SCALES.get(noise.family, (math.inf, 0.0))
    largest = min(largest, worst_case.WIDE) if noise.is_discrete else largest
    if noise.family not in ("gaussian", "discrete_gaussian") or not smallest <= noise.scale <= largest:
        raise PateError(
            f"{noise.family} noise of scale {noise.scale!r} has no sanitised figure; take a Gaussian "
            "mechanism of scale 0.5 or more (discrete: 1 to 250), or the data-independent figure"
        )
    if orders.max() > worst_case.LARGEST_SHIFT * noise.scale:
        raise PateError(
            f"order={orders.max():g} is above {worst_case.LARGEST_SHIFT:g} times the noise scale "
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


class Boxes(NamedTuple):
    """Boxes `low <= (largest count, second count) <= high` that cover every histogram, and their costs."""

    low: Whole  # [N, 2]
    high: Whole  # [N, 2]
    cost: Curve  # [order, N]


def costs(mechanism: Mechanism, orders: Curve, teachers: int, classes: int) -> Boxes:
    """An upper bound of the Renyi cost of one query, by its two largest counts.

    >>> from pate_jax.mechanisms import GNMax
    >>> found = costs(GNMax(3.0), np.array([4.0]), 10, 2)
    >>> found.low[0].tolist(), found.low[-1].tolist(), bool(found.cost[0, 0] > found.cost[0, -1])
    ([5, 5], [10, 0], True)
    """
    low, high = _places(teachers, classes)
    lead = np.maximum(low[:, 0] - high[:, 1], 0)
    grid = vote_grid(mechanism.noise, orders)
    argmax, behind = _excesses(mechanism.noise, grid, low, high, lead, teachers, classes)
    argmax = argmax * (1 + ROUNDING) + LEFT_OUT * orders[:, None, None]
    behind = behind * (1 + ROUNDING) + LEFT_OUT * orders[:, None]
    if mechanism.test is None:
        excess = np.maximum(argmax.max(axis=1), behind)
    else:
        excess = np.max([
            _joint(mechanism.test, orders, argmax, behind, largest, lead, teachers)
            for largest in _readings(low, high)
        ], axis=0)  # fmt: skip
    cost = np.log1p(excess) / (orders[:, None] - 1)
    return Boxes(low, high, np.minimum(cost, caps(mechanism.noise, mechanism.test, orders)[:, None]))


def _places(teachers: int, classes: int) -> tuple[Whole, Whole]:
    """Squares of equal width that contain the two largest counts of some histogram."""
    width = -(-teachers // SIDE)
    first, second = np.meshgrid(*[np.arange(0, teachers + 1, width)] * 2, indexing="ij")
    low = np.stack([first.ravel(), second.ravel()], axis=1)
    high = np.minimum(low + width - 1, teachers)
    least = -(-teachers // classes)
    ordered = (high[:, 0] >= np.maximum(low[:, 1], least)) & (low.sum(axis=1) <= teachers)
    full = high[:, 0] + (classes - 1) * high[:, 1] >= teachers  # the classes have room for all votes
    return low[ordered & full], high[ordered & full]


def _readings(low: Whole, high: Whole) -> list[Whole]:
    """The possible largest counts of each box, one array [N] after another."""
    width = int((high - low)[:, 0].max()) + 1
    return [np.minimum(low[:, 0] + step, high[:, 0]) for step in range(width)]


def _excesses(
    noise: Noise, grid: VoteGrid, low: Whole, high: Whole, lead: Whole, teachers: int, classes: int
) -> tuple[Curve, Curve]:
    """The argmax's excess if the vote leaves or reaches a leader [A, 2, N], and if it does neither [A, N].

    Leads are visited in descending order, so the largest excess from a lead on is a running maximum.
    """
    others = _Others(noise, grid.places, low, high, teachers, classes)
    orders = len(grid.cells(0))
    envelope = np.zeros((orders, 2, len(grid.places)))
    nearby = envelope.copy()
    argmax = np.empty((orders, 2, len(low)))
    level = np.minimum(lead, grid.last_lead) // grid.lead_step
    most = min(teachers + 1, grid.last_lead) // grid.lead_step  # by a tie a lead may be one larger
    for step in track(range(most, -1, -1), "cost by the two largest counts", most + 1):
        cells = grid.cells(step * grid.lead_step)
        np.maximum(nearby, cells, out=nearby)
        envelope = np.maximum(envelope, np.maximum.accumulate(cells[..., ::-1], axis=2)[..., ::-1])
        rows = np.flatnonzero(level == step)
        argmax[..., rows] = others.mean(envelope, rows)
    if classes == 2:
        return argmax, np.zeros((orders, len(low)))
    nearby = np.maximum.accumulate(nearby, axis=2)
    return argmax, _behind(noise, grid.places, nearby, lead)


class _Others:
    """The stochastically largest law, in each box, of the best noisy count of all classes but two."""

    def __init__(
        self, noise: Noise, places: Curve, low: Whole, high: Whole, teachers: int, classes: int
    ) -> None:
        self.classes, self.low, self.high = classes - 2, low, high
        self._least = min(0, int((low[:, 0] - high[:, 1]).min()))
        votes = np.arange(self._least, teachers + 1.0)
        self._log_cdf = noise_law.log_cdf(noise, votes[:, None] - places) if self.classes else np.empty(0)
        self.rest = teachers - low[:, 0]

    def mean(self, envelope: Curve, rows: Whole) -> Curve:
        """The mean [.., row] of a function [.., place] that falls with the leader's place."""
        if self.classes == 0:
            return np.repeat(envelope[..., -1:], len(rows), axis=-1)
        largest, cap, votes = self.low[rows, 0], self.high[rows, 1], self.rest[rows]
        full = np.minimum(votes // np.maximum(cap, 1), self.classes) * (cap > 0)
        partial = np.minimum(self.classes - full, 1)
        remainder = np.minimum(votes - full * cap, cap) * partial
        logs = full[:, None] * self._log_cdf[largest - cap - self._least]
        logs += partial[:, None] * self._log_cdf[largest - remainder - self._least]
        logs += (self.classes - full - partial)[:, None] * self._log_cdf[largest - self._least]
        with np.errstate(under="ignore"):
            below = np.exp(logs)  # Pr[best of the others <= the leader's count less the place]
        return _mean(envelope, below)


def _mean(values: Curve, reached: Curve) -> Curve:
    """The mean [.., row] of values [.., place], given the chance [row, place] of each place or further."""
    ends = np.ones((len(reached), 1)), np.zeros((len(reached), 1))
    weights = -np.diff(np.concatenate([ends[0], reached, ends[1]], axis=1), axis=1)
    mean = np.concatenate([values[..., :1], values], axis=-1) @ weights.T
    return np.asarray(mean + SUMMED * values.max(axis=-1, keepdims=True))


def _behind(noise: Noise, places: Curve, nearby: Curve, lead: Whole) -> Curve:
    """The excess [A, N] of a vote between two classes behind a leader, averaged over the leader's noise.

    The class that loses the vote has at most the second count, or one more after the move. Whole-number
    noise may add one for a tie, and one because its places are points and not cells.
    """
    leads, where = np.unique(lead, return_inverse=True)
    highest = 1 - leads + (2 if noise.is_discrete else 0)
    with np.errstate(under="ignore"):
        beyond = np.exp(noise_law.log_tail(noise, highest[:, None] - places)[1])
    result: Curve = _mean(nearby, beyond).max(axis=1)[:, where.reshape(-1)]
    return result


def _joint(
    test: ThresholdTest,
    orders: Curve,
    argmax: Curve,
    behind: Curve,
    largest: Whole,
    lead: Whole,
    teachers: int,
) -> Curve:
    """The excess [A, N] of test and argmax as one mechanism, at one largest count of each box.

    A vote that leaves the leader lowers the largest count, and a vote that reaches it raises it. If the
    lead is at most one vote, all changes by at most one are tried in both directions.
    """
    passed, refused = threshold.log_answered(test, np.arange(teachers + 1.0))
    fewer, more = np.maximum(largest - 1, 0), np.minimum(largest + 1, teachers)
    order, close = orders[:, None], lead <= 1

    def excess(p: Whole, q: Whole, answer: Curve) -> Curve:
        moment = sum(weighed(law[q], law[p] - law[q], order, np.True_) for law in (passed, refused))
        with np.errstate(over="ignore"):
            return np.asarray(moment + np.exp(order * passed[p] + (1 - order) * passed[q]) * answer)

    either = argmax.max(axis=1)
    forward, backward = (np.where(close, either, argmax[:, way]) for way in (0, 1))
    excesses = [np.exp(passed[largest]) * behind]
    excesses += [excess(p, q, forward) for p, q in ((largest, fewer), (more, largest))]
    excesses += [excess(p, q, backward) for p, q in ((fewer, largest), (largest, more))]
    tied = [(fewer, largest), (largest, fewer), (largest, more), (more, largest), (largest, largest)]
    excesses += [np.where(close, excess(p, q, either), 0.0) for p, q in tied]
    result: Curve = np.max(excesses, axis=0)
    return result
