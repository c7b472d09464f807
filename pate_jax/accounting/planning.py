"""Before any private vote is cast: how many teachers, how much noise, how many queries fit an epsilon.

Noise comes from data-independent accounting alone. What to expect of answers comes from a model of votes, or
from a file of public or synthetic votes (`vote_models`); private votes are never read. What is chosen will be
published, so of the private records only their number is used, rounded down to two digits (`headcount`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from pate_jax import accounting
from pate_jax.accounting import composition
from pate_jax.accounting.data_independent import worst_case
from pate_jax.accounting.inputs import check_delta
from pate_jax.accounting.slack import sampler_slack
from pate_jax.accounting.vote_models import MODELS, VoteModel, VotesOf
from pate_jax.errors import PateError
from pate_jax.mechanisms import ConfidentDiscreteGaussian, DiscreteGaussianMax, Mechanism, name_of, to_dict
from pate_jax.system import headcount
from pate_jax.system.progress import bar

TEACHERS = (5, 10, 20, 35, 50, 75, 100, 150, 250, 400, 600, 1000, 1500, 2500, 5000)
QUERIES = (20, 50, 100, 200, 350, 500, 750, 1000, 1500, 2000, 3500, 5000, 10_000)
THRESHOLDS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # shares of the teachers
RATIOS = (1.5, 2.5, 3.75)  # noise of the test over noise of the answer
_DRAWS = 4  # of noise for each query of a model
_LEAST_RECORDS = 100  # below these the number itself would tell, and no plan is of use
_INDEX = 1.3  # about what an index costs where the two counts that a vote moves would cost 2
_LEAST_SHARD, _LEAST_OF_CLASS = 20, 4  # records of a shard, and for each class, below which nothing is known
_LEAST_WORTH = 5  # right answers for each class, below which no student learns
_LEAST_SHARE = 0.1  # of the answers wished for that must be worth something
_NEARLY = 0.9  # of the most that answers can be worth: where that is reached, surer answers are preferred


@dataclass(frozen=True)
class Option:
    """One way to spend the epsilon, and what to expect of it."""

    teachers: int
    shard: int
    queries: int
    mechanism: Mechanism
    epsilon: float
    answers: float
    right: float  # share of the answers
    worth: float  # what `value` makes of both

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {**self.__dict__, "mechanism": to_dict(self.mechanism)}

    def command(self, dataset: str | None, delta: float, records: int) -> str:
        """The run that it stands for, on a data set by name or on files of one's own."""
        own = {name: value for name, value in to_dict(self.mechanism).items() if name != "name"}
        flags = " ".join(f"--{name.replace('_', '-')} {value:g}" for name, value in own.items())
        drawn = f" --records {records}" if dataset in ("strokes", "glyphs") else ""
        data = dataset or "--private PRIVATE.npz --public PUBLIC.npz"
        return (
            f"pate run {data}{drawn} --teachers {self.teachers} "
            f"--queries {self.queries} --delta {delta:g} {name_of(self.mechanism)} {flags}"
        )


@dataclass(frozen=True)
class Plan:
    """What to choose, what else there is, and how far expectations can be off."""

    records: int  # counted down to two digits
    best: Option
    others: tuple[Option, ...]
    judged_by: tuple[str, ...]
    range_answers: tuple[float, float]  # of the best, over all models
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
    """What so many answers are worth to a student, in right answers: a rule of thumb.

    A share `w` of wrong labels, spread over the other classes, shrinks what a label tells about the true one
    by `(1 - w C / (C - 1))` and the information in it by the square of that.

    >>> value(100, 1.0, 10), round(value(100, 0.9, 10), 1), value(100, 0.1, 10)
    (100.0, 79.0, 0.0)
    """
    return answers * max(0.0, 1 - (1 - right) * classes / (classes - 1)) ** 2


