"""The reading of a threshold test that costs most, by a search whose result is a proven bound.

Two neighbours have the readings `x` and `x - 1`, relative to the threshold. The excess `e^{(a-1) J} - 1` of
their outcomes is a sum of terms whose logarithms bend downwards by no more than a known constant. So two
values bound everything between them. The search drops cells that cannot hold the largest value, until the
bound is within `TOLERANCE` of a value that is attained. Derived in docs/proofs/accounting.md, "The worst
reading".
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from pate_jax.accounting.bounds.noisy_max import log_second
from pate_jax.accounting.exact import noise_law
from pate_jax.accounting.inputs import Curve
from pate_jax.mechanisms import Noise

TOLERANCE = 1e-9  # relative: how far the search may end above a value that is attained
ROUNDING = 1e-9  # relative: more than all rounding of one value, up to the largest order
LARGEST_ORDER = 1e5  # beyond this order nothing is claimed, and the caller's ceiling applies
REACH = 16.0  # how many scales beyond the order the search goes; the rest has its own bound
_FIRST, _PARTS, _ROUNDS = 32, 4, 60  # cells of the first round, parts of a cell that is cut, most rounds
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)


class Pair(NamedTuple):
    """The test's law at readings `x` (p) and `x - 1` (q), in logarithms, and the differences of the two."""

    p: Curve  # log Pr[answered] at x
    q: Curve  # log Pr[answered] at x - 1
    not_p: Curve  # log Pr[refused] at x
    not_q: Curve  # log Pr[refused] at x - 1
    rise: Curve  # p - q, which is at least 0, without cancellation
    fall: Curve  # not_q - not_p, likewise


def supremum(noise: Noise, argmax: Curve, room: float, orders: Curve) -> Curve:
    """An upper bound [A] of the joint divergence at every reading up to `room`, within 3e-9 of the truth.

    `argmax` is the curve of the argmax, which is read only if the test passes. Infinite where nothing is
    claimed: for noise that no mechanism's test uses, and beyond `LARGEST_ORDER`.

    >>> zero, orders = np.zeros(1), np.array([2.0])
    >>> supremum(Noise("gaussian", 1.0), zero, np.inf, orders).round(6)
    array([0.661825])
    """
    bound = np.full(len(orders), np.inf)
    usual = orders <= LARGEST_ORDER
    if usual.any() and noise.family in ("gaussian", "discrete_gaussian", "discrete_laplace"):
        bound[usual] = _remembered(noise, argmax[usual].tobytes(), float(room), orders[usual].tobytes())
    return bound


@lru_cache(maxsize=4096)  # a calibration asks for hundreds, and a register for those of all its runs
def _remembered(noise: Noise, argmax: bytes, room: float, orders: bytes) -> Curve:
    grid, inner = np.frombuffer(orders), np.frombuffer(argmax)
    if noise.family == "discrete_laplace":
        return _discrete_laplace(noise, inner, room, grid) * (1 + ROUNDING)
    with np.errstate(divide="ignore", over="ignore", under="ignore", invalid="ignore"):
        moments = _Search(noise, (grid - 1) * inner, room, grid).run()
    return moments / (grid - 1) * (1 + TOLERANCE + ROUNDING)


def cost(noise: Noise, x: Curve, orders: Curve, argmax: Curve | float = 0.0) -> Curve:
    """The joint divergence between readings `x` and `x - 1`, the larger of both directions.

    `argmax` is the cost of the argmax. Arguments broadcast, and for discrete noise `x` must be whole.

    >>> cost(Noise("gaussian", 1.0), np.array([0.0, 0.5]), np.array([2.0])).round(6)
    array([0.627481, 0.523134])
    """
    with np.errstate(divide="ignore", over="ignore", under="ignore", invalid="ignore"):
        pair, extra = law(noise, x), (orders - 1) * argmax
        ways = [log_excess(pair, orders, extra, upwards) for upwards in (np.True_, np.False_)]
        return np.logaddexp(0.0, np.maximum(*ways)) / (orders - 1)


def _discrete_laplace(noise: Noise, argmax: Curve, room: float, orders: Curve) -> Curve:
    """The largest cost [A] under discrete Laplace noise, which is at reading 0 or at the last one."""
    first = cost(noise, np.zeros(1), orders, argmax)
    return np.maximum(first, argmax if np.isinf(room) else cost(noise, np.floor([room]), orders, argmax))


class _Cells(NamedTuple):
    """Intervals of readings, each with its row (an order and a direction) and the values at its ends."""

    row: NDArray[np.int64]
    left: Curve
    right: Curve
    at_left: Curve  # log(e^{(a-1) J} - 1)
    at_right: Curve


