"""One party's part of a vote, from the agreement to the answers; what is finished already is not repeated.

private/ledger.jsonl     what this party was charged, with whom it voted, what was opened
private/answers.npz      what was opened; written again from the ledger where it is missing
private/statement.json   the figure of each audience
transcript.json          who voted, what was opened, and every party's signature; equal in all parties

The student learns from what was opened and from public inputs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pate_jax import aggregate, student
from pate_jax.accounting.party_statement import PartyStatement, party_statement
from pate_jax.crowd.shares import classifier_of, of_counts, of_sums, weight
from pate_jax.data import Dataset, Part, encoders, relation
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums, NeighbourCounts
from pate_jax.parties import agreement as agreements
from pate_jax.parties.agreement import Agreement
from pate_jax.runs import public_part, publication, registration, results
from pate_jax.runs import students as training
from pate_jax.runs.crowds.answers import soft
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.parties import ballot, ledger, meeting, terms
from pate_jax.runs.parties import questions as asking
from pate_jax.runs.parties.ballot import Member, Table
from pate_jax.runs.parties.meeting import Meeting
from pate_jax.runs.record import CROWD, PARTY
from pate_jax.runs.settings import DataChoice, to_settings
from pate_jax.student import sums
from pate_jax.system import progress, storage

Opener = Callable[[Agreement, str, str, tuple[str, ...] | None], AbstractContextManager[Meeting]]
AGREEMENT, QUESTIONS, TRANSCRIPT = "agreement.toml", "questions.npz", "transcript.json"
_OPENED = "opened"


def check_own(data: DataChoice) -> None:
    """Refuse a data set by name, whose private records would be the same in all parties."""
    encoders.frozen(data.encoder)
    if data.private is None:
        raise PateError(
            "a party has records of its own: give --private OWN and the --public pool of all parties"
        )


def questions_beside(agreement: Path) -> Path:
    """The file of questions that goes with an agreement's file.

    >>> questions_beside(Path("study/vote.toml")).name
    'vote.npz'
    """
    return agreement.with_suffix(".npz")


def of_party(
    file: Path, key: Path, data: DataChoice, out: Path, *, seed: int | None = None
) -> tuple[Member, str]:
    """A party of the agreement in a file, by its key, whose text comes second."""
    check_own(data)
    agreement, secret = agreements.read(file), storage.read_bytes(key).decode()
    found = asking.load(questions_beside(file), agreement.query_list)
    name = terms.own_name(agreement, secret)
    votes = key.with_suffix(".votes") / "ledger.jsonl"
    return Member(RunDirectory(out), agreement, name, found, data, seed, votes), secret


def join(member: Member, key: str, opener: Opener, book: Path | None = None) -> PartyStatement:
    """Vote once, and write what came of it; a repeated command goes on, and never charges twice.

    A party that has the result but not everybody's signature meets the others again, and opens the same. A
    begun vote with a threshold is not repeated.

    `book` is a register beside the private data: a vote that would exceed its limit is refused before
    anything is sent.
    """
    run = member.run
    terms.audiences(member.agreement, member.questions)  # refuses a budget that would be exceeded
    with run.writing():
        _begin(member)
        if ledger.read(run.ledger).opened is None or not (run.root / TRANSCRIPT).exists():
            _vote(member, key, opener, book)
        return finish(member)


def prepare(member: Member) -> int:
    """Train or count the party's own voters, and send and charge nothing; the number of questions."""
    terms.audiences(member.agreement, member.questions)
    with member.run.writing():
        _begin(member)
        return len(ballot.cast(member))


def _begin(member: Member) -> None:
    """Record which agreement the run belongs to, with copies of its files."""
    run = member.run
    settings = run.record.read()
    if PARTY not in settings and any(one in settings for one in ("data", "votes", CROWD)):
        raise PateError(f"{run.root} holds a run of another kind: choose another --out for this vote")
    run.secret.draw(member.seed)
    if ledger.read(run.ledger).opened is None:
        _look_back(member)
    run.record.agree(PARTY, ballot.facts(member))
    if not (run.private / AGREEMENT).exists():
        dataset = ballot.open_dataset(member)
        publication.record_trial(run, dataset.trial)
        public_part.agree(run, dataset)
        asking.save(run.private / QUESTIONS, member.questions, dataset)
        agreements.write(run.private / AGREEMENT, member.agreement)
    run.record.agree("data", to_settings(member.data))


def _look_back(member: Member) -> None:
    """Say what the key's other votes cost; refuse a number that is taken before any work."""
    if member.votes is not None:
        wanted = ledger.claim_of(member)
        others = ledger.others(member.votes, wanted)
        progress.warn(ledger.warning(others, wanted, member.agreement.delta))


