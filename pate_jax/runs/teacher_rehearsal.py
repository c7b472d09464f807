"""Which teachers are asked what, for a wished epsilon: a rehearsal on public inputs, free of cost.

Some of the public inputs stand for the public part of a run, some judge, and the others are private records.
Linear teachers learn from shards of the latter, by the formula and in the space of a run's own; some of them
stand for all (`teacher_votes`). They vote on the first, the noise of each number of queries is added, and
students in closed form learn the answers, labels or whole noisy histograms: ridge regression, with the
penalty that leaves out one answer best, and answers carried along a graph of near inputs (`models.clusters`).
All lists of answers are to the same questions, so one system of equations teaches all students. So plans are
compared by the student that comes out, with labels that are made up in several ways or the public part's own.
Nothing here reads a private record: only their number, rounded down to two digits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pate_jax.accounting import planning
from pate_jax.accounting.exact import counts
from pate_jax.accounting.planning import Option
from pate_jax.crowd.metric import Metric
from pate_jax.crowd.rehearsal import Expected, of_labels
from pate_jax.crowd.roles import Labels
from pate_jax.data import Dataset
from pate_jax.errors import PateError
from pate_jax.mechanisms import DiscreteGaussianMax, Mechanism
from pate_jax.models import Model
from pate_jax.models.clusters import Entries, Graph, Told, graph, spread
from pate_jax.runs import teacher_votes
from pate_jax.runs.inputs import seen_by, teachers_net
from pate_jax.runs.teacher_votes import CONFIG, Parts
from pate_jax.student.selection import select
from pate_jax.system import headcount
from pate_jax.system.eigen import eigensystem

SHARDS = (10, 20, 30, 60, 120, 240, 480)  # records of a teacher
QUERIES = (20, 40, 80, 150, 250, 500, 1000, 2000)
FEWEST = 10  # teachers
_LISTS = 100  # of answers to the same questions at once, over all labels, classes and draws of the noise
_DRAWS = (2, 8)  # of the noise, at least and at most
_FOUR_OF_FIVE = 1.28  # standard deviations
_UNLIKE = 0.015  # deviation of a run's student from the rehearsed one, on drawn tables (benchmarks/ranges.py)
_SIGNAL = 0.1  # of answers, between chance and all right, below which they teach nothing


class NoUse(PateError):
    """No answers of teachers are of use."""


class Teachers(NamedTuple):
    """The teachers that do best of those that were rehearsed, and what is expected of their student."""

    option: Option
    expected: Expected


class Tried(NamedTuple):
    """What came out of one plan, label by label."""

    teachers: int
    shard: int
    queries: int
    answers_right: Float[np.ndarray, " labels"]
    right: Float[np.ndarray, "draws labels"]  # of what the student says of other inputs
    whole: bool = False  # whether all noisy counts are the answer, and not the label of the largest


def rehearse(
    dataset: Dataset,
    labels: Sequence[Labels],
    *,
    records: int,
    epsilon: float,
    delta: float,
    teachers: int | None = None,
    queries: int | None = None,
    most_queries: int | None = None,
    least_shard: int = SHARDS[0],
    net: Model | None = None,
    metric: Metric = Metric(),  # noqa: B008 (it is frozen)
) -> Teachers:
    """The best teachers for at most `epsilon`, and what is expected of them; refused where none are of use.

    `labels` are those that judge: several made-up ones of the public part, or its own. `teachers` and
    `queries` are numbers that the user has chosen, and half of `most_queries` may be asked about otherwise.
    `net` is that of linear teachers, if it is known.
    """
    records = planning.counted(records)
    planning.check(records, dataset.classes, epsilon, delta)
    entries, mu = seen(dataset, net), planning.mu(epsilon, delta)
    roles = teacher_votes.parts(len(entries), labels, dataset.classes)
    plans = every_plan(
        entries,
        labels,
        dataset.classes,
        roles,
        records=records,
        mu=mu,
        teachers=teachers,
        queries=queries,
        most_queries=most_queries,
        least_shard=least_shard,
        metric=metric,
    )
    best = chosen(plans, dataset.classes)
    if best is None:
        raise NoUse(_refusal(plans, records, epsilon, dataset.classes))
    option = _option(best, dataset.classes, epsilon, delta)
    return Teachers(option, _expected(best, [each[roles.judges] for each in labels], metric))


def every_plan(
    entries: Entries,
    labels: Sequence[Labels],
    classes: int,
    roles: Parts,
    *,
    records: int,
    mu: float,
    teachers: int | None = None,
    queries: int | None = None,
    most_queries: int | None = None,
    least_shard: int = SHARDS[0],
    metric: Metric = Metric(),  # noqa: B008 (it is frozen)
) -> list[Tried]:
    """All plans for so many records, tried out on public inputs that have these `roles`."""
    numbers = _numbers(records, teachers, least_shard)
    lists = _lists(len(roles.public), queries, most_queries)
    return list(_tried(entries, labels, classes, roles, numbers, mu, lists, metric))


def seen(dataset: Dataset, net: Model | None = None) -> Entries:
    """Public inputs as linear teachers see them."""
    front = (net or teachers_net(CONFIG, dataset)).front
    inputs = seen_by(CONFIG, dataset).public.inputs
    return inputs if front is None else np.asarray(front(inputs))


def _numbers(records: int, teachers: int | None, least_shard: int) -> dict[int, int]:
    """Numbers of teachers, with the records of each."""
    if teachers is not None:
        return {teachers: max(1, records // teachers)}
    found = {headcount.coarse(records // shard): shard for shard in SHARDS if shard >= least_shard}
    enough = {number: shard for number, shard in found.items() if number >= FEWEST}
    return enough or {FEWEST: records // FEWEST}


def _tried(
    entries: Entries,
    labels: Sequence[Labels],
    classes: int,
    roles: Parts,
    numbers: dict[int, int],
    mu: float,
    lists: dict[int, int],
    metric: Metric,
) -> Iterator[Tried]:
    """Every plan, tried out."""
    random, public = np.random.default_rng(3), entries[roles.public]
    votes = [
        (number, *teacher_votes.cast(entries, labels, classes, roles, number, shard, random))
        for number, shard in numbers.items()
    ]
    judged = _Judged.by(entries, roles, labels, metric)
    truth = np.stack([each[roles.public] for each in labels])
    draws = int(np.clip(_LISTS // (len(labels) * classes), *_DRAWS))
    noise = random.normal(size=(draws, len(labels), len(public), classes)).astype(np.float32)
    for queries, stood in lists.items():
        rows = select("kmeans", public, stood, key=b"rehearsal")
        for whole in (False, True):
            scale = teacher_votes.scale(queries, mu, whole=whole)
            heard = [
                teacher_votes.noisy(shares, few, number, rows, scale, noise) for number, shares, few in votes
            ]
            told = [
                teacher_votes.told(each, one, whole=whole) for each, one in zip(heard, numbers, strict=True)
            ]
            right = judged.right(rows, np.stack(told))
            for place, (number, shard) in enumerate(numbers.items()):
                answers = (heard[place].argmax(3) == truth[:, rows]).mean((0, 2))
                yield Tried(number, shard, queries, answers, right[place], whole)


def _lists(public: int, queries: int | None, most: int | None) -> dict[int, int]:
    """Numbers of queries that are tried, and of the public inputs that stand for them.

    >>> _lists(70, None, 90), _lists(70, 500, None)
    ({20: 20, 40: 40}, {500: 70})
    """
    if queries is not None:
        return {queries: min(queries, public)}
    room = public if most is None else max(1, min(public, most // 2))
    return {one: one for one in QUERIES if one <= room} or {room: room}


class _Judged(NamedTuple):
    """Students in closed form, and the inputs that judge them."""

    public: Entries
    judges: Entries
    near: Graph  # of the former and the latter, in this order
    truth: Int[np.ndarray, "judged labels"]
    metric: Metric

    @classmethod
    def by(cls, entries: Entries, roles: Parts, labels: Sequence[Labels], metric: Metric) -> _Judged:
        """All of them by the roles of a rehearsal."""
        public, judges = entries[roles.public], entries[roles.judges]
        truth = np.stack([each[roles.judges] for each in labels], 1)
        return cls(public, judges, graph(np.concatenate([public, judges])), truth, metric)

    def right(
        self, rows: Int[np.ndarray, " query"], told: Float[np.ndarray, "plans draws labels query classes"]
    ) -> Float[np.ndarray, "plans draws labels"]:
        """How right each plan's student is: the better of two students, label by label."""
        wide = told.reshape(-1, *told.shape[3:]).transpose(1, 0, 2)
        there = len(self.public) + np.arange(len(self.judges))
        both = (
            ridge(self.public[rows], wide, self.judges),
            spread(self.near, rows, wide, there),
        )
        each = np.stack([self._scores(said, told.shape[:3]) for said in both])
        better = each.mean((1, 2)).argmax(0)  # of the two, for each of the labels
        return np.asarray(each[better, :, :, np.arange(len(better))].transpose(1, 2, 0))

    def _scores(self, said: Said, shape: tuple[int, ...]) -> Float[np.ndarray, "plans draws labels"]:
        """How good what each student says is."""
        if self.metric.name == "accuracy":
            wanted = self.truth[:, None, None, :]
            return np.asarray((said.argmax(2).reshape(-1, *shape) == wanted).mean(0))
        students = range(said.shape[1])
        each = [self.metric.of(said[:, one], self.truth[:, one % shape[-1]]) for one in students]
        return np.array(each).reshape(shape)