class _Search:
    """Branch and bound over readings; rows 0 .. A-1 are upwards (x over x - 1), rows A .. 2A-1 downwards."""

    def __init__(self, noise: Noise, extra: Curve, room: float, orders: Curve) -> None:
        self.noise, self.whole = noise, noise.family == "discrete_gaussian"
        self.room = np.floor(room) if self.whole else room
        ways = 1 if np.isinf(room) and not extra.any() else 2  # the test alone is its own mirror image
        self.orders, self.extra = np.tile(orders, ways), np.tile(extra, ways)
        self.upwards = np.arange(ways * len(orders)) < len(orders)
        self.best = np.zeros(len(orders))
        self.bend = np.tile(orders, ways) / noise.scale**2, np.tile(bend_of_excess(orders, noise), ways)

    def run(self) -> Curve:
        """The bound of `(a-1) J` [A], up to the tolerance."""
        reach = np.ceil(self.orders + REACH * self.noise.scale)
        last = np.minimum(reach, self.room)
        tails = self._tails(reach, last)
        cells = self._first(-reach, last)
        for _ in range(_ROUNDS):
            cells = self._open(cells)
            if not len(cells.row):
                break
            cells = self._split(cells)
        left = np.full(len(self.best), -np.inf)
        np.maximum.at(left, cells.row % len(left), self._bound(cells))
        result: Curve = np.maximum(np.maximum(self.best, left), tails)
        return result

    def _value(self, row: NDArray[np.int64], x: Curve) -> Curve:
        """The log-excesses at readings `x`; the largest moment of each order is recorded."""
        excesses = log_excess(law(self.noise, x), self.orders[row], self.extra[row], self.upwards[row])
        np.maximum.at(self.best, row % len(self.best), np.logaddexp(0.0, excesses))
        return excesses

    def _first(self, start: Curve, stop: Curve) -> _Cells:
        ends = np.linspace(start, stop, _FIRST + 1, axis=1)
        return self._between(np.arange(len(start)), np.round(ends) if self.whole else ends)

    def _split(self, cells: _Cells) -> _Cells:
        shares = np.arange(_PARTS + 1) / _PARTS
        ends = cells.left[:, None] + (cells.right - cells.left)[:, None] * shares
        ends[:, -1] = cells.right
        return self._between(cells.row, np.floor(ends) if self.whole else ends, cells.at_left, cells.at_right)

    def _between(
        self, row: NDArray[np.int64], ends: Curve, first: Curve | None = None, last: Curve | None = None
    ) -> _Cells:
        """The cells between consecutive `ends` [R, n + 1]; values at the outer ends may be known."""
        inner = ends if first is None else ends[:, 1:-1]
        values = self._value(np.repeat(row, inner.shape[1]), inner.ravel()).reshape(inner.shape)
        if first is not None and last is not None:
            values = np.concatenate([first[:, None], values, last[:, None]], axis=1)
        many = np.repeat(row, ends.shape[1] - 1)
        parts = (ends[:, :-1], ends[:, 1:], values[:, :-1], values[:, 1:])
        return _Cells(many, *(part.ravel() for part in parts))

    def _open(self, cells: _Cells) -> _Cells:
        """The cells that may hold more than the best value; adjacent whole readings have none in between."""
        best = self.best[cells.row % len(self.best)]
        stays = self._bound(cells) > best * (1 + TOLERANCE)
        if self.whole:
            stays &= cells.right - cells.left > 1
        row, *parts = cells
        return _Cells(row[stays], *(part[stays] for part in parts))

    def _bound(self, cells: _Cells) -> Curve:
        """An upper bound of `(a-1) J` within each cell."""
        square = (cells.right - cells.left) ** 2
        plain, fine = (bend[cells.row] * square for bend in self.bend)
        of_moment = highest(np.logaddexp(0.0, cells.at_left), np.logaddexp(0.0, cells.at_right), plain)
        of_excess = highest(cells.at_left, cells.at_right, fine)
        return np.minimum(of_moment, np.logaddexp(0.0, of_excess))

    def _tails(self, reach: Curve, last: Curve) -> Curve:
        """Bounds [A] for every reading below `-reach` and, if there are any, above `reach`."""
        steps = self.orders - 1
        low, high = law(self.noise, -reach), law(self.noise, reach)
        below_up = self.extra + low.p + steps * low.rise
        below_down = np.logaddexp(self.extra + low.q, np.log(np.expm1(-steps * low.not_p)))
        above_up = np.logaddexp(_log_expm1(self.extra - steps * high.q), high.not_q)
        above_down = np.logaddexp(_log_expm1(self.extra), high.not_q + steps * high.fall)
        below = np.where(self.upwards, below_up, below_down)
        above = np.where(self.upwards, above_up, above_down)
        above = np.where(self.room > last, above, -np.inf)
        result: Curve = np.logaddexp(0.0, np.maximum(below, above)).reshape(-1, len(self.best)).max(axis=0)
        return result


