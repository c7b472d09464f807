"""What soft answers teach: a target for every class, and what an answer counts.

The shares p of a query, as released, are the truth plus noise of a known deviation d. Over the answers the
truth varies around the class shares with a variance v, the same for all classes. The best linear guess of
the truth is `share + r (p - share)` with `r = v / (v + d^2)`, the part of the variance that is not noise; the
truth lies around this guess with variance `r d^2`. Shares and v are those for which the answers are most
likely, were truth and noise normal.

Probabilities would not do in place of the shares that they were made of. Where classes are many, most shares
are noise around nearly nothing: half of it would be cut off, and the rest shrink to a sum of 1, so that less
would be seen than the known noise alone explains, and nothing believed.

Rows of a table that look alike may have different labels, so the guess of the truth is what a student of
tables learns: the nearest probabilities to it. These cut off what is below 0, most of which is noise, so
that a guess that believes more of what is seen may be nearer to the truth: how much is believed is chosen
by how far the guess is from the truth, as far as the noisy shares tell it. An image has one label, and
probabilities between 0 and 1 say that the crowd could not tell. So a student of images learns the *label*
of the truth, its most probable class. Under that normal law each class has a known chance to be the
label: 1 for one of them where the noise is small, nearly equal chances where the noise could have changed
the label. An answer's weight is r: one that is mostly noise hardly counts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import ndtr

_ROUNDS = 50  # of fitting shares and variance, each to the other
_LEAST = 1e-9  # variance of the truth, and deviation around a guess of it
_GRID = np.linspace(-8, 8, 97)  # where the largest class may lie, in deviations around the largest guess
_WIDER = 2.0 ** np.arange(17)  # times the variance of the truth, for rows of tables
_MANY, _SUREST = 300, 2  # answers, from which on a net of images learns one in so many
_BLOCK = 1000  # answers looked at together


class Soft(NamedTuple):
    """Soft answers as students use them."""

    targets: Float[np.ndarray, "answers classes"]  # what is learned: the truth, or the chance to be its label
    weights: Float[np.ndarray, " answers"]  # 1 in the mean
    plain: Float[np.ndarray, "answers classes"] | None = None  # of whole histograms: the shares, not shrunk
    noise: Float[np.ndarray, " answers"] | None = None  # and the standard deviation of their noise

    @property
    def unshrunk(self) -> Float[np.ndarray, "answers classes"]:
        """What least squares learns, which averages noise by itself: shares without bias, where known."""
        return self.targets if self.plain is None else self.plain

    def part(self, places: np.ndarray) -> Soft:
        """Some of the answers; the weights stay as they are."""
        plain, noise = (None if each is None else each[places] for each in self[2:])
        return Soft(self.targets[places], self.weights[places], plain, noise)


def smoothed(
    shares: Float[np.ndarray, "answers classes"],
    deviation: Float[np.ndarray, " answers"],
    *,
    image: bool,
) -> Soft:
    """Targets and weights of answers whose shares have noise of this standard deviation.

    >>> given = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    >>> found = smoothed(given, np.array([0.0, 0.0, 0.2]), image=True)
    >>> found.targets[:2].tolist(), bool(0.5 < found.targets[2, 0] < 0.9)
    ([[1.0, 0.0], [0.0, 1.0]], True)
    >>> bool(found.weights[2] < found.weights[0])
    True
    """
    given, noise = np.asarray(shares, np.float64), np.asarray(deviation, np.float64) ** 2
    usual, spread = truth(given, noise)
    signal = spread / (spread + noise)
    if image:
        targets = chances(usual + signal[:, None] * (given - usual), np.sqrt(signal * noise))
    else:
        targets = _guessed(given, noise, usual, spread)
    return Soft(targets.astype(np.float32), (signal / signal.mean()).astype(np.float32))


def without_chance(
    shares: Float[np.ndarray, "answers classes"], deviation: Float[np.ndarray, " answers"]
) -> Float[np.ndarray, "answers classes"]:
    """Noisy shares whose means over all answers are brought towards even ones, as far as these may be noise.

    A student of much noise would give every input the class that noise has made the most frequent one. Of the
    square by which class means differ from even ones, `deviation^2 / answers` is what noise alone gives.

    >>> seen = np.array([[0.5, 0.5], [0.7, 0.3]])
    >>> [without_chance(seen, np.full(2, noise)).mean(0).round(3).tolist() for noise in (0.0, 0.1, 1.0)]
    [[0.6, 0.4], [0.55, 0.45], [0.5, 0.5]]
    """
    apart = shares.mean(0) - 1 / shares.shape[1]
    seen, noise = float((apart**2).mean()), float((deviation**2).mean()) / len(shares)
    kept = max(0.0, 1 - noise / seen) if seen > 0 else 0.0
    return np.asarray(shares - (1 - kept) * apart)


def informed(soft: Soft, expected: Float[np.ndarray, "answers classes"], *, image: bool) -> Soft:
    """Targets of whole histograms around what the other answers let expect of each one.

    `expected` are shares that were predicted without the answer itself. The truth varies around them by what
    these miss the released shares by, less the noise, and by no less than the standard error of that figure.
    """
    if soft.plain is None or soft.noise is None:
        return soft
    noise, missed = np.asarray(soft.noise, np.float64) ** 2, (soft.plain - expected) ** 2
    error = float(noise.mean()) * np.sqrt(2 / missed.size)
    spread = max(float(missed.mean() - noise.mean()), error, _LEAST)
    signal = spread / (spread + noise)
    guess = expected + signal[:, None] * (soft.plain - expected)
    targets = chances(guess, np.sqrt(signal * noise)) if image else nearest_probabilities(guess)
    return soft._replace(targets=targets.astype(np.float32))


def surest(
    shares: Float[np.ndarray, "answers classes"], labels: Int[np.ndarray, " answers"]
) -> Int[np.ndarray, " places"]:
    """Which of many answers a net of images learns: of each label those whose leader is farthest ahead.

    Noise and teachers are wrong most often where two classes are close, and a net remembers wrong answers. On
    drawn images half of 1,000 answers taught it more than all of them, or than 150 with less noise each
    (`benchmarks/queries.py`). Of few answers all are wanted.

    >>> shares = np.tile([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.4, 0.6]], (100, 1))
    >>> surest(shares, shares.argmax(1))[:4].tolist(), len(surest(shares[:80], shares[:80].argmax(1)))
    ([0, 2, 4, 6], 80)
    """
    if len(labels) < _MANY:
        return np.arange(len(labels))
    ordered = np.sort(shares, axis=1)
    doubt = ordered[:, -2] - ordered[:, -1]
    each = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    kept = [own[np.argsort(doubt[own], kind="stable")[: -(-len(own) // _SUREST)]] for own in each]
    return np.sort(np.concatenate(kept))


def truth(
    given: Float[np.ndarray, "answers classes"], noise: Float[np.ndarray, " answers"]
) -> tuple[Float[np.ndarray, " classes"], float]:
    """The class shares, and the variance around them, of what answers with noise of this variance would be
    without it.
    """
    shares, spread = given.mean(0), max(float(given.var(0).mean()), _LEAST)
    for _ in range(_ROUNDS):
        precision = 1 / (spread + noise)
        shares = precision @ given / precision.sum()
        squares = ((given - shares) ** 2).mean(1)
        spread = max(float(precision**2 @ (squares - noise) / (precision**2).sum()), _LEAST)
    return shares, spread


def _guessed(given: np.ndarray, noise: np.ndarray, usual: np.ndarray, spread: float) -> np.ndarray:
    """The nearest probabilities to the guess, under the variance of the truth with which they miss it least.

    How far they are from the truth is known but for chance (Stein's unbiased estimate). What is seen misses
    the truth by `classes d^2` in the mean, in the `classes - 1` directions in which shares can move. A guess
    that follows a share s of what is seen in k of them misses it by `|guess - seen|^2 + classes d^2
    (2 s k / (classes - 1) - 1)`. Nearest probabilities follow in one direction less than are above 0.
    """
    classes, tried = given.shape[1], []
    for variance in spread * _WIDER:
        signal = variance / (variance + noise)
        found = nearest_probabilities(usual + signal[:, None] * (given - usual))
        free = ((found > 0).sum(1) - 1) / max(classes - 1, 1)
        missed = ((found - given) ** 2).sum(1) + classes * noise * (2 * signal * free - 1)
        tried.append((float(missed.mean()), found))
    return min(tried, key=lambda one: one[0])[1]


def nearest_probabilities(values: Float[np.ndarray, "rows classes"]) -> Float[np.ndarray, "rows classes"]:
    """The distribution that is nearest to each row: all less one number, and none below 0.

    >>> nearest_probabilities(np.array([[0.9, 0.3, -0.2], [0.5, 0.4, 0.1]])).round(6).tolist()
    [[0.8, 0.2, 0.0], [0.5, 0.4, 0.1]]
    """
    falling = -np.sort(-values, axis=1)
    excess = (np.cumsum(falling, 1) - 1) / np.arange(1, values.shape[1] + 1)
    last = (falling > excess).sum(1) - 1
    return np.asarray(np.maximum(values - np.take_along_axis(excess, last[:, None], 1), 0))


def chances(
    guess: Float[np.ndarray, "answers classes"], deviation: Float[np.ndarray, " answers"]
) -> Float[np.ndarray, "answers classes"]:
    """The chance of each class to be the largest, where each is normal around its guess.

    Of class c it is the integral of its density times the chance that all others lie below, by the
    trapezoidal rule, which is exact to rounding for such smooth functions.

    >>> chances(np.array([[0.3, 0.3, 0.0]]), np.array([0.01])).round(6).tolist()
    [[0.5, 0.5, 0.0]]
    """
    found = np.zeros(guess.shape)
    for start in range(0, len(guess), _BLOCK):
        rows = slice(start, start + _BLOCK)
        gaps = (guess[rows].max(1, keepdims=True) - guess[rows]) / np.maximum(deviation[rows, None], _LEAST)
        places = _GRID[:, None] + gaps[:, None]  # [answer, grid, class]
        below = np.maximum(ndtr(places), np.finfo(np.float64).tiny)
        all_below = np.exp(np.log(below).sum(2, keepdims=True))
        found[rows] = (np.exp(-(places**2) / 2) * all_below / below).sum(1)
    return found / found.sum(1, keepdims=True)
