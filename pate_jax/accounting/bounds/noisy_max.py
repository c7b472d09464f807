"""The papers' bounds of a noisy maximum, in log q and for all queries at once.

GNMax (Papernot et al. 2018): Propositions 7, 8 and 10 and Theorem 6. LNMax (Papernot et al. 2017), which is
pure-DP, and the curves of epsilon-DP and of bounded range.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import special

from pate_jax.accounting.inputs import Curve

TINY = 1e-300  # a cost too small for a float is rounded up to this
_BLOCK = 60_000  # numbers in one block, so that it fits into the processor's cache


def gaussian_curve(sigma: float, orders: Curve) -> Curve:
    """Proposition 8: `a / sigma^2`, since two counts move by one each; CKS 2020 give discrete noise the same.

    >>> gaussian_curve(40.0, np.array([16.0]))
    array([0.01])
    """
    return orders / sigma / sigma


def gaussian_log_q(votes: NDArray[np.int64], sigma: float) -> Curve:
    """Proposition 7: log q, `q = sum_{j != winner} erfc((n_winner - n_j) / (2 sigma)) / 2`, q <= `1 - 1/C`.

    >>> round(float(gaussian_log_q(np.array([[250, 0]]), 40.0)[0]), 4)
    -12.2165
    """
    ordered = np.sort(votes, axis=1).astype(np.float64)
    gaps = ordered[:, -1:] - ordered[:, :-1]
    classes = votes.shape[1]
    result: Curve = np.minimum(
        special.logsumexp(special.log_ndtr(-gaps / (np.sqrt(2) * sigma)), axis=1), np.log1p(-1 / classes)
    )
    return result


def discrete_log_q(votes: NDArray[np.int64], sigma: float) -> Curve:
    """Proposition 7's log q for the discrete Gaussian, where a tie counts fully as an error; q <= `1 - 1/C`.

    The difference of two discrete Gaussians is `d` with a chance proportional to `exp(-d^2 / (4 sigma^2))`
    times a sum that depends only on whether `d` is even or odd. Tails are summed in logarithms.

    >>> round(float(discrete_log_q(np.array([[250, 0]]), 40.0)[0]), 4)
    -12.1759
    """
    ordered = np.sort(votes, axis=1)
    gaps = ordered[:, -1:] - ordered[:, :-1]
    tails = _difference_tails(sigma, int(gaps.max()))
    result: Curve = np.minimum(special.logsumexp(tails[gaps], axis=1), np.log1p(-1 / votes.shape[1]))
    return result


def _difference_tails(sigma: float, largest: int) -> Curve:
    """`log Pr[Z - Z' >= d]` for `d = 0 .. largest`, rounded up."""
    reach = np.arange(-np.ceil(9 * sigma) - 2, np.ceil(9 * sigma) + 3)
    inner = np.array([special.logsumexp(-(((reach - half) / sigma) ** 2)) for half in (0.0, 0.5)])
    values = np.arange(largest + int(np.ceil(14 * sigma)) + 2)
    log_weights = -((values / sigma) ** 2) / 4 + inner[values % 2]
    tails = np.logaddexp.accumulate(log_weights[::-1])[::-1]
    result: Curve = tails[: largest + 1] - np.logaddexp(tails[0], tails[1]) + 1e-9
    return result  # both sides, zero counted once


def log1mexp(x: Curve) -> Curve:
    """`log(1 - exp(x))` for `x < 0` without loss at either end.

    >>> log1mexp(np.array([-1e-300, -50.0])).round(3)
    array([-690.776,   -0.   ])
    """
    near, far = np.clip(x, -np.log(2), -5e-324), np.minimum(x, -np.log(2))
    return np.where(x > -np.log(2), np.log(-np.expm1(near)), np.log1p(-np.exp(far)))


def theorem6(log_q: Curve, sigma: float, orders: Curve) -> Curve:
    """Theorem 6 with Proposition 10's orders: [query, order], never above `a / sigma^2`.

    It bounds `D_a(M(D) || M(D'))` only, where D is the data set whose `q` is given. Where a condition of the
    theorem fails, the data-independent value applies.

    >>> theorem6(np.array([-12.2]), 40.0, np.array([14.0])) < 14 / 40**2
    array([[ True]])
    """
    baseline = gaussian_curve(sigma, orders)
    distinct, where = np.unique(log_q, return_inverse=True)
    result = np.empty((len(distinct), len(orders)))
    mu2 = sigma * np.sqrt(-distinct)
    good = (mu2 > 1) & _conditions(distinct, mu2, sigma)
    result[~good] = baseline
    rows = np.flatnonzero(good)
    for first in range(0, len(rows), max(1, _BLOCK // len(orders))):
        block = rows[first : first + max(1, _BLOCK // len(orders))]
        result[block] = _theorem6(distinct[block], mu2[block], sigma, orders, baseline)
    return result[where]


def _theorem6(log_q: Curve, mu2: Curve, sigma: float, orders: Curve, baseline: Curve) -> Curve:
    e1, e2 = (mu2 + 1) / sigma / sigma, mu2 / sigma / sigma
    log_1q = log1mexp(log_q)
    log_a = log_1q - log1mexp((log_q + e2) * (1 - 1 / mu2))
    log_b = e1 - log_q / mu2
    steps = orders - 1
    bound = np.logaddexp(log_1q[:, None] + np.outer(log_a, steps), log_q[:, None] + np.outer(log_b, steps))
    bound /= steps
    np.clip(bound, TINY, baseline, out=bound)
    return np.where(orders <= (mu2 + 1)[:, None], bound, baseline)


def _conditions(log_q: Curve, mu2: Curve, sigma: float) -> NDArray[np.bool_]:
    """Whether Theorem 6's condition on q holds, and A's denominator is positive."""
    e2 = mu2 / sigma / sigma
    inside = np.maximum(mu2, 1 + 1e-12)
    limit = (inside - 1) * e2 - inside * (np.log1p(1 / inside) + np.log1p(1 / (inside - 1)))
    result: NDArray[np.bool_] = (log_q <= limit) & (-log_q > e2)
    return result


def published(votes: NDArray[np.int64], sigma: float, orders: Curve) -> Curve:
    """The paper's data-dependent bound of GNMax on each query.

    >>> published(np.array([[240, 10]]), 40.0, np.array([14.0])) < 14 / 40**2
    array([[ True]])
    """
    return theorem6(gaussian_log_q(votes, sigma), sigma, orders)


def pure_curve(epsilon: float, orders: Curve) -> Curve:
    """The largest Renyi curve of any `epsilon`-DP mechanism, attained by randomised response.

    Every likelihood ratio r lies in `[e^-epsilon, e^epsilon]` and has mean 1, so the mean of the convex `r^a`
    is largest if r is always at one of the two ends. The curve is then
    `log((e^{a epsilon} + e^{(1-a) epsilon}) / (1 + e^epsilon)) / (a - 1)`, which lies below both `epsilon`
    and `a epsilon^2 / 2`. It is computed with sinh, so that small epsilons keep their digits.

    >>> pure_curve(0.1, np.array([2.0])).round(6)
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

    >>> bool(bounded_range(0.1, np.array([2.0]))[0] < pure_curve(0.1, np.array([2.0]))[0] / 3)
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

    >>> bool(2 * shifted(20.0, np.array([8.0]))[0] < 0.6 * pure_curve(0.1, np.array([8.0]))[0])
    True
    """
    up, down = (orders - 1) / scale, -orders / scale
    share = orders / (2 * orders - 1)
    excess = np.logaddexp(np.log(share) + log_second(up), np.log1p(-share) + log_second(down))
    exact = np.logaddexp(0.0, excess) / (orders - 1) * (1 + 1e-14)
    return np.minimum(exact, pure_curve(1 / scale, orders))


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


def laplace_log_q(votes: NDArray[np.int64], scale: float) -> Curve:
    """Lemma 4 of the 2017 paper: log q, `q = sum_{j != winner} (2 + g_j/b) / (4 exp(g_j/b))`, q <= `1 - 1/C`.

    >>> laplace_log_q(np.array([[11, 10]]), 1e-3).round(2)
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
    log_1q = log1mexp(lq)
    first = log_1q + steps * (log_1q - log1mexp(lq + epsilon))
    bound = np.logaddexp(first, lq + epsilon * steps) / steps
    result[good] = np.clip(bound, TINY, baseline)
    return result
