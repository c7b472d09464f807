"""Exact composition where a closed form exists: Gaussian-DP, and pure-DP steps.

See docs/proofs/accounting.md, "The data-independent figure".

Both are data-independent, hold under adaptive composition for steps whose parameters are fixed in advance,
and are monotone in the noise: less noise can be post-processed into more.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

from pate_jax.mechanisms import Mechanism, Noise, laws

Steps = list[tuple[float, int]]
_MARGIN = 1e-12  # relative, added to every loss
_LARGEST_LATTICE = 4_000_000
_WIDEST = 1 << 21  # the largest value of discrete Gaussian noise up to which its steps are looked at
_STEP = 1e-10  # absolute: more than the rounding of one of these steps


def gaussian_dp(mechanism: Mechanism, queries: int) -> float | None:
    """The mu of `queries` answers: `mu^2 = queries (2 / sigma^2 + 1 / sigma_test^2)`; `None` for other noise.

    A vote vector moves by sqrt(2) in L2, the test's reading by 1 (Dong, Roth, Su 2022, Corollary 3.3). Counts
    are whole, so rounding the noise only processes what Gaussian noise would release.

    >>> from pate_jax.mechanisms import GaussianHistogram, GNMax, LNMax
    >>> [gaussian_dp(one, 50) for one in (GNMax(10.0), GaussianHistogram(10.0), LNMax(10.0))]
    [1.0, 1.0, None]
    """
    noises = [(mechanism.noise, 2.0)] + ([] if mechanism.test is None else [(mechanism.test.noise, 1.0)])
    if any(noise.family not in ("gaussian", "rounded_gaussian") for noise, _ in noises):
        return None
    return math.sqrt(queries * sum(squared / noise.scale / noise.scale for noise, squared in noises))


def gaussian_log_delta(mu: float, epsilon: float) -> float:
    """Log of `Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu)` (Balle, Wang 2018, Theorem 8), rounded up.

    >>> round(math.exp(gaussian_log_delta(1.0, 0.0)), 6)
    0.382925
    """
    rounding = 4e-16
    upper = mu / 2 - epsilon / mu + rounding * (mu / 2 + epsilon / mu)
    first, second = float(special.log_ndtr(upper)), float(special.log_ndtr(-mu / 2 - epsilon / mu))
    ratio = epsilon + second - first
    ratio -= rounding * (epsilon + abs(second) + abs(first))
    return first + (math.log(-math.expm1(ratio)) if ratio < 0 else -math.inf)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The smallest epsilon of mu-Gaussian-DP at `delta`, rounded up.

    >>> round(gaussian_epsilon(1.0, 1e-5), 4)
    4.3772
    """
    if mu == 0 or gaussian_log_delta(mu, 0.0) <= math.log(delta):
        return 0.0
    low, high = 0.0, 1.0
    while gaussian_log_delta(mu, high) > math.log(delta):
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if gaussian_log_delta(mu, middle) > math.log(delta) else (low, middle)
    return high


def safe_mu(mechanism: Mechanism, queries: int) -> float | None:
    """A mu of Gaussian-DP of `queries` answers, whatever their noise; `None` if none is proved.

    Counts are moved as `gaussian_dp` and `pure_steps` say, and squares of mu add up. Discrete noise is looked
    at as far as its tables go: what lies beyond strays, as `laws.distance` counts it, once more.

    >>> from pate_jax.mechanisms import DiscreteGaussianMax, GNMax, LNMax
    >>> [round(safe_mu(one, 50), 6) for one in (GNMax(10.0), DiscreteGaussianMax(10.0), LNMax(10.0))]
    [1.0, 1.000417, 1.25309]
    """
    exact, steps = gaussian_dp(mechanism, queries), pure_steps(mechanism, queries)
    if exact is not None:
        return exact * (1 + _MARGIN)
    if steps is not None:
        return math.sqrt(sum(pure_mu(epsilon) ** 2 * count for epsilon, count in steps)) * (1 + _MARGIN)
    each = [unit_mu(mechanism.noise)] + ([] if mechanism.test is None else [unit_mu(mechanism.test.noise)])
    if any(mu is None for mu in each):
        return None
    squares = [mu * mu * moved for mu, moved in zip(each, (2, 1), strict=False) if mu is not None]
    return math.sqrt(queries * sum(squares)) * (1 + _MARGIN)


def pure_mu(epsilon: float) -> float:
    """The least mu of Gaussian-DP that every pure epsilon has: both allow the same total variation.

    >>> round(pure_mu(0.1), 6)
    0.125309
    """
    return -2 * float(special.ndtri_exp(-np.logaddexp(0.0, epsilon))) * (1 + _MARGIN)


