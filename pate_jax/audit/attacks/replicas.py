"""The pipeline of a finished run, in memory, as membership inference repeats it.

Everything public and the noise are those of the run. One person in ten never is a member, by a hash of its
name.
"""

from __future__ import annotations

import hashlib
import math
from typing import TypeAlias

import numpy as np
from jaxtyping import Int
from scipy import sparse

from pate_jax import crowd as voting
from pate_jax.accounting import Statement
from pate_jax.audit.attacks import tables_pipeline
from pate_jax.audit.attacks.attack import answering
from pate_jax.audit.attacks.roc import Promise
from pate_jax.audit.attacks.sums_pipeline import Sums
from pate_jax.audit.attacks.tables_pipeline import Gradients, Step, Tables
from pate_jax.audit.attacks.teachers_pipeline import LinearTeachers
from pate_jax.crowd import classifier, neighbours, shares
from pate_jax.crowd import steps as of_steps
from pate_jax.crowd.classifier import Pool
from pate_jax.crowd.steps import Weights
from pate_jax.data.partition import units_of
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums, CrowdRelease, HeadCount, NeighbourCounts
from pate_jax.runs import inputs
from pate_jax.runs.crowds import inputs as crowd_inputs
from pate_jax.runs.crowds import steps
from pate_jax.runs.crowds.inputs import Crowd
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.inputs import Inputs
from pate_jax.runs.queries import asked_inputs
from pate_jax.student.methods.ridge import of_features
from pate_jax.system import storage

_REFERENCE = 10  # of so many persons one never is a member
Numbers: TypeAlias = Int[np.ndarray, " record"]
Replayed: TypeAlias = tuple[Sums | Tables | LinearTeachers, Promise]


def linear_teachers(run: RunDirectory) -> tuple[LinearTeachers, Promise]:
    """The pipeline of a run of linear teachers, and what it promises."""
    promise = promised(run)
    return of_teachers(inputs.open(run, tolerant=True), promise), promise


def crowd(run: RunDirectory) -> tuple[Sums | Tables, Promise]:
    """The pipeline of a crowd's run, and what it promises."""
    opened = crowd_inputs.opened(run, tolerant=True)
    made = of_crowd(opened)
    return made, made.promise(opened.choice.delta)


def promised(run: RunDirectory) -> Promise:
    """What a run by teachers publishes for its whole list of queries, and mu where its noise is Gaussian."""
    kept = storage.read_json(run.existing(run.public_statement, "account"), "statement")
    statement = Statement.from_dict(kept)
    epsilon = statement.headline.epsilon
    return Promise(math.inf if epsilon is None else epsilon, statement.delta, statement.trade_off.mu)


def of_teachers(opened: Inputs, promise: Promise) -> LinearTeachers:
    """The pipeline of linear teachers, who are asked what the run has asked."""
    net, private, shards = opened.net, opened.seen.private, opened.shards
    if net.front is None or not opened.teacher.closed_form:
        raise PateError(f"{opened.run.root} has no linear teachers: see `pate risk`")
    which, reference = numbered(units_of(opened.dataset.private, opened.cut.by))
    teacher_of = np.zeros(int(which.max()) + 1, np.int64)
    for teacher in range(len(shards.counts)):
        teacher_of[which[shards.of(teacher)]] = teacher
    return LinearTeachers(
        entries=net.front(private.inputs),
        labels=np.asarray(private.labels, np.int64),
        persons=which,
        teacher_of=teacher_of,
        asked=net.front(opened.seen_of(asked_inputs(opened))),
        teachers=len(shards.counts),
        classes=opened.dataset.classes,
        penalty=opened.teacher.resolved().weight_decay or 0.0,
        mechanism=answering(opened.run)[0],
        promised=promise,
        reference=reference,
    )


