"""A plan made before any private vote is cast: how many teachers and queries, and how much noise.

The noise comes from data-independent accounting alone. Expected answers come from a model of votes, or from a
file of public or synthetic votes (`vote_models`); private votes are never read. The plan will be published,
so it uses nothing of the private records but their number, rounded down to two digits (`headcount`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from pate_jax import accounting
from pate_jax.accounting.curves import sampler_slack
from pate_jax.accounting.data_independent import worst_case
from pate_jax.accounting.exact.counts import largest_epsilon, mu_for
from pate_jax.accounting.inputs import check_delta
from pate_jax.accounting.vote_models import MODELS, Votes
from pate_jax.errors import PateError, at_least
from pate_jax.mechanisms import ConfidentDiscreteGaussian, DiscreteGaussianMax, Mechanism, name_of, to_dict
from pate_jax.system import headcount
from pate_jax.system.progress import bar

TEACHERS = (5, 10, 20, 35, 50, 75, 100, 150, 250, 400, 600, 1000, 1500, 2500, 5000)
QUERIES = (20, 50, 100, 200, 350, 500, 750, 1000, 1500, 2000, 3500, 5000, 10_000)
THRESHOLDS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # shares of the teachers
RATIOS = (1.5, 2.5, 3.75)  # noise of the test over noise of the answer
_DRAWS = 4  # draws of noise for each query of a model
_LEAST_RECORDS = 100  # with fewer, the number itself would reveal someone, and no plan is useful
INDEX = 1.3  # rough cost of an index, in units where the two counts that a vote moves cost 2
_LEAST_SHARD, _LEAST_OF_CLASS = 20, 4  # smallest shard that the models cover: in all, and for each class
_LEAST_WORTH = 5  # right answers for each class, below which no student learns
_LEAST_SHARE = 0.1  # least worth of a plan, as a share of the answers that were requested
_NEARLY = 0.9  # share of the highest worth from which on the more accurate answers are preferred


@dataclass(frozen=True)
class Option:
    """One way to spend epsilon, and what to expect from it."""

    teachers: int
    shard: int
    queries: int
    mechanism: Mechanism
    epsilon: float
    answers: float
    right: float  # share of the answers
    worth: float  # `value` of both

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {**self.__dict__, "mechanism": to_dict(self.mechanism)}

    def command(self, dataset: str | None, delta: float, records: int) -> str:
        """The command that runs it, on a data set by name or on the user's own files."""
        settings = {name: value for name, value in to_dict(self.mechanism).items() if name != "name"}
        flags = " ".join(f"--{name.replace('_', '-')} {value:g}" for name, value in settings.items())
        drawn = f" --records {records}" if dataset in ("strokes", "glyphs") else ""
        data = dataset or "--private PRIVATE.npz --public PUBLIC.npz"
        return (
            f"pate run {data}{drawn} --teachers {self.teachers} "
            f"--queries {self.queries} --delta {delta:g} {name_of(self.mechanism)} {flags}"
        )


@dataclass(frozen=True)
class Plan:
    """The best option, the alternatives, and the range of what to expect."""

    records: int  # rounded down to two digits
    best: Option
    others: tuple[Option, ...]
    judged_by: tuple[str, ...]
    range_answers: tuple[float, float]  # of the best option, over all models
    range_right: tuple[float, float]

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "records": self.records,
            "best": self.best.to_dict(),
            "others": [one.to_dict() for one in self.others],
            "judged_by": list(self.judged_by),
            "answers_over_models": list(self.range_answers),
            "right_over_models": list(self.range_right),
        }


def value(answers: float, right: float, classes: int) -> float:
    """What this number of answers is worth to a student, in right answers: a rule of thumb.

    If a share `w` of the labels is wrong, spread evenly over the other classes, the signal in a label shrinks
    by the factor `(1 - w C / (C - 1))`, and the information in it by the square of that.

    >>> value(100, 1.0, 10), round(value(100, 0.9, 10), 1), value(100, 0.1, 10)
    (100.0, 79.0, 0.0)
    """
    return answers * max(0.0, 1 - (1 - right) * classes / (classes - 1)) ** 2


class _Goal(NamedTuple):
    """What a plan is for, as it was given; the number of records is already rounded down."""

    records: int
    classes: int
    epsilon: float
    delta: float
    answers: int | None
    most_queries: int
    models: Sequence[Votes]