def bend_of_excess(orders: Curve, noise: Noise) -> Curve:
    """How far the log of `e^{(a-1) J} - 1` may bend downwards, per vote squared.

    >>> bend_of_excess(np.array([8.0]), Noise("gaussian", 2.0))
    array([2.])
    """
    wide = np.maximum(2 - orders, 0) / 4 / noise.scale**2
    return np.maximum(orders, 2 + (0 if noise.is_discrete else wide)) / noise.scale**2


def highest(left: Curve, right: Curve, bend: Curve) -> Curve:
    """The largest value of a function between two given values if its second derivative is at least `-bend`.

    The interval has length 1: the result is `max_t (1-t) left + t right + bend t (1-t) / 2`.

    >>> highest(np.zeros(2), np.array([0.0, 3.0]), np.ones(2)).tolist()
    [0.125, 3.0]
    """
    rise = right - left
    within = (left + right) / 2 + bend / 8 + rise**2 / (2 * bend)
    return np.where(np.abs(rise) < bend / 2, within, np.maximum(left, right))


def log_excess(pair: Pair, orders: Curve, extra: Curve, upwards: NDArray[np.bool_] | np.bool_) -> Curve:
    """`log(e^{(a-1) J} - 1)` for the law at `x` over that at `x - 1` (upwards) or the reverse.

    With `extra = (a-1) r`, r the cost of the argmax, it is the log of
    `sum_i Q_i phi_a(log P_i/Q_i) + (e^extra - 1) P_1^a Q_1^{1-a}`, a sum of non-negative terms.
    """
    steps = orders - 1
    answered, refused = np.where(upwards, pair.q, pair.p), np.where(upwards, pair.not_q, pair.not_p)
    rise, fall = np.where(upwards, pair.rise, -pair.rise), np.where(upwards, pair.fall, -pair.fall)
    both = np.logaddexp(answered + log_phi(orders, rise), refused + log_phi(orders, -fall))
    reached = np.where(upwards, pair.p, pair.q) + steps * rise
    return np.logaddexp(both, _log_expm1(extra) + reached)


def log_phi(orders: Curve, d: Curve) -> Curve:
    """Log of `e^{a d} - 1 - a (e^d - 1) = e^d (s((a-1) d) + (a-1) s(-d))` with `s(x) = e^x - 1 - x`.

    >>> bool(np.isclose(log_phi(np.array([2.0]), np.array([0.5]))[0], 2 * np.log(np.expm1(0.5))))
    True
    """
    steps = orders - 1
    return d + np.logaddexp(log_second(steps * d), np.log(steps) + log_second(-d))


def _log_expm1(x: Curve) -> Curve:
    return np.where(x > 1.0, x + np.log1p(-np.exp(-np.maximum(x, 1.0))), np.log(np.expm1(np.minimum(x, 1.0))))


def law(noise: Noise, x: Curve) -> Pair:
    """The test's law at readings `x` and `x - 1`; for discrete noise `x` must be whole.

    >>> law(Noise("gaussian", 2.0), np.zeros(1)).rise.round(4)
    array([0.4828])
    """
    if noise.family == "gaussian":
        return _gaussian(noise.scale, x)
    p, not_p = noise_law.log_tail(noise, -x)
    q, not_q = noise_law.log_tail(noise, 1 - x)
    between = noise_law.log_density(noise, -x)
    return Pair(p, q, not_p, not_q, np.logaddexp(0, between - q), np.logaddexp(0, between - not_p))


def _gaussian(sigma: float, x: Curve) -> Pair:
    """The pair for Gaussian noise; Gauss's rule gives `Phi(z) - Phi(z - 1/sigma)` where both are close."""
    z, step = x / sigma, 1 / sigma
    before = (x - 1) / sigma
    p, q, not_p, not_q = (special.log_ndtr(y) for y in (z, before, -z, -before))
    middle = z - step / 2
    close = (np.abs(middle) * step < 1) & (step <= 1)
    y = np.where(close, middle, 0.0)
    mass = sum(
        w / 2 * np.exp(-y * step * t / 2 - (step * t / 2) ** 2 / 2)
        for t, w in zip(_NODES, _WEIGHTS, strict=True)
    )
    between = np.log(mass * step) - y * y / 2 - noise_law.HALF_LOG_2PI
    rise = np.where(close, np.logaddexp(0, between - q), p - q)
    fall = np.where(close, np.logaddexp(0, between - not_p), not_q - not_p)
    return Pair(p, q, not_p, not_q, rise, fall)