def numbered(names: np.ndarray) -> tuple[Int[np.ndarray, " record"], int]:
    """The number of each record's person, in an order that hashes of names give, and how many are held back.

    >>> numbered(np.array(["b", "a", "b"]))[0].tolist() in ([0, 1, 0], [1, 0, 1])
    True
    """
    known, which = np.unique(names, return_inverse=True)
    order = np.argsort([hashlib.blake2b(str(name).encode(), digest_size=8).digest() for name in known])
    number = np.empty(len(known), np.int64)
    number[order] = np.arange(len(known))
    return number[which], max(1, len(known) // _REFERENCE)


def of_crowd(opened: Crowd) -> Sums | Tables:
    """The pipeline of a crowd's run, for all voters of its tables: those that are held out move no table."""
    shown, choice = steps.shown(opened.run), opened.choice
    if not shown.tables:
        raise PateError(f"{opened.run.ledger} shows no table yet: repeat the command that made the run")
    number = next(one.event for one in shown.numbers if isinstance(one.event, HeadCount))
    which, reference = numbered(units_of(opened.seen.private, choice.by)[~opened.held_out])
    if choice.voters == "sums" and choice.by == "record" and len(shown.tables) == 1:
        return _sums(opened, shown.tables[0].event, number, which, reference)
    heres = [(opened.at(steps.step_of(line)), line.event) for line in shown.tables]
    made = [made_of(here, release, here.people, which) for here, release in heres]
    return Tables(tuple(made), _labels(opened.people), which, number, reference)


def _sums(opened: Crowd, release: CrowdRelease, number: HeadCount, which: Numbers, reference: int) -> Sums:
    if not isinstance(release, ClassSums):
        raise PateError(f"{opened.run.ledger} shows {release.name} in place of sums: restore it")
    order, people = np.argsort(which), opened.people
    vectors, labels = _vectors(opened, people), _labels(people)
    return Sums(vectors[order], labels[order], _pool(opened, release), release, number, reference)


def made_of(opened: Crowd, release: CrowdRelease, people: voting.Voters, which: Numbers) -> Step | Gradients:
    """A step's own tables of these voters, and its student."""
    queries = opened.plan.queries
    if isinstance(release, ClassSums) and opened.plan.weights is not None:
        return _gradients(opened, opened.plan.weights, release, people, which)
    if isinstance(release, ClassSums):
        seen, pool = _vectors(opened, people), _pool(opened, release)

        def of_sums(table: np.ndarray, voters: int) -> np.ndarray:
            return classifier.of_pool(table, release, pool, opened.weight(table, voters)).probabilities(seen)

        return Step(tables_pipeline.of_vectors(seen, _labels(people), which, release), release, of_sums)
    if not isinstance(release, NeighbourCounts) or queries is None:
        raise PateError(f"{opened.run.ledger} shows no table in step {opened.step}: restore it")
    asked = queries.vectors.T / queries.scaling.length
    places = voting.vectors(queries.scaling, opened.plan.space.coordinates(people.inputs))

    def of_counts(table: np.ndarray, voters: int) -> np.ndarray:
        del voters
        found = shares.of_counts(table, release).probabilities
        return of_features(asked, found, np.ones(len(found))).shares(places / queries.scaling.length)

    named = people if people.users is None else people._replace(users=which)
    votes = neighbours.cast(opened.plan.space, queries, named, release.votes)
    voters = which[votes.voters] if people.users is None else votes.voters
    cells = votes.queries.astype(np.int64) * release.classes + votes.labels
    return Step(tables_pipeline.of_cells(voters, cells, int(which.max()) + 1, release), release, of_counts)


def _gradients(
    opened: Crowd, weights: Weights, release: ClassSums, people: voting.Voters, which: Numbers
) -> Step | Gradients:
    """The gradients of a step, at the weights that the run took them."""
    seen, labels, first = _vectors(opened, people), _labels(people), opened.at(1).plan.steps
    rate = 0.0 if first is None else first.rate

    def after(table: np.ndarray, voters: int) -> np.ndarray:
        del voters
        return of_steps.probabilities(of_steps.moved(weights, table, rate), seen)

    if people.users is None:
        order = np.argsort(which)
        own = of_steps.clipped(of_steps.residuals(seen, labels, weights), seen, release.length)
        return Gradients(own[order], seen[order], release, after)
    order = np.argsort(which, kind="stable")
    own = of_steps.own_tables(seen[order], labels[order], which[order], weights, release)
    return Step(sparse.csr_array(own.reshape(len(own), -1).astype(np.float64)), release, after)


def _vectors(opened: Crowd, people: voting.Voters) -> Int[np.ndarray, "record entry"]:
    plan = opened.plan
    return voting.vectors(plan.scaling, plan.space.coordinates(people.inputs))


def _pool(opened: Crowd, release: ClassSums) -> Pool:
    return classifier.measured(voting.vectors(opened.plan.scaling, opened.pool), release.length)


def _labels(people: voting.Voters) -> Int[np.ndarray, " record"]:
    return np.asarray(people.labels, np.int64)
