"""Which teachers are asked what, for a wished epsilon: a rehearsal on public inputs, free of cost.

Half of the public inputs, or fewer, stand for the public part of a run, and the others for private records.
Linear teachers learn from shards of the latter, by the formula and in the space of a run's own; some of them
stand for all. They vote on the former, the noise of each number of queries is added, and students in closed
form (`stand_ins`) learn the answers and are judged on inputs that nobody asked about. So plans are compared
by the student that comes out, with labels that are made up in several ways or the public part's own.
Nothing here reads a private record: only their number, rounded down to two digits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pate_jax.accounting import planning
from pate_jax.accounting.planning import Option
from pate_jax.crowd.rehearsal import Expected
from pate_jax.crowd.roles import Labels
from pate_jax.data import Dataset
from pate_jax.ensemble import TeacherConfig
from pate_jax.errors import PateError
from pate_jax.mechanisms import DiscreteGaussianMax
from pate_jax.models import Model
from pate_jax.runs import stand_ins
from pate_jax.runs.inputs import seen_by, teachers_net
from pate_jax.student.selection import select
from pate_jax.system import headcount

CONFIG = TeacherConfig(net="linear").resolved()
SHARDS = (10, 20, 30, 60, 120, 240, 480)  # records of a teacher
QUERIES = (20, 40, 80, 150, 250, 500, 1000, 2000)
FEWEST = 10  # teachers
_ASKED = 0.7  # of the inputs that stand for the public part; the others judge
_STANDING = 3000  # public inputs at most that stand for the public part
_LABELLED = 150_000  # labels of them at most, over all labels and classes
_DRAWN = 12_000  # records of the teachers that stand for all
_TEACHERS = (25, 150)  # of them, at least and at most
_LISTS = 100  # of answers to the same questions at once, over all labels, classes and draws of the noise
_DRAWS = (2, 8)  # of the noise, at least and at most
_INDEX = 1.53  # queries times this, over mu squared, is about the variance of the noise
_NEARLY = 0.98  # of the best student's share: plans above it are as good, and the surest is taken
_FOUR_OF_FIVE = 1.28  # standard deviations
_SIGNAL = 0.1  # of answers, between chance and all right, below which they teach nothing

Entries = stand_ins.Entries
Votes = Float[np.ndarray, "labels public classes"]


class NoUse(PateError):
    """No answers of teachers are of use."""


class Teachers(NamedTuple):
    """The teachers that do best of those that were rehearsed, and what is expected of their student."""

    option: Option
    expected: Expected


class Parts(NamedTuple):
    """Who is who in a rehearsal: rows of the pool."""

    public: Int[np.ndarray, " public"]
    private: Int[np.ndarray, " private"]


class Tried(NamedTuple):
    """What came out of one plan, label by label."""

    teachers: int
    shard: int
    queries: int
    answers_right: Float[np.ndarray, " labels"]
    right: Float[np.ndarray, "draws labels"]  # of what the student says of inputs that were not asked about


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
) -> Teachers:
    """The best teachers for at most `epsilon`, and what is expected of them; refused where none are of use.

    `labels` are those that judge: several made-up ones of the public part, or its own. `teachers` and
    `queries` are numbers that the user has chosen, and half of `most_queries` may be asked about otherwise.
    `net` is that of linear teachers, if it is known.
    """
    records = planning.counted(records)
    planning.check(records, dataset.classes, epsilon, delta)
    entries = seen(dataset, net)
    numbers = _numbers(records, teachers, least_shard)
    public = len(parts(len(entries), labels, dataset.classes).public)
    asked = _lists(public, queries, most_queries)
    tried = list(_tried(entries, labels, dataset.classes, numbers, planning.mu(epsilon, delta), asked))
    best = chosen(tried, dataset.classes, image=dataset.kind == "image")
    if best is None:
        raise NoUse(_refusal(tried, records, epsilon, dataset.classes))
    option = _option(best, dataset.classes, epsilon, delta)
    return Teachers(option, _expected(best, labels, public))


def seen(dataset: Dataset, net: Model | None = None) -> Entries:
    """Public inputs as linear teachers see them."""
    front = (net or teachers_net(CONFIG, dataset)).front
    inputs = seen_by(CONFIG, dataset).public.inputs
    return inputs if front is None else np.asarray(front(inputs))


def parts(pool: int, labels: Sequence[Labels], classes: int) -> Parts:
    """Half of the pool at most stands for the public part, and the others for private records.

    >>> made = parts(50, [np.zeros(50, int)], 2)
    >>> len(made.public), len(made.private), len(np.intersect1d(*made))
    (25, 25, 0)
    """
    most = min(_STANDING, max(200, _LABELLED // (len(labels) * classes)), pool // 2)
    public, private = np.split(np.random.default_rng(1).permutation(pool), [most])
    return Parts(public, private)


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
    numbers: dict[int, int],
    mu: float,
    lists: dict[int, int],
) -> Iterator[Tried]:
    """Every plan, tried out."""
    roles = parts(len(entries), labels, classes)
    random = np.random.default_rng(3)
    truth = np.stack([each[roles.public] for each in labels])
    votes = {
        number: cast(entries, labels, classes, roles, number, shard, random)
        for number, shard in numbers.items()
    }
    public = entries[roles.public]
    near = stand_ins.graph(public)
    draws = int(np.clip(_LISTS // (len(labels) * classes), *_DRAWS))
    noise = random.normal(size=(draws, len(labels), len(public), classes)).astype(np.float32)
    for queries, stood in lists.items():
        rows = select("kmeans", public, stood, key=b"rehearsal")
        others = np.setdiff1d(np.arange(len(public)), rows)
        scale = float(np.sqrt(_INDEX * queries) / mu)
        answers = np.stack([_answers(*votes[one], one, rows, scale, noise) for one in numbers])
        right = _students(public, near, rows, others, answers, truth, classes)
        told = (answers == truth[:, rows]).mean((1, 3))
        for place, (number, shard) in enumerate(numbers.items()):
            yield Tried(number, shard, queries, told[place], right[place])


def _lists(public: int, queries: int | None, most: int | None) -> dict[int, int]:
    """Numbers of queries that are tried, and of the public inputs that stand for them; the others judge.

    >>> _lists(100, None, 90), _lists(100, 500, None)
    ({20: 20, 40: 40}, {500: 70})
    """
    room = max(1, int(_ASKED * public))
    if queries is not None:
        return {queries: min(queries, room)}
    room = room if most is None else max(1, min(room, most // 2))
    return {one: one for one in QUERIES if one <= room} or {room: room}


def cast(
    entries: Entries,
    labels: Sequence[Labels],
    classes: int,
    roles: Parts,
    teachers: int,
    shard: int,
    random: np.random.Generator,
) -> tuple[Float[np.ndarray, "labels public classes"], int]:
    """Shares of the votes on the public part, and the number of teachers that stood for all.

    All labels share the teachers' records, so that each teacher is solved once.
    """
    number = int(min(teachers, np.clip(_DRAWN // shard, *_TEACHERS)))
    public, several = entries[roles.public], len(labels)
    targets = [np.eye(classes, dtype=np.float32)[each[roles.private]] - 1 / classes for each in labels]
    wide = np.concatenate(targets, 1)
    private = entries[roles.private]
    votes = np.zeros((several, len(public), classes), np.float32)
    every, each = np.arange(several)[:, None], np.arange(len(public))
    for _ in range(number):
        rows = random.choice(len(private), shard)
        scores = public @ ridge(private[rows], wide[rows], CONFIG.weight_decay or 0.0).astype(np.float32)
        votes[every, each, scores.reshape(-1, several, classes).argmax(2).T] += 1
    return votes / number, number


def ridge(
    inputs: Entries, targets: Float[np.ndarray, "row targets"], penalty: float
) -> Float[np.ndarray, "entries targets"]:
    """The matrix of ridge regression, from the smaller of two systems of equations.

    >>> ridge(np.array([[2.0, 0, 0]]), np.array([[5.0]]), 1.0).ravel().tolist()
    [2.0, 0.0, 0.0]
    """
    if len(inputs) < inputs.shape[1]:
        return np.asarray(
            inputs.T @ np.linalg.solve(inputs @ inputs.T + penalty * np.eye(len(inputs)), targets)
        )
    square = inputs.T @ inputs + penalty * np.eye(inputs.shape[1])
    return np.asarray(np.linalg.solve(square, inputs.T @ targets))


def _answers(
    shares: Votes,
    stood: int,
    teachers: int,
    rows: Int[np.ndarray, " query"],
    scale: float,
    noise: Float[np.ndarray, "draws labels public classes"],
) -> Int[np.ndarray, "draws labels query"]:
    """The noisy largest class of each query.

    That few teachers stand for many makes votes vary more than they will, so there is less noise to add.
    """
    some = shares[:, rows]
    more = teachers**2 * some * (1 - some) * (1 / stood - 1 / teachers)
    added = np.sqrt(np.maximum(scale**2 - more, 0)) * noise[:, :, rows]
    return np.asarray((teachers * some + added).argmax(3))


def _students(
    public: Float[np.ndarray, "public entries"],
    near: stand_ins.Graph,
    rows: Int[np.ndarray, " query"],
    others: Int[np.ndarray, " judged"],
    answers: Int[np.ndarray, "plans draws labels query"],
    truth: Int[np.ndarray, "labels public"],
    classes: int,
) -> Float[np.ndarray, "plans draws labels"]:
    """How right each plan's student is about the others: the better of two students, label by label.

    Which inputs are left depends on the number of queries, and so does the share of the most frequent class
    among them: that a share is larger there than in all counts for nothing.
    """
    lists = answers.reshape(-1, len(rows))
    told = np.eye(classes, dtype=np.float32)[lists].transpose(1, 0, 2)
    both = stand_ins.ridge(public[rows], told, public[others]), stand_ins.spread(near, rows, told, others)
    wanted = truth[:, others].T[:, None, None, :]
    shape = len(others), *answers.shape[:3]
    each = np.stack([(said.argmax(2).reshape(shape) == wanted).mean(0) for said in both])
    better = each.mean((1, 2)).argmax(0)  # of the two, for each of the labels
    usual = np.stack([one == np.bincount(one).argmax() for one in truth])
    easier = usual[:, others].mean(1) - usual.mean(1)
    found = each[better, :, :, np.arange(len(better))].transpose(1, 2, 0) - easier
    return np.asarray(np.clip(found, 0.0, 1.0))


def chosen(tried: Sequence[Tried], classes: int, *, image: bool) -> Tried | None:
    """The plan of the best student in the mean over labels.

    Of images, of nearly equal ones that of the surest answers: nets learn more from these than the students
    that stand for them here, while those of tables are much like them. None: answers of all plans are hardly
    better than chance.

    >>> one = Tried(100, 30, 80, np.array([0.9]), np.array([[0.8]]))
    >>> sure, wrong = one._replace(queries=40, answers_right=np.array([1.0])), one._replace(queries=20)
    >>> nearly = sure._replace(right=np.array([[0.79]]))
    >>> [chosen([one, nearly], 2, image=image).queries for image in (True, False)]
    [40, 80]
    >>> chosen([wrong._replace(answers_right=np.array([0.51]))], 2, image=False) is None
    True
    """
    told = [one for one in tried if _tells(one, classes)]
    if not told:
        return None
    most = max(one.right.mean() for one in told)
    good = [one for one in told if one.right.mean() >= (_NEARLY if image else 1) * most]
    return max(good, key=lambda one: (one.answers_right.mean(), one.right.mean()))


def _tells(one: Tried, classes: int) -> bool:
    """Whether answers are right more often than by chance, by more than few of them say by luck."""
    right, chance = float(one.answers_right.mean()), 1 / classes
    luck = math.sqrt(right * (1 - right) / (one.queries * one.right.size))
    return right - chance >= _SIGNAL * (1 - chance) + 2 * luck


def _option(best: Tried, classes: int, epsilon: float, delta: float) -> Option:
    """The plan with its noise by the accountant, rounded up."""
    right = float(best.answers_right.mean())
    worth = planning.value(best.queries, right, classes)
    rough = DiscreteGaussianMax(float(np.sqrt(_INDEX * best.queries) / planning.mu(epsilon, delta)))
    mechanism, spent = planning.calibrated(rough, best.queries, best.teachers, classes, epsilon, delta)
    return Option(best.teachers, best.shard, best.queries, mechanism, spent, best.queries, right, worth)


def _expected(best: Tried, labels: Sequence[Labels], public: int) -> Expected:
    """What is expected of the student, in the words of all rehearsals."""
    each = best.right.mean(0)
    usual = [float(np.bincount(one).max()) / len(one) for one in labels]
    judged, several = public - min(best.queries, int(_ASKED * public)), len(labels)
    noise = float(np.sqrt(best.right.var(0, ddof=1).mean()))
    ends = (each.min(), each.max()) if several > 1 else _around(float(each[0]), judged, noise)
    low, high = map(float, ends)
    draws = len(best.right)
    return Expected(float(each.mean()), low, high, float(np.mean(usual)), judged, several, noise, draws)


def _around(share: float, judged: int, noise: float) -> tuple[float, float]:
    """Where the share lies in four cases of five that one draw of the noise brings of all inputs like these.

    >>> [round(end, 3) for end in _around(0.9, 400, 0.0)], _around(1.0, 400, 0.0)[1]
    ([0.877, 0.915], 1.0)
    """
    even = (share * judged + 2) / (judged + 4)  # of few inputs a share of 0 or 1 says little
    away = _FOUR_OF_FIVE * math.sqrt(even * (1 - even) / (judged + 4) + noise**2)
    return max(0.0, even - away), min(1.0, max(share, even + away))


def _refusal(tried: Sequence[Tried], records: int, epsilon: float, classes: int) -> str:
    best = max(tried, key=lambda one: one.answers_right.mean())
    return (
        f"epsilon={epsilon:g} with some {records:,} records buys no useful answers of teachers: of the "
        f"plans that were rehearsed on public inputs, the best has {best.queries:,} answers, "
        f"{best.answers_right.mean():.0%} of them right, for {classes} classes; raise epsilon, gather more "
        "records or merge classes"
    )
