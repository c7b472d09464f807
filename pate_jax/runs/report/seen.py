"""What the student says of public inputs: how often it is right, by class, and where it is unsure.

All of it is a function of the released student, public inputs and public labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import special

from pate_jax.data import Dataset, Part
from pate_jax.student import Student

BOUNDS = (0.5, 0.8, 0.95)  # of the most probable class
_POOL = 2000  # public inputs that are looked at
_DOUBT = 0.05  # the chance that an interval misses the truth


class Seen(NamedTuple):
    """Public inputs, and the probabilities that the student gives them."""

    where: Literal["test", "public"]
    part: Part
    probabilities: Float[np.ndarray, "inputs classes"]

    @property
    def right(self) -> np.ndarray | None:
        """Which of them the student gets right; None where nobody knows."""
        return None if self.part.labels is None else self.probabilities.argmax(1) == self.part.labels


def look(learned: Student, dataset: Dataset) -> Seen:
    """Ask the student about the test part, or else about the first inputs of the public part."""
    return pool(learned, dataset) if dataset.test is None else _look("test", dataset.test, learned)


def pool(learned: Student, dataset: Dataset) -> Seen:
    """Ask the student about the first inputs of the public part."""
    return _look("public", dataset.public.take(slice(_POOL)), learned)


def _look(where: Literal["test", "public"], part: Part, learned: Student) -> Seen:
    return Seen(where, part, learned(part.inputs))


def accuracy(found: Seen) -> float | None:
    """The share of test inputs that are right; None without a test part that has labels."""
    return None if found.where != "test" or found.right is None else float(found.right.mean())


def interval(right: int, inputs: int) -> tuple[float, float]:
    """The exact binomial interval at 95% (Clopper and Pearson, 1934) of a share of `right` in `inputs`.

    Its limits are the chances at which so many right answers, or more, and so many or fewer, have a
    probability of 2.5% each.

    >>> [round(limit, 4) for limit in interval(9, 10)]
    [0.555, 0.9975]
    >>> interval(0, 0)
    (0.0, 1.0)
    """
    wrong = inputs - right
    low = 0.0 if right == 0 else float(special.betaincinv(right, wrong + 1, _DOUBT / 2))
    high = 1.0 if wrong == 0 else float(special.betaincinv(right + 1, wrong, 1 - _DOUBT / 2))
    return low, high


def facts(found: Seen, names: Sequence[str]) -> dict[str, Any]:
    """What a report shows of it: how many are right, in all, by class, and by how sure the student is."""
    right = found.right
    return {
        "where": found.where,
        **_count(right, np.ones(len(found.probabilities), bool)),
        "unsure": list(_bands(found.probabilities.max(1), right)),
        "classes": [] if right is None else _classes(right, np.asarray(found.part.labels), names),
    }


def count_of(right: np.ndarray) -> dict[str, Any]:
    """How many inputs are right, of how many, with the interval of that share.

    >>> count_of(np.array([True, False]))["right"]
    1
    """
    return _count(right, np.ones(len(right), bool))


def lead(right: np.ndarray, other: np.ndarray) -> tuple[float, float, float]:
    """By how much more often the first is right on the same inputs, and the 95% interval of that.

    The difference is the mean of numbers in -1, 0 and 1, one for each input, whose error is that of a mean.

    >>> [round(number, 3) for number in lead(np.array([True] * 3 + [False]), np.array([False] * 4))]
    [0.75, 0.326, 1.174]
    """
    apart = right.astype(np.float64) - other
    error = -float(special.ndtri(_DOUBT / 2)) * float(apart.std()) / np.sqrt(len(apart))
    return float(apart.mean()), float(apart.mean() - error), float(apart.mean() + error)


def _count(right: np.ndarray | None, of: np.ndarray) -> dict[str, Any]:
    """How many inputs these are and, where labels are known, how many of them are right."""
    inputs = int(of.sum())
    if right is None:
        return {"inputs": inputs, "right": None, "low": None, "high": None}
    known = int(right[of].sum())
    low, high = interval(known, inputs)
    return {"inputs": inputs, "right": known, "low": low, "high": high}


def _bands(best: np.ndarray, right: np.ndarray | None) -> Any:
    """The inputs whose most probable class lies between two bounds, with what the student says on average."""
    edges = (0.0, *BOUNDS, np.inf)
    for least, below in pairwise(edges):
        of = (best >= least) & (best < below)
        if of.any():
            said = round(float(best[of].astype(np.float64).mean()), 6)
            yield {"from": least, "below": min(below, 1.0), "said": said, **_count(right, of)}


def _classes(right: np.ndarray, labels: np.ndarray, names: Sequence[str]) -> list[dict[str, Any]]:
    """The count of each class that occurs, the worst first."""
    rows = [{"name": name, **_count(right, labels == label)} for label, name in enumerate(names)]
    return sorted((row for row in rows if row["inputs"]), key=lambda row: row["right"] / row["inputs"])


def unsure(found: Seen, count: int) -> np.ndarray:
    """The rows of the inputs that the student is least sure of, the most doubtful first.

    >>> part = Part(np.zeros((3, 2)), None, np.array(["a", "b", "c"]))
    >>> unsure(Seen("public", part, np.array([[0.9, 0.1], [0.5, 0.5], [0.4, 0.6]])), 2).tolist()
    [1, 2]
    """
    rows: np.ndarray = np.argsort(found.probabilities.max(1), kind="stable")[:count]
    return rows
