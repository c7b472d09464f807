"""How right linear teachers are expected to be: a rehearsal on public inputs, free of cost.

Teachers learn by ridge regression from shards that are drawn from one part of the pool, in the space that
linear teachers of a run have, and vote on other inputs of that part; the mechanism's noise is drawn with its
scales. In place of the student that a run would choose stands one more ridge regression in the same space. It
learns the noisy answers, with the penalty that leaves out one answer best. What it says is judged on the rest
of the pool, which stands for no private record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pate_jax.accounting import planning
from pate_jax.accounting.planning import Option
from pate_jax.crowd import rehearsal
from pate_jax.crowd.rehearsal import Expected
from pate_jax.crowd.roles import Labels, Roles, assigned
from pate_jax.data import Dataset
from pate_jax.ensemble import TeacherConfig
from pate_jax.mechanisms import Mechanism
from pate_jax.runs.inputs import seen_by, teachers_net
from pate_jax.system.eigen import eigensystem

_CONFIG = TeacherConfig(net="linear").resolved()
_DRAWN = 40_000  # records of teachers, at most
_TEACHERS = (20, 200)  # that stand for all, at least and at most
_PENALTIES = (0.1, 1.0, 10.0, 100.0)  # of the student
MOST_QUERIES = 2000

Entries = Float[np.ndarray, "row entries"]
Targets = Float[np.ndarray, "row targets"]
Matrix = Float[np.ndarray, "entries targets"]


class Teachers(NamedTuple):
    """The teachers that do best of those that were rehearsed, and what is expected of them."""

    option: Option
    expected: Expected


def rehearse(
    dataset: Dataset, labels: Sequence[Labels], *, records: int, epsilon: float, delta: float
) -> Teachers:
    """The best of the plans that `accounting.plan` proposes; it refuses where no plan is of use."""
    entries = _seen(dataset)
    roles = assigned(len(entries), records)
    asked = len(roles.voting)
    found = planning.plan(records, dataset.classes, epsilon, delta, most_queries=min(MOST_QUERIES, asked))
    options = (found.best, *found.others)
    each = [Teachers(one, _expected(one, entries, labels, dataset.classes, roles)) for one in options]
    return max(each, key=lambda one: one.expected.least)


def _seen(dataset: Dataset) -> Entries:
    """Public inputs as linear teachers see them."""
    front, inputs = teachers_net(_CONFIG, dataset).front, seen_by(_CONFIG, dataset).public.inputs
    return inputs if front is None else np.asarray(front(inputs))


def _expected(
    option: Option, entries: Entries, labels: Sequence[Labels], classes: int, roles: Roles
) -> Expected:
    random = np.random.default_rng(3)
    drawn = roles.voting
    queries = drawn[: option.queries]
    targets = np.stack([np.eye(classes)[each] for each in labels]) - 1 / classes
    votes = cast(option, entries, targets, drawn, queries, random)

    def guessed(counted: Float[np.ndarray, "query classes"]) -> rehearsal.Shares:
        answers, answered = _answers(option.mechanism, counted, random)
        learned = student(entries[queries[answered]], np.eye(classes)[answers[answered]])
        return np.asarray(learned(entries[roles.judged]))

    draws = range(rehearsal.FEW_DRAWS)
    return rehearsal.judged([[guessed(counted) for _ in draws] for counted in votes], labels, roles)


def cast(
    option: Option,
    entries: Entries,
    targets: Float[np.ndarray, "labels pool classes"],
    drawn: Int[np.ndarray, " drawn"],
    queries: Int[np.ndarray, " query"],
    random: np.random.Generator,
) -> Float[np.ndarray, "labels query classes"]:
    """Votes on queries; of many teachers some stand for all.

    All labels share the teachers' records, so that each teacher is solved once.
    """
    several, _, classes = targets.shape
    number = int(min(option.teachers, np.clip(_DRAWN // option.shard, *_TEACHERS)))
    votes = np.zeros((several, len(queries), classes))
    every, each = np.arange(several)[:, None], np.arange(len(queries))
    for _ in range(number):
        rows = random.choice(drawn, option.shard)
        wanted = targets[:, rows].transpose(1, 0, 2).reshape(len(rows), -1)
        scores = entries[queries] @ ridge(entries[rows], wanted, _CONFIG.weight_decay or 0.0)
        votes[every, each, scores.reshape(-1, several, classes).argmax(2).T] += 1
    return votes * (option.teachers / number)


def ridge(inputs: Entries, targets: Targets, penalty: float) -> Matrix:
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
    mechanism: Mechanism, votes: Float[np.ndarray, "query classes"], random: np.random.Generator
) -> tuple[Int[np.ndarray, " query"], Int[np.ndarray, " answered"]]:
    """The noisy largest class of each query, and which queries are answered: the surest if none would be."""
    noisy = votes + mechanism.noise.scale * random.normal(size=votes.shape)
    if mechanism.test is None:
        return noisy.argmax(1), np.arange(len(votes))
    height = votes.max(1) + mechanism.test.noise.scale * random.normal(size=len(votes))
    passed = np.flatnonzero(height >= mechanism.test.threshold)
    return noisy.argmax(1), passed if len(passed) else np.array([height.argmax()])


def student(inputs: Entries, answers: Targets) -> Callable[[Entries], Targets]:
    """Ridge regression of answers, with the penalty under which each is best foretold by the others.

    >>> random = np.random.default_rng(0)
    >>> inputs, truth = random.normal(size=(200, 3)), np.array([1.0, -1.0, 0.0])
    >>> answers = np.eye(2)[(inputs @ truth > 0).astype(int)]
    >>> bool(((student(inputs, answers)(inputs).argmax(1) == answers.argmax(1)).mean()) > 0.95)
    True
    """
    middle = answers.mean(0)
    values, axes = eigensystem(inputs.T.astype(np.float64) @ inputs)
    along, wanted = inputs @ axes, answers - middle
    told = along.T @ wanted

    def solved(penalty: float) -> tuple[float, Matrix]:
        shrunk = 1 / (np.maximum(values, 0) + penalty)
        weights = shrunk[:, None] * told
        own = np.minimum((along**2) @ shrunk, 0.99)  # of each answer in what is said of it
        left_out = (wanted - along @ weights) / (1 - own)[:, None]
        return float((left_out**2).sum()), axes @ weights

    _, weights = min((solved(each) for each in _PENALTIES), key=lambda one: one[0])
    return lambda others: others @ weights + middle
