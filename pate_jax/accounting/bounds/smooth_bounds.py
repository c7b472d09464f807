"""How fast a query's bound can change within `d` moved votes: the tables behind smooth sensitivity.

For GNMax the bound is a function of `q` alone. In the coordinate `u` with `q = (C-1) Phi(u step)`, `step =
sqrt(2)/sigma`, one moved vote shifts `u` by at most 1 (2018, Appendix B: every gap shrinks by at most 2,
and `Phi(Phi^{-1}(x) + step)` is concave, so equal gaps are the worst). A table over `u` in cells of width
`1/FINE` holds the bound at the upper edge of each cell. That step function, non-decreasing by construction,
is what is released, so its local sensitivity at a cell is exactly a difference of two entries `FINE` cells
apart.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from pate_jax.accounting.bounds import gnmax, worst_reading
from pate_jax.mechanisms import ThresholdTest

Curve = NDArray[np.float64]
FINE = 200  # cells per moved vote
_REACH = FINE + 1  # cells that one vote can move, with the rounding of a cell's number
_GREEDY = 100_000_000  # query x class x distance from which equal gaps bound what the greedy path computes
_DEEP = 40.0  # standard deviations below which a bound is not told apart


class Cells(NamedTuple):
    """The released bound and its local sensitivity over `u`, cell `i` ending at `u = (i - last) / FINE`."""

    bound: Curve  # non-decreasing
    local: Curve  # unimodal, at least the local sensitivity of `bound`
    peak: int
    monotone: bool  # C5: the bound was non-decreasing as it stood
    unimodal: bool  # C6: its local sensitivity rose to the peak and fell behind it as it stood
    step: float
    classes: int

    def of(self, log_q: Curve) -> NDArray[np.int64]:
        """The cell of each `log q`."""
        u = special.ndtri_exp(np.minimum(log_q - np.log(self.classes - 1), 0.0)) / self.step
        cell = np.floor(u * FINE) + len(self.bound)
        return np.clip(cell, 0, len(self.bound) - 1).astype(np.int64)


def cells(sigma: float, classes: int, teachers: int, order: float, *, both_directions: bool) -> Cells:
    """The table of GNMax's bound at one order.

    `both_directions` takes Theorem 6 at the largest `q` that any neighbour can have: the theorem, applied
    to the neighbour, bounds the divergence in the other direction.

    >>> table = cells(40.0, 10, 250, 14.0, both_directions=True)
    >>> bool(np.isclose(table.bound[-1], 14 / 40**2)), table.monotone
    (True, True)
    """
    step = np.sqrt(2) / sigma
    deep = min(teachers / 2, _DEEP / step)  # unanimous votes lie at -teachers / 2, and nothing below
    edges = np.arange(-int(deep * FINE) - 1, 1) / FINE
    log_q = np.minimum(np.log(classes - 1) + special.log_ndtr(edges * step), np.log1p(-1 / classes))
    raw = gnmax.theorem6(log_q, sigma, np.array([order]))[:, 0]
    bound = np.maximum.accumulate(raw)
    monotone = bool(np.all(bound <= raw * (1 + 1e-9)))
    if both_directions:
        bound = _shifted(bound, _REACH)
    local = np.maximum(_shifted(bound, _REACH) - bound, bound - _shifted(bound, -_REACH))
    peak = int(local.argmax())
    envelope = np.concatenate(
        [np.maximum.accumulate(local[: peak + 1]), np.maximum.accumulate(local[:peak:-1])[::-1]]
    )
    flat = int(np.argmax(bound == bound[-1]))  # the bound is data-independent from here on
    outside = np.delete(np.arange(len(local)), np.arange(max(flat - _REACH, 0), flat))
    unimodal = bool(np.all(envelope[outside] <= local[outside] + 1e-9 * local[peak]))
    return Cells(bound, envelope, peak, monotone, unimodal, step, classes)


def _shifted(values: Curve, by: int) -> Curve:
    index = np.clip(np.arange(len(values)) + by, 0, len(values) - 1)
    return values[index]


def argmax_by_distance(votes: NDArray[np.int64], sigma: float, table: Cells, farthest: int) -> Curve:
    """Sum over queries of the largest local sensitivity within `d` votes, for `d = 0 .. farthest`.

    The largest `q` within `d` votes: `d` votes from the winner to the runner-up, exact while the winner
    leads. Where that path would be long (decided by public sizes only), equal gaps bound it. Either way the
    largest value over a ball is bounded by that over the next larger ball around a neighbour: the result is
    smooth.
    """
    log_q = gnmax.log_q(votes, sigma)
    start = table.of(log_q)
    greedy = votes.shape[0] * votes.shape[1] * (farthest + 1) <= _GREEDY and votes.shape[1] > 2
    total = np.zeros(farthest + 1)
    rows = np.arange(len(votes))
    for distance in range(farthest + 1):
        low = start[rows] - distance * _REACH
        high = start[rows] + distance * _REACH
        if greedy and distance:
            high = np.minimum(high, _greedy_cells(votes[rows], sigma, table, distance))
        worst = np.where(high < table.peak, high, np.maximum(low, table.peak))
        total[distance] += table.local[np.clip(worst, 0, len(table.local) - 1)].sum()
        flat = (high >= table.peak) & (low <= table.peak)
        total[distance + 1 :] += flat.sum() * table.local[table.peak]
        rows = rows[~flat]
        if len(rows) == 0:
            break
    return total


def _greedy_cells(votes: NDArray[np.int64], sigma: float, table: Cells, distance: int) -> NDArray[np.int64]:
    """The cell of the largest `q` within `distance` votes; the last cell once the winner is caught."""
    ordered = np.sort(votes, axis=1)
    moved = ordered.copy()
    moved[:, -1] -= distance
    moved[:, -2] += distance
    caught = moved[:, -2] > moved[:, -1]
    return np.where(caught, len(table.bound) - 1, table.of(gnmax.log_q(moved, sigma)) + 1)


def costs_of_test(test: ThresholdTest, teachers: int, order: float) -> Curve:
    """The exact cost of the test at each largest count `0 .. teachers`, over both moves and directions.

    >>> from pate_jax.mechanisms import Noise
    >>> costs_of_test(ThresholdTest(3, Noise("gaussian", 2.0)), 5, 2.0).shape
    (6,)
    """
    reading = np.arange(0.0, teachers + 2)
    pair = worst_reading.cost(test.noise, reading - test.threshold, np.array([order]))
    return np.maximum(pair[1:], pair[:-1])


def threshold_by_distance(largest: NDArray[np.int64], costs: Curve, farthest: int) -> Curve:
    """Sum over queries of the test's largest local sensitivity within `d` votes, for `d = 0 .. farthest`."""
    change = np.abs(np.diff(costs))
    local = np.maximum(np.append(change, 0.0), np.append(0.0, change))
    values, counts = np.unique(largest, return_counts=True)
    distances = np.arange(farthest + 1)
    total = np.zeros(farthest + 1)
    for value, count in zip(values, counts, strict=True):
        up, down = np.minimum(value + distances, len(local) - 1), np.maximum(value - distances, 0)
        total += count * np.maximum.accumulate(np.maximum(local[up], local[down]))
    return total
