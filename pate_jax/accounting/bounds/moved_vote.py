"""The law of the answer before and after one vote moves from class a to class b, given the best other class.

Relative to the best noisy count of all other classes, the noisy counts of a and b are `x + Z` and `y + Z'`
before the move, and `x - 1 + Z` and `y + 1 + Z'` after it. The answer is a, b or one of the others: three
outcomes. A point is given by the lead `p = x - y` and the place x. Derived in docs/proofs/worst_case.md,
sections 2 and 4.
"""

from __future__ import annotations

import copy
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from pate_jax.accounting.exact import noise_law
from pate_jax.accounting.inputs import Curve
from pate_jax.mechanisms import Noise

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)
_SHORT_NODES, _SHORT_WEIGHTS = np.polynomial.legendre.leggauss(12)
_PIECE = 4.0  # the most that the logarithm of an integrand may change over a short piece
EPSILON = float(np.finfo(np.float64).eps)
NO_MASS = -1e4  # stands for the logarithm of a mass that vanishes
KEPT = 10_000_000  # the most numbers in the rows that are cached
_WINDOW = 8.7  # scales on either side of a mode that leave out less than 1e-17 of an integral
_DECAY = 40.0  # the same in decay lengths, for an integrand that falls from the start


class Laws(NamedTuple):
    """Three outcomes (a, b, another class) at N points: log-probabilities after the move, and log-ratios."""

    log_q: Curve  # [3, N], at (x - 1, y + 1)
    loss: Curve  # [3, N], log P - log Q, with P at (x, y)


class Below(NamedTuple):
    """Log-probabilities that a class is below the best of the others."""

    after: Curve
    before: Curve


def third(a: Below, b: Below) -> tuple[Curve, Curve]:
    """`log Q` and `log P/Q` of the third outcome: both classes are below the best of the others."""
    log_q = a.after + b.after
    return log_q, a.before + b.before - log_q


class GaussianVote:
    """The laws under Gaussian noise.

    >>> law = GaussianVote(40.0).laws(np.array([1.0]), np.array([400.0]))
    >>> np.exp(law.log_q).round(4).ravel().tolist()
    [0.4929, 0.5071, 0.0]
    """

    def __init__(self, sigma: float) -> None:
        self.sigma = sigma

    def laws(self, lead: Curve, x: Curve) -> Laws:
        """The laws at points `(x, x - lead)`, in votes."""
        p, q = self._three(lead, x), self._three(lead - 2, x - 1)
        return Laws(q, p - q)

    def others(self, x: Curve, y: Curve) -> tuple[Curve, Curve]:
        """`log Q` and `log P/Q` of the third outcome."""
        return third(self.below(x, -1), self.below(y, 1))

    def below(self, place: Curve, change: int) -> Below:
        """One class below the best of the others: at its place after its count changed, and before."""
        return Below(special.log_ndtr((-change - place) / self.sigma), special.log_ndtr(-place / self.sigma))

    def _three(self, lead: Curve, x: Curve) -> Curve:
        u, v = x / self.sigma, (x - lead) / self.sigma
        return np.stack(
            [*log_wins_by_lead(lead / self.sigma, u, v), special.log_ndtr(-u) + special.log_ndtr(-v)]
        )


def log_wins_by_lead(lead: Curve, x: Curve, y: Curve) -> Curve:
    """`log Pr[X > max(Y, 0)]` and `log Pr[Y > max(X, 0)]` [2, N] of unit Gaussians around x and y = x - lead.

    At a fixed lead p, the first is the integral of `phi(t) Phi(p - t)` up to x. So places close to each other
    share one integral, and each adds a short piece to it.

    >>> at, beside = np.array([0.0, 0.1]), np.array([-0.2, -0.1])
    >>> bool(np.abs(log_wins_by_lead(at - beside, at, beside)[0] - log_wins(at, beside)).max() < 1e-14)
    True
    """
    both = np.concatenate([x, y]), np.concatenate([y, x])
    return _log_wins_along(np.concatenate([lead, -lead]), *both).reshape(2, -1)


def _log_wins_along(lead: Curve, x: Curve, y: Curve) -> Curve:
    """`log Pr[X > max(Y, 0)]` [N] at places whose lead is `lead = x - y`, which share integrals."""
    order = np.lexsort((x, lead))
    lead, x, y = lead[order], x[order], y[order]
    slope = np.maximum(np.abs(x[:-1]), np.abs(x[1:])) + np.maximum(x[1:] - lead[1:], 0) + 1
    joined = (lead[1:] == lead[:-1]) & (np.diff(x) * slope <= _PIECE)
    starts = np.flatnonzero(np.append(True, ~joined))
    logs = np.empty(len(x))
    logs[starts] = log_wins(x[starts], y[starts])
    piece = np.flatnonzero(joined)
    logs[piece + 1] = _log_piece(lead[piece], x[piece], x[piece + 1])
    for first, last in zip(starts, np.append(starts[1:], len(x)), strict=True):
        logs[first:last] = np.logaddexp.accumulate(logs[first:last])
    out = np.empty(len(x))
    out[order] = logs
    return out