def plan(
    records: int,
    classes: int,
    epsilon: float,
    delta: float,
    *,
    answers: int | None = None,
    most_queries: int = 2000,
    teachers: Sequence[int] = TEACHERS,
    models: Sequence[Votes] = MODELS,
) -> Plan:
    """Choose teachers, queries, threshold and noise for at most `epsilon`, data-independent.

    With `answers` given, the plan is the most accurate one that is expected to give that many answers.
    Without it, the plan is the most accurate of those whose answers are worth nearly the most (`value`).
    Expectations are means over the models.

    >>> found = plan(60_000, 10, 2.0, 1e-5, teachers=(250,), most_queries=100, models=MODELS[:1])
    >>> found.best.teachers, found.best.queries, found.best.epsilon <= 2.0
    (250, 100, True)

    Only the first two digits of the number of records count:

    >>> plan(60_999, 10, 2.0, 1e-5, teachers=(250,), most_queries=100, models=MODELS[:1]) == found
    True
    """
    goal = _Goal(counted(records), classes, epsilon, delta, answers, most_queries, models)
    _check(goal)
    spent, numbers, chosen = mu(epsilon, delta), _large_enough(goal, teachers), []
    with bar("planning", total=len(numbers)) as steps:
        for number in numbers:
            chosen.append(_best_option(goal, number, spent))
            steps.advance()
    chosen.sort(key=lambda one: -one.worth)
    _check_use(chosen[_best(chosen, answers)], goal)
    options = [_calibrated(one, goal) for one in chosen[:3]]
    best = options.pop(_best(options, answers))
    each = [
        _expected(best.mechanism, [_histograms(model, best.teachers, best.shard, classes)], best.queries)
        for model in models
    ]
    return Plan(
        goal.records,
        best,
        tuple(options),
        tuple(model.name for model in models),
        (min(one[0] for one in each), max(one[0] for one in each)),
        (min(one[1] for one in each), max(one[1] for one in each)),
    )


