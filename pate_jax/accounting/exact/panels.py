"""Quadrature for noise with kinks (Laplace, exponential): panels that end at every kink, Gauss rules inside.

Kinks lie at the counts of a histogram and of its neighbours. Between two kinks the integrand is a product of
exponentials and of `1 - c exp(-x/b)`, which is analytic, so a Gauss rule converges geometrically. The number
of nodes per panel comes from a bound on an ellipse around the panel (docs/proofs/exact.md). For
whole-number noise, Gauss rules for the counting measure replace Legendre's.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from pate_jax.accounting.exact.groups import Groups
from pate_jax.mechanisms import Noise

TOLERANCE = 2e-14  # relative error of each panel
DEPTH = 45.0  # scales after which an exponential is negligible: exp(-45) = 3e-20
MOST = 40  # the most nodes above the last panel; if more would be needed, panels reach further up
ELLIPSES = np.array([1.5, 2.0, 3.0, 4.0, 6.0, 9.0, 14.0])


def panels(noise: Noise, groups: Groups) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Positions [R, N/K], log-weights [R, N], fractions of a cell [K] and relative errors [R]."""
    if noise.family == "exponential":
        position, log_weight = _exponential(noise.scale, groups)
        error = np.full(len(position), TOLERANCE + 1e-15 * groups.sizes[0].sum())
        return position, log_weight, np.ones(1), error
    positions, weights = [], []
    for counts, sizes in zip(groups.counts, groups.sizes, strict=True):
        ends = _ends(noise, counts, sizes)
        parts = [_above(noise, ends[-1], counts, sizes), _fill(noise, ends, counts, sizes)]
        if ends[0] == counts[-1] - 1:
            parts.append(_below(noise, counts, sizes))
        positions.append(np.concatenate([position for position, _ in parts]))
        weights.append(np.concatenate([log_weight for _, log_weight in parts]))
    position, padding = pad(positions, groups.counts[:, 0])
    log_weight = np.where(np.isfinite(padding), pad(weights, np.zeros(len(weights)))[0], -np.inf)
    error = np.full(len(position), 2 * TOLERANCE + 1e-15 * groups.sizes[0].sum())
    if noise.family == "laplace":
        return position, log_weight, np.ones(1), error
    classes = int(groups.sizes[0].sum())
    abscissae, cell = np.polynomial.legendre.leggauss(_cell_nodes(noise.scale, classes))
    log_weight = (log_weight[:, :, None] + np.log(cell / 2)).reshape(len(position), -1)
    return position, log_weight, (abscissae + 1) / 2, error