def _log_piece(lead: Curve, first: Curve, last: Curve) -> Curve:
    """`log int phi(t) Phi(lead - t) dt` between two places; minus infinity if they are equal."""
    half = (last - first)[:, None] / 2
    t = first[:, None] + half * (1 + _SHORT_NODES)
    logs = -t * t / 2 + special.log_ndtr(lead[:, None] - t)
    peak = logs.max(axis=1)
    with np.errstate(divide="ignore", under="ignore"):
        result: Curve = (
            peak - noise_law.HALF_LOG_2PI + np.log(np.exp(logs - peak[:, None]) @ _SHORT_WEIGHTS * half[:, 0])
        )
        return result


def log_wins(x: Curve, y: Curve) -> Curve:
    """`log Pr[X > max(Y, 0)]` of unit Gaussians around x and y, by Gauss's rule around the integrand's mode.

    >>> bool(abs(np.exp(log_wins(np.zeros(1), np.zeros(1)))[0] - 3 / 8) < 1e-15)
    True
    """
    mode = np.maximum(x, (x + y) / 2)
    for _ in range(8):
        slope, bend = _slope(mode, x, y)
        mode = mode - slope / bend
    start = np.maximum(0.0, mode - _WINDOW)
    decay = np.maximum(-_slope(start, x, y)[0], 1e-9)
    length = np.where(mode > 0, mode + _WINDOW - start, np.minimum(_WINDOW, _DECAY / decay))
    half = length[:, None] / 2
    s = start[:, None] + half + half * _NODES
    logs = -((s - x[:, None]) ** 2) / 2 + special.log_ndtr(s - y[:, None])
    peak = logs.max(axis=1)
    with np.errstate(under="ignore"):
        inner = np.exp(logs - peak[:, None]) @ _WEIGHTS
    result: Curve = peak - noise_law.HALF_LOG_2PI + np.log(inner * half[:, 0])
    return result


def _slope(s: Curve, x: Curve, y: Curve) -> tuple[Curve, Curve]:
    """The first and second derivatives of `log phi(s - x) + log Phi(s - y)`."""
    z = s - y
    with np.errstate(under="ignore", over="ignore"):
        hazard = np.exp(-z * z / 2 - noise_law.HALF_LOG_2PI - special.log_ndtr(z))
    return x - s + hazard, -1 - np.maximum(hazard * (z + hazard), 0.0)


class LatticeVote:
    """The laws under whole-number noise, where either `a` or `b` wins the ties between the two.

    >>> vote = LatticeVote(Noise("discrete_gaussian", 40.0), reach=400, a_wins=True)
    >>> law = vote.laws(np.ones(1), np.ones(1))
    >>> bool(abs(np.exp(law.log_q).sum() - 1) < 1e-12)
    True
    """

    def __init__(self, noise: Noise, reach: int, a_wins: bool) -> None:
        self.reach, self.a_wins = reach, a_wins
        self._noise = noise
        places = np.arange(-reach, reach + 1.0)
        self._log_mass = noise_law.log_density(noise, places)
        self._log_below = noise_law.log_cdf(noise, np.arange(-3 * reach - 4, 3 * reach + 5.0))
        self._rows: dict[int, Curve] = {}

    def mirrored(self) -> LatticeVote:
        """The same with the other rule for ties, which reads the same sums."""
        other = copy.copy(self)
        other.a_wins = not self.a_wins
        return other

    def laws(self, lead: Curve, x: Curve) -> Laws:
        """The laws at points `(x, x - lead)`, in whole votes."""
        out = np.empty((2, 2, len(x)))
        whole, where = np.unique(lead, return_inverse=True)
        order = np.argsort(where, kind="stable")
        tie = 0 if self.a_wins else 1
        for after in (0, 1):
            first, second = (self._place(1 - place) for place in (x - after, x - lead + after))
            for p, rows in zip(whole, np.split(order, np.cumsum(np.bincount(where))[:-1]), strict=True):
                shifted = int(p) - 2 * after
                out[after, 0, rows] = self._reaching(shifted - tie)[first[rows]]
                out[after, 1, rows] = self._reaching(tie - 1 - shifted)[second[rows]]
        log_q, change = self.others(x, x - lead)
        return Laws(np.stack([*out[1], log_q]), np.stack([*(out[0] - out[1]), change]))

    def others(self, x: Curve, y: Curve) -> tuple[Curve, Curve]:
        """`log Q` and `log P/Q` of the third outcome."""
        return third(self.below(x, -1), self.below(y, 1))

    def below(self, place: Curve, change: int) -> Below:
        """One class below the best of the others: at its place after its count changed, and before."""
        return Below(*(noise_law.log_cdf(self._noise, -moved - place) for moved in (change, 0)))

    def _reaching(self, shift: int) -> Curve:
        """`log sum_{k >= first} f(k) F(k + shift)` for every first k, from `-reach` to beyond `reach`."""
        if shift not in self._rows:
            if len(self._rows) * self.reach > KEPT:
                self._rows.clear()
            start = max(-2 * self.reach - 4, min(2 * self.reach + 4, shift)) + 2 * self.reach + 4
            logs = self._log_mass + self._log_below[start : start + 2 * self.reach + 1]
            self._rows[shift] = np.append(np.logaddexp.accumulate(logs[::-1])[::-1], NO_MASS)
        return self._rows[shift]

    def _place(self, first: Curve) -> NDArray[np.int64]:
        """Where the sums from these k on stand in a row."""
        return np.clip(first + self.reach, 0, 2 * self.reach + 1).astype(np.int64)


