"""Checks of a net trained by DP-SGD: what was charged, whose noise it was, and the training once more."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pate_jax.accounting.costs import Trained
from pate_jax.accounting.training_statement import TrainingStatement
from pate_jax.audit import accounts, public
from pate_jax.audit.subject import Subject
from pate_jax.models import trees
from pate_jax.runs import ledger as ledgers
from pate_jax.runs.baselines import tasks, training
from pate_jax.runs.baselines.tasks import Steps
from pate_jax.runs.record import BASELINE
from pate_jax.runs.release.findings import Ended, Finding, failed, passed, unchecked
from pate_jax.student import Student

_NEAR = 1e-3  # parameters of the same steps on another machine


def ledger(subject: Subject) -> Iterator[Finding]:
    """Whether the one line of the ledger says what the settings and the records make."""
    run = subject.run
    subject.needs("baseline dpsgd", run.ledger)
    line = ledgers.charge(run.ledger, Trained)
    yield from accounts.due(line, Steps(run, tasks.opened(run, subject.inputs.dataset)))
    yield from accounts.chained(run)


def space(subject: Subject) -> Iterator[Finding]:
    """Whether what a linear head reads of an input follows from the public part."""
    run = subject.run
    found = tasks.opened(run, subject.inputs.dataset)
    if found.head is None:
        yield passed("the net learned from the records as they are, through no space")
        return
    kept, again = found.head, tasks.learned(found.dataset, found.settings)
    yield from public.learned(
        public.Seen(tasks.arrays(kept), kept.front),
        public.Seen(tasks.arrays(again), again.front),
        found.dataset.public.inputs,
        "space and weights of the head",
        "public inputs and settings",
    )


def stated(subject: Subject) -> Iterator[Finding]:
    """Whether both statements say what the line of the ledger costs."""
    run = subject.run
    subject.needs("baseline dpsgd", run.ledger)
    line, delta = ledgers.charge(run.ledger, Trained), run.record.read().of(BASELINE)["delta"]
    again = tasks.charged(line.event.training, delta, run.secret.seed is None).publishable()
    yield from accounts.stated(subject, "baseline dpsgd", again, again, "the ledger gives")


def published(statement: TrainingStatement) -> Iterator[Finding]:
    """The published figures again, from the training that a statement names."""
    again = tasks.charged(statement.training, statement.delta, statement.private)
    costs = "the training costs that the statement names"
    for mine, cost in ((statement.changed, again.changed), (statement.added, again.added)):
        yield from accounts.figure(mine, cost, "a training that costs", costs)


def student_again(subject: Subject) -> Iterator[Finding]:
    """Whether the released net comes out of the records, the settings and the secret once more."""
    run = subject.run
    if isinstance(subject.opened, Finding) or not run.results.exists():
        raise Ended(unchecked("the net is not trained again: its records or its results are not here"))
    line = ledgers.charge(run.ledger, Trained)
    made = training.train(run, tasks.opened(run, subject.inputs.dataset), line)
    mine, theirs = (trees.flat(one.parameters) for one in (made, Student.load(run.student)))
    gaps = [float(np.abs(np.asarray(mine[name]) - np.asarray(theirs[name])).max()) for name in mine]
    if max(gaps) == 0:
        yield passed("the net comes out again, bit for bit")
    elif max(gaps) < _NEAR:
        yield unchecked(f"the net comes out again but for {max(gaps):.1g}, as on another machine")
    else:
        yield failed(f"the net trained again differs by up to {max(gaps):.3g}")
