"""How many questions each voter should answer: a few loudly, rather than all of them softly.

A voter with the budget `eps` answers `k` of `Q` questions, each with the epsilon that `k` answers leave. The
plan tries every `k` and takes the one that is expected to give the most right answers. It reads public
numbers only: classes, questions, voters, the budget, and an *assumed* accuracy of a voter.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from pate_jax.accounting import local as figures
from pate_jax.errors import PateError
from pate_jax.mechanisms import local
from pate_jax.mechanisms.local import Local

ASSUMED_ACCURACY = 0.8  # of one voter; wrong votes are spread evenly over the other classes
_SENSIBLE = (local.RandomisedResponse.name, local.OneHotNoise.name)
_MOST_TRIED = 60  # different numbers of answers that a plan tries


class LocalPlan(NamedTuple):
    """What each voter does, and what is expected of it."""

    mechanism: Local
    answers_each: int  # questions that one voter answers
    right: float  # expected share of questions whose answer is the true class, under the assumption


def plan(
    name: str | None = None,
    *,
    classes: int,
    questions: int,
    voters: int,
    budget: float,
    delta: float = 0.0,
    accuracy: float = ASSUMED_ACCURACY,
) -> LocalPlan:
    """The number of answers of each voter that promises the most right answers.

    Without a name, it is that of the better of randomised response and one-hot noise.

    >>> found = plan(classes=10, questions=100, voters=250, budget=8.0)
    >>> found.answers_each, found.mechanism, found.right > 0.9
    (2, RandomisedResponse(classes=10, epsilon=4.0), True)
    """
    _check(classes, questions, voters, accuracy)
    tried = np.unique(np.geomspace(1, questions, _MOST_TRIED).round().astype(int)).tolist()
    afforded = [k for k in tried if budget / k >= local.SMALLEST_EPSILON] or [1]
    plans = [
        _with(kind, classes, questions, voters, answers, budget, delta=delta, accuracy=accuracy)
        for kind in ([name] if name else _SENSIBLE)
        for answers in afforded
    ]
    return max(plans, key=lambda one: one.right)


def expected(mechanism: Local, votes: int, accuracy: float = ASSUMED_ACCURACY) -> float:
    """The chance that the true class is named most often in this many noisy votes, ties at random.

    This is a forecast. The other classes are taken as equally likely, and their counts as independent, given
    how many votes they share: bits are votes for each class by itself, numbers are shared by all classes.

    >>> round(expected(local.RandomisedResponse(10, 4.0), 5), 2)
    0.95
    """
    right, wrong = _chances(mechanism, accuracy)
    named = np.arange(votes + 1)
    if local.is_bits(mechanism):
        left, each = np.full_like(named, votes), wrong
    else:
        left, each = votes - named, min(1.0, wrong / max(1 - right, 1e-300))
    below, tied = stats.binom.cdf(named - 1, left, each), stats.binom.pmf(named, left, each)
    nodes, weights = np.polynomial.legendre.leggauss(16)
    behind = (below[:, None] + (nodes + 1) / 2 * tied[:, None]) ** (mechanism.classes - 1)
    return float(stats.binom.pmf(named, votes, right) @ behind @ weights / 2)


def _with(
    name: str,
    classes: int,
    questions: int,
    voters: int,
    answers: int,
    budget: float,
    *,
    delta: float,
    accuracy: float,
) -> LocalPlan:
    mechanism = figures.loudest(name, classes, answers, budget, delta)
    whole, more = divmod(voters * answers, questions)
    fewer, other = (expected(mechanism, votes, accuracy) for votes in (whole, whole + 1))
    share = more / questions  # of the questions get one vote more than the others
    return LocalPlan(mechanism, answers, (1 - share) * fewer + share * other)


def _chances(mechanism: Local, accuracy: float) -> tuple[float, float]:
    """The chances that a voter's answer names the true class, and one certain other class."""
    rows: NDArray[np.float64] = np.array(local.channel(mechanism), float) / local.WORDS
    if local.is_bits(mechanism):
        kept, made = float(rows[1, 1]), float(rows[0, 1])
        each = (1 - accuracy) / (mechanism.classes - 1)
        return accuracy * kept + (1 - accuracy) * made, each * kept + (1 - each) * made
    law = rows[:, -mechanism.classes :]  # without the value that names no class
    stays = float(np.trace(law)) / mechanism.classes
    moves = float(law.sum() - np.trace(law)) / mechanism.classes / (mechanism.classes - 1)
    right = accuracy * stays + (1 - accuracy) * moves
    return right, (stays + (mechanism.classes - 1) * moves - right) / (mechanism.classes - 1)


def _check(classes: int, questions: int, voters: int, accuracy: float) -> None:
    for name, value, least in (("classes", classes, 2), ("questions", questions, 1), ("voters", voters, 1)):
        if type(value) is not int or value < least:
            raise PateError(f"{name}={value!r} must be a whole number of at least {least}")
    if not 0 < accuracy <= 1:
        raise PateError(f"accuracy={accuracy!r} of a voter must be above 0 and at most 1")
