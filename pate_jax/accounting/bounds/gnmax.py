"""GNMax (Papernot et al. 2018): Propositions 7, 8 and 10 and Theorem 6, in log q, for all queries at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import special

from pate_jax.accounting.inputs import Curve

TINY = 1e-300  # a cost too small for a float is rounded up to this
_BLOCK = 60_000  # numbers in one block, so that it fits into the processor's cache


def data_independent(sigma: float, orders: Curve) -> Curve:
    """Proposition 8: `a / sigma^2`, since two counts move by one each; CKS 2020 give discrete noise the same.

    >>> data_independent(40.0, np.array([16.0]))
    array([0.01])
    """
    return orders / sigma / sigma


def log_q(votes: NDArray[np.int64], sigma: float) -> Curve:
    """Proposition 7: log q, `q = sum_{j != winner} erfc((n_winner - n_j) / (2 sigma)) / 2`, q <= `1 - 1/C`.

    >>> round(float(log_q(np.array([[250, 0]]), 40.0)[0]), 4)
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
    baseline = data_independent(sigma, orders)
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
    return theorem6(log_q(votes, sigma), sigma, orders)
