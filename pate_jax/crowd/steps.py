"""Steps down the slope: what follows the first table of sums, as a plan and as weights; all of it is public.

A step asks for the sum of the voters' clipped gradients of softmax regression at the weights that the tables
before it give, and moves the weights against it. Vectors have the directions of the space, whitened by `(v +
strength * v_1)^(-1/2)`, where v is how much the pool varies along each, and a constant entry that is as long
as a direction of variance 1. The weights begin as half of what the classifier of the first table says of the
pool, by least squares: near even shares, softmax has `classes` times a share for its logit, and half of that
leaves room for steps to take back what was noise.

The sums of gradients are in whole numbers. A record with the vector x and the label y has the gradient `(p -
y) x'`, where p are the probabilities that the weights so far give to x. Here all of it is whole numbers: the
vectors, the weights, the exponentials (from a table) and the residual `a`, which is p - y in units of
1/`ONE`. So what a record adds to the sum is a function of that record and of public numbers alone, bit for
bit, in any block, order and process.

The length of `a x'` is |a| |x|, and `a` is shortened so that `|a|^2 |x|^2` is at most the square of the
release's length. A user adds the mean of its records' gradients, no longer than that either. Of two classes
there is one row, for the second class.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pate_jax.crowd.classifier import Linear
from pate_jax.crowd.sums import shortened
from pate_jax.crowd.vectors import LONGEST, Scaling
from pate_jax.mechanisms.crowds import LARGEST_SIGMA, ClassSums
from pate_jax.models.spaces.space import Space

ONE = 32  # a residual of 1, in whole numbers
FINE = 24  # bits behind the point of a weight, which is the logit of one whole unit of a vector
_FINER, _BITS, _MOST = 1 << 12, 8, 4096  # of one in exact residuals; of a logit; steps down to nothing
_EXP = np.rint(np.exp(-np.arange(_MOST + 1) / (1 << _BITS)) * (1 << 30)).astype(np.int64)
_BLOCK = 4096  # records at once

Vectors = Int[np.ndarray, "record entries"]
Weights = Int[np.ndarray, "entries classes"]
Residuals = Int[np.ndarray, "record rows"]


def gradients(
    vectors: Vectors,
    labels: Int[np.ndarray, " record"],
    users: Int[np.ndarray, " record"] | None,
    weights: Weights,
    release: ClassSums,
    times: Int[np.ndarray, " record"] | None = None,
) -> Int[np.ndarray, "rows entries"]:
    """The exact sum over all voters. It is private.

    The records of a user come one after another. In a rehearsal a record stands for `times` voters.

    >>> release = ClassSums(classes=3, directions=2, length=900, sigma=2000.0)
    >>> found = gradients(np.array([[6, 8]]), np.array([1]), None, np.zeros((2, 3), np.int64), release)
    >>> np.sign(found).tolist(), bool(np.linalg.norm(found) <= 900)
    ([[1, 1], [-1, -1], [1, 1]], True)
    """
    total = np.zeros(release.shape, np.int64)
    for rows in blocks(users, len(labels)):
        seen = vectors[rows]
        if users is None:
            own = clipped(residuals(seen, labels[rows], weights), seen, release.length)
            total += _product(own if times is None else own * times[rows, None], seen)
        else:
            tables = own_tables(seen, labels[rows], users[rows], weights, release)
            often = 1 if times is None else _first(times[rows], users[rows])[:, None, None]
            total += (tables * often).sum(0)
    return total


def own_tables(
    vectors: Vectors,
    labels: Int[np.ndarray, " record"],
    users: Int[np.ndarray, " record"],
    weights: Weights,
    release: ClassSums,
) -> Int[np.ndarray, "user rows entries"]:
    """What each user adds: the mean of its records' gradients, no longer than the release's length."""
    exact = residuals(vectors, labels, weights)
    starts = _first(np.arange(len(users)), users)
    times = np.diff(np.append(starts, len(users)))
    own = (slice(start, start + some) for start, some in zip(starts, times, strict=True))
    tables = np.stack([_product(exact[rows], vectors[rows]).ravel() for rows in own])
    made = shortened(tables, np.arange(len(tables)), release.length, times * (_FINER // ONE))
    return made.reshape(len(tables), *release.shape)


def _first(values: Int[np.ndarray, " record"], users: Int[np.ndarray, " record"]) -> np.ndarray:
    """The value of each user's first record."""
    return values[np.flatnonzero(np.diff(users, prepend=users[:1] - 1))]