def chosen(tried: Sequence[Tried], classes: int) -> Tried | None:
    """The plan of the best student in the mean over labels.

    None: answers of all plans are hardly better than chance.

    >>> one = Tried(100, 30, 80, np.array([0.9]), np.array([[0.8]]))
    >>> chosen([one, one._replace(queries=40, right=np.array([[0.79]]))], 2).queries
    80
    >>> chosen([one._replace(answers_right=np.array([0.51]))], 2) is None
    True
    """
    told = [one for one in tried if _tells(one, classes)]
    return max(told, key=lambda one: (one.right.mean(), one.answers_right.mean()), default=None)


def _tells(one: Tried, classes: int) -> bool:
    """Whether answers are right more often than by chance, by more than few of them say by luck."""
    right, chance = float(one.answers_right.mean()), 1 / classes
    luck = math.sqrt(right * (1 - right) / (one.queries * one.right.size))
    return right - chance >= _SIGNAL * (1 - chance) + 2 * luck


def _option(best: Tried, classes: int, epsilon: float, delta: float) -> Option:
    """The plan with its noise by the accountant, rounded up."""
    right, size = float(best.answers_right.mean()), (best.queries, best.teachers, classes)
    worth = planning.value(best.queries, right, classes)
    mechanism: Mechanism
    if best.whole:
        mechanism = counts.histogram_for(counts.mu_for(epsilon, delta), best.queries)
        spent = planning.spends(mechanism, *size, delta)
    else:
        scale = teacher_votes.scale(best.queries, planning.mu(epsilon, delta), whole=False)
        mechanism, spent = planning.calibrated(DiscreteGaussianMax(scale), *size, epsilon, delta)
    return Option(best.teachers, best.shard, best.queries, mechanism, spent, best.queries, right, worth)