def _vote(member: Member, key: str, opener: Opener, book: Path | None) -> None:
    """Train, charge, and take part."""
    run = member.run
    _check_repeatable(member)
    if ledger.read(run.ledger).opened is None:
        publication.refuse_unshown(run)
    dataset = ballot.open_dataset(member)
    registration.enter(run, member.spends, lambda: dataset, book)
    table = ballot.cast(member)
    noise = ballot.shares(member, table)
    audiences = terms.audiences(member.agreement, member.questions)
    ledger.charge(
        registration.Ledger(run, lambda: member.spends),
        ledger.Charge(
            agreement=member.agreement.digest,
            name=member.name,
            vote=member.agreement.vote,
            ballot=storage.digest(table),
            promise=hashlib.sha256(ballot.promise(member, table).encode()).hexdigest(),
            unit=member.agreement.unit,
            delta=member.agreement.delta,
            audiences={one.name: one.epsilon for one in audiences},
        ),
    )
    before = ledger.read(run.ledger).begun
    present = None if before is None else tuple(name for name in member.agreement.names if name in before)
    with opener(member.agreement, member.name, key, present) as met:
        meeting.hold(met, member, table, noise, key, run.root / TRANSCRIPT)


def _check_repeatable(member: Member) -> None:
    """Refuse to go on with a begun vote that has a test: its noise may serve one test alone.

    The test adds one number to a query's largest exact count. A party that brought other numbers each time
    could make one class after another the largest, and learn the exact differences of the others' counts.
    """
    if member.agreement.noise.threshold is not None and ledger.read(member.run.ledger).begun is not None:
        raise PateError(
            f"{member.run.ledger} shows that this vote was begun, and one with a threshold is not repeated: "
            "a party that brings other numbers to it could learn exact differences of the others' counts. If "
            "another party has everybody's signature, take the result from it with --transcript; else make "
            "a new agreement with a higher --vote, and add both costs"
        )


def finish(member: Member) -> PartyStatement:
    """Write the opened numbers from the ledger, and the statement."""
    run, table = member.run, ledger.read(member.run.ledger).table
    if table is None:
        raise PateError(f"{run.ledger} shows no result yet: repeat `pate party join`")
    storage.write_arrays(run.answers, _OPENED, {"values": table})
    made = stated(member, table)
    results.state(run, made)
    return made


def stated(member: Member, table: np.ndarray) -> PartyStatement:
    """The statement of a vote that has opened this table."""
    answered = None
    if member.agreement.opened == "answers":
        answered = int((table[:, 0] >= 0).sum())
    return party_statement(
        member.vote,
        member.agreement.delta,
        unit=member.agreement.unit,
        answered=answered,
        private=member.run.secret.seed is None,
    )


def receive(member: Member, file: Path) -> PartyStatement:
    """Take the result from another party's transcript, where this party was stopped after all had voted."""
    run = member.run
    with run.writing():
        shown = ledger.read(run.ledger)
        found = meeting.load(file, member.agreement)
        if shown.begun is None or shown.begun != dict(found.promises):
            raise PateError(
                f"{file} is of a vote in which this run did not take part with these promises: repeat `pate "
                "party join` with all parties"
            )
        ledger.opened(run.ledger, found.digest, found.opened)
        storage.write_bytes(run.root / TRANSCRIPT, storage.read_bytes(file))
        return finish(member)


def opened(run: RunDirectory) -> Member:
    """The party of a run directory, from its own copies of the agreement and the questions."""
    settings = run.record.read()
    agreement = agreements.read(run.existing(run.private / AGREEMENT, "party join"))
    said = settings.of(PARTY)
    if said["agreement"] != agreement.digest:
        raise PateError(
            f"{run.private / AGREEMENT} is not the agreement of this run: restore it from a backup"
        )
    found = asking.load(run.private / QUESTIONS, agreement.query_list)
    return Member(run, agreement, said["name"], found, settings.data, run.secret.seed)


def connected(
    agreement: Agreement, name: str, key: str, present: tuple[str, ...] | None
) -> AbstractContextManager[Meeting]:
    """The vote over TLS between the parties' own machines."""
    from pate_jax.parties import session  # which needs the extra

    return session.open(agreement, name, key, present=present)


class Lesson(NamedTuple):
    """What a student learns from: answers, the public inputs that they are of, and the classifier of sums."""

    answers: aggregate.Answers
    asked: Part
    linear: student.Student | None = None


def teach(run: RunDirectory, config: student.StudentConfig) -> dict[str, Any]:
    """Train the student of a party's run and write release/; a finished one is not trained again."""
    member = opened(run)
    statement = storage.read_json(run.existing(run.public_statement, "party join"), "statement")
    before = results.finished(run, config, statement)
    if before is not None:
        return before
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
