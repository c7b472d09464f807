"""What soft answers teach: probabilities smoothed by their known noise, and how much each answer counts.

The probabilities p of a query, as released, are the truth plus noise of a known deviation d. Over the answers
the truth varies around the class shares with a variance v, the same for all classes. The best linear guess of
the truth is `share + r (p - share)` with `r = v / (v + d^2)`: the part of the variance that is not noise.
An answer's weight is r too. Where a student finds half of the variance v by itself in the inputs, answers
have to count as `1 / (v/2 + d^2)`, and smoothing and weights together do that where d^2 is small beside v.
Shares and v are those for which the answers are most likely, were truth and noise normal.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

_ROUNDS = 50  # of fitting shares and variance, each to the other
_LEAST = 1e-9  # variance of the truth


class Soft(NamedTuple):
    """Soft answers as students use them."""

    probabilities: Float[np.ndarray, "answers classes"]  # as released, by which students are calibrated
    targets: Float[np.ndarray, "answers classes"]  # smoothed, from which they learn
    weights: Float[np.ndarray, " answers"]  # 1 in the mean

    def part(self, rows: np.ndarray) -> Soft:
        """Some of the answers; the weights stay as they are."""
        return Soft(*(each[rows] for each in self))


def smoothed(
    probabilities: Float[np.ndarray, "answers classes"], deviation: Float[np.ndarray, " answers"]
) -> Soft:
    """Targets and weights of answers whose probabilities have noise of this standard deviation.

    >>> given = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    >>> found = smoothed(given, np.array([0.0, 0.0, 0.5]))
    >>> bool(0.5 < found.targets[2, 0] < 1), found.targets[:2].round(3).tolist()
    (True, [[1.0, 0.0], [0.0, 1.0]])
    >>> bool(found.weights[2] < found.weights[0])
    True
    """
    given, noise = np.asarray(probabilities, np.float64), np.asarray(deviation, np.float64) ** 2
    shares, spread = _truth(given, noise)
    signal = spread / (spread + noise)
    targets = shares + signal[:, None] * (given - shares)
    weights = signal / signal.mean()
    return Soft(*(each.astype(np.float32) for each in (given, targets, weights)))


def _truth(given: np.ndarray, noise: np.ndarray) -> tuple[np.ndarray, float]:
    """The class shares, and the variance around them, of what the answers would be without noise."""
    spread = max(float(given.var(0).mean()), _LEAST)
    shares = given.mean(0)
    for _ in range(_ROUNDS):
        precision = 1 / (spread + noise)
        shares = precision @ given / precision.sum()
        squares = ((given - shares) ** 2).mean(1)
        spread = max(float(precision**2 @ (squares - noise) / (precision**2).sum()), _LEAST)
    return shares, spread
