"""Does a student tell more about a record that it was made from than about another one of the same source?

The attacker knows a record but for a hidden part, and its label. It has the true hidden part among those of a
few public inputs, and takes the one with which the student is surest of the label. What is true of everybody
helps it with any record: that is inference about the population, and no privacy forbids it. What a record
loses by having taken part is the difference between members and others, which a guarantee bounds by the
total variation that it allows. Derived in docs/proofs/attacks.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import special

from pate_jax.data import Part

CANDIDATES = 8  # the true hidden part and those of seven public inputs
MOST = 1000  # records of each kind
_DOUBT, _ALARM = 0.05, 1e-4  # of the interval that is told, and of the limit by which a promise is broken
Says = Callable[..., np.ndarray]  # from inputs, as stored, to probabilities


class Inferred(NamedTuple):
    """How often the hidden part was guessed right."""

    hidden: str
    members: float
    others: float
    guesses: tuple[int, int]  # of members and of others
    low: float  # limits of the difference, with 95% confidence
    high: float
    least: float  # the difference, beyond what chance explains
    allowed: float

    @property
    def holds(self) -> bool:
        """Whether members are not guessed better than others by more than the guarantee allows."""
        return self.least <= self.allowed

    def sentence(self) -> str:
        """What it says, for people."""
        members, others = self.guesses
        told = (
            f"{self.hidden} of a record, hidden among {CANDIDATES}, is guessed right for {self.members:.1%} "
            f"of {members:,} private records and for {self.others:.1%} of {others:,} of the test part: a "
            f"difference of {100 * self.low:+.1f} to {100 * self.high:+.1f} points (95%), where "
            f"{100 * self.allowed:.1f} are allowed"
        )
        if self.holds:
            return f"{told}. What is guessed of both alike is true of people in general."
        return f"{told}. THE STUDENT TELLS MORE OF ITS RECORDS THAN IT MAY: publish nothing, and report this."

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {**self._asdict(), "holds": self.holds, "sentence": self.sentence()}


class Hidden(NamedTuple):
    """The part of an input that is hidden."""

    name: str
    where: np.ndarray  # of one input's shape


def inferred(
    says: Says, members: Part, others: Part, public: np.ndarray, hidden: Hidden, allowed: float
) -> Inferred:
    """The attack on members and on others, at most `MOST` of each, with one sample of candidates for both."""
    random = np.random.default_rng(0)
    hits = [_hits(says, _some(part, random), public, hidden, random) for part in (members, others)]
    shares = [float(one.mean()) for one in hits]
    sizes = (len(hits[0]), len(hits[1]))
    low, high = difference(hits[0], hits[1], _DOUBT)
    least = difference(hits[0], hits[1], 2 * _ALARM)[0]
    return Inferred(hidden.name, shares[0], shares[1], sizes, low, high, least, allowed)


def difference(
    left: Bool[np.ndarray, " left"], right: Bool[np.ndarray, " right"], doubt: float
) -> tuple[float, float]:
    """Limits of the difference of two shares (Agresti and Caffo, 2000).

    >>> low, high = difference(np.arange(100) < 60, np.arange(100) < 40, 0.05)
    >>> round(low, 3), round(high, 3)
    (0.062, 0.331)
    """
    p, q = ((one.sum() + 1) / (len(one) + 2) for one in (left, right))
    spread = math.sqrt(p * (1 - p) / (len(left) + 2) + q * (1 - q) / (len(right) + 2))
    reach = float(special.ndtri(1 - doubt / 2)) * spread
    return float(p - q - reach), float(p - q + reach)


def hidden_part(shape: tuple[int, ...], columns: tuple[Any, ...] = ()) -> Hidden:
    """What is hidden of inputs of this shape.

    Of an image the square in the middle, half as high and as wide; of a table the column that has the most
    features, or, where columns are unknown, the last third of the features.

    >>> hidden_part((4, 4, 1)).where[:, :, 0].astype(int).tolist()
    [[0, 0, 0, 0], [0, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 0]]
    >>> hidden_part((6,)).where.tolist()
    [False, False, False, False, True, True]
    """
    where = np.zeros(shape, bool)
    if len(shape) == 3:
        high, wide = shape[0] // 4, shape[1] // 4
        where[high : shape[0] - high, wide : shape[1] - wide] = True
        return Hidden("the middle", where)
    if columns:
        ends = np.cumsum([column.width for column in columns])
        widest = int(np.argmax([column.width for column in columns]))
        where[ends[widest] - columns[widest].width : ends[widest]] = True
        return Hidden(f"the column {columns[widest].name!r}", where)
    where[-max(1, shape[0] // 3) :] = True
    return Hidden("the last third of the features", where)


def _some(part: Part, random: np.random.Generator) -> Part:
    return part.take(np.sort(random.permutation(len(part.ids))[:MOST]))


def _hits(
    says: Says, part: Part, public: np.ndarray, hidden: Hidden, random: np.random.Generator
) -> Bool[np.ndarray, " record"]:
    """For which records the student is surest with the true hidden part; ties are broken at random."""
    inputs, labels = part.inputs, np.asarray(part.labels)
    donors = public[random.integers(0, len(public), (len(inputs), CANDIDATES))]
    donors[:, 0] = inputs  # the true one
    tried = np.where(hidden.where, donors, inputs[:, None])
    probabilities = says(tried.reshape(-1, *inputs.shape[1:])).reshape(len(inputs), CANDIDATES, -1)
    sure = np.take_along_axis(probabilities, labels[:, None, None], axis=2)[:, :, 0]
    ties = random.random(sure.shape) * (sure == sure.max(1, keepdims=True))
    chosen = tried[np.arange(len(inputs)), ties.argmax(1)]
    found: np.ndarray = (chosen == inputs).reshape(len(inputs), -1).all(1)
    return found


def remembering(inputs: np.ndarray, labels: Int[np.ndarray, " record"], classes: int) -> Says:
    """A broken twin: a student that keeps private records and answers by the one that is nearest."""
    kept = inputs.reshape(len(inputs), -1).astype(np.float64)

    def says(asked: np.ndarray) -> Float[np.ndarray, "input classes"]:
        places = asked.reshape(len(asked), -1).astype(np.float64)
        squares = (places**2).sum(1)[:, None] + (kept**2).sum(1) - 2 * places @ kept.T
        nearest, gaps = squares.argmin(1), np.maximum(squares.min(1), 0)
        sure = 1 / (1 + gaps)
        found = np.repeat(((1 - sure) / classes)[:, None], classes, axis=1)
        found[np.arange(len(asked)), labels[nearest]] += sure
        return found

    return says