class WideLatticeVote:
    """The same under discrete Gaussian noise that is too wide to add up one by one.

    A sum over whole numbers is the integral from half a vote before the first of them, as under Gaussian
    noise, and a small correction (the series of Euler and Maclaurin; docs/proofs/worst_case.md, section 2).

    >>> wide, places = WideLatticeVote(400.0, a_wins=True), (np.array([500.0]), np.array([900.0]))
    >>> summed = LatticeVote(Noise("discrete_gaussian", 400.0), reach=8000, a_wins=True)
    >>> bool(np.abs(wide.laws(*places).loss / summed.laws(*places).loss - 1).max() < 1e-10)
    True
    """

    def __init__(self, scale: float, a_wins: bool) -> None:
        self.scale, self.a_wins = scale, a_wins

    def laws(self, lead: Curve, x: Curve) -> Laws:
        """The laws at points `(x, x - lead)`, in whole votes."""
        before, after = (self._two(x - moved, x - lead + moved) for moved in (0, 1))
        log_q, change = third(self.below(x, -1), self.below(x - lead, 1))
        return Laws(np.stack([*after, log_q]), np.stack([*(before - after), change]))

    def below(self, place: Curve, change: int) -> Below:
        """One class below the best of the others: at its place after its count changed, and before."""
        return Below(*(self._log_cdf(-moved - place) for moved in (change, 0)))

    def _log_cdf(self, z: Curve) -> Curve:
        u = (z + 0.5) / self.scale
        with np.errstate(under="ignore"):
            hazard = np.exp(-u * u / 2 - noise_law.HALF_LOG_2PI - special.log_ndtr(u))
        result: Curve = special.log_ndtr(u) + np.log1p(u * hazard / (24 * self.scale**2))
        return result

    def _two(self, x: Curve, y: Curve) -> Curve:
        """`log Pr[a]` and `log Pr[b]` [2, N], where one of the two wins ties."""
        tie = 0 if self.a_wins else 1
        first = np.concatenate([x - 0.5, y - 0.5]) / self.scale
        second = np.concatenate([y - 1 + tie, x - tie]) / self.scale
        lead = x - y + 0.5 - tie
        main = _log_wins_along(np.concatenate([lead, -lead]) / self.scale, first, second)
        return (main + np.log1p(_beyond(first, second, main) / (24 * self.scale**2))).reshape(2, -1)


def _beyond(x: Curve, y: Curve, log_main: Curve) -> Curve:
    """`int_0^inf (t-y) phi(t-x) phi(t-y) dt` and the slope of `phi(t-x) Phi(t-y)` at 0, over the mass."""
    with np.errstate(under="ignore"):
        peak = np.exp(-(x * x + y * y) / 2 - 2 * noise_law.HALF_LOG_2PI - log_main)
        far = -((x - y) ** 2) / 4 - 2 * noise_law.HALF_LOG_2PI + special.log_ndtr((x + y) / math.sqrt(2))
        edge = -x * x / 2 - noise_law.HALF_LOG_2PI + special.log_ndtr(-y)
        inner = (x - y) * math.sqrt(math.pi) / 2 * np.exp(far - log_main)
        result: Curve = 1.5 * peak + inner + x * np.exp(edge - log_main)
        return result


def excess(log_q: Curve, loss: Curve, orders: Curve, forward: NDArray[np.bool_] | np.bool_) -> Curve:
    """The terms `Q_j phi_a(log P_j/Q_j)` whose sum is `e^{(a-1) D} - 1`, rounded up.

    In the backward direction P and Q change places.

    >>> law = GaussianVote(40.0).laws(np.array([1.0]), np.array([400.0]))
    >>> bool(abs(excess(*law, np.array([2.0]), np.True_).sum() * 40**2 / 2 - 0.6366) < 1e-3)
    True
    """
    terms = weighed(np.where(forward, log_q, log_q + loss), loss, orders, forward)
    return np.where(log_q > NO_MASS / 2, terms, 0.0)


def weighed(log_mass: Curve, loss: Curve, orders: Curve, forward: NDArray[np.bool_] | np.bool_) -> Curve:
    """The terms of `excess`, given the log of the mass that weighs them: Q forwards, P backwards."""
    log_mass, d = np.maximum(log_mass, NO_MASS), np.where(forward, loss, -loss)
    with np.errstate(under="ignore", over="ignore"):
        power, once = np.expm1(np.minimum(orders * d, 600.0)), orders * np.expm1(np.minimum(d, 600.0))
        phi = power - once + 8 * EPSILON * (np.abs(power) + np.abs(once))
        near = np.exp(log_mass) * np.maximum(phi, 0.0)
        far = orders * d >= 600
        return np.where(far, np.exp(log_mass + orders * d), near) if far.any() else near
