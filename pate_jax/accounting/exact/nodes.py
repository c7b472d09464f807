"""Quadrature nodes for the law of the noisy argmax, with a proven bound on their relative error.

The integrand of class j is `f(x - n_j) prod_{k != j} F(x - n_k)`. One set of nodes serves every class of a
histogram and of all its one-vote neighbours. The bounds are derived in docs/proofs/exact.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr, logsumexp

from pate_jax.accounting.exact import panels
from pate_jax.accounting.exact.groups import Groups
from pate_jax.accounting.exact.noise_law import log_cdf
from pate_jax.mechanisms import Noise

WIDTH = 9.0  # scales beyond the outermost modes: 2 Phi(-9) = 2.3e-19 of the mass is left out
TOLERANCE = 2e-14  # the relative error for which steps and numbers of nodes are chosen
DEPTHS = np.concatenate([np.arange(0, 4, 0.125), np.arange(4.0, 15.0), [20, 30, 40, 60]])  # in scales
LEFT_OUT = math.log(2) + float(log_ndtr(-WIDTH))  # log of the mass that may be left out on one side
SHIFTS = np.array(
    [0.4, 0.5, 0.6, 0.7, 0.85, 1.0, 1.2, 1.4, 1.8, 2.2, 2.6, 3.0, 3.5, 4.0, 5.0, 6.0]
)  # imaginary, in scales
FRACTIONS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 50, 64)  # numbers of nodes tried in a cell
MANY = 4096  # nodes per histogram above which the gaps between the modes are left out


class Nodes(NamedTuple):
    """The nodes of the quadrature, and the log of each node's weight; `-inf` for padding.

    Whole-number noise has K nodes in each of N/K cells, next to each other; other noise has K = 1.
    """

    position: np.ndarray  # [R, N/K]
    log_weight: np.ndarray  # [R, N]
    fraction: np.ndarray  # [K]: the places within a cell
    error: np.ndarray  # [R]: the relative error of every law


def nodes(noise: Noise, groups: Groups) -> Nodes:
    """The nodes for a few histograms with the same number of groups."""
    if noise.family in ("gaussian", "discrete_gaussian"):
        return _lattice(noise, groups)
    position, log_weight, fraction, error = panels.panels(noise, groups)
    return Nodes(position, log_weight, fraction, error)


def number(noise: Noise, groups: Groups) -> int:
    """About how many nodes a histogram needs: those of the widest one.

    >>> groups = Groups(np.array([0]), np.array([[3.0, 1.0]]), np.array([[1.0, 1.0]]), np.array([[3.0, 1.0]]))
    >>> number(Noise("gaussian", 40.0), groups) < 100
    True
    """
    widest = nodes(noise, Groups(*(value[-1:] for value in groups)))
    return int(widest.log_weight.shape[1])


def _lattice(noise: Noise, groups: Groups) -> Nodes:
    """Equally spaced nodes from 9 scales below the lowest mode to 9 above the highest, plus a few votes."""
    sigma, classes = noise.scale, groups.sizes[0].sum()
    tail = left_tail(noise, groups)
    step = _step(noise, groups, tail)
    slack = 1.0 if noise.family == "gaussian" else 3.0
    start = np.maximum(tail.start(), tail.mode - WIDTH * sigma - slack)
    stop = groups.counts[:, 0] + math.sqrt(2 * math.log(classes) + 87) * sigma + slack
    if noise.family == "discrete_gaussian":
        start = np.floor(start)
    number = int(np.ceil((stop - start) / step).max()) + 1
    if number > MANY:
        position, padding = _windows(noise, groups, start, step, slack)
    else:
        position = start[:, None] + step[:, None] * np.arange(number)
        padding = np.zeros(position.shape)
    log_weight = padding + np.log(step)[:, None]
    error = np.where(noise.family == "gaussian", TOLERANCE, 2 * TOLERANCE) * np.ones(len(step))
    if noise.family == "gaussian":
        return Nodes(position, log_weight, np.ones(1), error)
    fraction, weight = _cell_rule(noise, groups, tail.of_every(step))
    log_weight = (log_weight[:, :, None] + np.log(weight)).reshape(len(step), -1)
    return Nodes(position, log_weight, fraction, error + TOLERANCE)


def _lowest_mode(noise: Noise, groups: Groups) -> np.ndarray:
    """A lower bound [R] of the mode of every class's integrand: half way between the extreme counts.

    With many classes, bisection on `Q(x+1) >= Q(x)` improves it: for a log-concave Q this puts the mode above
    x. Modes grow with the class's own count, so the group of the lowest count decides.
    """
    middle = (groups.counts[:, 0] + groups.counts[:, -1] - 1) / 2
    if groups.sizes[0].sum() <= 16 or noise.scale < 1:
        half_way: np.ndarray = middle
        return half_way
    others = groups.sizes.copy()
    others[:, -1] -= 1
    low, high = middle, groups.counts[:, 0] + noise.scale * 4
    for _ in range(10):
        x = np.floor((low + high) / 2)
        distance = x[:, None] - groups.counts
        growth = (others * (log_cdf(noise, distance + 1) - log_cdf(noise, distance))).sum(axis=1)
        rising = growth >= (2 * distance[:, -1] + 1) / (2 * noise.scale**2)
        low, high = np.where(rising, np.maximum(low, x), low), np.where(rising, high, x)
    result: np.ndarray = np.maximum(middle, low - 1)
    return result


class LeftTail(NamedTuple):
    """How much of the law of the winning noisy count lies below some points, whichever class wins.

    The bound holds for all classes, before and after any one-vote move.
    """

    points: np.ndarray  # [R, D], in descending order; whole numbers for whole-number noise
    log_share: np.ndarray  # [R, D]: log of a bound on the mass at or below each point
    mode: np.ndarray  # [R]: a lower bound of every class's mode

    def averaged(self, log_bound: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Log of a bound on the mean of what falls with x; `log_bound` maps [R, D] to [.., R, D]."""
        values = log_bound(np.append(self.points, np.full((len(self.mode), 1), -np.inf), axis=1))
        strips = values[..., 1:] + self.log_share  # within a strip the value at its far end is the largest
        result: np.ndarray = np.logaddexp(values[..., 0], logsumexp(strips, axis=-1))
        return result

    def of_every(self, step: np.ndarray) -> LeftTail:
        """The same for the law on every h-th whole number, at points h-1 further left."""
        return self._replace(points=self.points - (step[:, None] - 1))

    def start(self) -> np.ndarray:
        """The largest point [R] with a negligible mass at or below it."""
        result: np.ndarray = np.where(self.log_share <= LEFT_OUT, self.points, -np.inf).max(axis=1)
        return result


