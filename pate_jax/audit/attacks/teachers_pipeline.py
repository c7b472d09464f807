"""The pipeline of linear teachers, in memory: train in closed form, vote, answer, and teach a student.

A teacher of a shard with members S is ridge regression, and all that a shadow needs of it follows from inner
products: `K` of the shard's records with each other and `G` of the queries with these. With `Y` the centred
labels and `M = (K_SS + penalty)^-1` its scores are `G_S M Y_S`. Whoever joins or leaves changes them by a
formula too, so that the likelihood of the released answers with and without each person is exact: the attack
that knows all others costs no training. Derived in docs/proofs/attacks.md, section 5.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from pate_jax import aggregate
from pate_jax.audit.attacks import mechanism as audits
from pate_jax.audit.attacks.roc import Promise
from pate_jax.audit.attacks.shadows import Seen, means
from pate_jax.errors import PateError
from pate_jax.mechanisms import Mechanism
from pate_jax.student.methods.ridge import of_features

_DIGITS = 9  # of scores that are compared
Votes = Int[np.ndarray, "query class"]


class Shard(NamedTuple):
    """The records of one teacher, sorted by person, and their inner products."""

    rows: Int[np.ndarray, " record"]
    persons: Int[np.ndarray, " record"]
    alike: Float[np.ndarray, "record record"]
    asked: Float[np.ndarray, "query record"]
    targets: Float[np.ndarray, "record class"]  # labels as 0 and 1, less their mean


class Solved(NamedTuple):
    """A teacher's scores, and what it takes to add a person to its shard or to remove one."""

    scores: Float[np.ndarray, "query class"]
    reach: Float[np.ndarray, "query record"]  # of each record: how far it moves scores, per unit of residual
    hat: Float[np.ndarray, "record record"]
    residual: Float[np.ndarray, "record class"]


class Moves(NamedTuple):
    """The votes that move if a person joins or leaves: whose, at which query, from and to which class."""

    persons: Int[np.ndarray, " move"]
    queries: Int[np.ndarray, " move"]
    before: Int[np.ndarray, " move"]
    after: Int[np.ndarray, " move"]


@dataclass(frozen=True)
class LinearTeachers:
    """Records in the teachers' space, of persons of whom the first may be members and the last never are."""

    entries: Float[np.ndarray, "record entry"]
    labels: Int[np.ndarray, " record"]
    persons: Int[np.ndarray, " record"]  # numbered from 0; all records of a person lie with one teacher
    teacher_of: Int[np.ndarray, " person"]
    asked: Float[np.ndarray, "query entry"]
    teachers: int
    classes: int
    penalty: float
    mechanism: Mechanism
    promised: Promise  # by the whole list of answers
    reference: int  # of the persons, the last: never members
    released: ClassVar[str] = "answers"

    def __post_init__(self) -> None:
        if not 0 < self.reference < len(self.teacher_of):
            raise PateError(f"reference={self.reference} must leave some of {len(self.teacher_of)} persons")

    @property
    def records(self) -> int:
        """How many persons may be members."""
        return len(self.teacher_of) - self.reference

    def promise(self, delta: float) -> Promise:
        """What the run promises to whoever joins or leaves, at its own delta."""
        if delta != self.promised.delta:
            raise PateError(f"delta={delta} is not the run's {self.promised.delta}: ask at that")
        return self.promised

    def __call__(self, member: Bool[np.ndarray, " person"], *, key: jax.Array) -> Seen:
        """What is published if these persons take part."""
        there = np.append(member, np.zeros(self.reference, bool))
        labels, moves = self.labelled(there)
        votes = self.votes(labels)
        given = aggregate.answer(self.mechanism, votes.astype(np.int32), key=key)
        answers = np.where(np.asarray(given.answered), np.asarray(given.labels), -1)
        right = self._means(self.student(answers))
        ratio = self.ratios(votes, moves, answers) * np.where(there, -1, 1)
        some = self.records
        return Seen(right[:some], right[some:], self.products(answers)[:some], ratio[:some])

    def labelled(self, there: Bool[np.ndarray, " person"]) -> tuple[Int[np.ndarray, "teacher query"], Moves]:
        """The labels of all teachers, and the votes that move if one person joins or leaves."""
        labels: list[Int[np.ndarray, " query"]] = []
        moved: list[Moves] = []
        for teacher, shard in enumerate(self.shards):
            inside = there[shard.persons]
            solved = _solved(shard, inside, self.penalty)
            idle = teacher % self.classes  # a teacher without records always says the same
            labels.append(_first(solved.scores) if inside.any() else np.full(len(self.asked), idle))
            moved.extend(_moved(shard, solved, inside, labels[-1], idle))
        none = np.zeros(0, np.int64)
        return np.stack(labels), Moves(*(np.concatenate([none, *part]) for part in zip(*moved, strict=True)))

    def votes(self, labels: Int[np.ndarray, "teacher query"]) -> Votes:
        """How many teachers choose each class."""
        return np.stack([(labels == kind).sum(0) for kind in range(self.classes)], axis=1)

    def ratios(
        self, votes: Votes, moves: Moves, answers: Int[np.ndarray, " query"]
    ) -> Float[np.ndarray, " person"]:
        """Of each person: the log-likelihood of the answers with its votes moved, less that of the votes."""
        distinct, which = np.unique(np.stack(moves[1:], axis=1), axis=0, return_inverse=True)
        query, before, after = distinct.T
        moved, each = votes[query], np.arange(len(query))
        moved[each, before] -= 1
        moved[each, after] += 1
        found = _log_laws(self.mechanism, np.concatenate([moved, votes]), np.append(answers[query], answers))
        change = found[: len(query)] - found[len(query) :][query]
        return np.bincount(moves.persons, change[which.ravel()], len(self.teacher_of))

    def student(self, answers: Int[np.ndarray, " query"]) -> Float[np.ndarray, "record class"]:
        """The probabilities that a closed-form student of the answers gives all records."""
        rows = np.flatnonzero(answers >= 0)
        if len(rows) < 2:
            return np.full((len(self.labels), self.classes), 1 / self.classes)
        line = of_features(self.asked[rows], np.eye(self.classes)[answers[rows]], np.ones(len(rows)))
        return line.shares(self.entries)

    def products(self, answers: Int[np.ndarray, " query"]) -> Float[np.ndarray, " person"]:
        """How far the answers agree with what each person's records alone would say of the queries."""
        given = np.where((answers >= 0)[:, None], np.eye(self.classes)[answers] - 1 / self.classes, 0)
        pulled = self.entries @ (self.asked.T @ given)
        return self._means(pulled)

    def _means(self, values: Float[np.ndarray, "record class"]) -> Float[np.ndarray, " person"]:
        """Of each person: the mean over its records of the value of their own labels."""
        own = values[np.arange(len(self.labels)), self.labels]
        return means(own, self.persons, len(self.teacher_of))

    @cached_property
    def shards(self) -> list[Shard]:
        """All records by teacher."""
        order = np.argsort(self.persons, kind="stable")
        where = self.teacher_of[self.persons[order]]
        return [self._shard(order[where == teacher]) for teacher in range(self.teachers)]

    def _shard(self, rows: Int[np.ndarray, " record"]) -> Shard:
        own = np.asarray(self.entries[rows], np.float64)
        targets = np.eye(self.classes)[self.labels[rows]] - 1 / self.classes
        return Shard(rows, self.persons[rows], own @ own.T, self.asked @ own.T, targets)


