"""Recomputes a run from its files, and says what holds, what does not, and what cannot be checked.

public        the public part, and spaces and queries that follow from it
shards        keys, partition, the rows that teachers got, votes, queries
accounts      what the ledgers, noise and statements of all kinds of runs have in common
spending      ledger, noise, budget, statement, and the noisy number of voters that chose the teachers
secrets       the content that no file of release/ may have (runs/release/check.py looks for it)
retraining    labels, teachers, tables, scores and students, computed again
crowds        the same checks for a run whose voters are its records or users
baselines     the same for a net trained on the records themselves
methods       the same for a method in one file
labels        the same for several labels: each label's run, the shares of one budget, and the one release
tune          the same for a choice of settings, candidate by candidate
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pate_jax import accounting
from pate_jax.audit import (
    accounts,
    baselines,
    crowds,
    labels,
    methods,
    parties,
    public,
    retraining,
    secrets,
    shards,
    spending,
    tune,
)
from pate_jax.audit.subject import RETRAINED, Subject
from pate_jax.data.trial_mark import SENTENCE
from pate_jax.errors import PateError
from pate_jax.runs import methods as own_methods
from pate_jax.runs import registration
from pate_jax.runs.baselines import tasks
from pate_jax.runs.crowds.inputs import plan_of
from pate_jax.runs.directory import Kind, RunDirectory, kind_of
from pate_jax.runs.plans import Plan
from pate_jax.runs.record import HEADCOUNT
from pate_jax.runs.release import check
from pate_jax.runs.release.findings import Examination, Finding, examine, failed, made, unchecked
from pate_jax.runs.tune import candidates
from pate_jax.system import storage
from pate_jax.system.tasks import HERE, Engine, opened_once

Checks = dict[str, tuple[Callable[[Subject], Iterable[Finding]], ...]]


class Checked(NamedTuple):
    """What is checked of one kind of run."""

    plan: Callable[[Subject], Plan | None]  # all that it may spend, or has asked
    checks: Checks
    deep: Checks  # compute parts of it again


_OUT_OF_SIGHT = (
    "that the shards are disjoint and that each teacher saw its own only",
    "that the votes are the teachers' labels, and that no input was asked about twice",
    "that the answers are the votes and noise of the stated scale, and that the noise came from entropy",
    "that the ledger shows every query that was ever answered",
)


def at(path: Path | str, *, deep: bool = False, engine: Engine = HERE) -> Examination:
    """Examine the content of a path: a whole run, or only its release/."""
    path = Path(path)
    if (path / "private").is_dir():
        if all(entry.name.startswith(".") for entry in (path / "private").iterdir()):
            raise PateError(
                f"{path} holds nothing yet: a run was refused, or stopped, before its first stage"
            )
        return of_run(RunDirectory(path), deep=deep, engine=engine)
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


def of_run(
    run: RunDirectory, *, deep: bool = False, retrained: int = RETRAINED, engine: Engine = HERE
) -> Examination:
    """Recompute everything that the files of a run allow, without writing anything.

    With `deep`, the teachers vote again, some of them are trained again from their own shard alone, and the
    student is trained again from public inputs and answers alone. Workers of an `engine` share these parts.
    """
    subject = Subject(run, retrained, deep, engine)
    _, checks, again = checks_of(subject)
    if not deep:
        again = dict.fromkeys(again, (_shallow,))
    elif engine is not HERE:
        items = [Deep(run.root, retrained, name) for name in again]
        found = dict(engine.each(one_deep, items))
        again = {one.name: (partial(_found, found[place]),) for place, one in enumerate(items)}
    of_name = {**checks, **again}
    return examine(
        str(run.root),
        {name: partial(made, *(partial(one, subject) for one in each)) for name, each in of_name.items()},
    )


class Deep(NamedTuple):
    """A check that computes a part of a run again, on a worker that opens the run for itself."""

    root: Path
    retrained: int
    name: str


def one_deep(one: Deep) -> tuple[Finding, ...]:
    """What such a check finds."""
    subject = _opened(one.root, one.retrained)
    return tuple(made(*(partial(check, subject) for check in checks_of(subject).deep[one.name])))


@opened_once
def _opened(root: Path, retrained: int) -> Subject:
    return Subject(RunDirectory(root), retrained)


def _found(findings: tuple[Finding, ...], subject: Subject) -> tuple[Finding, ...]:
    del subject  # another process has examined it
    return findings


def checks_of(subject: Subject) -> Checked:
    """What is checked of a run of its kind."""
    return _OF_KIND[kind_of(subject.run)]


def of_release(folder: Path) -> Examination:
    """The checks of an auditor who has only release/."""
    checks: dict[str, Callable[[], Iterable[Finding]]] = {
        "release": partial(check.look, folder),
        "agreement": partial(check.agrees, folder),
        "statement": partial(_stated, folder),
        "private": _out_of_sight,
    }
    return examine(str(folder), checks)


def _shown(subject: Subject) -> Iterator[Finding]:
    if subject.run.ledger.exists():
        yield from spending.headcount(subject)


def _spent(subject: Subject) -> Iterator[Finding]:
    return spending.within_limit(subject) if HEADCOUNT in subject.settings else spending.spent(subject)


def _entered(subject: Subject) -> Iterable[Finding]:
    """Whether the register that the run was recorded with shows all that it may spend, or has asked."""
    return registration.examined(subject.run, checks_of(subject).plan(subject))


def _released(subject: Subject) -> Iterator[Finding]:
    yield from _searched(subject, secrets.secrets(subject))


def _of_labels(subject: Subject) -> Iterator[Finding]:
    yield from _searched(subject, labels.secrets(subject.run, secrets.secrets))


def _each_label(subject: Subject) -> Iterator[Finding]:
    every = partial(of_run, deep=subject.deep, retrained=subject.retrained, engine=subject.engine)
    yield from labels.each(subject.run, every)


def _searched(subject: Subject, kept: check.Secrets) -> Iterator[Finding]:
    """The release, which must have nothing that is kept."""
    run = subject.run
    subject.needs("account", run.public_statement)
    yield from check.look(run.release, kept)
    yield from check.agrees(run.release)
    yield from _stated(run.release)


def _stated(folder: Path) -> Iterator[Finding]:
    body = storage.read_json(folder / "statement.json", "statement")
    if "trial" in body:
        yield failed(SENTENCE)
    statement = accounting.Statement.from_dict(body)
    yield from accounts.coherent(body, statement.publishable())
    if isinstance(statement, accounting.TrainingStatement):
        yield from baselines.published(statement)
    elif isinstance(statement, accounting.PartyStatement):
        yield from parties.published(statement)
    elif isinstance(statement, accounting.CrowdStatement):
        yield from crowds.published(statement)
    elif isinstance(statement, accounting.AnswersStatement):
        yield from spending.published(statement, body.get("model_card_line"))


def _shallow(subject: Subject) -> Iterator[Finding]:
    yield unchecked("not made once more; --deep does that")


def _out_of_sight() -> Iterator[Finding]:
    yield from (unchecked(f"{what}: that needs private/") for what in _OUT_OF_SIGHT)


_OF_KIND: dict[Kind, Checked] = {
    "teachers": Checked(
        spending.asked,
        {
            "keys": (shards.keys,),
            "public": (public.recorded,),
            "partition": (shards.certified,),
            "fed": (shards.fed,),
            "votes": (shards.votes,),
            "queries": (shards.queries,),
            "ledger": (_shown, spending.lines),
            "noise": (spending.noise,),
            "budget": (_spent, _entered),
            "statement": (spending.stated,),
            "release": (_released,),
        },
        {
            "chosen": (public.chosen,),
            "labels": (retraining.labels,),
            "teachers": (retraining.teachers,),
            "student": (retraining.student_again,),
        },
    ),
    "crowd": Checked(
        lambda subject: plan_of(subject.run),
        {
            "keys": (shards.keys,),
            "voters": (crowds.voters,),
            "public": (public.recorded, crowds.public),
            "apart": (shards.public_apart,),
            "ledger": (crowds.lines,),
            "noise": (crowds.noise,),
            "register": (_entered,),
            "statement": (crowds.stated,),
            "release": (_released,),
        },
        {"table": (retraining.recounted,), "student": (retraining.student_of_tables,)},
    ),
    "training": Checked(
        lambda subject: tasks.spending(tasks.opened(subject.run, subject.inputs.dataset)),
        {
            "keys": (shards.keys,),
            "public": (public.recorded,),
            "apart": (shards.public_apart,),
            "ledger": (baselines.ledger,),
            "register": (_entered,),
            "space": (baselines.space,),
            "statement": (baselines.stated,),
            "release": (_released,),
        },
        {"student": (baselines.student_again,)},
    ),
    "choice": Checked(
        lambda subject: candidates.plan(subject.choice),
        {
            "keys": (shards.keys,),
            "apart": (public.recorded, shards.public_apart),
            "charge": (tune.charged,),
            "drawn": (tune.drawn,),
            "voters": (tune.of_all(crowds.voters),),
            "public": (tune.of_all(crowds.public),),
            "ledger": (tune.of_all(crowds.lines),),
            "noise": (tune.of_all(crowds.noise),),
            "chosen": (tune.chosen,),
            "register": (_entered,),
            "statement": (tune.of_winner(crowds.stated),),
            "release": (tune.of_winner(_released),),
        },
        {
            "table": (tune.of_all(retraining.recounted),),
            "student": (tune.of_all(retraining.between_again),),
        },
    ),
    "method": Checked(
        lambda subject: own_methods.opened(subject.run).plan(),
        {
            "keys": (shards.keys,),
            "public": (public.recorded,),
            "apart": (shards.public_apart,),
            "voters": (methods.moved,),
            "ledger": (methods.lines,),
            "noise": (methods.noise,),
            "register": (_entered,),
            "statement": (methods.stated,),
            "release": (_released, methods.released),
        },
        {"student": (methods.student_again,)},
    ),
    "labels": Checked(
        lambda subject: None,  # each label's run is entered with its own
        {
            "labels": (_each_label,),
            "budget": (labels.shared,),
            "ledger": (labels.ledgers,),
            "statement": (labels.stated,),
            "release": (labels.released, _of_labels),
        },
        {"figures": (labels.measured_again,)},
    ),
    "party": Checked(
        lambda subject: subject.member.spends,
        {
            "keys": (shards.keys,),
            "agreement": (parties.agreed,),
            "public": (public.recorded, parties.public_space),
            "apart": (shards.public_apart,),
            "ledger": (parties.lines,),
            "noise": (parties.own,),
            "transcript": (parties.signed,),
            "register": (_entered,),
            "statement": (parties.stated,),
            "release": (_released,),
        },
        {},
    ),
}
