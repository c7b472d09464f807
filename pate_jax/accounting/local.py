"""What a voter spends who noises its own answers: exact pure epsilon, and the Renyi sum of several answers.

The figure of one answer holds for whatever the voter would answer and for every history. A voter that gave
`T` answers of epsilon `e` each has spent `T e` with no delta, and less at a delta: the smaller of the Renyi
sum and of the exact composition of pure epsilons.

That smaller one is a figure of answers that were planned together. Whoever plans a second vote may have seen
the answers of the first, and mechanisms that follow from answers can spend more than either sum says. So with
a delta several votes share a privacy filter (`accounting.filter`): the first vote and the budget fix one
order, and the Renyi sum at that order never exceeds the budget (at order infinity it is the plain sum of
epsilons). Then the budget is what all votes together may cost, however they were chosen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate_jax.accounting import composition, curves
from pate_jax.accounting.bounds import noisy_max
from pate_jax.accounting.inputs import Curve, check_delta, check_orders
from pate_jax.errors import PateError
from pate_jax.mechanisms import local
from pate_jax.mechanisms.local import Local, OneHotNoise, RandomisedResponse

Answers = Sequence[tuple[Local, int]]  # mechanisms, and how many answers each has given
_UP = 1 + 1e-9
_DOWN = 1 - 1e-9
ASSUMED_ACCURACY = 0.8  # of one voter; wrong votes are spread evenly over the other classes
_SENSIBLE = (local.RandomisedResponse.name, local.OneHotNoise.name)
_MOST_TRIED = 60  # different numbers of answers that a plan tries


def rdp(mechanism: Local, orders: ArrayLike) -> Curve:
    """The Renyi curve [A] of one answer: exact for randomised response and one-hot noise.

    Two rows of randomised response differ in two values only. Two one-hot rows differ in two bits, each of
    which is randomised response on two values. Any other mechanism has at most the curve of its epsilon.

    >>> rdp(RandomisedResponse(classes=10, epsilon=1.0), [2.0]).round(4)
    array([0.2961])
    """
    grid = check_orders(orders)
    if not isinstance(mechanism, RandomisedResponse | OneHotNoise):
        return noisy_max.pure_curve(local.log_ratio(mechanism), grid)
    rows = local.channel(mechanism)
    p, q, bits = rows[0][0] / local.WORDS, rows[0][1] / local.WORDS, 1 + local.is_bits(mechanism)
    change = mechanism.epsilon / bits
    rest = 1 - p - q if len(rows) > 2 else 0.0
    with np.errstate(divide="ignore"):
        terms = [
            math.log(p) + (grid - 1) * change,  # p^a q^(1-a)
            math.log(q) - (grid - 1) * change,
            np.full_like(grid, np.log(max(rest, 0.0))),
        ]
    whole: Curve = np.logaddexp.reduce(terms) / (grid - 1)
    return bits * np.minimum(np.maximum(whole, 0.0), change) * _UP


def spent(mechanism: Local, answers: int, delta: float = 0.0) -> float:
    """The least proven epsilon of this many answers of one voter.

    >>> one = RandomisedResponse(classes=10, epsilon=0.1)
    >>> spent(one, 100), round(spent(one, 100, 1e-5), 2)
    (10.0, 1.99)
    """
    return together([(mechanism, answers)], delta)


def together(given: Answers, delta: float = 0.0) -> float:
    """The least proven epsilon of all answers of one voter, which may be of different mechanisms.

    >>> given = [(RandomisedResponse(10, 0.1), 100), (OneHotNoise(4, 0.5), 2)]
    >>> together(given), round(together(given, 1e-5), 2)
    (11.0, 2.72)
    """
    for _, answers in given:
        if type(answers) is not int or answers < 0:
            raise PateError(f"answers={answers!r} must be a whole number of at least 0")
    steps = [(local.log_ratio(mechanism), answers) for mechanism, answers in given if answers]
    plain = math.fsum(one * answers for one, answers in steps)
    if delta == 0 or not steps:
        return plain
    orders = curves.default_orders()
    curve = np.sum([answers * rdp(mechanism, orders) for mechanism, answers in given], axis=0)
    renyi = curves.epsilon(orders, curve, check_delta(delta)).epsilon
    return min(plain, float(renyi), composition.pure_epsilon(steps, delta))


def accumulated(votes: Answers, budget: float, delta: float = 0.0) -> float:
    """What a voter has spent of a budget in several votes, each perhaps planned after the answers before it.

    One vote alone spends what `together` says. Of several, only the budget is a guarantee.

    >>> one = RandomisedResponse(classes=10, epsilon=0.1)
    >>> [round(accumulated(votes, 3.0, 1e-5), 2) for votes in ([(one, 100)], [(one, 60), (one, 40)])]
    [1.99, 2.11]
    """
    votes = [(mechanism, answers) for mechanism, answers in votes if answers]
    if delta == 0 or len(votes) < 2:
        return together(votes, delta)
    order = _filter_order(votes[0][0], budget, check_delta(delta))
    if math.isinf(order):
        return together(votes)
    curve = np.sum([answers * rdp(mechanism, [order]) for mechanism, answers in votes], axis=0)
    return float(curves.epsilon([order], curve, delta).epsilon)


@lru_cache(maxsize=256)
def _filter_order(first: Local, budget: float, delta: float) -> float:
    """The order at which the budget affords the most answers to the first vote's mechanism."""
    orders = curves.default_orders()
    room = budget - np.log1p(-1 / orders) + (math.log(delta) + np.log(orders)) / (orders - 1)
    affordable = room / rdp(first, orders)
    plain = budget / local.log_ratio(first)
    return math.inf if plain >= affordable.max() else float(orders[affordable.argmax()])


