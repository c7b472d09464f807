"""Recomputes a run from its files, and says what holds, what does not, and what cannot be checked.

public        the public part, and spaces and queries that follow from it
shards        keys, partition, the rows that teachers got, votes, queries
spending      ledger, noise, budget, statement
headcount     the noisy number of voters that teachers were chosen by
secrets       the content that no file of release/ may have (runs/release/check.py looks for it)
retraining    labels, teachers and student, computed again
crowds        the same checks for a run whose voters are its records or users
baselines     the same for a net trained on the records themselves
tune          the same for a choice of settings, candidate by candidate
recounts      the tables and scores of such a run counted again, and its students trained again
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from pate_jax import accounting
from pate_jax.audit import (
    baselines,
    crowds,
    headcount,
    parties,
    public,
    recounts,
    retraining,
    secrets,
    shards,
    spending,
    tune,
)
from pate_jax.audit.subject import Subject
from pate_jax.data.trial_mark import SENTENCE
from pate_jax.errors import PateError
from pate_jax.runs import ledger, registration
from pate_jax.runs.baselines import training
from pate_jax.runs.crowds.inputs import Crowd, is_crowd, plan_of
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.parties import join
from pate_jax.runs.parties.ballot import Member
from pate_jax.runs.record import HEADCOUNT
from pate_jax.runs.release import check
from pate_jax.runs.release.findings import Examination, Finding, examine, failed, unchecked
from pate_jax.system import storage

Checks = dict[str, Callable[[], Iterable[Finding]]]
RETRAINED = 3  # teachers
_OUT_OF_SIGHT = (
    "that the shards are disjoint and that each teacher saw its own only",
    "that the votes are the teachers' labels, and that no input was asked about twice",
    "that the answers are the votes and noise of the stated scale, and that the noise came from entropy",
    "that the ledger shows every query that was ever answered",
)


def at(path: Path | str, *, deep: bool = False, retrained: int = RETRAINED) -> Examination:
    """Examine the content of a path: a whole run, or only its release/."""
    path = Path(path)
    if (path / "private").is_dir():
        if all(entry.name.startswith(".") for entry in (path / "private").iterdir()):
            raise PateError(
                f"{path} holds nothing yet: a run was refused, or stopped, before its first stage"
            )
        return of_run(RunDirectory(path), deep=deep, retrained=retrained)
    for folder in (path, path / "release"):
        if (folder / "statement.json").exists():
            return of_release(folder)
    raise PateError(f"{path} is neither a run directory nor a release: name a folder that `pate` has made")


def verify(run: RunDirectory, *, deep: bool = False) -> dict[str, list[str]]:
    """The failures, by the name of the check; a check that passes has an empty list."""
    examination = of_run(run, deep=deep)
    return {
        name: [finding.text for finding in each if finding.outcome == "failed"]
        for name, each in examination.checks.items()
    }


def of_run(run: RunDirectory, *, deep: bool = False, retrained: int = RETRAINED) -> Examination:
    """Recompute everything that the files of a run allow, without writing anything.

    With `deep`, the teachers vote again, some of them are trained again from their own shard alone, and the
    student is trained again from public inputs and answers alone.
    """
    subject = Subject(run)
    if join.is_party(run):
        return examine(str(run.root), _of_party(subject))
    if tune.is_tune(run):
        checks, again = _of_choice(subject)
    elif training.is_training(run):
        checks, again = _of_training(subject)
    else:
        checks, again = _of_crowd(subject) if is_crowd(run) else _of_teachers(subject, retrained)
    if not deep:
        again = dict.fromkeys(again, _shallow)
    return examine(str(run.root), {**checks, **again})


def _of_teachers(subject: Subject, retrained: int) -> tuple[Checks, Checks]:
    """The checks of a run of teachers, and the deep checks, which compute parts of it again."""
    run = subject.run
    checks: Checks = {
        "keys": partial(shards.keys, run),
        "public": partial(public.recorded, subject),
        "partition": partial(shards.certified, subject),
        "fed": partial(shards.fed, subject),
        "votes": partial(shards.votes, run),
        "queries": partial(shards.queries, subject),
        "ledger": partial(_shown, run),
        "noise": partial(spending.noise, run),
        "budget": partial(_spent, run),
        "statement": partial(spending.stated, run),
        "release": partial(_released, subject),
    }
    again: Checks = {
        "chosen": partial(public.chosen, subject),
        "labels": partial(retraining.labels, subject),
        "teachers": partial(retraining.teachers, subject, retrained),
        "student": partial(retraining.student_again, subject),
    }
    return checks, again


def _of_crowd(subject: Subject) -> tuple[Checks, Checks]:
    """The checks and the deep checks of a run whose voters are its records or users."""
    run, crowd = subject.run, crowds.opened(subject)
    checks: Checks = {
        "keys": partial(shards.keys, run),
        "voters": partial(crowds.voters, run, crowd),
        "public": partial(_of_public, subject, crowd),
        "apart": partial(shards.public_apart, subject),
        "ledger": partial(crowds.lines, run),
        "noise": partial(crowds.noise, run),
        "register": lambda: registration.examined(run, plan_of(run)),
        "statement": partial(crowds.stated, run),
        "release": partial(_released, subject),
    }
    again: Checks = {
        "table": partial(recounts.recounted, run, crowd),
        "student": partial(recounts.student_again, run, crowd),
    }
    return checks, again


def _of_training(subject: Subject) -> tuple[Checks, Checks]:
    """The checks of a net trained on the private records themselves, and its training once more."""
    run = subject.run
    checks: Checks = {
        "keys": partial(shards.keys, run),
        "public": partial(public.recorded, subject),
        "apart": partial(shards.public_apart, subject),
        "ledger": partial(baselines.ledger, subject),
        "register": partial(baselines.entered, subject),
        "space": partial(baselines.space, subject),
        "statement": partial(baselines.stated, run),
        "release": partial(_released, subject),
    }
    return checks, {"student": partial(baselines.student_again, subject)}


def _of_choice(subject: Subject) -> tuple[Checks, Checks]:
    """The checks and the deep checks of a choice of settings: of each candidate, and of the best one."""
    choice = tune.opened(subject)
    checks: Checks = {
        "keys": partial(shards.keys, subject.run),
        "apart": partial(_of_parts, subject),
        **tune.checks(choice),
        "release": lambda: _released(Subject(tune.winner(choice))),
    }
    return checks, tune.again(choice)


def _of_party(subject: Subject) -> Checks:
    """The checks of one party's part of a vote among several, as far as its own files allow."""
    run, member = subject.run, join.opened(subject.run)
    return {
        "keys": partial(shards.keys, run),
        "agreement": partial(parties.agreed, member),
        "public": partial(_of_pool, subject, member),
        "apart": partial(shards.public_apart, subject),
        "ledger": partial(parties.lines, member),
        "noise": partial(parties.own, member),
        "transcript": partial(parties.signed, member),
        "register": partial(parties.entered, member),
        "statement": partial(parties.stated, member),
        "release": partial(_released, subject),
    }


