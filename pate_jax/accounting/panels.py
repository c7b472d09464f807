"""Quadrature for noise with kinks (Laplace, exponential): panels that end at every kink, Gauss rules inside.

Kinks lie at the counts of a histogram and of its neighbours. Between two of them the integrand is a product
of exponentials and of `1 - c exp(-x/b)`, which is analytic, so a Gauss rule converges geometrically; its
number of nodes per panel comes from a bound on an ellipse around the panel (docs/accounting_exact.md).
Whole-number noise takes Gauss rules for the counting measure instead of Legendre's.
"""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np

from pate_jax.accounting.groups import Groups
from pate_jax.mechanisms import Noise

TOLERANCE = 2e-14  # relative error of each panel
DEPTH = 45.0  # scales after which an exponential has died: exp(-45) = 3e-20
ELLIPSES = np.array([1.5, 2.0, 3.0, 4.0, 6.0, 9.0, 14.0])


def panels(noise: Noise, groups: Groups) -> tuple[np.ndarray, np.ndarray, np.ndarray | float, np.ndarray]:
    """Positions and log-weights [R, N], fractions of a cell and relative errors [R]."""
    if noise.family == "exponential":
        position, log_weight = _exponential(noise.scale, groups)
        return position, log_weight, 1.0, np.full(len(position), TOLERANCE + 1e-15 * groups.sizes[0].sum())
    positions, weights = [], []
    for counts, sizes in zip(groups.counts, groups.sizes, strict=True):
        ends = _ends(noise, counts, sizes)
        position, weight = _fill(noise, ends, counts, sizes)
        positions.append(position)
        weights.append(np.log(weight))
    position, padding = pad(positions, groups.counts[:, 0])
    log_weight = np.where(np.isfinite(padding), pad(weights, np.zeros(len(weights)))[0], -np.inf)
    error = np.full(len(position), 2 * TOLERANCE)
    if noise.family == "laplace":
        return position, log_weight, 1.0, error
    classes = int(groups.sizes[0].sum())
    abscissae, cell = np.polynomial.legendre.leggauss(_cell_nodes(noise.scale, classes))
    fraction = np.tile((abscissae + 1) / 2, position.shape[1])
    log_weight = (log_weight[:, :, None] + np.log(cell / 2)).reshape(len(position), -1)
    return np.repeat(position, len(cell), axis=1), log_weight, fraction, error


