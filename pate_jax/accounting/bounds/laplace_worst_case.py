"""The worst case of the argmax under Laplace noise, continuous and discrete.

Away from the best of the others the law is linear in a power of `e^{1/b}`, and the divergence is convex in
the law. So the worst place has one of the two classes within a vote of the best of the others, or none of the
others in reach: three narrow boxes (docs/worst_case.md, section 5). Losses and masses are monotone in both
places, so the corners of a box bound everything inside it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pate_jax.accounting.bounds import laplace
from pate_jax.accounting.bounds.moved_vote import LatticeVote, Laws, excess, weighed
from pate_jax.mechanisms import Noise

Curve = NDArray[np.float64]
REACH = 60.0  # scales after which an exponential has died
LEFT_OUT = 1e-19  # more than all terms further out
_ROUNDS = 60
_ENDS = np.array([0, 0.25, 0.5, 1, 1.5, 2, 3, 5, 8, 13, 25])


class LaplaceVote:
    """The laws of a moved vote under Laplace noise.

    >>> law = LaplaceVote(20.0).laws(np.array([1.0]), np.array([1000.0]))
    >>> np.exp(law.log_q).round(4).ravel().tolist()
    [0.4875, 0.5125, 0.0]
    """

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def laws(self, lead: Curve, x: Curve) -> Laws:
        """At points `(x, x - lead)`, in votes."""
        y = x - lead
        p, q = self._three(x, y), self._three(x - 1, y + 1)
        return Laws(q, p - q)

    def _three(self, x: Curve, y: Curve) -> Curve:
        u, v = x / self.scale, y / self.scale
        return np.stack([log_wins(u, v), log_wins(v, u), _log_below(-u) + _log_below(-v)])


def log_wins(x: Curve, y: Curve) -> Curve:
    """`log Pr[X > max(Y, 0)]` of unit Laplace laws around x and y: exponentials, piece by piece.

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
    return np.log(total)


def _log_below(x: Curve) -> Curve:
    """`log F(x)` of the unit Laplace law."""
    falling = np.log1p(-np.exp(-np.maximum(x, 0)) / 2)
    return np.where(x < 0, x - math.log(2), falling)


class _Boxes(NamedTuple):
    """Rectangles of places, each with the order it belongs to."""

    row: NDArray[np.int64]
    x: Curve  # [N, 2]
    y: Curve  # [N, 2]


def largest_excess(noise: Noise, orders: Curve, tolerance: float) -> Curve:
    """An upper bound [A] of the excess of any moved vote, within the tolerance of one that is attained.

    >>> found = largest_excess(Noise("laplace", 20.0), np.array([2.0]), 1e-2)
    >>> bool(0.65 < np.log1p(found[0]) / (2 / 20**2) < 0.68)
    True
    """
    alone = np.expm1((orders - 1) * laplace.pure(1 / noise.scale, orders))  # one of the classes out of reach
    best = alone
    for vote in _votes(noise):
        best = _search(vote, noise, orders, best, tolerance)
    return best + LEFT_OUT * orders


def _votes(noise: Noise) -> list[LaplaceVote | LatticeVote]:
    if noise.family == "laplace":
        return [LaplaceVote(noise.scale)]
    reach = math.ceil(2 * REACH * noise.scale) + 4
    return [LatticeVote(noise, reach, a_wins) for a_wins in (False, True)]


def _search(
    vote: LaplaceVote | LatticeVote, noise: Noise, orders: Curve, best: Curve, tolerance: float
) -> Curve:
    """Branch and bound over the boxes, one direction: the other one is its mirror image."""
    whole, best = isinstance(vote, LatticeVote), best.copy()
    boxes = _first(noise, whole, len(orders))
    for _ in range(_ROUNDS):
        value, bound = _values(vote, boxes, orders[boxes.row][:, None])
        np.maximum.at(best, boxes.row, value)
        stays = np.log1p(bound) > np.log1p(best[boxes.row]) * (1 + tolerance)
        if whole:
            stays &= (np.diff(boxes.x) > 0).ravel() | (np.diff(boxes.y) > 0).ravel()
        if not stays.any():
            break
        boxes, bound = _Boxes(boxes.row[stays], boxes.x[stays], boxes.y[stays]), bound[stays]
        left = boxes.row, bound
        boxes = _halves(boxes, whole)
    else:
        np.maximum.at(best, *left)
    return best


def _first(noise: Noise, whole: bool, rows: int) -> _Boxes:
    """The strip beside x = 0, the strip beside y = 0, and the line where no other class is in reach."""
    scale = noise.scale
    far, ends = math.ceil(REACH * scale), _ENDS * scale
    ends = np.unique(np.ceil(ends)) if whole else ends
    out = np.unique([*ends[ends < far], far])
    both = np.unique(np.concatenate([far - out, far + out]))
    near_x, near_y = ((1.0, 1.0), (0.0, 0.0)) if whole else ((0.0, 1.0), (-1.0, 0.0))
    pairs = np.stack([out[:-1], out[1:]], axis=1)
    line = np.stack([both[:-1], both[1:]], axis=1)
    strip = pairs if whole else np.concatenate([[[-1.0, 0.0]], pairs])
    x = [np.tile(near_x, (len(strip), 1)), pairs, line]
    y = [strip, np.tile(near_y, (len(pairs), 1)), np.full((len(line), 2), float(far))]
    each_x, each_y = np.concatenate(x), np.concatenate(y)
    row = np.repeat(np.arange(rows), len(each_x))
    return _Boxes(row, np.tile(each_x, (rows, 1)), np.tile(each_y, (rows, 1)))


def _values(vote: LaplaceVote | LatticeVote, boxes: _Boxes, order: Curve) -> tuple[Curve, Curve]:
    """The largest excess at three corners of each box, and a bound of all inside.

    Losses fall with x and rise with y. The masses of a, b and the others are largest at the corners (x1, y0),
    (x0, y1) and (x0, y0).
    """
    (x0, x1), (y0, y1) = boxes.x.T, boxes.y.T
    x, y = np.stack([x1, x0, x0], axis=1), np.stack([y0, y1, y0], axis=1)
    points, where = np.unique(x + 1j * y, return_inverse=True)
    law = vote.laws(points.real - points.imag, points.real)
    where = where.reshape(x.shape)
    log_q, loss = law.log_q[:, where], law.loss[:, where]
    value = excess(log_q, loss, order, np.True_).sum(axis=0).max(axis=1)
    mass = log_q[np.arange(3), :, np.arange(3)]
    ends = [weighed(mass, loss[:, :, corner], order[:, 0], np.True_) for corner in (0, 1)]
    return value, np.maximum(*ends).sum(axis=0)


def _halves(boxes: _Boxes, whole: bool) -> _Boxes:
    """Each box cut across its longer side; whole places belong to one half only."""
    wide = np.diff(boxes.x) >= np.diff(boxes.y)
    parts = []
    for side in (0, 1):
        ends = []
        for pair, cut in ((boxes.x, wide), (boxes.y, ~wide)):
            middle = pair.mean(axis=1)
            first, last = (np.floor(middle), np.floor(middle) + 1) if whole else (middle, middle)
            half = [last, pair[:, 1]] if side else [pair[:, 0], first]
            ends.append(np.where(cut, np.stack(half, axis=1), pair))
        parts.append(_Boxes(boxes.row, *ends))
    row, x, y = (np.concatenate(each) for each in zip(*parts, strict=True))
    return _Boxes(row, x, y)
