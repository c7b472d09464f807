"""The answer given the best of all other classes, before and after one vote moves from class a to class b.

The noisy counts of a and b are `x + Z` and `y + Z'` before the move, `x - 1 + Z` and `y + 1 + Z'` after it,
counted from the best of the others. The answer is a, b or one of the others: three outcomes. The laws are
kept by the lead `p = x - y`. Derived in docs/worst_case.md, section 2 and section 4.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from pate_jax.accounting.exact import noise_law
from pate_jax.mechanisms import Noise

Curve = NDArray[np.float64]
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)
EPSILON = float(np.finfo(np.float64).eps)
VANISHED = 1e-280  # masses below it are left out, with all that they could cost
NO_MASS = -1e4  # in place of the logarithm of such a mass
KEPT = 10_000_000  # numbers in the rows that are kept
_WINDOW = 8.7  # scales on either side of a mode beyond which less than 1e-17 of an integral lies
_DECAY = 40.0  # and so many decay lengths where the integrand falls from the start


class Laws(NamedTuple):
    """Three outcomes (a, b, another class) at N points: log-probabilities after the move, and log-ratios."""

    log_q: Curve  # [3, N], at (x - 1, y + 1)
    loss: Curve  # [3, N], log P - log Q, P at (x, y)


class GaussianVote:
    """The laws under Gaussian noise.

    >>> law = GaussianVote(40.0).laws(np.array([1.0]), np.array([400.0]))
    >>> np.exp(law.log_q).round(4).ravel().tolist()
    [0.4929, 0.5071, 0.0]
    """

    def __init__(self, sigma: float) -> None:
        self.sigma = sigma

    def laws(self, lead: Curve, x: Curve) -> Laws:
        """At points `(x, x - lead)`, in votes."""
        y = x - lead
        p, q = self._three(x, y), self._three(x - 1, y + 1)
        return Laws(q, p - q)

    def others(self, x: Curve, y: Curve) -> tuple[Curve, Curve]:
        """`log Q` and `log P/Q` of the third outcome."""
        s = self.sigma
        q = special.log_ndtr((1 - x) / s) + special.log_ndtr((-1 - y) / s)
        return q, special.log_ndtr(-x / s) + special.log_ndtr(-y / s) - q

    def _three(self, x: Curve, y: Curve) -> Curve:
        u, v = x / self.sigma, y / self.sigma
        both = log_wins(np.concatenate([u, v]), np.concatenate([v, u])).reshape(2, -1)
        return np.stack([*both, special.log_ndtr(-u) + special.log_ndtr(-v)])


def log_wins(x: Curve, y: Curve) -> Curve:
    """`log Pr[X > max(Y, 0)]` of unit Gaussians around x and y, by Gauss's rule about the integrand's mode.

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
    return peak - noise_law.HALF_LOG_2PI + np.log(inner * half[:, 0])


def _slope(s: Curve, x: Curve, y: Curve) -> tuple[Curve, Curve]:
    """First and second derivative of `log phi(s - x) + log Phi(s - y)`."""
    z = s - y
    with np.errstate(under="ignore", over="ignore"):
        hazard = np.exp(-z * z / 2 - noise_law.HALF_LOG_2PI - special.log_ndtr(z))
    return x - s + hazard, -1 - np.maximum(hazard * (z + hazard), 0.0)


