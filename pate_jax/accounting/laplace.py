"""Pure-DP mechanisms: LNMax (Papernot et al. 2017), and the curves of epsilon-DP and of bounded range."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import special

from pate_jax.accounting import gnmax

Curve = NDArray[np.float64]


def pure(epsilon: float, orders: Curve) -> Curve:
    """The largest Renyi curve of any `epsilon`-DP mechanism, attained by randomised response.

    With every likelihood ratio in `[e^-epsilon, e^epsilon]` and mean 1, the convex `r^a` is largest on the
    two ends: `log((e^{a epsilon} + e^{(1-a) epsilon}) / (1 + e^epsilon)) / (a - 1)`. It lies below both
    `epsilon` and `a epsilon^2 / 2`. Written with sinh so that small epsilon keeps its digits.

    >>> pure(0.1, np.array([2.0])).round(6)
    array([0.009959])
    """
    # the log is of cosh((2a-1) e/2) / cosh(e/2) = 1 + 2 sinh(a e/2) sinh((a-1) e/2) / cosh(e/2)
    log_product = _log_sinh(orders * epsilon / 2) + _log_sinh((orders - 1) * epsilon / 2)
    log_excess = np.log(2) + log_product - _log_cosh(epsilon / 2)
    return np.logaddexp(0.0, log_excess) / (orders - 1)


def bounded_range(eta: float, orders: Curve) -> Curve:
    """The largest Renyi curve of any `eta`-bounded-range mechanism (Dong, Durfee, Rogers 2020).

    The log-ratios of the exponential mechanism lie in an interval `[t - eta, t]`: for `n - e_a + e_b` they
    differ by `+1/b`, `-1/b` or 0 plus one constant, so `eta = 2/b`. On the two ends of that interval
    `E[r^a]` is `(A u^{a-1} - B u^a) / (e^eta - 1)` with `u = e^t`, `A = e^eta (1 - e^{-a eta})`, `B = 1 -
    e^{-(a-1) eta}`; it is largest at `u = (a-1) A / (a B)`.

    >>> bool(bounded_range(0.1, np.array([2.0]))[0] < pure(0.1, np.array([2.0]))[0] / 3)
    True
    """
    log_top = eta + np.log(-np.expm1(-orders * eta))
    log_bottom = np.log(-np.expm1(-(orders - 1) * eta))
    log_u = np.log1p(-1 / orders) + log_top - log_bottom
    log_mean = (orders - 1) * log_u + log_top - np.log(orders) - (eta + np.log(-np.expm1(-eta)))
    rounding = 1e-15 * (1 + orders * eta + np.abs(np.log(eta)) + np.log(orders))
    exact = (log_mean + rounding) / (orders - 1)
    return np.minimum(exact, np.minimum(orders * eta**2 / 8, eta))


def shifted(scale: float, orders: Curve) -> Curve:
    """Curve of one number plus Laplace noise when the number moves by one (Mironov 2017, Proposition 6).

    `log(a/(2a-1) e^{(a-1)/b} + (a-1)/(2a-1) e^{-a/b}) / (a - 1)`. A vote that moves shifts two counts, so a
    noisy histogram costs twice this, which for small `1/b` is half of what `2/b`-DP alone implies.

    >>> bool(2 * shifted(20.0, np.array([8.0]))[0] < 0.6 * pure(0.1, np.array([8.0]))[0])
    True
    """
    up, down = (orders - 1) / scale, -orders / scale
    share = orders / (2 * orders - 1)
    small = np.minimum(up, 1.0)
    near = np.log1p(share * np.expm1(small) + (1 - share) * np.expm1(down)) + 1e-15 * (up - down)
    far = np.logaddexp(np.log(share) + up, np.log1p(-share) + down)
    return np.minimum(np.where(up <= 1.0, near, far) / (orders - 1), pure(1 / scale, orders))


def _log_sinh(x: Curve) -> Curve:
    return x - np.log(2) + np.log(-np.expm1(-2 * x))


def _log_cosh(x: float) -> float:
    return float(np.logaddexp(x, -x) - np.log(2))


def log_q(votes: NDArray[np.int64], scale: float) -> Curve:
    """Lemma 4 of the 2017 paper: log of `sum_{j != winner} (2 + g_j/b) / (4 exp(g_j/b))`, at most `1 - 1/C`.

    >>> log_q(np.array([[11, 10]]), 1e-3).round(2)
    array([-994.48])
    """
    ordered = np.sort(votes, axis=1).astype(np.float64)
    gaps = (ordered[:, -1:] - ordered[:, :-1]) / scale
    return np.minimum(special.logsumexp(np.log((2 + gaps) / 4) - gaps, axis=1), np.log1p(-1 / votes.shape[1]))


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


def published(votes: NDArray[np.int64], scale: float, orders: Curve) -> Curve:
    """The 2017 paper's data-dependent bound of LNMax on each query; each answer is `2/scale`-DP.

    >>> bool(published(np.array([[240, 10]]), 20.0, np.array([9.0]))[0, 0] < 0.001)
    True
    """
    return moments(log_q(votes, scale), 2 / scale, orders)