def pad(rows: list[np.ndarray], fill: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows of unequal length as one array, and a mask: 0 at values, `-inf` at fillers.

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
    """Panels `[top-1, top]`, `[top, top+1]`, `[top+1, inf)`; exact, as polynomials in `t = exp(-x/s)`."""
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
    """The ends of the panels: every kink, and more so that panels with mass are at most one scale long.

    Below the second largest count the integrand falls at least like `exp(x/b)`. Well between that count and
    the largest it is a single exponential, so one panel is enough there. `_below` and `_above` treat what
    lies below all kinks and above them.
    """
    scale = noise.scale
    second = counts[0] if sizes[0] > 1 else counts[min(1, len(counts) - 1)]
    low = max(counts[-1] - 1, second - 2 - DEPTH * scale)
    kinks = np.unique(np.concatenate([counts - 1, counts, counts + 1, [low]]))
    kinks = kinks[kinks >= low]
    longest = np.full(len(kinks) - 1, scale)
    far = np.flatnonzero((np.diff(kinks) > 2.5 * DEPTH * scale) & (kinks[:-1] >= second))
    if len(far):
        inner = np.stack([kinks[far] + DEPTH * scale, kinks[far + 1] - DEPTH * scale], axis=1)
        kinks = np.insert(kinks, np.repeat(far + 1, 2), inner.ravel())
        longest = np.insert(longest, np.repeat(far + 1, 2), np.tile([np.inf, scale], len(far)))
    end = counts[0] + 1
    if sizes.sum() > 2 * MOST and _number_above(scale, end, counts, sizes) > MOST:
        kinks = np.append(kinks, end + math.ceil(math.log(sizes.sum())) * scale)
        longest = np.append(longest, scale)
    ends = _divide(kinks, longest)
    return np.unique(np.rint(ends)) if noise.family == "discrete_laplace" else ends


def _divide(kinks: np.ndarray, longest: np.ndarray) -> np.ndarray:
    """The ends of equal panels between neighbouring kinks, none longer than `longest` there.

    >>> _divide(np.array([0.0, 1.0, 4.0]), np.array([2.0, 1.5])).tolist()
    [0.0, 1.0, 2.5, 4.0]
    """
    gaps = np.diff(kinks)
    number = np.maximum(1, np.ceil(gaps / longest - 1e-9)).astype(int)
    step = np.arange(number.sum()) - np.repeat(np.cumsum(number) - number, number) + 1
    ends = np.repeat(kinks[:-1], number) + np.repeat(gaps, number) * step / np.repeat(number, number)
    ends[np.cumsum(number) - 1] = kinks[1:]
    return np.concatenate([kinks[:1], ends])


def _fill(
    noise: Noise, ends: np.ndarray, counts: np.ndarray, sizes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and log-weights of all panels; each has as many nodes as its error bound requires."""
    left, right = ends[:-1], ends[1:]
    numbers = _numbers(noise.scale, left, right, counts, sizes)
    positions, weights = [], []
    for number in np.unique(numbers):
        chosen = numbers == number
        if noise.family == "laplace":
            abscissae, weight = _legendre(int(number))
            half = (right[chosen] - left[chosen])[:, None] / 2
            positions.append((left[chosen][:, None] + half + half * abscissae).ravel())
            weights.append(np.log(half * weight).ravel())
            continue
        for first, last in zip(left[chosen] + 1, right[chosen], strict=True):
            offsets, weight = _counting(int(last - first) + 1, int(number))
            positions.append(first + offsets)
            weights.append(np.log(weight))
    return np.concatenate(positions), np.concatenate(weights)


def _below(noise: Noise, counts: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One node for everything below the kinks, where each integrand is a constant times `exp(C x/b)`."""
    ratio = sizes.sum() / noise.scale
    log_weight = -math.log(ratio if noise.family == "laplace" else -math.expm1(-ratio))
    return np.array([counts[-1] - 1]), np.array([log_weight])


def _above(noise: Noise, end: float, counts: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Nodes for everything above `end`: there it is a polynomial of degree C-1 in `t = exp(-(x-end)/b)`."""
    number = _number_above(noise.scale, end, counts, sizes)
    if noise.family == "laplace":
        abscissae, weight = _legendre(number)
        t, weight, start = (1 + abscissae) / 2, noise.scale * weight / 2, end
    else:
        t, weight = _geometric(noise.scale, number)
        start = end + 1
    log_t = np.log(t)
    return start - noise.scale * log_t, np.log(weight) - log_t


def _number_above(scale: float, end: float, counts: np.ndarray, sizes: np.ndarray) -> int:
    """The number of nodes above `end`: `C/2` are exact; mostly a bound on an ellipse in t allows fewer."""
    slopes = 0.5 * np.exp(np.maximum((counts + 1 - end) / scale, -700.0))  # factors are 1 - slope t, at least
    furthest = 0.5 + 0.25 * (ELLIPSES + 1 / ELLIPSES)  # |t| on the ellipse
    log_ratio = np.log((1 + slopes * furthest[:, None]) / (1 - slopes)) @ sizes
    needed = float(((math.log(12 / TOLERANCE) + log_ratio) / (2 * np.log(ELLIPSES))).min())
    return min(math.ceil(needed), (int(sizes.sum()) + 1) // 2)


def _numbers(
    scale: float, left: np.ndarray, right: np.ndarray, counts: np.ndarray, sizes: np.ndarray
) -> np.ndarray:
    """The least number of nodes per panel whose ellipse bound is below `TOLERANCE` (at most 200).

    The ellipse of parameter r around a panel of half-length h reaches `h (r + 1/r)/2` from the middle. On it
    each factor is at most `largest`, and inside the panel at least `lowest`.
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
    result: np.ndarray = np.clip(np.ceil(needed.min(axis=0)), 2, 200).astype(int)
    return result


@functools.lru_cache(maxsize=256)
def _legendre(number: int) -> tuple[np.ndarray, np.ndarray]:
    return np.polynomial.legendre.leggauss(number)


@functools.lru_cache(maxsize=4096)
def _counting(points: int, number: int) -> tuple[np.ndarray, np.ndarray]:
    """A Gauss rule for the sum over 0, 1, .., points-1, from the recurrence of the Gram polynomials."""
    if points <= number:
        return np.arange(points, dtype=np.float64), np.ones(points)
    k = np.arange(1, number, dtype=np.float64)
    off = 0.5 * points * np.sqrt((1 - (k / points) ** 2) / (4 - 1 / k**2))
    abscissae, vectors = np.linalg.eigh(np.diag(off, 1) + np.diag(off, -1))
    return abscissae + (points - 1) / 2, points * vectors[0] ** 2


@functools.lru_cache(maxsize=256)
def _geometric(scale: float, number: int) -> tuple[np.ndarray, np.ndarray]:
    """A Gauss rule for sums of `q^k p(q^k)` over k = 0, 1, .., `q = exp(-1/b)`: little q-Legendre's.

    If q is so small that rounding would spoil a node, all terms of the sum are the nodes.

    >>> t, weight = _geometric(20.0, 2)
    >>> round(float((weight * t**3).sum() * -np.expm1(-4 / 20.0)), 12)
    1.0
    """
    terms = np.arange(math.floor(DEPTH * scale) + 1.0)
    if len(terms) <= max(number, 64):
        return np.exp(-terms / scale), np.exp(-terms / scale)

    def short(k: np.ndarray) -> np.ndarray:  # 1 - q^k
        return -np.expm1(-k / scale)

    k = np.arange(number, dtype=np.float64)
    up = np.exp(-k / scale) * (short(k + 1) / short(2 * k + 1)) * (short(k + 1) / short(2 * k + 2))
    k = k[1:]
    down = np.exp(-k / scale) * (short(k) / short(2 * k)) * (short(k) / short(2 * k + 1))
    off = np.sqrt(up[:-1] * down)
    middle = up + np.concatenate([[0.0], down])
    t, vectors = np.linalg.eigh(np.diag(middle) + np.diag(off, 1) + np.diag(off, -1))
    if t[0] < 1e-10:
        return np.exp(-terms / scale), np.exp(-terms / scale)
    return t, vectors[0] ** 2 / short(np.array(1.0))


def _cell_nodes(scale: float, classes: int) -> int:
    """The number of Gauss nodes within a cell: `C/2` are exact, and fewer are enough for wide noise."""
    exact = (classes + 1) // 2
    hazard = classes * min(1.0, -math.expm1(-1 / scale))  # f/F is at most 1 - exp(-1/b)
    for number in range(1, exact):
        log_error = 4 * math.lgamma(number + 1) - 3 * math.lgamma(2 * number + 1) - math.log(2 * number + 1)
        if math.log(classes) + log_error + 2 * number * math.log(hazard) < math.log(TOLERANCE):
            return number
    return exact
