"""The student of a vote among parties, which learns from what was opened and from public inputs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from pate_jax import aggregate, student
from pate_jax.crowd.shares import classifier_of, of_counts, of_sums, weight
from pate_jax.data import Dataset, Part, relation
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums, NeighbourCounts
from pate_jax.runs import results
from pate_jax.runs import students as training
from pate_jax.runs.crowds.answers import soft
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.parties import ballot, join, ledger, terms
from pate_jax.runs.parties import questions as asking
from pate_jax.runs.parties.ballot import Member, Table
from pate_jax.runs.settings import to_settings
from pate_jax.student import sums
from pate_jax.system import storage


class Lesson(NamedTuple):
    """What a student learns from: answers, the public inputs that they are of, and the classifier of sums."""

    answers: aggregate.Answers
    asked: Part
    linear: student.Student | None = None


def teach(run: RunDirectory, config: student.StudentConfig) -> dict[str, Any]:
    """Train the student of a party's run and write release/; a finished one is not trained again."""
    member = join.opened(run)
    statement = storage.read_json(run.existing(run.public_statement, "party join"), "statement")
    if run.results.exists():
        run.record.agree("student", to_settings(config))
        return results.kept(run)
    dataset = ballot.open_dataset(member)
    given = lesson(member, dataset)
    if given.linear is None or not isinstance(config, student.Linear):
        student.check(config, student.PublicInputs.of(dataset))
    run.record.agree("student", to_settings(config))
    learned, method = learn(member, config, dataset, given)
    own = {
        **results.facts(run, dataset, relation.without_warning(dataset.description)),
        "parties": len(member.agreement.parties),
        "voters": member.agreement.voters,
        "queries": len(given.asked.ids),
        "answered": int(np.asarray(given.answers.answered).sum()),
        "method": method,
    }
    taught = given.asked, given.answers
    return results.finish(run, learned, dataset, statement, own, taught, shown=False)


def learn(
    member: Member, config: student.StudentConfig, dataset: Dataset, given: Lesson
) -> tuple[student.Student, str]:
    """The student and its method: of sums `auto` takes their own classifier."""
    if given.linear is not None and isinstance(config, student.Auto | student.Linear):
        return given.linear, "linear"
    taught, apart = (dataset, given.asked, given.answers), member.agreement.voters != "sums"
    chosen = training.choose(member.run, config, *taught, independent=apart).config
    return training.learn(member.run, chosen, *taught), chosen.method


def lesson(member: Member, dataset: Dataset) -> Lesson:
    """What follows from the opened numbers, at no further cost."""
    table, plan = ledger.read(member.run.ledger).table, member.questions.plan
    if table is None:
        raise PateError(f"{member.run.ledger} shows no result yet: repeat `pate party join`")
    if member.agreement.opened == "answers":
        return _of_answers(member, dataset, table[:, 0])
    if plan is None:
        return _of_answers(member, dataset, table.argmax(1))
    released = _released(member)
    values = asking.opened_table(member.questions, table)
    if isinstance(released, NeighbourCounts):
        found = of_counts(values, released)
        return Lesson(soft(found), _part(member, dataset))
    return _of_sums(member, dataset, values, released)


def _of_answers(member: Member, dataset: Dataset, labels: Table) -> Lesson:
    """Hard labels; -1 where there is none."""
    import jax.numpy as jnp

    given = jnp.asarray(labels, jnp.int32)
    return Lesson(aggregate.Answers(given, given >= 0), _part(member, dataset))


def _part(member: Member, dataset: Dataset) -> Part:
    """The public inputs that were asked about."""
    plan, rows = member.questions.plan, member.questions.rows
    if plan is not None and plan.queries is not None:
        rows = plan.queries.rows
    if rows is None:
        return dataset.public
    return dataset.public.take(rows)


def _of_sums(member: Member, dataset: Dataset, values: Table, released: ClassSums) -> Lesson:
    plan = member.questions.plan
    if plan is None:
        raise PateError("sums have a plan: copy the agreement's own file of questions")
    plan = plan._replace(release=released)
    public = ballot.seen(member).public.inputs
    coordinates = plan.space.coordinates(public)
    voters = sum(member.vote.voters_of_parties)
    voters = weight(values, plan.scaling.constant, voters) if member.by == "user" else voters
    found = of_sums(values, plan, coordinates, voters)
    linear = None
    if sums.holds(plan.space.front):
        model = classifier_of(values, plan, coordinates, voters)
        made = sums.of_sums(student.PublicInputs.of(dataset), plan.space, plan.scaling, model)
        linear = made._replace(columns=dataset.columns)
    return Lesson(soft(found), dataset.public, linear)


def _released(member: Member) -> ClassSums | NeighbourCounts:
    """The plan's release with the noise that is in the opened table: that of all who were there."""
    plan, begun = member.questions.plan, ledger.read(member.run.ledger).begun
    if plan is None or begun is None:
        raise PateError(f"{member.run.ledger} shows no vote of a crowd: restore it from a backup")
    scale = terms.vote_of(member.agreement, member.questions).noise.together(len(begun)).scale
    return replace(plan.release, sigma=max(scale, 1.0))