def _large_enough(goal: _Goal, teachers: Sequence[int]) -> list[int]:
    """The numbers of teachers whose shards are large enough for the models to say anything."""
    least = max(_LEAST_SHARD, _LEAST_OF_CLASS * goal.classes)
    numbers = [one for one in dict.fromkeys(teachers) if goal.records // one >= least]
    if not numbers:
        raise PateError(
            f"{goal.records:,} records (the number is rounded down to two digits) are too few for "
            f"{min(teachers)} teachers or more: the models do not cover teachers of fewer than {least} "
            f"records at {goal.classes} classes; gather more records or name fewer teachers"
        )
    return numbers


def _best_option(goal: _Goal, teachers: int, mu: float) -> Option:
    """The best option with this number of teachers, its noise a first guess."""
    shard = goal.records // teachers
    votes = [_histograms(model, teachers, shard, goal.classes) for model in goal.models]
    sizes = sorted({*[one for one in QUERIES if one < goal.most_queries], goal.most_queries})
    options = [
        _option(mechanism, teachers, shard, queries, goal.classes, math.nan, votes)
        for queries in sizes
        for mechanism in _candidates(mu, teachers, queries)
    ]
    return options[_best(options, goal.answers)]


def counted(records: int) -> int:
    """The number of private records as a plan uses it: rounded down to two digits, and at least a hundred.

    >>> counted(9_999), counted(9_900)
    (9900, 9900)
    """
    if records < _LEAST_RECORDS:
        raise PateError(
            f"fewer than {_LEAST_RECORDS} records are too few for a plan: useful answers would reveal too "
            "much about each record; gather more records, take --voters sums, or choose teachers and a "
            "mechanism yourself"
        )
    return headcount.coarse(records)


def check(records: int, classes: int, epsilon: float, delta: float) -> None:
    """Refuse a goal that no plan can meet, whatever is asked."""
    check_delta(delta)
    if not (epsilon > 0 and math.isfinite(epsilon)):
        raise PateError(f"epsilon={epsilon!r} must be a finite number above 0")
    at_least(2, classes=classes)
    if delta * records > 1:
        raise PateError(
            f"delta={delta:g} is above one over some {records:,} records, which protects nobody: "
            f"take {0.1 / records:.0e}"
        )


def _check(goal: _Goal) -> None:
    """Refuse a goal that no plan can meet, whatever the options."""
    check(goal.records, goal.classes, goal.epsilon, goal.delta)
    at_least(1, queries=goal.most_queries)
    if goal.answers is not None and not 1 <= goal.answers <= goal.most_queries:
        raise PateError(
            f"answers={goal.answers} must be from 1 to the {goal.most_queries} queries that may be asked"
        )
    if not goal.models:
        raise PateError("models is empty: expectations need at least one model of votes")


def _check_use(best: Option, goal: _Goal) -> None:
    """Refuse a plan whose answers would teach nothing."""
    enough = _LEAST_WORTH * goal.classes if goal.answers is None else _LEAST_SHARE * goal.answers
    if best.worth < enough:
        raise PateError(
            f"epsilon={goal.epsilon:g} with some {goal.records:,} records buys no useful answers: the best "
            f"option gives {best.answers:,.0f} answers, {best.right:.0%} of them right, for {goal.classes} "
            "classes; raise epsilon, gather more records or merge classes"
        )


def mu(epsilon: float, delta: float) -> float:
    """The largest Gaussian-DP mu within epsilon: a first guess at the noise, not the guarantee."""
    return mu_for(min(epsilon, largest_epsilon(delta)), delta)


def _candidates(mu: float, teachers: int, queries: int) -> list[Mechanism]:
    """Mechanisms that answer this number of queries for about mu."""
    mechanisms: list[Mechanism] = [DiscreteGaussianMax(math.sqrt(INDEX * queries) / mu)]
    for share in THRESHOLDS:
        for ratio in RATIOS:
            sigma = math.sqrt(queries * (INDEX + ratio**-2)) / mu
            mechanisms.append(ConfidentDiscreteGaussian(round(share * teachers), ratio * sigma, sigma))
    return mechanisms


def _histograms(model: Votes, teachers: int, shard: int, classes: int) -> NDArray[np.int64]:
    random = np.random.default_rng(7)
    return random.multinomial(teachers, model.shares(shard, classes))


def _expected(mechanism: Mechanism, votes: Sequence[NDArray[np.int64]], queries: int) -> tuple[float, float]:
    """The expected number of answers and the share that is right, over all models, for Gaussian noise."""
    random = np.random.default_rng(11)
    passed, right = [], []
    for counts in votes:
        noisy = counts + mechanism.noise.scale * random.standard_normal((_DRAWS, *counts.shape))
        hit = (noisy.argmax(axis=2) == 0).mean(axis=0)
        chance = np.ones(len(counts))
        if mechanism.test is not None:
            chance = special.ndtr(
                (counts.max(axis=1) - mechanism.test.threshold) / mechanism.test.noise.scale
            )
        passed.append(float(chance.mean()))
        right.append(float((chance * hit).mean()))
    share = float(np.mean(passed))
    return queries * share, float(np.mean(right)) / max(share, 1e-12)


def _best(options: Sequence[Option], answers: int | None) -> int:
    """The index of the most accurate option among those with enough answers (or, without a number, worth)."""
    got = np.array([one.worth if answers is None else one.answers for one in options])
    enough = got >= (_NEARLY * got.max() if answers is None else min(answers, got.max()))
    return int(np.argmax([one.right if fits else -1.0 for one, fits in zip(options, enough, strict=True)]))


def _option(
    mechanism: Mechanism,
    teachers: int,
    shard: int,
    queries: int,
    classes: int,
    epsilon: float,
    votes: Sequence[NDArray[np.int64]],
) -> Option:
    got, right = _expected(mechanism, votes, queries)
    worth = value(got, right, classes)
    return Option(teachers, shard, queries, mechanism, epsilon, got, right, worth)


def _calibrated(option: Option, goal: _Goal) -> Option:
    """The option with noise calibrated by the accountant and rounded up, and its epsilon computed again."""
    queries, teachers = option.queries, option.teachers
    rounded, spent = calibrated(option.mechanism, queries, teachers, goal.classes, goal.epsilon, goal.delta)
    votes = [_histograms(model, teachers, option.shard, goal.classes) for model in goal.models]
    return _option(rounded, teachers, option.shard, queries, goal.classes, spent, votes)


def calibrated(
    mechanism: Mechanism, queries: int, teachers: int, classes: int, epsilon: float, delta: float
) -> tuple[Mechanism, float]:
    """The mechanism with noise by the accountant, rounded up, and the epsilon that it spends."""
    exact = accounting.calibrate(
        mechanism, epsilon, delta, queries=queries, teachers=teachers, classes=classes
    ).mechanism
    for digits in (4, 6, 9, None):
        rounded = exact if digits is None else _rounded_up(exact, digits)
        spent = spends(rounded, queries, teachers, classes, delta)
        if spent <= epsilon:
            break
    return rounded, spent


def spends(mechanism: Mechanism, queries: int, teachers: int, classes: int, delta: float) -> float:
    """The data-independent epsilon of this number of queries."""
    slack = sampler_slack(mechanism, queries, classes)
    cost, _ = worst_case(mechanism, np.full(queries, teachers), delta, classes=classes, slack=slack)
    return float(cost.epsilon)


def _rounded_up(mechanism: Mechanism, digits: int) -> Mechanism:
    def up(number: float) -> float:
        step = 10.0 ** (math.floor(math.log10(number)) + 1 - digits)
        return float(f"{math.ceil(number / step - 1e-9) * step:.{digits}g}")

    if isinstance(mechanism, ConfidentDiscreteGaussian):
        return ConfidentDiscreteGaussian(
            mechanism.threshold, up(mechanism.sigma_threshold), up(mechanism.sigma)
        )
    return DiscreteGaussianMax(up(mechanism.noise.scale))