class LatticeVote:
    """The laws under whole-number noise, with `a` or with `b` winning the ties between the two.

    >>> vote = LatticeVote(Noise("discrete_gaussian", 40.0), reach=400, a_wins=True)
    >>> law = vote.laws(np.ones(1), np.ones(1))
    >>> bool(abs(np.exp(law.log_q).sum() - 1) < 1e-12)
    True
    """

    def __init__(self, noise: Noise, reach: int, a_wins: bool) -> None:
        self.reach, self.a_wins = reach, a_wins
        self._noise = noise
        places = np.arange(-reach, reach + 1.0)
        with np.errstate(under="ignore"):
            self._mass = np.exp(noise_law.log_density(noise, places))
            self._below = np.exp(noise_law.log_cdf(noise, np.arange(-3 * reach - 4, 3 * reach + 5.0)))
        self._rows: dict[int, Curve] = {}

    def laws(self, lead: Curve, x: Curve) -> Laws:
        """At points `(x, x - lead)`, both whole."""
        out = np.empty((2, 2, len(x)))
        whole, where = np.unique(lead, return_inverse=True)
        order = np.argsort(where, kind="stable")
        for p, rows in zip(whole, np.split(order, np.cumsum(np.bincount(where))[:-1]), strict=True):
            for after in (0, 1):
                shifted, first = int(p) - 2 * after, x[rows] - after
                tie = 0 if self.a_wins else 1
                out[after, 0, rows] = self._reaching(shifted - tie, 1 - first)
                out[after, 1, rows] = self._reaching(tie - 1 - shifted, 1 - (first - shifted))
        log_q, change = self.others(x, x - lead)
        before, later = np.log(np.maximum(out, VANISHED))
        gone = np.minimum(before, later) <= np.log(VANISHED)
        two, loss = np.where(gone, NO_MASS, later), np.where(gone, [[1e3], [-1e3]], before - later)
        return Laws(np.stack([*two, log_q]), np.stack([*loss, change]))

    def others(self, x: Curve, y: Curve) -> tuple[Curve, Curve]:
        """`log Q` and `log P/Q` of the third outcome."""
        p = noise_law.log_cdf(self._noise, -x) + noise_law.log_cdf(self._noise, -y)
        q = noise_law.log_cdf(self._noise, 1 - x) + noise_law.log_cdf(self._noise, -1 - y)
        return q, p - q

    def _reaching(self, shift: int, first: Curve) -> Curve:
        """`sum_{k >= first} f(k) F(k + shift)`."""
        if shift not in self._rows:
            if len(self._rows) * self.reach > KEPT:
                self._rows.clear()
            start = max(-2 * self.reach - 4, min(2 * self.reach + 4, shift)) + 2 * self.reach + 4
            terms = self._mass * self._below[start : start + 2 * self.reach + 1]
            self._rows[shift] = np.append(np.cumsum(terms[::-1])[::-1], 0.0)
        place = np.clip(first + self.reach, 0, 2 * self.reach + 1).astype(np.int64)
        return self._rows[shift][place]


def excess(log_q: Curve, loss: Curve, orders: Curve, forward: NDArray[np.bool_] | np.bool_) -> Curve:
    """The terms `Q_j phi_a(log P_j/Q_j)` whose sum is `e^{(a-1) D} - 1`, rounded up.

    Backwards P and Q change places.

    >>> law = GaussianVote(40.0).laws(np.array([1.0]), np.array([400.0]))
    >>> bool(abs(excess(*law, np.array([2.0]), np.True_).sum() * 40**2 / 2 - 0.6366) < 1e-3)
    True
    """
    found = weighed(np.where(forward, log_q, log_q + loss), loss, orders, forward)
    return np.where(log_q > NO_MASS / 2, found, 0.0)


def weighed(log_mass: Curve, loss: Curve, orders: Curve, forward: NDArray[np.bool_] | np.bool_) -> Curve:
    """The same with the logarithm of the mass that counts, Q forwards and P backwards, given."""
    log_mass, d = np.maximum(log_mass, NO_MASS), np.where(forward, loss, -loss)
    with np.errstate(under="ignore", over="ignore"):
        power, once = np.expm1(np.minimum(orders * d, 600.0)), orders * np.expm1(np.minimum(d, 600.0))
        phi = power - once + 8 * EPSILON * (np.abs(power) + np.abs(once))
        near = np.exp(log_mass) * np.maximum(phi, 0.0)
        return np.where(orders * d < 600, near, np.exp(log_mass + orders * d))
