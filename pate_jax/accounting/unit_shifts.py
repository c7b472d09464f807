"""Epsilon of a table of noisy counts of which several move by one: exact, in closed form.

Discrete Gaussian noise of scale sigma is on every count, and `k` counts move by one. Each count that moves
from `x` to `x + 1` has the loss `(2 x + 1) / (2 sigma^2)`. So the loss of all is `(2 S + k) / (2 sigma^2)`,
where S is the sum of the `k` noises, and the moved counts are exactly as hard to tell apart as S is from
`S + k`. S has the law of a sum of shares: its log-chances differ by at most `noise_shares.gap` from those of
one discrete Gaussian of scale `sqrt(k) sigma`. For that one, with `s` the largest whole number below
`k/2 - epsilon sigma^2`,

    delta(epsilon) = P[S <= s] - exp(epsilon) P[S <= s - k].

Both directions are the same, because the noise is symmetric. Fewer moved counts never cost more.
"""

from __future__ import annotations

import math

import numpy as np

from pate_jax.accounting.exact import noise_law
from pate_jax.accounting.inputs import check_delta
from pate_jax.mechanisms import Noise, noise_shares

_ROUNDING = 1e-11  # relative: more than the rounding of a tail
_FARTHEST = 1e7  # the largest scale of a sum for which tails are computed


def epsilon(sigma: float, moved: int, delta: float, gap: float = 0.0) -> float:
    """The least epsilon at `delta` of `moved` counts that move by one, rounded up.

    `gap` bounds how far the log-chances of the noise on all of them differ from discrete Gaussians' together.
    Infinite where the sum is too wide for the tails computed here.

    >>> round(epsilon(40.0, 128, 1e-5), 4), round(epsilon(10.0, 2, 1e-5), 4)
    (1.0608, 0.497)
    """
    whole = check_delta(delta)
    if sigma * math.sqrt(moved) > _FARTHEST:
        return math.inf
    apart = gap + noise_shares.gap(sigma, moved)
    wanted = math.log(whole) - apart
    if log_delta(sigma, moved, 0.0) <= wanted:
        return 2 * apart
    low, high = 0.0, 1.0
    while log_delta(sigma, moved, high) > wanted:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if log_delta(sigma, moved, middle) > wanted else (low, middle)
    return high + 2 * apart


def log_delta(sigma: float, moved: int, epsilon: float) -> float:
    """Log of the delta at this epsilon of one discrete Gaussian of scale `sqrt(moved) sigma`, rounded up.

    >>> round(math.exp(log_delta(1.0, 1, 0.0)), 6)
    0.398942
    """
    whole = Noise("discrete_gaussian", sigma * math.sqrt(moved))
    last = math.ceil(moved / 2 - epsilon * sigma * sigma) - 1
    first, second = noise_law.log_cdf(whole, np.array([last, last - moved], np.float64)).tolist()
    ratio = epsilon + second - first - _ROUNDING * (1 + epsilon + abs(first) + abs(second))
    return float(first + _ROUNDING + (math.log(-math.expm1(ratio)) if ratio < 0 else -math.inf))