def _solved(shard: Shard, inside: Bool[np.ndarray, " record"], penalty: float) -> Solved:
    """Ridge regression on the records that are inside, by inner products alone."""
    square = shard.alike[np.ix_(inside, inside)] + penalty * np.eye(inside.sum())
    right = np.concatenate([shard.targets[inside], shard.alike[inside]], axis=1)
    both = np.linalg.solve(square, right)
    weights, back = np.split(both, [shard.targets.shape[1]], axis=1)
    asked = shard.asked[:, inside]
    return Solved(
        scores=asked @ weights,
        reach=(shard.asked - asked @ back) / penalty,
        hat=(shard.alike - shard.alike[:, inside] @ back) / penalty,
        residual=shard.targets - shard.alike[:, inside] @ weights,
    )


def _moved(
    shard: Shard,
    solved: Solved,
    inside: Bool[np.ndarray, " record"],
    labels: Int[np.ndarray, " query"],
    idle: int,
) -> Iterator[Moves]:
    """The votes of a teacher that move if one person of its shard leaves, or joins if it is not there.

    With `s` 1 for who joins and -1 for who leaves, and that person's records I, the scores change by
    `s reach_I (1 + s hat_II)^-1 residual_I`. Persons with as many records are worked on together.
    """
    names, starts, sizes = np.unique(shard.persons, return_index=True, return_counts=True)
    for size in np.unique(sizes).tolist():
        some = np.flatnonzero(sizes == size)
        rows = starts[some, None] + np.arange(size)
        sign = np.where(inside[rows[:, 0]], -1.0, 1.0)[:, None, None]
        own = np.eye(size) + sign * solved.hat[rows[:, :, None], rows[:, None, :]]
        weights = sign * np.linalg.solve(own, solved.residual[rows])
        scores = solved.scores + np.moveaxis(solved.reach[:, rows], 0, 1) @ weights
        after = _first(scores)
        after[(sign[:, 0, 0] < 0) & (inside.sum() == size)] = idle  # nobody is left
        person, query = np.nonzero(after != labels)
        yield Moves(names[some][person], query, labels[query], after[person, query])


def _first(scores: Float[np.ndarray, "*many class"]) -> Int[np.ndarray, "*many"]:
    """The class of the largest score; classes of which a shard has no record are equal but for rounding."""
    found: np.ndarray = np.round(scores, _DIGITS).argmax(-1)
    return found


def _log_laws(
    mechanism: Mechanism, votes: Votes, answers: Int[np.ndarray, " query"]
) -> Float[np.ndarray, " query"]:
    """The exact log-probability of each answer, -1 being a refusal, under the votes of its row."""
    found: np.ndarray = audits.laws(mechanism, votes)[np.arange(len(votes)), answers + 1]
    return found