def own_squares(
    vectors: Vectors,
    labels: Int[np.ndarray, " record"],
    users: Int[np.ndarray, " record"] | None,
    weights: Weights,
    release: ClassSums,
) -> Int[np.ndarray, " voter"]:
    """The square of the length of what each voter adds: by record, or user by user. It is private."""
    found = []
    for rows in blocks(users, len(labels)):
        seen = vectors[rows].astype(np.int64)
        if users is None:
            own = clipped(residuals(seen, labels[rows], weights), seen, release.length)
            found.append((own**2).sum(1) * (seen**2).sum(1))
        else:
            own = own_tables(seen, labels[rows], users[rows], weights, release)
            found.append((own**2).sum((1, 2)))
    return np.concatenate([np.zeros(0, np.int64), *found])


def logits(vectors: Vectors, weights: Weights) -> Int[np.ndarray, "record classes"]:
    """Whole logits, with `FINE` bits behind the point: sums of whole numbers below 2^53 are exact."""
    return (vectors.astype(np.float64) @ weights.astype(np.float64)).astype(np.int64)


def residuals(vectors: Vectors, labels: Int[np.ndarray, " record"], weights: Weights) -> Residuals:
    """p - y of each record in 4096ths, for two classes that of the second alone.

    >>> residuals(np.array([[1, 0]]), np.array([0]), np.zeros((2, 2), np.int64)).tolist()
    [[2048]]
    """
    seen = logits(vectors, weights)
    below = (seen.max(1, keepdims=True) - seen) >> (FINE - _BITS)
    parts = _EXP[np.minimum(below, _MOST)]
    found = parts * _FINER // parts.sum(1, keepdims=True)
    found[np.arange(len(labels)), labels] -= _FINER
    return found[:, 1:] if found.shape[1] == 2 else found


def clipped(found: Residuals, vectors: Vectors, length: int) -> Residuals:
    """Residuals in units of 1/`ONE`, each no longer than lets its gradient be `length` long.

    >>> kept, cut = (clipped(np.array([[2048]]), np.array([[30, 40]]), length) for length in (4000, 400))
    >>> kept.tolist(), bool(abs(cut[0, 0]) * 50 <= 400)
    ([[16]], True)
    """
    squares = (vectors.astype(np.int64) ** 2).sum(1)
    most = _root(length**2 // np.maximum(squares, 1))  # of the residual
    size = _root((found**2).sum(1)) + 1
    room = np.maximum(most - 1, 1)  # rounding makes some a little longer
    near = _rounded(found, vectors, np.maximum(_FINER, size * ONE // room))  # what is 1 then
    cut = np.sign(near) * (np.abs(near) * most[:, None] // (_root((near**2).sum(1)) + 1)[:, None])
    kept = np.where(((near**2).sum(1) <= most**2)[:, None], near, cut)
    return np.where(((kept**2).sum(1) * squares <= length**2)[:, None], kept, 0)


def _rounded(found: Residuals, vectors: Vectors, whole: Int[np.ndarray, " record"] | int) -> Residuals:
    """`ONE * found / whole`, up or down as the record's own vector says: small ones count in the mean.

    To the nearest, most small residuals would be 0, and their sum lost.
    """
    mixed = vectors.astype(np.int64) @ _odd(vectors.shape[1])
    turns = (mixed[:, None] * _odd(found.shape[1]) >> 7) & 0xFFFF
    whole = np.broadcast_to(whole, len(found))[:, None]
    return (found * ONE + (turns * whole >> 16)) // whole


def _odd(number: int) -> Int[np.ndarray, " number"]:
    """Public odd numbers that mix a vector's entries."""
    return np.random.default_rng(7).integers(1 << 8, 1 << 20, number) * 2 + 1


def _product(own: Residuals, seen: Vectors) -> Int[np.ndarray, "rows entries"]:
    """Sums of outer products, exact in float64: their partial sums are below 2^53."""
    return np.rint(own.T.astype(np.float64) @ seen.astype(np.float64)).astype(np.int64)


def _root(squares: Int[np.ndarray, " record"]) -> Int[np.ndarray, " record"]:
    """The whole part of square roots."""
    found = np.sqrt(squares.astype(np.float64)).astype(np.int64)
    found -= found**2 > squares
    return found + ((found + 1) ** 2 <= squares)


def blocks(users: Int[np.ndarray, " record"] | None, number: int) -> Iterator[slice]:
    """Records that are looked at together: about as many, and all of a user at once.

    >>> [(one.start, one.stop) for one in blocks(np.repeat([3, 5], [5000, 10]), 5010)]
    [(0, 5000), (5000, 5010)]
    """
    if users is None:
        yield from (slice(start, start + _BLOCK) for start in range(0, number, _BLOCK))
        return
    ends: np.ndarray = (
        np.append(np.flatnonzero(np.diff(users)) + 1, number) if number else np.zeros(0, np.int64)
    )
    start = 0
    for place, end in enumerate(ends):
        if end - start >= _BLOCK // 4 or place + 1 == len(ends):
            yield slice(start, int(end))
            start = int(end)


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
