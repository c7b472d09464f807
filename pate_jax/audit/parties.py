"""Checks of one party's part of a vote, as far as one party's files allow."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from pate_jax.accounting.party_statement import PartyStatement, party_statement
from pate_jax.audit import accounts, crowds, public
from pate_jax.audit.subject import Subject
from pate_jax.runs.crowds import public_side
from pate_jax.runs.parties import ballot, join, ledger, meeting, terms
from pate_jax.runs.parties import questions as asking
from pate_jax.runs.parties.ballot import Member
from pate_jax.runs.release.findings import Ended, Finding, failed, judged, passed, unchecked
from pate_jax.system import storage

_OUT_OF_SIGHT = (
    "that the other parties' voters are what they say, and that their noise came from entropy",
    "that no person is with two parties",
    "that the other parties keep one ledger each, and vote under this agreement once",
)


def agreed(subject: Subject) -> Iterator[Finding]:
    """Whether the run's agreement, questions and pool are the agreed ones, and the budget holds."""
    member = subject.member
    dataset = ballot.open_dataset(member)
    yield passed(
        f"the pool of {len(dataset.public.ids):,} public inputs and the questions are the agreed ones"
    )
    found = terms.audiences(member.agreement, member.questions)
    yield passed(f"the figures of {len(found)} audiences are within the agreement's budget")


def public_space(subject: Subject) -> Iterator[Finding]:
    """Whether the space and the weights in which the voters of all parties vote follow from the pool."""
    member = subject.member
    plan = member.questions.plan
    if plan is None:
        return
    crowd, agreement = ballot.crowd_of(member), member.agreement
    if crowd.choice.voters == "neighbours":
        crowd = replace(crowd, choice=replace(crowd.choice, queries=agreement.queries), steps={})
    voters = sum(member.vote.voters_of_parties)
    again = asking.of_crowd(crowd, voters, terms.mu_of(agreement)).plan
    if again is None:
        return
    kept, made = (
        {
            name: array for name, array in crowd.arrays(one).items() if name != "release"
        }  # whose noise is agreed
        for one in (plan, again)
    )
    yield from public.learned(
        crowds.seen(plan, kept),
        crowds.seen(again, made),
        crowd.seen.public.inputs,
        "space, weights and queries of all parties",
        "the pool and the agreement",
        public_side.SPACE,
    )


def lines(subject: Subject) -> Iterator[Finding]:
    """Whether the ledger is whole, and is charged for what was opened."""
    member = subject.member
    run, shown = member.run, ledger.read(member.run.ledger)
    yield from accounts.chained(run)
    if shown.charge is None or shown.begun is None or shown.opened is None:
        raise Ended(unchecked("the vote is not over: repeat `pate party join`"))
    yield from judged(_charged(member, shown), "the charge is that of the agreement, for every audience")
    values = storage.read_arrays(run.answers, "opened")["values"] if run.answers.exists() else None
    same = values is not None and shown.table is not None and np.array_equal(values, shown.table)
    yield from judged(
        [] if same else [f"{run.answers} does not hold what the ledger says was opened"],
        "the opened numbers are those that the ledger recorded",
    )


def _charged(member: Member, shown: ledger.Shown) -> Iterator[str]:
    charge, agreement = shown.charge, member.agreement
    if charge is None:
        return
    if (charge.agreement, charge.name, charge.vote) != (agreement.digest, member.name, agreement.vote):
        yield "the ledger is charged for another agreement"
    if (charge.unit, charge.delta) != (agreement.unit, agreement.delta):
        yield "the ledger is charged for another unit or delta"
    for one in terms.audiences(agreement, member.questions):
        said = charge.audiences.get(one.name)
        if said is None or not accounts.covers(said, one.epsilon):
            yield f"{one.name} may learn {one.epsilon}, and the ledger is charged {said}"


def own(subject: Subject) -> Iterator[Finding]:
    """Whether the ballot and the noise that were promised are those of the run's own files and secret."""
    member = subject.member
    shown = ledger.read(member.run.ledger)
    if shown.charge is None:
        raise Ended(unchecked("nothing was charged yet"))
    table = ballot.cast(member)
    promise = ballot.promise(member, table)
    faults = []
    if shown.charge.ballot != storage.digest(table):
        faults.append("the own numbers are not those that were charged")
    if shown.charge.promise != hashlib.sha256(promise.encode()).hexdigest():
        faults.append("the promise does not follow from the run's secret and its numbers")
    if shown.begun is not None and shown.begun.get(member.name) != promise:
        faults.append("another ballot or other noise was promised to the others")
    yield from judged(faults, "the own ballot and noise are those that were promised")
    if member.run.secret.seed is not None:
        yield failed("this party's noise came from a seed, so the vote promises less than it says")


def signed(subject: Subject) -> Iterator[Finding]:
    """Whether the transcript is signed by all who voted, and says what the ledger says."""
    member = subject.member
    path, shown = member.run.root / "transcript.json", ledger.read(member.run.ledger)
    if not path.exists():
        raise Ended(unchecked("there is no transcript yet: repeat `pate party join`"))
    found = meeting.load(path, member.agreement)
    faults = []
    if shown.opened is None or shown.opened.transcript != found.digest:
        faults.append("the transcript is not that which the ledger recorded")
    if dict(found.promises) != shown.begun:
        faults.append("the transcript names other promises than the ledger")
    yield from judged(
        faults, f"{len(found.promises)} parties have signed the transcript that the ledger recorded"
    )
    yield from (unchecked(f"{what}: that needs their files") for what in _OUT_OF_SIGHT)


def stated(subject: Subject) -> Iterator[Finding]:
    """Whether the statement follows from the agreement and from what was opened."""
    member = subject.member
    table = ledger.read(member.run.ledger).table
    if table is None or not member.run.statement.exists():
        raise Ended(unchecked("there is no statement yet: repeat `pate party join`"))
    again = join.stated(member, table).publishable()
    yield from accounts.stated(
        subject, "party join", again, again, "the agreement and the opened numbers give"
    )


def published(statement: PartyStatement) -> Iterator[Finding]:
    """The published figures again, from the vote that a statement names."""
    vote, delta, unit = statement.vote, statement.delta, statement.relation
    again = party_statement(vote, delta, unit=unit, private=statement.private)
    wanted = {one.name: one.epsilon for one in again.audiences}
    said = {one.name: one.epsilon for one in statement.audiences}
    same = set(said) == set(wanted) and all(accounts.covers(said[name], wanted[name]) for name in wanted)
    yield from judged(
        [] if same else [f"the audiences are said to learn {said}, and the vote gives {wanted}"],
        f"epsilon {statement.headline.epsilon} is what the vote costs that the statement names",
    )