def pad(rows: list[np.ndarray], fill: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of unequal length as one array, and 0 where it holds a value, `-inf` where it is filled up.

    >>> pad([np.array([1.0]), np.array([2.0, 3.0])], np.array([9.0, 9.0]))[0].tolist()
    [[1.0, 9.0], [2.0, 3.0]]
    """
    longest = max(len(row) for row in rows)
    out = np.repeat(np.asarray(fill, np.float64)[:, None], longest, axis=1)
    padding = np.full(out.shape, -np.inf)
    for index, row in enumerate(rows):
        out[index, : len(row)] = row
        padding[index, : len(row)] = 0.0
    return out, padding


def _exponential(scale: float, groups: Groups) -> tuple[np.ndarray, np.ndarray]:
    """Panels `[top-1, top]`, `[top, top+1]`, `[top+1, inf)`; in `t = exp(-x/s)` a polynomial, so exact."""
    classes = int(groups.sizes[0].sum())
    abscissae, weights = np.polynomial.legendre.leggauss((classes + 1) // 2)
    u, weights = (abscissae + 1) / 2, weights / 2
    span = -math.expm1(-1 / scale)
    inner = -scale * np.log1p(-span * u)  # x - start, where t falls from 1 to exp(-1/s)
    log_inner = math.log(scale * span) + np.log(weights) + inner / scale
    outer = -scale * np.log(u)
    log_outer = math.log(scale) + np.log(weights) + outer / scale
    offsets = np.concatenate([inner - 1, inner, outer + 1])
    log_weight = np.concatenate([log_inner, log_inner, log_outer])
    position = groups.counts[:, :1] + offsets
    return position, np.broadcast_to(log_weight, position.shape).copy()


def _ends(noise: Noise, counts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Where panels end: at every kink, and at most one scale apart wherever there is mass.

    Below the second largest count the integrand falls at least like `exp(x/b)`, above the largest like
    `exp(-x/b)`; far between the two it is a single exponential, so one panel is enough there.
    """
    scale = noise.scale
    top, second = counts[0], counts[0] if sizes[0] > 1 else counts[min(1, len(counts) - 1)]
    low = max(counts[-1] - 1, second - 2 - DEPTH * scale)
    low = min(low, counts[-1] - 1) - DEPTH * scale if low == counts[-1] - 1 else low
    kinks = np.unique(np.concatenate([counts - 1, counts, counts + 1, [low, top + 1 + DEPTH * scale]]))
    kinks = kinks[kinks >= low]
    parts = [kinks[:1]]
    for left, right in itertools.pairwise(kinks):
        if right - left > 2.5 * DEPTH * scale and left >= second:
            inner = np.array([left + DEPTH * scale, right - DEPTH * scale])
            parts += [_divide(left, inner[0], scale), inner[1:], _divide(inner[1], right, scale)]
        else:
            parts.append(_divide(left, right, scale))
    ends = np.concatenate(parts)
    return np.unique(np.rint(ends)) if noise.family == "discrete_laplace" else ends


def _divide(left: float, right: float, longest: float) -> np.ndarray:
    """Equal panels over (left, right], none longer than `longest`: their right ends."""
    number = max(1, math.ceil((right - left) / longest - 1e-9))
    return left + (right - left) * np.arange(1, number + 1) / number


def _fill(
    noise: Noise, ends: np.ndarray, counts: np.ndarray, sizes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights of all panels, each with as many nodes as its bound asks for."""
    left, right = ends[:-1], ends[1:]
    numbers = _numbers(noise.scale, left, right, counts, sizes)
    positions, weights = [], []
    for number in np.unique(numbers):
        chosen = numbers == number
        if noise.family == "laplace":
            abscissae, weight = _legendre(int(number))
            half = (right[chosen] - left[chosen])[:, None] / 2
            positions.append((left[chosen][:, None] + half + half * abscissae).ravel())
            weights.append((half * weight).ravel())
            continue
        for first, last in zip(left[chosen] + 1, right[chosen], strict=True):
            offsets, weight = _counting(int(last - first) + 1, int(number))
            positions.append(first + offsets)
            weights.append(weight)
    return np.concatenate(positions), np.concatenate(weights)


def _numbers(scale: float, left, right, counts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Gauss nodes per panel: the fewest for which the ellipse bound is below `TOLERANCE` (at most 200).

    On the ellipse of parameter r a panel's half-length h reaches `h (r + 1/r)/2` from its middle. There each
    factor is at most its bound below, and inside the panel at least its smallest value.
    """
    half, middle = (right - left) / 2, (right + left) / 2
    overshoot = half * ((ELLIPSES[:, None] + 1 / ELLIPSES[:, None]) / 2 - 1) / scale  # [E, P], in scales
    inside = (left[:, None] - counts - 1) / scale  # [P, U], how far the panel lies above each count
    above = middle[:, None] > counts - 1
    with np.errstate(under="ignore"):
        lowest = 1 - 0.5 * np.exp(-np.maximum(inside, 0))
        largest = 1 + 0.5 * np.exp(np.minimum(-np.maximum(inside, 0) + overshoot[..., None], 700.0))
    flat = np.log(largest / lowest)
    steep = np.broadcast_to((overshoot + 2 * half / scale)[..., None], flat.shape)
    log_ratio = (sizes * np.where(above, np.maximum(flat, 0), steep)).sum(axis=2)
    log_ratio = log_ratio + overshoot + 2 * half / scale
    needed = (math.log(8 / TOLERANCE) + log_ratio) / (2 * np.log(ELLIPSES)[:, None])
    return np.clip(np.ceil(needed.min(axis=0)), 2, 200).astype(int)


@functools.lru_cache(maxsize=256)
def _legendre(number: int) -> tuple[np.ndarray, np.ndarray]:
    return np.polynomial.legendre.leggauss(number)


@functools.lru_cache(maxsize=4096)
def _counting(points: int, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss rule for the sum over 0, 1, .., points-1, from the Gram polynomials' recurrence."""
    if points <= number:
        return np.arange(points, dtype=np.float64), np.ones(points)
    k = np.arange(1, number, dtype=np.float64)
    off = 0.5 * points * np.sqrt((1 - (k / points) ** 2) / (4 - 1 / k**2))
    abscissae, vectors = np.linalg.eigh(np.diag(off, 1) + np.diag(off, -1))
    return abscissae + (points - 1) / 2, points * vectors[0] ** 2


def _cell_nodes(scale: float, classes: int) -> int:
    """Gauss nodes within a cell: `C/2` are exact, and fewer do where the noise is wide."""
    exact = (classes + 1) // 2
    hazard = classes * min(1.0, -math.expm1(-1 / scale))  # f/F is at most 1 - exp(-1/b)
    for number in range(1, exact):
        log_error = 4 * math.lgamma(number + 1) - 3 * math.lgamma(2 * number + 1) - math.log(2 * number + 1)
        if math.log(classes) + log_error + 2 * number * math.log(hazard) < math.log(TOLERANCE):
            return number
    return exact