@lru_cache(maxsize=64)
def unit_mu(noise: Noise, moved: int = 1) -> float | None:
    """For each unit by which a number with this noise moves, a mu of Gaussian-DP; for moves up to `moved`.

    The test "at least k" has the quantiles `z_k` of its chances, and a move by one exchanges k and k - 1. So
    mu is the largest `z_k - z_(k-1)` over all k that occur. Of a discrete Gaussian it is a little more than
    one over its scale; docs/proofs/trade_off.md has the proof. `None` for wider noise than is looked at.

    >>> unit_mu(Noise("gaussian", 40.0)), round(unit_mu(Noise("discrete_gaussian", 40.0)) * 40, 6)
    (0.025, 1.000026)
    """
    if noise.family in ("gaussian", "rounded_gaussian"):
        return 1 / noise.scale
    if noise.family != "discrete_gaussian":
        return None
    from pate_jax.accounting.exact import noise_law

    farthest = laws.support(noise) + moved + 1
    if farthest > _WIDEST:
        return None
    tails = noise_law.log_cdf(noise, -np.arange(1.0, farthest + 1))  # P[X >= k] = P[X <= -k]
    quantiles = -special.ndtri_exp(tails)
    steps = np.diff(quantiles, prepend=-quantiles[0])  # "at least 0" is the opposite of "at least 1"
    return float(steps.max()) * (1 + _MARGIN) + _STEP


def pure_steps(mechanism: Mechanism, queries: int) -> Steps | None:
    """The pure-DP steps `(epsilon, how many)` of `queries` answers; `None` for Gaussian noise.

    With Laplace noise a moved vote is two steps of `1/scale`, one for each count that it shifts, because the
    noisy argmax is computed from the noisy counts. Gumbel and exponential noise give one step of `2/scale`.

    >>> from pate_jax.mechanisms import ConfidentDiscreteLaplace
    >>> pure_steps(ConfidentDiscreteLaplace(200, 100, 20), 50)
    [(0.05, 100), (0.01, 50)]
    """
    noises = [mechanism.noise] + ([] if mechanism.test is None else [mechanism.test.noise])
    if any("gaussian" in noise.family for noise in noises):
        return None
    twice = "laplace" in mechanism.noise.family
    steps = [(1 / mechanism.noise.scale, 2 * queries) if twice else (2 / mechanism.noise.scale, queries)]
    return steps + ([] if mechanism.test is None else [(1 / mechanism.test.noise.scale, queries)])


def pure_epsilon(steps: Steps, delta: float) -> float:
    """Epsilon of the exact composition of pure-DP steps (Kairouz, Oh, Viswanath 2015), rounded up.

    Randomised response dominates every step of the same epsilon, and `k` of them have the losses
    `(2i - k) eps` with binomial weights. Two kinds of steps make a lattice of losses; with more than 4
    million points, the result is the plain sum of all epsilons.

    >>> round(pure_epsilon([(0.1, 100)], 1e-5), 4)
    4.3068
    """
    plain = math.fsum(epsilon * count for epsilon, count in steps) * (1 + _MARGIN)
    if math.prod(count + 1 for _, count in steps) > _LARGEST_LATTICE or not math.isfinite(plain):
        return plain
    losses, log_weights = np.zeros(1), np.zeros(1)
    for epsilon, count in steps:
        hits = np.arange(count + 1.0)
        weights = (
            _log_binomial(hits, count)
            - hits * np.logaddexp(0, -epsilon)
            - (count - hits) * np.logaddexp(0, epsilon)
        )
        losses = np.add.outer(losses, (2 * hits - count) * epsilon).ravel()
        log_weights = np.add.outer(log_weights, weights).ravel()
    high = _invert(losses * (1 + np.copysign(_MARGIN, losses)), np.exp(log_weights) * (1 + 1e-9), delta)
    return min(high, plain)


def _invert(losses: NDArray[np.float64], weights: NDArray[np.float64], delta: float) -> float:
    """The smallest epsilon with `sum_i w_i max(0, 1 - e^{eps - loss_i}) <= delta`.

    It uses prefix sums over sorted losses: between two losses the sum is `W - e^eps V`, where W and V are the
    sums of `w` and `w e^{-loss}` over the larger losses.
    """
    order = np.argsort(losses)[::-1]
    losses, weights = losses[order], weights[order]
    reach, whole = losses[0], np.cumsum(weights)
    shrunk = np.cumsum(weights * np.exp(np.minimum(-(losses - reach), 700)))  # times e^-reach
    with np.errstate(over="ignore"):
        at_losses = whole - np.exp(losses - reach) * shrunk
    index = int(np.argmax(at_losses > delta)) if np.any(at_losses > delta) else len(losses)
    if index == 0:
        return float(reach)
    excess = whole[index - 1] - delta
    if excess <= 0:
        return max(float(losses[index]) if index < len(losses) else 0.0, 0.0)
    return max(float(reach + np.log(excess) - np.log(shrunk[index - 1])) * (1 + _MARGIN), 0.0)


def _log_binomial(hits: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    result: NDArray[np.float64] = (
        special.gammaln(count + 1) - special.gammaln(hits + 1) - special.gammaln(count - hits + 1)
    )
    return result