def plan(
    records: int,
    classes: int,
    epsilon: float,
    delta: float,
    *,
    answers: int | None = None,
    most_queries: int = 2000,
    teachers: Sequence[int] = TEACHERS,
    models: Sequence[VoteModel | VotesOf] = MODELS,
) -> Plan:
    """Choose teachers, queries, threshold and noise for at most `epsilon`, data-independent.

    With `answers`, the most accurate way to expect so many; else, of the ways whose answers are worth nearly
    the most (`value`), the one with the surest answers. Expectations are means over the models.

    >>> found = plan(60_000, 10, 2.0, 1e-5, teachers=(250,), most_queries=100, models=MODELS[:1])
    >>> found.best.teachers, found.best.queries, found.best.epsilon <= 2.0
    (250, 100, True)

    Of the number of records the two first digits count:

    >>> plan(60_999, 10, 2.0, 1e-5, teachers=(250,), most_queries=100, models=MODELS[:1]) == found
    True
    """
    records = counted(records)
    _check(records, classes, epsilon, delta, answers, most_queries, models)
    mu = _mu(epsilon, delta)
    least = max(_LEAST_SHARD, _LEAST_OF_CLASS * classes)
    numbers = [one for one in dict.fromkeys(teachers) if records // one >= least]
    if not numbers:
        raise PateError(
            f"{records:,} records (their number counted down to two digits) are too few for {min(teachers)} "
            f"teachers or more: nothing is known of teachers of fewer than {least} records at {classes} "
            "classes; gather more records or name fewer teachers"
        )
    sizes = sorted({*[one for one in QUERIES if one < most_queries], most_queries})
    chosen = []
    with bar("planning", total=len(numbers)) as steps:
        for number in numbers:
            votes = [_histograms(model, number, records // number, classes) for model in models]
            some = [
                _option(mechanism, number, records // number, queries, classes, math.nan, votes)
                for queries in sizes
                for mechanism in _candidates(mu, number, queries)
            ]
            chosen.append(some[_best(some, answers)])
            steps.advance()
    chosen.sort(key=lambda one: -one.worth)
    _check_use(chosen[_best(chosen, answers)], answers, classes, epsilon, records)
    options = [_settled(one, classes, epsilon, delta, models) for one in chosen[:3]]
    best = options.pop(_best(options, answers))
    each = [
        _expected(best.mechanism, [_histograms(model, best.teachers, best.shard, classes)], best.queries)
        for model in models
    ]
    return Plan(
        records,
        best,
        tuple(options),
        tuple(model.name for model in models),
        (min(one[0] for one in each), max(one[0] for one in each)),
        (min(one[1] for one in each), max(one[1] for one in each)),
    )


def counted(records: int) -> int:
    """What a plan takes the number of private records for: its two first digits, and none below a hundred.

    >>> counted(9_999), counted(9_900)
    (9900, 9900)
    """
    if records < _LEAST_RECORDS:
        raise PateError(
            f"fewer than {_LEAST_RECORDS} records are too few for a plan: answers of use would tell too much "
            "of each; gather more records"
        )
    return headcount.coarse(records)


def _check(
    records: int,
    classes: int,
    epsilon: float,
    delta: float,
    answers: int | None,
    most_queries: int,
    models: Sequence[VoteModel | VotesOf],
) -> None:
    check_delta(delta)
    if not (epsilon > 0 and math.isfinite(epsilon)):
        raise PateError(f"epsilon={epsilon!r} must be a finite number above 0")
    for name, number, least in (("classes", classes, 2), ("queries", most_queries, 1)):
        if number < least:
            raise PateError(f"{name}={number} must be at least {least}")
    if delta * records > 1:
        raise PateError(
            f"delta={delta:g} is above one over some {records:,} records, which protects nobody: "
            f"take {0.1 / records:.0e}"
        )
    if answers is not None and not 1 <= answers <= most_queries:
        raise PateError(f"answers={answers} must be from 1 to the {most_queries} queries that may be asked")
    if not models:
        raise PateError("models is empty: expectations need at least one model of votes")


def _check_use(best: Option, answers: int | None, classes: int, epsilon: float, records: int) -> None:
    """Refuse a plan whose answers would teach nothing."""
    if best.worth < (_LEAST_WORTH * classes if answers is None else _LEAST_SHARE * answers):
        raise PateError(
            f"epsilon={epsilon:g} with some {records:,} records buys no answers of use: the best way gives "
            f"{best.answers:,.0f}, {best.right:.0%} of them right, with {classes} classes to tell apart; "
            "raise epsilon, gather more records or merge classes"
        )


def _mu(epsilon: float, delta: float) -> float:
    """The largest Gaussian-DP mu within epsilon: a first guess at the noise, not the guarantee."""
    low, high = 0.0, 1.0
    while composition.gaussian_epsilon(high, delta) <= epsilon:
        high *= 2
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if composition.gaussian_epsilon(middle, delta) <= epsilon else (low, middle)
        )
    return low


def _candidates(mu: float, teachers: int, queries: int) -> list[Mechanism]:
    """Mechanisms for so many queries that cost about mu."""
    found: list[Mechanism] = [DiscreteGaussianMax(math.sqrt(_INDEX * queries) / mu)]
    for share in THRESHOLDS:
        for ratio in RATIOS:
            sigma = math.sqrt(queries * (_INDEX + ratio**-2)) / mu
            found.append(ConfidentDiscreteGaussian(round(share * teachers), ratio * sigma, sigma))
    return found


def _histograms(model: VoteModel | VotesOf, teachers: int, shard: int, classes: int) -> NDArray[np.int64]:
    random = np.random.default_rng(7)
    return random.multinomial(teachers, model.shares(shard, classes))


def _expected(mechanism: Mechanism, votes: Sequence[NDArray[np.int64]], queries: int) -> tuple[float, float]:
    """Expected answers and the share of them that is right, over all models, for Gaussian noise."""
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
    """The place of the surest of those that give enough: answers if a number is wished, else worth."""
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


def _settled(
    option: Option,
    classes: int,
    epsilon: float,
    delta: float,
    models: Sequence[VoteModel | VotesOf],
) -> Option:
    """The option with noise calibrated by the accountant and rounded up, its epsilon computed once more."""
    queries, teachers = option.queries, option.teachers
    found = accounting.calibrate(
        option.mechanism, epsilon, delta, queries=queries, teachers=teachers, classes=classes
    ).mechanism
    for digits in (4, 6, 9, None):
        rounded = found if digits is None else _rounded_up(found, digits)
        spent = spends(rounded, queries, teachers, classes, delta)
        if spent <= epsilon:
            break
    votes = [_histograms(model, teachers, option.shard, classes) for model in models]
    return _option(rounded, teachers, option.shard, queries, classes, spent, votes)


def spends(mechanism: Mechanism, queries: int, teachers: int, classes: int, delta: float) -> float:
    """The data-independent epsilon of so many queries."""
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
