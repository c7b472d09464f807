"""Checks of a net trained by DP-SGD: what was charged, whose noise it was, and the training once more."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pate_jax.accounting.sampled_noise import Training
from pate_jax.accounting.training_statement import TrainingStatement
from pate_jax.audit import public
from pate_jax.audit.shards import absent
from pate_jax.audit.spending import covers, differences
from pate_jax.audit.subject import Subject
from pate_jax.models import trees
from pate_jax.runs import chain, registration, streams, trials
from pate_jax.runs.baselines import tasks, training
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.ledger import TRAINING
from pate_jax.runs.release.findings import Finding, failed, judged, passed, unchecked
from pate_jax.student import Student
from pate_jax.system import storage

_NEAR = 1e-3  # parameters of the same steps on another machine


def ledger(subject: Subject) -> Iterator[Finding]:
    """Whether the one line of the ledger says what the settings and the records make."""
    run = subject.run
    if not run.ledger.exists():
        yield absent(run, run.ledger, "baseline dpsgd")
        return
    lines = chain.read(run.ledger)
    if len(lines) != 1 or lines[0]["schema"] != TRAINING:
        yield failed(f"the ledger has {len(lines)} lines, where one training has one")
        return
    yield passed("the ledger is whole, and has the one line of the training")
    if isinstance(subject.inputs, Finding):
        yield subject.inputs
        return
    found = tasks.opened(run, subject.inputs.dataset)
    plan = tasks.planned(found)
    faults = list(differences(lines[0]["training"], tasks.training_of(plan)._asdict()))
    if lines[0]["records"] != tasks.records(found.dataset):
        faults.append("the records are others than those that the ledger names")
    yield from judged(faults, "the noise is what the settings plan for so many records, and these are they")
    commitment = streams.commitment(run, tasks.stream(found))
    yield from judged(
        [] if lines[0]["noise"] == commitment else ["the ledger commits to another noise than the run's"],
        "the noise follows from the run's secret, the settings and the records",
    )


def entered(subject: Subject) -> Iterator[Finding]:
    """Whether the register that the run was recorded with shows its training."""
    if isinstance(subject.inputs, Finding):
        yield subject.inputs
        return
    plan = tasks.spending(tasks.opened(subject.run, subject.inputs.dataset))
    yield from registration.examined(subject.run, plan)


def space(subject: Subject) -> Iterator[Finding]:
    """Whether what a linear head reads of an input follows from the public part."""
    run = subject.run
    if isinstance(subject.inputs, Finding):
        yield subject.inputs
        return
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


def stated(run: RunDirectory) -> Iterator[Finding]:
    """Whether both statements say what the line of the ledger costs."""
    for path in (run.ledger, run.statement, run.public_statement):
        if not path.exists():
            yield absent(run, path, "baseline dpsgd")
            return
    made = chain.read(run.ledger)[0]
    again = tasks.charged(Training(**made["training"]), made["delta"], run.secret.seed is None)
    wanted = again.publishable()
    for which, path, due in (
        ("private", run.statement, wanted),
        ("published", run.public_statement, trials.stated(run, wanted)),
    ):
        body = storage.read_json(path, "statement")
        yield from judged(
            (f"the {which} statement differs: {one}" for one in differences(body, due)),
            f"the {which} statement is what the ledger gives, at delta {again.delta:g}",
        )


def published(statement: TrainingStatement) -> Iterator[Finding]:
    """The published figures again, from the training that a statement names."""
    again = tasks.charged(statement.training, statement.delta, statement.private)
    pairs = ((statement.changed, again.changed), (statement.added, again.added))
    yield from judged(
        [
            f"epsilon {mine} is published for a training that costs {cost}"
            for mine, cost in pairs
            if not covers(mine, cost)
        ],
        f"epsilon {statement.changed} is what the training costs that the statement names",
    )


def student_again(subject: Subject) -> Iterator[Finding]:
    """Whether the released net comes out of the records, the settings and the secret once more."""
    run = subject.run
    if isinstance(subject.inputs, Finding) or not run.results.exists():
        yield unchecked("the net is not trained again: its records or its results are not here")
        return
    made = training.train(run, tasks.opened(run, subject.inputs.dataset))
    mine, theirs = (trees.flat(one.parameters) for one in (made, Student.load(run.student)))
    gaps = [float(np.abs(np.asarray(mine[name]) - np.asarray(theirs[name])).max()) for name in mine]
    if max(gaps) == 0:
        yield passed("the net comes out again, bit for bit")
    elif max(gaps) < _NEAR:
        yield unchecked(f"the net comes out again but for {max(gaps):.1g}, as on another machine")
    else:
        yield failed(f"the net trained again differs by up to {max(gaps):.3g}")
