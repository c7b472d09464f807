"""Before any private vote is cast: how many teachers, how much noise, how many queries fit an epsilon.

Noise comes from data-independent accounting alone. What to expect of answers comes from a model of votes, or
from a file of public or synthetic votes; private votes are never read. The model, its constants and what they
are worth are in docs/sweeps.md.
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
from pate_jax.accounting import composition, figures
from pate_jax.accounting.curves import check_delta
from pate_jax.errors import PateError
from pate_jax.mechanisms import ConfidentDiscreteGaussian, DiscreteGaussianMax, Mechanism, name_of, to_dict
from pate_jax.progress import bar

TEACHERS = (5, 10, 20, 35, 50, 75, 100, 150, 250, 400, 600, 1000, 1500, 2500, 5000)
QUERIES = (20, 50, 100, 200, 350, 500, 750, 1000, 1500, 2000, 3500, 5000, 10_000)
THRESHOLDS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # shares of the teachers
RATIOS = (1.5, 2.5, 3.75)  # noise of the test over noise of the answer
EXPONENT = 0.4  # of the learning curve: error falls like (shard size)^-0.4
_MODELLED = 400  # queries of the model
_DRAWS = 4  # of noise for each
_LEAST_SHARD = 20  # records, below which nothing is known of teachers


@dataclass(frozen=True)
class VoteModel:
    """How teachers of shards of `at` records vote: fitted to a file of votes (docs/sweeps.md).

    A query is right for a share of teachers drawn from a beta law of mean `accuracy` and of `evenness` (the
    sum of its two parameters: small where queries are either clear or hopeless); the other teachers spread
    over the wrong classes by a Dirichlet law of `spread` (small where they agree on one wrong class).
    """

    name: str
    accuracy: float
    at: int
    evenness: float
    spread: float

    def accuracy_for(self, shard: float, classes: int) -> float:
        """Mean accuracy of teachers of this shard size, by a power law, never below chance.

        >>> model = VoteModel("mnist", 0.934, 240, 1.65, 0.1)
        >>> round(model.accuracy_for(240, 10), 3), model.accuracy_for(60, 10) < 0.9
        (0.934, True)
        """
        error = (1 - self.accuracy) * (self.at / shard) ** EXPONENT
        return 1 - min(error, 1 - 1.05 / classes)

    def shares(self, shard: float, classes: int) -> NDArray[np.float64]:
        """Chances [query, class] that a teacher votes for each class; class 0 is the right one."""
        random = np.random.default_rng(20_181)
        mean = self.accuracy_for(shard, classes)
        uniform = (random.permutation(_MODELLED) + 0.5) / _MODELLED
        right = special.betaincinv(mean * self.evenness, (1 - mean) * self.evenness, uniform)
        wrong = random.gamma(self.spread, size=(_MODELLED, classes - 1)) + 1e-12
        wrong /= wrong.sum(axis=1, keepdims=True)
        return np.concatenate([right[:, None], (1 - right)[:, None] * wrong], axis=1)


MODELS = (
    VoteModel("mnist", 0.934, 240, 1.65, 0.1),
    VoteModel("fashion_mnist", 0.760, 240, 1.13, 0.1),
    VoteModel("published_mnist", 0.703, 240, 6.62, 0.3),
    VoteModel("adult", 0.821, 130, 0.82, 0.1),
)


@dataclass(frozen=True)
class VotesOf:
    """The same, from a file of public or synthetic votes whose teachers had shards of `at` records."""

    name: str
    votes: NDArray[np.int64]
    labels: NDArray[np.int64] | None
    at: int

    def shares(self, shard: float, classes: int) -> NDArray[np.float64]:
        """The file's shares, sharpened or blunted until their mean accuracy is the learning curve's."""
        if self.votes.shape[1] != classes:
            raise PateError(
                f"classes={classes} but the votes file has {self.votes.shape[1]}; leave --classes out"
            )
        first = self.votes.argmax(axis=1) if self.labels is None else self.labels
        rows = np.linspace(0, len(self.votes) - 1, min(_MODELLED, len(self.votes))).astype(int)
        counts, first = self.votes[rows].astype(np.float64), first[rows]
        counts[np.arange(len(rows)), first], counts[:, 0] = (
            counts[:, 0].copy(),
            counts[np.arange(len(rows)), first].copy(),
        )
        base = np.log((counts + 0.01) / (counts + 0.01).sum(axis=1, keepdims=True))
        own = float(np.exp(base[:, 0]).mean())
        wanted = 1 - min((1 - own) * (self.at / shard) ** EXPONENT, 1 - 1.05 / classes)
        low, high = 1e-3, 1e3
        for _ in range(60):
            power = math.sqrt(low * high)
            low, high = (
                (power, high) if special.softmax(power * base, axis=1)[:, 0].mean() < wanted else (low, power)
            )
        return special.softmax(high * base, axis=1)


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

    def command(self, dataset: str, delta: float, records: int) -> str:
        """The run that it stands for."""
        own = {name: value for name, value in to_dict(self.mechanism).items() if name != "name"}
        flags = " ".join(f"--{name.replace('_', '-')} {value:g}" for name, value in own.items())
        drawn = f" --records {records}" if dataset in ("strokes", "glyphs") else ""
        return (
            f"pate run {dataset}{drawn} --teachers {self.teachers} --queries {self.queries} "
            f"--delta {delta:g} {name_of(self.mechanism)} {flags}"
        )


@dataclass(frozen=True)
class Plan:
    """What to choose, what else there is, and how far expectations can be off."""

    best: Option
    others: tuple[Option, ...]
    judged_by: tuple[str, ...]
    range_answers: tuple[float, float]  # of the best, over all models
    range_right: tuple[float, float]

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
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

    With `answers`, the most accurate way to expect so many; else the way whose answers are worth most
    (`value`). Expectations are means over the models.

    >>> found = plan(60_000, 10, 2.0, 1e-5, teachers=(250,), most_queries=100, models=MODELS[:1])
    >>> found.best.teachers, found.best.queries, found.best.epsilon <= 2.0
    (250, 100, True)
    """
    _check(records, classes, epsilon, delta, answers, most_queries, models)
    mu = _mu(epsilon, delta)
    numbers = [one for one in dict.fromkeys(teachers) if records // one >= _LEAST_SHARD]
    if not numbers:
        raise PateError(
            f"records={records} are too few: no number of teachers leaves each {_LEAST_SHARD} records; "
            "nothing is known of teachers of fewer"
        )
    sizes = sorted({*[one for one in QUERIES if one < most_queries], most_queries})
    chosen = []
    with bar("planning", total=len(numbers)) as steps:
        for number in numbers:
            votes = [_histograms(model, number, records // number, classes) for model in models]
            best: tuple[tuple[float, float], Mechanism, int] | None = None
            for queries in sizes:
                for mechanism in _candidates(mu, number, queries):
                    got, right = _expected(mechanism, votes, queries)
                    rank = _rank(got, right, classes, answers)
                    if best is None or rank > best[0]:
                        best = (rank, mechanism, queries)
            if best is not None:
                chosen.append((best[0], number, best[1], best[2]))
            steps.advance()
    chosen.sort(key=lambda one: one[0], reverse=True)
    options = [
        _settled(mechanism, number, queries, records, classes, epsilon, delta, models)
        for _, number, mechanism, queries in chosen[:6]
    ]
    options.sort(key=lambda one: _rank(one.answers, one.right, classes, answers), reverse=True)
    ranges = [
        _expected(
            options[0].mechanism,
            [_histograms(model, options[0].teachers, options[0].shard, classes)],
            options[0].queries,
        )
        for model in models
    ]
    return Plan(
        options[0],
        tuple(options[1:]),
        tuple(model.name for model in models),
        (min(one[0] for one in ranges), max(one[0] for one in ranges)),
        (min(one[1] for one in ranges), max(one[1] for one in ranges)),
    )


def _check(
    records: int,
    classes: int,
    epsilon: float,
    delta: float,
    answers: int | None,
    most_queries: int,
    models: Sequence[Any],
) -> None:
    check_delta(delta)
    if not (epsilon > 0 and math.isfinite(epsilon)):
        raise PateError(f"epsilon={epsilon!r} must be a finite number above 0")
    for name, number, least in (
        ("records", records, 1),
        ("classes", classes, 2),
        ("queries", most_queries, 1),
    ):
        if number < least:
            raise PateError(f"{name}={number} must be at least {least}")
    if answers is not None and not 1 <= answers <= most_queries:
        raise PateError(f"answers={answers} must be from 1 to the {most_queries} queries that may be asked")
    if not models:
        raise PateError("models is empty: expectations need at least one model of votes")


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
    found: list[Mechanism] = [DiscreteGaussianMax(math.sqrt(2 * queries) / mu)]
    for share in THRESHOLDS:
        for ratio in RATIOS:
            sigma = math.sqrt(queries * (2 + ratio**-2)) / mu
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


def _rank(got: float, right: float, classes: int, answers: int | None) -> tuple[float, float]:
    """What decides between two options, the larger the better."""
    if answers is None:
        return value(got, right, classes), right
    return (1.0, right) if got >= answers else (0.0, got)


def _settled(
    mechanism: Mechanism,
    teachers: int,
    queries: int,
    records: int,
    classes: int,
    epsilon: float,
    delta: float,
    models: Sequence[VoteModel | VotesOf],
) -> Option:
    """The option with noise calibrated by the accountant and rounded up, its epsilon computed once more."""
    found = accounting.calibrate(
        mechanism, epsilon, delta, queries=queries, teachers=teachers, classes=classes
    ).mechanism
    for digits in (4, 6, 9, None):
        rounded = found if digits is None else _rounded_up(found, digits)
        spent = spends(rounded, queries, teachers, classes, delta)
        if spent <= epsilon:
            break
    votes = [_histograms(model, teachers, records // teachers, classes) for model in models]
    got, right = _expected(rounded, votes, queries)
    return Option(
        teachers, records // teachers, queries, rounded, spent, got, right, value(got, right, classes)
    )


def spends(mechanism: Mechanism, queries: int, teachers: int, classes: int, delta: float) -> float:
    """The data-independent epsilon of so many queries."""
    slack = figures.sampler_slack(mechanism, queries, classes)
    found, _ = figures.worst_case(mechanism, np.full(queries, teachers), delta, slack=slack)
    return float(found.epsilon)


def _rounded_up(mechanism: Mechanism, digits: int) -> Mechanism:
    def up(number: float) -> float:
        step = 10.0 ** (math.floor(math.log10(number)) + 1 - digits)
        return float(f"{math.ceil(number / step - 1e-9) * step:.{digits}g}")

    if isinstance(mechanism, ConfidentDiscreteGaussian):
        return ConfidentDiscreteGaussian(
            mechanism.threshold, up(mechanism.sigma_threshold), up(mechanism.sigma)
        )
    return DiscreteGaussianMax(up(mechanism.noise.scale))