def left_tail(noise: Noise, groups: Groups) -> LeftTail:
    """Two bounds of the tail, of which the smaller counts (docs/proofs/exact.md, section 3).

    A law that is at least as log-concave as the noise has at most `2 Phi(-D)` of its mass more than D scales
    below its mode. Any log-concave G has at most `G(x)/G(m)` of its mass at or below x, for every m above x.
    With many classes the second one is much smaller, because all their noisy counts must be below x.
    """
    lowest = _lowest_mode(noise, groups)
    reference, depths = lowest - 2, DEPTHS * noise.scale
    if noise.is_discrete:
        reference, depths = np.floor(reference), np.floor(depths)
    points = reference[:, None] - depths
    half_normal = math.log(2) + log_ndtr(-depths / noise.scale)
    ratio = _log_ratio(noise, groups, points, reference)
    return LeftTail(points, np.minimum(half_normal, ratio), lowest)


def _log_ratio(noise: Noise, groups: Groups, points: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """A bound on `log(G_j(x) / G_j(m))` [R, D] at points x below m, for every class j and after every move.

    Each factor's ratio falls with its count, so counts less one vote serve every move. Whole-number noise
    is read up to one number further right or left, for the places within a cell and between whole numbers.
    """
    blur = 1.0 if noise.is_discrete else 0.0
    counts = groups.counts[:, :, None] - 1
    above = log_cdf(noise, points[:, None, :] + blur - counts)
    ratio = np.minimum(above - log_cdf(noise, reference[:, None, None] - blur - counts), 0)
    every = (groups.sizes[:, :, None] * ratio).sum(axis=1, keepdims=True)
    depth = (reference[:, None] - points)[:, None, :]
    density = depth * (2 * (reference[:, None, None] + blur - counts) - depth) / (2 * noise.scale**2)
    result: np.ndarray = (density + every - ratio).max(axis=1)
    return result


def _step(noise: Noise, groups: Groups, tail: LeftTail) -> np.ndarray:
    """The largest step [R] whose aliasing error is proven to stay below `TOLERANCE`.

    A shift into the complex plane by `i y sigma` increases a factor F at most by
    `min(exp(y^2/2), (1 + exp(y^2/2) (1-F)) / F)`, and f by `exp(y^2/2)`. The error of step h is at most
    `2.1 exp(-2 pi y sigma / h)` times the mean of the product.
    """
    sigma = noise.scale
    if noise.family == "discrete_gaussian" and sigma < 3:
        return np.ones(len(tail.mode))
    half = 0.5 * SHIFTS**2

    def growth(x: np.ndarray) -> np.ndarray:
        level = log_cdf(Noise("gaussian", sigma), x[:, None, :] - groups.counts[:, :, None] - 3)
        with np.errstate(under="ignore"):
            beyond = -np.expm1(level)
        total = np.empty((len(half), *x.shape))
        for index, y in enumerate(half):
            each = np.minimum(y, np.log1p(np.exp(y) * beyond) - level)
            total[index] = (groups.sizes[:, :, None] * each).sum(axis=1)
        return total

    needed = math.log(8 / TOLERANCE) + half[:, None] + tail.averaged(growth)
    step = sigma * (2 * math.pi * SHIFTS[:, None] / needed).max(axis=0)
    result: np.ndarray = step if noise.family == "gaussian" else np.maximum(np.floor(step), 1)
    return result


def _cell_rule(noise: Noise, groups: Groups, tail: LeftTail) -> tuple[np.ndarray, np.ndarray]:
    """A Gauss-Legendre rule for the place within a cell; C/2 nodes are exact, and mostly fewer are enough.

    The integrand is a polynomial of degree C-1 with coefficients >= 0. With `s = sum_k f/F`, the relative
    error of K nodes is at most `C e_K s^(2K)`, `e_K = K!^4 / ((2K+1) (2K)!^3)`.
    """
    classes = int(groups.sizes[0].sum())

    def log_hazard(x: np.ndarray) -> np.ndarray:
        z = (x[:, None, :] - groups.counts[:, :, None] - 3) / noise.scale
        hazards = np.minimum(
            1.0, np.maximum(-z, 0) / noise.scale + 1.3 * np.exp(-0.5 * np.maximum(z, 0) ** 2) / noise.scale
        )
        result: np.ndarray = np.log((groups.sizes[:, :, None] * hazards).sum(axis=1))
        return result

    for number in FRACTIONS:
        if 2 * number >= classes:
            break
        log_error = 4 * math.lgamma(number + 1) - 3 * math.lgamma(2 * number + 1) - math.log(2 * number + 1)

        def log_bound(x: np.ndarray, number: int = number, log_error: float = log_error) -> np.ndarray:
            return math.log(classes) + log_error + 2 * number * log_hazard(x)

        if tail.averaged(log_bound).max() < math.log(TOLERANCE):
            break
    else:
        number = (classes + 1) // 2
    abscissae, weights = np.polynomial.legendre.leggauss(min(number, (classes + 1) // 2))
    return (abscissae + 1) / 2, weights / 2


def _windows(
    noise: Noise, groups: Groups, start: np.ndarray, step: np.ndarray, slack: float
) -> tuple[np.ndarray, np.ndarray]:
    """The lattice for little noise: only nodes where some class has mass, before or after a move."""
    rows = []
    for row in range(len(start)):
        modes = _modes(noise, groups.counts[row], groups.sizes[row])
        reach = WIDTH * noise.scale + slack + 1
        first = np.maximum(np.floor((modes - reach - start[row]) / step[row]), 0).astype(int)
        last = np.ceil((modes + reach - start[row]) / step[row]).astype(int)
        chosen = np.unique(np.concatenate([np.arange(a, b + 1) for a, b in zip(first, last, strict=True)]))
        rows.append(start[row] + step[row] * chosen)
    return panels.pad(rows, groups.counts[:, 0])


def _modes(noise: Noise, counts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The mode of each group's integrand [U] to a thousandth of a vote or of the scale, by bisection."""
    low = np.minimum(counts, counts[0]) - 1.0
    high = np.full(len(counts), counts[0] + 5 * noise.scale + 1)
    others = sizes - np.eye(len(counts))
    unit = min(1.0, noise.scale) if noise.family == "gaussian" else 1.0
    for _ in range(int(math.log2((high - low).max() / unit * 1000)) + 1):
        x = (low + high) / 2
        if noise.family != "gaussian":
            x = np.floor(x)
        distance = x[:, None] - counts
        growth = (others * (log_cdf(noise, distance + unit) - log_cdf(noise, distance))).sum(axis=1)
        rising = growth >= (2 * (x - counts) * unit + unit * unit) / (2 * noise.scale**2)
        low, high = np.where(rising, x, low), np.where(rising, high, x)
    result: np.ndarray = low
    return result
