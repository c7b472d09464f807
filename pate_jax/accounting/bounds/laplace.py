"""Pure-DP mechanisms: LNMax (Papernot et al. 2017), and the curves of epsilon-DP and of bounded range."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import special

from pate_jax.accounting.bounds import gnmax
from pate_jax.accounting.inputs import Curve


def pure(epsilon: float, orders: Curve) -> Curve:
    """The largest Renyi curve of any `epsilon`-DP mechanism, attained by randomised response.

    Every likelihood ratio r lies in `[e^-epsilon, e^epsilon]` and has mean 1, so the mean of the convex `r^a`
    is largest if r is always at one of the two ends. The curve is then
    `log((e^{a epsilon} + e^{(1-a) epsilon}) / (1 + e^epsilon)) / (a - 1)`, which lies below both `epsilon`
    and `a epsilon^2 / 2`. It is computed with sinh, so that small epsilons keep their digits.

    >>> pure(0.1, np.array([2.0])).round(6)
    array([0.009959])
    """
    # the log is of cosh((2a-1) e/2) / cosh(e/2) = 1 + 2 sinh(a e/2) sinh((a-1) e/2) / cosh(e/2)
    log_product = _log_sinh(orders * epsilon / 2) + _log_sinh((orders - 1) * epsilon / 2)
    log_excess = np.log(2) + log_product - _log_cosh(epsilon / 2)
    result: Curve = np.logaddexp(0.0, log_excess) / (orders - 1)
    return result


def bounded_range(eta: float, orders: Curve) -> Curve:
    """The largest Renyi curve of any `eta`-bounded-range mechanism (Dong, Durfee, Rogers 2020).

    The log-ratios of the exponential mechanism lie in an interval `[t - eta, t]`: for `n - e_a + e_b` they
    are `+1/b`, `-1/b` or 0 plus one constant, so `eta = 2/b`. The largest moment over `t` has the logarithm
    `a S(a eta/2) - (a-1) S((a-1) eta/2) - S(eta/2)`, where `S(y) = log(sinh(y)/y)` (derived in
    docs/proofs/accounting.md). If `a eta/2` is below 1 the three terms cancel, and a series replaces them.

    >>> bool(bounded_range(0.1, np.array([2.0]))[0] < pure(0.1, np.array([2.0]))[0] / 3)
    True
    """
    steps, half = orders - 1, eta / 2
    terms = [orders * _log_sinhc(orders * half), steps * _log_sinhc(steps * half), _log_sinhc(half)]
    rounding = 4e-16 * (sum(terms) + 2 * orders)
    moment = np.where(orders * half < 1, _short_range(eta, orders), terms[0] - terms[1] - terms[2] + rounding)
    return np.minimum(moment / steps, np.minimum(orders * eta**2 / 8, eta))


def _short_range(eta: float, orders: Curve) -> Curve:
    """`a S(a eta/2) - (a-1) S((a-1) eta/2) - S(eta/2)` for `a eta/2` below 1, rounded up.

    `S(y) = sum_k (-1)^{k+1} zeta(2k) y^{2k} / (k pi^{2k})`. The terms alternate in sign, and each is less
    than a fifth of the one before. The sum stops after a positive term, so it is at or above its limit.
    """
    reach = np.minimum(orders * eta / 2, 1.0)
    least = np.minimum(orders - 1, 1) / orders  # a^n - (a-1)^n - 1 = a^n (1 - (1 - least)^n - least^n)
    total = np.zeros(orders.shape)
    for k in range(1, 24):
        share = -np.expm1((2 * k + 1) * np.log1p(-least)) - least ** (2 * k + 1)
        total += (-1) ** (k + 1) * special.zeta(2 * k) / k * (reach / np.pi) ** (2 * k) * share
    return orders * total * (1 + 1e-14)


def _log_sinhc(y: Curve | float) -> Curve:
    """`log(sinh(y) / y)` for `y > 0`."""
    low, high = np.minimum(y, 1.0), np.maximum(y, 1.0)
    far = high - np.log(2 * high) + np.log1p(-np.exp(-2 * high))
    return np.where(np.asarray(y) < 1, np.log(np.sinh(low) / low), far)


def shifted(scale: float, orders: Curve) -> Curve:
    """The curve of one number plus Laplace noise if the number moves by one (Mironov 2017, Proposition 6).

    `log(a/(2a-1) e^{(a-1)/b} + (a-1)/(2a-1) e^{-a/b}) / (a - 1)`. A vote that moves shifts two counts, so a
    noisy histogram costs twice this, which for small `1/b` is half of what `2/b`-DP alone implies. The
    exponents cancel to first order: with `s(x) = e^x - 1 - x`, the argument of the logarithm is one plus
    `a/(2a-1) s((a-1)/b) + (a-1)/(2a-1) s(-a/b)`.

    >>> bool(2 * shifted(20.0, np.array([8.0]))[0] < 0.6 * pure(0.1, np.array([8.0]))[0])
    True
    """
    up, down = (orders - 1) / scale, -orders / scale
    share = orders / (2 * orders - 1)
    excess = np.logaddexp(np.log(share) + log_second(up), np.log1p(-share) + log_second(down))
    exact = np.logaddexp(0.0, excess) / (orders - 1) * (1 + 1e-14)
    return np.minimum(exact, pure(1 / scale, orders))


def log_second(x: Curve) -> Curve:
    """Log of `e^x - 1 - x`, to full precision at every `x`; for small `x` this is the log of `x^2 / 2`.

    >>> bool(np.isclose(log_second(np.array([1e-9]))[0], 2 * np.log(1e-9) - np.log(2)))
    True
    """
    x = np.asarray(x, np.float64)
    return np.piecewise(x, [x > 0.5, x < -0.5], [_log_rising, _log_falling, _log_small])


def _log_rising(x: Curve) -> Curve:
    return x + np.log1p(-(1 + x) * np.exp(-x))


def _log_falling(x: Curve) -> Curve:
    return np.log(np.expm1(x) - x)


def _log_small(x: Curve) -> Curve:
    series = np.ones_like(x)
    for k in range(15, 2, -1):
        series = 1 + x / k * series
    with np.errstate(divide="ignore"):
        return np.log(x**2 / 2 * series)


def _log_sinh(x: Curve) -> Curve:
    result: Curve = x - np.log(2) + np.log(-np.expm1(-2 * x))
    return result


def _log_cosh(x: float) -> float:
    return float(np.logaddexp(x, -x) - np.log(2))


def log_q(votes: NDArray[np.int64], scale: float) -> Curve:
    """Lemma 4 of the 2017 paper: log q, `q = sum_{j != winner} (2 + g_j/b) / (4 exp(g_j/b))`, q <= `1 - 1/C`.

    >>> log_q(np.array([[11, 10]]), 1e-3).round(2)
    array([-994.48])
    """
    ordered = np.sort(votes, axis=1).astype(np.float64)
    gaps = (ordered[:, -1:] - ordered[:, :-1]) / scale
    result: Curve = np.minimum(
        special.logsumexp(np.log((2 + gaps) / 4) - gaps, axis=1), np.log1p(-1 / votes.shape[1])
    )
    return result


def moments(log_q: Curve, epsilon: float, orders: Curve) -> Curve:
    """Theorems 2 and 3 of the 2017 paper as a Renyi curve [query, order]: the moment `l = a - 1` over `l`.

    Theorem 3 holds for `q <= 1/(1 + e^epsilon)`; the published code tests `q < 1/2`, where `1 - e^epsilon
    q` can be negative. One direction only, like Theorem 6.

    >>> moments(np.log([0.01]), 0.1, np.array([9.0])).round(6)
    array([[0.002562]])
    """
    steps = orders - 1
    baseline = np.minimum(epsilon**2 * orders / 2, epsilon)
    result = np.broadcast_to(baseline, (len(log_q), len(orders))).copy()
    good = np.flatnonzero(log_q <= -np.logaddexp(0.0, epsilon))
    if good.size == 0:
        return result
    lq = log_q[good][:, None]
    log_1q = gnmax.log1mexp(lq)
    first = log_1q + steps * (log_1q - gnmax.log1mexp(lq + epsilon))
    bound = np.logaddexp(first, lq + epsilon * steps) / steps
    result[good] = np.clip(bound, gnmax.TINY, baseline)
    return result