def _expected(best: Tried, truth: Sequence[Labels], metric: Metric) -> Expected:
    """What is expected of the student, in the words of all rehearsals; `truth` is of those that judge."""
    noise = float(np.sqrt(best.right.var(0, ddof=1).mean()))
    return of_labels(best.right.mean(0), truth, len(truth[0]), noise, len(best.right), _around, metric)


def _around(share: float, judged: int, noise: float) -> tuple[float, float]:
    """Where the share of a run lies in four cases of five: judges are few, noise varies, a run is another.

    >>> [round(end, 3) for end in _around(0.9, 400, 0.0)], _around(1.0, 400, 0.0)[1]
    ([0.869, 0.923], 1.0)
    """
    even = (share * judged + 2) / (judged + 4)  # of few inputs a share of 0 or 1 says little
    away = _FOUR_OF_FIVE * math.sqrt(even * (1 - even) / (judged + 4) + noise**2 + _UNLIKE**2)
    return max(0.0, even - away), min(1.0, max(share, even + away))


def _refusal(tried: Sequence[Tried], records: int, epsilon: float, classes: int) -> str:
    best = max(tried, key=lambda one: one.answers_right.mean())
    return (
        f"epsilon={epsilon:g} with some {records:,} records buys no useful answers of teachers: of the "
        f"plans that were rehearsed on public inputs, the best has {best.queries:,} answers, "
        f"{best.answers_right.mean():.0%} of them right, for {classes} classes; raise epsilon, gather more "
        "records or merge classes"
    )


_PENALTIES = (0.1, 1.0, 10.0, 100.0)  # of ridge regression
_MOST_OWN = 0.99  # of an answer in what is said of it, at most

Said = Float[np.ndarray, "row students classes"]


def ridge(inputs: Float[np.ndarray, "query entries"], told: Told, others: Entries) -> Said:
    """What ridge regressions say of other inputs, each student with the penalty of the least error left out.

    >>> random = np.random.default_rng(0)
    >>> inputs, truth = random.normal(size=(200, 3)), np.array([1.0, -1.0, 0.0])
    >>> told = np.eye(2)[(inputs @ truth > 0).astype(int)][:, None, :]
    >>> bool((ridge(inputs, told, inputs).argmax(2) == told.argmax(2)).mean() > 0.95)
    True
    """
    queries, students, classes = told.shape
    wide = told.reshape(queries, -1)
    middle = wide.mean(0)
    values, axes = eigensystem(inputs.T.astype(np.float64) @ inputs)
    along, wanted = (inputs @ axes).astype(np.float32), (wide - middle).astype(np.float32)
    inside, there = along.T @ wanted, (others @ axes).astype(np.float32)
    errors, said = np.full(students, np.inf), np.zeros((len(others), students, classes), np.float32)
    for penalty in _PENALTIES:
        shrunk = (1 / (np.maximum(values, 0) + penalty)).astype(np.float32)
        weights = shrunk[:, None] * inside
        own = np.minimum((along**2) @ shrunk, _MOST_OWN)
        left_out = ((wanted - along @ weights) / (1 - own)[:, None]) ** 2
        error = left_out.reshape(told.shape).sum((0, 2))
        better = error < errors
        errors[better] = error[better]
        said[:, better] = (there @ weights + middle).reshape(said.shape)[:, better]
    return said
