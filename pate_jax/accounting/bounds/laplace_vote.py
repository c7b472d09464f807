"""The law of the answer before and after one vote moves, in closed form for both kinds of Laplace noise.

The three outcomes are those of `moved_vote`. Their probabilities are integrals (for whole-number noise, sums)
of piecewise exponentials.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from pate_jax.accounting.bounds.moved_vote import Laws
from pate_jax.accounting.exact import noise_law
from pate_jax.mechanisms import Noise

Curve = NDArray[np.float64]


class LaplaceVote:
    """The laws of a moved vote under Laplace noise.

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