def loudest(name: str, classes: int, answers: int, budget: float, delta: float = 0.0) -> Local:
    """The mechanism with the largest epsilon for each answer of which so many keep to a voter's budget.

    >>> loudest("randomised-response", 10, answers=2, budget=8.0).epsilon
    4.0
    """
    if not (budget > 0 and math.isfinite(budget)):
        raise PateError(f"budget={budget!r} must be a finite epsilon above 0")
    if type(answers) is not int or answers < 1:
        raise PateError(f"answers={answers!r} must be a whole number of at least 1")
    low = min(budget / answers, local.LARGEST_EPSILON)
    if low < local.SMALLEST_EPSILON:
        raise PateError(
            f"budget={budget:g} leaves {low:.2g} for each of {answers} answers, and an answer needs at least "
            f"{local.SMALLEST_EPSILON:g}: let each voter answer fewer questions"
        )
    high = min(budget, local.LARGEST_EPSILON)
    if delta > 0:
        while high - low > 1e-6 * high:
            middle = (low + high) / 2
            fits = spent(local.make(name, classes, middle), answers, delta) <= budget
            low, high = (middle, high) if fits else (low, middle)
    found = local.make(name, classes, low)
    return found if spent(found, answers, delta) <= budget else local.make(name, classes, low * _DOWN)


def affords(
    mechanism: Local, budget: float, delta: float = 0.0, before: Answers = (), most: int = 1 << 20
) -> int:
    """How many more answers of this mechanism fit a voter's budget, up to `most`: never softer ones.

    `before` are the votes so far, in their order.

    >>> one = RandomisedResponse(classes=10, epsilon=4.0)
    >>> affords(one, budget=8.0), affords(one, budget=13.0, before=[(one, 1)]), affords(one, budget=3.0)
    (2, 2, 0)
    """

    def fits(answers: int) -> bool:
        return accumulated([*before, (mechanism, answers)], budget, delta) <= budget

    if not fits(0):
        return 0
    low, high = 0, 1
    while high <= most and fits(high):
        low, high = high, 2 * high
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


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

    Every number is tried, each answer with the epsilon that this number leaves: a few loud answers are mostly
    better than many soft ones. Public numbers alone are read, and an *assumed* accuracy of a voter. Without a
    name, the plan is that of the better of randomised response and one-hot noise.

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
    from scipy import stats  # which takes a second to load, and only a plan needs it

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
    mechanism = loudest(name, classes, answers, budget, delta)
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