def of_release(folder: Path) -> Examination:
    """The checks of an auditor who has only release/."""
    checks: Checks = {
        "release": partial(check.look, folder),
        "agreement": partial(check.agrees, folder),
        "statement": partial(_stated, folder),
        "private": _out_of_sight,
    }
    return examine(str(folder), checks)


def _of_parts(subject: Subject) -> Iterator[Finding]:
    yield from public.recorded(subject)
    yield from shards.public_apart(subject)


def _of_public(subject: Subject, crowd: Crowd | Finding) -> Iterator[Finding]:
    yield from public.recorded(subject)
    yield from crowds.public(subject.run, crowd)


def _of_pool(subject: Subject, member: Member) -> Iterator[Finding]:
    yield from public.recorded(subject)
    yield from parties.public_space(member)


def _shown(run: RunDirectory) -> Iterator[Finding]:
    if run.ledger.exists():
        yield from headcount.line(run)
    yield from spending.lines(run)


def _spent(run: RunDirectory) -> Iterator[Finding]:
    chosen = HEADCOUNT in run.record.read()
    yield from headcount.within(run, ledger.read(run.ledger)) if chosen else spending.spent(run)
    yield from registration.examined(run, spending.asked(run))


def _released(subject: Subject) -> Iterator[Finding]:
    run = subject.run
    if not run.public_statement.exists():
        yield shards.absent(run, run.public_statement, "account")
        return
    yield from check.look(run.release, secrets.secrets(subject))
    yield from check.agrees(run.release)
    yield from _stated(run.release)


def _stated(folder: Path) -> Iterator[Finding]:
    body = storage.read_json(folder / "statement.json", "statement")
    if "trial" in body:
        yield failed(SENTENCE)
    statement = accounting.Statement.from_dict(body)
    yield from spending.coherent(body, statement)
    if isinstance(statement, accounting.TrainingStatement):
        yield from baselines.published(statement)
    elif isinstance(statement, accounting.PartyStatement):
        yield from parties.published(statement)
    elif isinstance(statement, accounting.CrowdStatement):
        yield from crowds.published(statement)
    elif isinstance(statement, accounting.AnswersStatement):
        yield from spending.published(statement, body.get("model_card_line"))


def _shallow() -> Iterator[Finding]:
    yield unchecked("not made once more; --deep does that")


def _out_of_sight() -> Iterator[Finding]:
    yield from (unchecked(f"{what}: that needs private/") for what in _OUT_OF_SIGHT)
