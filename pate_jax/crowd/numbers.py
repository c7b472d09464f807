"""A number by least squares, in steps: sums of vectors times what is left of each number, in whole numbers.

A record's number is `a` steps of its public range. A line says `v W` of a record's vector `v`, and the record
adds this vector times `r / width`, where `r = a - v W` is cut to at most `width`; a user adds the mean of all
its records would. Each noisy sum moves the line by what it fits of that: where the pool's second moment is
not the records', the next step sees what is left. All is in whole numbers, so what a voter adds is a function
of its own records and of public numbers. Teachers of several labels are such regressions too (`named`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Num
from scipy.linalg import cholesky, solve_triangular

from pate_jax.crowd import classifier, shares
from pate_jax.crowd import steps as slope
from pate_jax.crowd.plan import Plan
from pate_jax.crowd.vectors import Scaling, vectors
from pate_jax.crowd.voters import Voters
from pate_jax.data.targets import GRID
from pate_jax.mechanisms.crowds import TeacherSums
from pate_jax.models.spaces.space import Space

FINE = 1 << 16  # weights are whole numbers of 1 / FINE steps for each unit of a vector
HALF = 5000  # what a record's vector is multiplied by is a whole number of 1 / HALF, from -1 to 1
_FEW = 0.02  # of public numbers that a width may cut
_PENALTIES = tuple(10.0**power for power in range(-4, 4))  # over the mean square along a direction


class Line(NamedTuple):
    """A linear prediction in steps of the range, and how far from it a record's number is looked at."""

    weights: Int[np.ndarray, " entries"]
    width: int

    def steps(self, seen: Int[np.ndarray, "n entries"]) -> Int[np.ndarray, " n"]:
        """What is predicted of vectors, rounded down."""
        return np.asarray(seen.astype(np.int64) @ self.weights // FINE)


def started(scaling: Scaling, pool: Int[np.ndarray, "pool entries"], known: np.ndarray | None) -> Line:
    """The line before any record was read: ridge regression on public numbers, or the middle of the range.

    >>> from pate_jax.models import spaces
    >>> space = spaces.learn("identity", np.random.default_rng(0).normal(size=(50, 2)))
    >>> made = Scaling(np.ones(2, np.float32), 100, 20)
    >>> line = started(made, np.array([[30, 40, 20]]), None)
    >>> line.steps(np.array([[30, 40, 20]])).tolist(), line.width
    ([5000], 5000)
    """
    if known is None:
        weights = np.zeros(pool.shape[1])
        weights[-1] = GRID / 2 / scaling.constant
        return Line(np.rint(weights * FINE).astype(np.int64), GRID // 2)
    fitted, rest = ridge(pool[:, :-1], np.clip(known, 0, GRID))
    weights = np.append(fitted[:-1], fitted[-1] / scaling.constant)
    width = int(np.clip(np.quantile(np.abs(rest), 1 - _FEW), 1, GRID))
    return Line(np.rint(weights * FINE).astype(np.int64), width)


def ridge(
    seen: Num[np.ndarray, "n entries"], known: Num[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, " entries_and_constant"], Float[np.ndarray, " n"]]:
    """Weights, the constant last, under the penalty that left-out rows favour; and what these rows miss.

    >>> weights, rest = ridge(np.arange(20)[:, None], 3.0 * np.arange(20) + 1)
    >>> weights.round(2).tolist(), bool(abs(rest).max() < 0.1)
    ([3.0, 1.0], True)
    """
    weights, rest = ridges(seen, known[:, None])
    return weights[:, 0], rest[:, 0]


def ridges(
    seen: Num[np.ndarray, "n entries"], known: Num[np.ndarray, "n targets"]
) -> tuple[Float[np.ndarray, "entries_and_constant targets"], Float[np.ndarray, "n targets"]]:
    """The same for several targets of the same rows, each under a penalty of its own."""
    middle, mean = seen.mean(0), known.mean(0)
    left, values, right = np.linalg.svd(seen - middle, full_matrices=False)
    along, unit = left.T @ (known - mean), float((values**2).mean()) or 1.0
    kept = values[:, None] ** 2 / (values[:, None] ** 2 + np.array(_PENALTIES) * unit)
    lever = np.minimum((left**2) @ kept + 1 / len(known), 0.99)
    fitted = np.einsum("ne,ep,et->npt", left, kept, along, optimize=True)
    missed = ((known - mean)[:, None] - fitted) / (1 - lever)[:, :, None]
    best = (missed**2).mean(0).argmin(0)
    penalties = np.array(_PENALTIES)[best]
    weights = right.T @ (values[:, None] / (values[:, None] ** 2 + penalties * unit) * along)
    rest = np.take_along_axis(missed, best[None, None], axis=1)[:, 0]
    return np.concatenate([weights, (mean - middle @ weights)[None]]), rest


def numbers(space: Space, scaling: Scaling, line: Line, people: Voters) -> Int[np.ndarray, "1 entries"]:
    """The exact sums of all voters, whose labels are steps of the range; private."""
    own = np.arange(len(people.labels)) if people.users is None else people.users
    order = np.argsort(own, kind="stable")
    total = np.zeros(len(scaling.weights) + (scaling.constant > 0), np.int64)
    for some in slope.blocks(own[order], len(order)):
        rows = order[some]
        seen = vectors(scaling, space.coordinates(np.asarray(people.inputs[rows])))
        times = residuals(line, seen, people.labels[rows].astype(np.int64))
        total += weighed(seen, times, own[rows], scaling.length).sum(0)
    return total[None]


def residuals(
    line: Line, seen: Int[np.ndarray, "n entries"], steps: Int[np.ndarray, " n"]
) -> Int[np.ndarray, " n"]:
    """What is left of numbers, in 1 / HALF of the width, from -HALF to HALF.

    >>> line = Line(np.array([FINE]), 50)
    >>> residuals(line, np.array([[10], [10], [10]]), np.array([10, 35, 900])).tolist()
    [0, 2500, 5000]
    """
    left = np.clip(steps - line.steps(seen), -line.width, line.width)
    return np.asarray((2 * HALF * left + line.width) // (2 * line.width))


def weighed(
    seen: Int[np.ndarray, "n entries"],
    times: Int[np.ndarray, " n"],
    own: Int[np.ndarray, " n"],
    length: int,
) -> Int[np.ndarray, "voter entries"]:
    """What each voter adds: the mean of its vectors times 1 / HALF of whole numbers from -HALF to HALF.

    A voter's rows come one after another, under its number in `own`. Vectors are no longer than `length`, so
    their mean is not. Each entry is rounded to the nearest whole number, or towards zero where the nearest
    ones would be longer than that.

    >>> rows = np.array([[30, -40], [30, -40], [3, 4]])
    >>> weighed(rows, np.array([-5000, 2500, 0]), np.array([0, 1, 2]), length=50).tolist()
    [[-30, 40], [15, -20], [0, 0]]
    >>> weighed(rows, np.array([-5000, 2500, 0]), np.array([0, 0, 2]), length=50).tolist()
    [[-8, 10], [0, 0]]
    """
    starts = np.flatnonzero(np.diff(own, prepend=own[:1] - 1))
    products = seen.astype(np.int64) * np.clip(np.asarray(times, np.int64), -HALF, HALF)[:, None]
    totals = np.add.reduceat(products, starts, axis=0)
    whole = HALF * np.diff(np.append(starts, len(own)))[:, None]
    nearest = np.sign(totals) * ((2 * np.abs(totals) + whole) // (2 * whole))
    fits = (nearest**2).sum(1, keepdims=True) <= length**2
    return np.asarray(np.where(fits, nearest, np.sign(totals) * (np.abs(totals) // whole)))


def moved(
    line: Line,
    noisy: Int[np.ndarray, "1 entries"],
    plan: Plan,
    pool: Int[np.ndarray, "pool directions"],
    voters: int,
) -> Line:
    """The line with what a noisy sum fits of the rest, as far as that stands out from the noise."""
    fitted = shares.classifier_of(noisy, plan, pool, voters)
    added = line.width / fitted.length * (fitted.weights[:, 1] - fitted.weights[:, 0])
    return line._replace(weights=line.weights + np.rint(added * FINE).astype(np.int64))


def taught(
    space: Space,
    scaling: Scaling,
    line: Line,
    people: Voters,
    shards: Iterable[np.ndarray],  # rows of each
    asked: Int[np.ndarray, "query entries"],
) -> Int[np.ndarray, "1 entries"]:
    """The exact sum of what teachers say (`answer`) of the asked vectors, each by rows of its own; private.

    A teacher without records says what the line does.
    """
    root, total = _root(asked), np.zeros(asked.shape[1], np.int64)
    seen, steps = vectors(scaling, space.coordinates(people.inputs)), people.labels.astype(np.int64)
    for rows in shards:
        if len(rows):
            total += answer(predicted(line, seen[rows], steps[rows], asked), asked, root, scaling.length)
    return total[None]


def predicted(
    line: Line,
    seen: Int[np.ndarray, "n entries"],
    steps: Int[np.ndarray, " n"],
    asked: Int[np.ndarray, "query entries"],
) -> Float[np.ndarray, " query"]:
    """How far the numbers that one teacher predicts are from the line, over its width: from -1 to 1.

    The teacher is a ridge regression on what the line leaves of its own records' numbers, under the penalty
    that those records favour. Beyond the width, which around the middle is the range, it is clipped.

    >>> line = Line(np.array([0, 2500 * FINE]), 5000)
    >>> rows, steps = np.array([[-30, 2], [-10, 2], [10, 2], [30, 2]]), np.array([2000, 4000, 6000, 8000])
    >>> predicted(line, rows, steps, np.array([[0, 2], [20, 2], [90, 2]])).round(2).tolist()
    [0.0, 0.4, 1.0]
    """
    order = np.lexsort((steps, *seen.T))  # so that no bit depends on what records are called
    seen, steps = seen[order], steps[order]
    weights, _ = ridge(seen[:, :-1], steps - line.steps(seen))
    return np.asarray(np.clip((asked[:, :-1] @ weights[:-1] + weights[-1]) / line.width, -1, 1))


def counted(
    seen: Int[np.ndarray, "n entries"],
    held: Bool[np.ndarray, "n labels"],
    shards: Iterable[np.ndarray],  # rows of each
    asked: Int[np.ndarray, "query entries"],
    most: int,
) -> Int[np.ndarray, "query labels"]:
    """How many teachers name each label of the asked vectors, each by rows of its own; private."""
    total = np.zeros((len(asked), held.shape[1]), np.int64)
    for rows in shards:
        if len(rows):
            total += named(seen[rows], held[rows], asked, most)
    return total


def named(
    seen: Int[np.ndarray, "n entries"],
    held: Bool[np.ndarray, "n labels"],
    asked: Int[np.ndarray, "query entries"],
    most: int,
) -> Bool[np.ndarray, "query labels"]:
    """The labels that one teacher names: those that are more likely than not, and `most` of these at most.

    The teacher is a ridge regression for each label. Of more labels it names those that are likeliest.

    >>> rows, asked = np.array([[-9, 2], [-5, 2], [5, 2], [9, 2]]), np.array([[-7, 2], [7, 2], [30, 2]])
    >>> held = np.array([[0, 0, 1], [0, 0, 1], [1, 0, 1], [1, 1, 1]], bool)
    >>> named(rows, held, asked, most=3).astype(int).tolist()
    [[0, 0, 1], [1, 0, 1], [1, 1, 1]]
    >>> named(rows, held, asked, most=1).astype(int).tolist()
    [[0, 0, 1], [0, 0, 1], [1, 0, 0]]
    """
    order = np.lexsort((*held.T, *seen.T))  # so that no bit depends on what records are called
    weights, _ = ridges(seen[order, :-1], held[order].astype(np.float64))
    likely = asked[:, :-1] @ weights[:-1] + weights[-1]
    first = np.argsort(-likely, axis=1, kind="stable")[:, :most]
    among = np.zeros(likely.shape, bool)
    np.put_along_axis(among, first, True, axis=1)
    return np.asarray(among & (likely > 1 / 2))


def answer(
    said: Float[np.ndarray, " query"],
    asked: Int[np.ndarray, "query entries"],
    root: Float[np.ndarray, "entries entries"],
    length: int,
) -> Int[np.ndarray, " entries"]:
    """What a linear function can show of predictions p, as whole numbers: a vector no longer than `length`.

    With asked vectors V and `root` R, where R'R = V'V + I, it is a multiple of `R'^-1 V' p`, which is no
    longer than p. Whatever `said` holds, nothing longer than `length` leaves.

    >>> asked = np.array([[30, 20], [-30, 20]])
    >>> answer(np.array([1.0, 1.0]), asked, _root(asked), 100).tolist()
    [0, 99]
    """
    along = solve_triangular(root, asked.T @ said, trans="T")
    whole = np.rint(along * _unit(length, asked)).astype(np.int64)
    return whole if float((whole.astype(np.float64) ** 2).sum()) <= length**2 else np.zeros_like(whole)


def learned(
    line: Line,
    noisy: Int[np.ndarray, "1 entries"],
    release: TeacherSums,
    asked: Int[np.ndarray, "query entries"],
) -> Line:
    """The line with the mean of what teachers say, as far as that stands out from the noise.

    The last entry, which says most of the mean of all numbers, is believed by itself.
    """
    mean, around = noisy[0] / release.teachers, (release.sigma / release.teachers) ** 2
    kept = np.full(len(mean), classifier.believed(float((mean[:-1] ** 2).mean()), around))
    kept[-1] = classifier.believed(float(mean[-1] ** 2), around)
    added = solve_triangular(_root(asked), kept * mean * line.width / _unit(release.length, asked))
    return line._replace(weights=line.weights + np.rint(added * FINE).astype(np.int64))


def _unit(length: int, asked: Int[np.ndarray, "query entries"]) -> float:
    """What 1 is in whole numbers: the longest predictions, rounded, are no longer than `length`."""
    queries, entries = asked.shape
    return (length - math.sqrt(entries) / 2) / math.sqrt(queries)


def _root(asked: Int[np.ndarray, "query entries"]) -> Float[np.ndarray, "entries entries"]:
    """R, upper triangular, with R'R = V'V + I."""
    wide = asked.astype(np.float64)
    return np.asarray(cholesky(wide.T @ wide + np.eye(wide.shape[1])))
