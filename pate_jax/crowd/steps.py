"""Steps down the slope: what follows the first table of sums, as a plan and as weights; all of it is public.

A step asks for the sum of the voters' clipped gradients of softmax regression (`slope`) at the weights that
the tables before it give, and moves the weights against it. Vectors have the directions of the space,
whitened by `(v + strength * v_1)^(-1/2)`, where v is how much the pool varies along each, and a constant
entry that is as long as a direction of variance 1. The weights begin as half of what the classifier of the
first table says of the pool, by least squares: near even shares, softmax has `classes` times a share for its
logit, and half of that leaves room for steps to take back what was noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pate_jax.crowd.classifier import Linear
from pate_jax.crowd.slope import FINE, ONE, Weights, logits
from pate_jax.crowd.vectors import LONGEST, Scaling
from pate_jax.mechanisms.crowds import LARGEST_SIGMA, ClassSums
from pate_jax.models.spaces.space import Space

_CLIP, _RATE = 0.9, 1.5  # of the usual gradient's length; of a step, over how curved the slope is at most
_LENGTH = 4000  # of a gradient, in whole numbers, where there is noise for it
_LONG = 3  # usual lengths that a vector has at most
_UP = 1 + 1e-6
_BEGUN = 0.5  # of the first classifier's logits
_LEAST = 1e-3  # of the mean square of an entry: what is added to it where weights are fitted


class Steps(NamedTuple):
    """The steps behind the first table."""

    number: int  # of all tables, the first among them
    strength: float  # of whitening: what is added to each direction's part of the largest variance
    space: Space
    scaling: Scaling
    release: ClassSums  # of each sum of gradients
    rate: float  # of a step: what a gradient of all voters' mean is multiplied by, in whole weights

    @property
    def later(self) -> list[ClassSums]:
        """The releases after the first table."""
        return [self.release] * (self.number - 1)


def made(
    space: Space,
    public: Int[np.ndarray, "pool directions"],
    *,
    number: int,
    directions: int,
    strength: float,
    voters: int,
    classes: int,
    mu: float,
) -> Steps:
    """Steps of which each table costs `mu`, along so many directions, whitened by this strength."""
    space = space.narrowed(directions)
    flat, size = _flat(space, strength), usual_length(whitened(space, public, strength))
    clip = clip_of(size, classes)
    length = int(min(_LENGTH, LARGEST_SIGMA / _UP * mu / 2))
    unit = length / (clip * ONE)
    longest = min(int(_LONG * size * unit), LONGEST)
    scaling = Scaling((flat * unit).astype(np.float32), longest, max(1, round(unit)))
    release = ClassSums(classes, len(flat) + 1, length, max(1.0, 2 * length / mu * _UP))
    rate = rate_of(classes) / voters * 2**FINE / ONE / unit**2
    return Steps(number, strength, space, scaling, release, rate)


def whitened(
    space: Space, public: Int[np.ndarray, "pool directions"], strength: float
) -> Float[np.ndarray, "pool kept"]:
    """The pool, each direction over the root of how much it varies and the strength."""
    flat = _flat(space, strength)
    return public[:, : len(flat)] * flat


def _flat(space: Space, strength: float) -> Float[np.ndarray, " directions"]:
    most = float(space.variances[0])
    return np.asarray((space.variances / most + strength) ** -0.5 / math.sqrt(most))


def usual_length(seen: Float[np.ndarray, "pool directions"]) -> float:
    """The median length of vectors with a constant entry of 1."""
    return float(np.median(np.sqrt((seen**2).sum(1) + 1)))


def clip_of(size: float, classes: int) -> float:
    """The greatest length of a gradient, where vectors have this usual length; of two classes in one row.

    >>> clip_of(10.0, 10), round(clip_of(10.0, 2), 2)
    (9.0, 6.36)
    """
    return _CLIP * size / (math.sqrt(2) if classes == 2 else 1)


def rate_of(classes: int) -> float:
    """How far the weights go against the mean gradient; of two classes the difference of their weights.

    Along a direction of variance 1 the mean of softmax regression's loss is curved by a half at most, and
    that of two classes in one row by a quarter.

    >>> rate_of(10), rate_of(2)
    (3.0, 6.0)
    """
    return _RATE * (4 if classes == 2 else 2)


def started(
    model: Linear, first: Int[np.ndarray, "pool others"], seen: Int[np.ndarray, "pool entries"]
) -> Weights:
    """The weights with which steps begin: half of the first classifier's logits, fitted to the pool.

    `first` are the pool's vectors of the first table, and `seen` those of the steps. Of two classes the first
    has no weights.
    """
    shares = model.linear(first)
    said = _BEGUN * shares.shape[1] * (shares - 1 / shares.shape[1])
    if shares.shape[1] == 2:
        said = said - said[:, :1]
    rows = seen.astype(np.float64)
    gram = rows.T @ rows
    gram[np.diag_indices(len(gram))] += _LEAST * np.trace(gram) / len(gram)
    found = np.linalg.solve(gram, rows.T @ said)
    return np.rint(found * 2**FINE).astype(np.int64)


def taken(
    made: Steps,
    model: Linear,
    first: Int[np.ndarray, "pool others"],
    seen: Int[np.ndarray, "pool entries"],
    ask: Callable[[int, Weights], Int[np.ndarray, "rows entries"]],
) -> Weights:
    """The weights after all steps: `ask` gives a step's noisy sum of gradients at the weights before it."""
    weights = started(model, first, seen)
    for step in range(2, made.number + 1):
        weights = moved(weights, ask(step, weights), made.rate)
    return weights


def moved(weights: Weights, noisy: Int[np.ndarray, "rows entries"], rate: float) -> Weights:
    """The weights after a step against a noisy sum of gradients."""
    change = np.rint(rate * noisy.T).astype(np.int64)
    return weights - (np.pad(change, ((0, 0), (1, 0))) if noisy.shape[0] == 1 else change)


def probabilities(weights: Weights, seen: Int[np.ndarray, "n entries"]) -> Float[np.ndarray, "n classes"]:
    """Of each class, for each vector."""
    found = logits(seen, weights) / 2.0**FINE
    found = np.exp(found - found.max(1, keepdims=True))
    return (found / found.sum(1, keepdims=True)).astype(np.float32)
