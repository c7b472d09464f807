"""Laws of the noisy argmax of a histogram and of all its one-vote neighbours, in logarithms (theory §4)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr

from pate_jax.accounting.groups import Groups
from pate_jax.mechanisms import Noise

EPSILON = float(np.finfo(np.float64).eps)
WIDTH = 9.0  # scales beyond the outermost mode: 2 Phi(-9) = 2.3e-19 of the mass is left outside
ALIASING = 1e-14  # relative error of the trapezoid rule that the step is chosen for


class Laws(NamedTuple):
    """Log-probabilities of one class of each group, before and after each move of one vote (a to b)."""

    base: np.ndarray  # [R, U]: one class of group j
    others: np.ndarray  # [R, U(a), U(b), U(j)]: one class of group j that the move does not touch
    loser: np.ndarray  # [R, U(a), U(b)]: the class that loses the vote
    winner: np.ndarray  # [R, U(a), U(b)]: the class that gains it
    error: np.ndarray  # [R]: bound on the error of every entry above


def laws(noise: Noise, groups: Groups) -> Laws:
    """The laws of a piece of `Groups` and of their neighbours."""
    classes = groups.sizes[0].sum()
    position, step = _gaussian_nodes(groups, noise.scale, classes)
    shifted = [(position[:, None, :] - groups.counts[:, :, None] - vote) / noise.scale for vote in (-1, 0, 1)]
    fewer, level, more = (log_ndtr(z) for z in shifted)
    density_fewer, density, density_more = (-0.5 * z * z for z in shifted)
    total = np.einsum("ru,run->rn", groups.sizes, level)[:, None, :]
    rest = total - level
    magnitude = np.abs(density + rest)
    constant = math.log(step / noise.scale / math.sqrt(2 * math.pi))
    return _combine(density + rest, density_fewer + rest, density_more + rest, fewer - level, more - level,
                    constant, magnitude)


def _gaussian_nodes(groups: Groups, sigma: float, classes: float) -> tuple[np.ndarray, float]:
    """Trapezoid nodes [R, N] that hold every class's mode, before and after a move, with `WIDTH` to spare."""
    step = sigma * math.sqrt(2 * math.pi**2 / (classes * math.log(4 / ALIASING)))
    top, low = groups.counts[:, 0], groups.counts[:, -1]
    start = (top + low) / 2 - WIDTH * sigma - 1
    stop = top + (math.sqrt(2 * math.log(classes)) + WIDTH) * sigma + 1
    number = int(math.ceil((stop - start).max() / step)) + 1
    return start[:, None] + step * np.arange(number), step


def _combine(g, g_fewer, g_more, r, s, constant: float, magnitude: np.ndarray) -> Laws:
    """All laws at once from the log integrands: sums over nodes as matrix products."""
    peak = g.max(axis=2)
    scaled, ratio, inverse = np.exp(g - peak[:, :, None]), np.exp(r), np.exp(s)
    base = np.log(scaled.sum(axis=2)) + peak + constant
    rows, number, nodes = g.shape
    weighted = (scaled[:, None, :, :] * ratio[:, :, None, :]).reshape(rows, number * number, nodes)
    moved = (weighted @ inverse.transpose(0, 2, 1)).reshape(rows, number, number, number)
    others = np.log(moved).transpose(0, 1, 3, 2) + peak[:, None, None, :] + constant
    peak = g_fewer.max(axis=2)
    loser = np.exp(g_fewer - peak[:, :, None]) @ inverse.transpose(0, 2, 1)
    loser = np.log(loser) + peak[:, :, None] + constant
    peak = g_more.max(axis=2)
    winner = ratio @ np.exp(g_more - peak[:, :, None]).transpose(0, 2, 1)
    winner = np.log(winner) + peak[:, None, :] + constant
    largest = np.take_along_axis(magnitude, g.argmax(axis=2)[:, :, None], axis=2).max(axis=(1, 2))
    error = 2 * ALIASING + EPSILON * (nodes + 16 * (1 + largest))
    return Laws(base, others, loser, winner, error)
