"""Attacks on a public twin of a run, of which its release may speak.

The twin has the run's pipeline, settings and noise. Public inputs take the place of private records, each
with the label that the released student gives it, and noise is drawn from numbers that everybody knows. So
whatever is found is a function of public inputs, released answers and settings: it costs nothing, anybody
may repeat it, and it says nothing about private records beyond the release. Runs of crowds and of linear
teachers are played whole; of all others the sampler alone is attacked, at the pair that tells most.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Int

from pate_jax.aggregate import noise
from pate_jax.audit.attacks import mechanism, membership, replicas, shadows
from pate_jax.audit.attacks.attack import Attack, Flags, Way, answering
from pate_jax.audit.attacks.mechanism import Audits, Key
from pate_jax.audit.attacks.roc import Measured, Promise
from pate_jax.audit.attacks.tables_pipeline import Tables
from pate_jax.audit.attacks.teachers_pipeline import LinearTeachers
from pate_jax.crowd import Voters
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import HeadCount
from pate_jax.runs import inputs
from pate_jax.runs.crowds import inputs as crowd_inputs
from pate_jax.runs.crowds import steps
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.inputs import Inputs
from pate_jax.runs.queries import asked_inputs
from pate_jax.runs.report import attacks
from pate_jax.student import Student

LARGEST = 2000  # public inputs in the place of private records, at most: a twin takes seconds
_REFERENCE = 10  # of so many one never is a member
_PUBLIC_SEED = 0  # nothing is hidden by the noise of a twin


class Twin(NamedTuple):
    """What attacks on the public twin found; all of it may be published."""

    records: int
    guesses: list[Measured]
    audits: Audits

    @property
    def holds(self) -> bool:
        """Whether nothing shows more than is promised."""
        return self.audits.holds and all(one.holds for one in self.guesses)

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        each = [one.to_dict() for one in self.guesses]
        return {"records": self.records, "attacks": each, "mechanism": self.audits.to_dict()}

    def text(self) -> str:
        """For a terminal: the paragraph that the release says."""
        return f"public twin: {attacks.paragraph(self.to_dict())}"


def unfit(run: RunDirectory) -> str | None:
    """Why a run has no twin: it has no student yet, or its noise is not drawn answer by answer."""
    if not run.results.exists():
        return f"{run.root} has released no student yet, whose labels a twin needs: run `pate student` first"
    return mechanism.ATTACK.unfit(run)


def of_run(
    audited: Callable[..., Audits],
    make: Callable[[RunDirectory], tuple[Tables | LinearTeachers, Promise]],
    run: RunDirectory,
    flags: Flags,
) -> Twin:
    """The attacks on the twin of a run, whose noise `audited` attacks and whose pipeline `make` repeats."""
    audits = audited(run, flags._replace(draws=flags.draws or mechanism.LEAST), key=_keys())
    if membership.ATTACK.unfit(run) is not None:
        return Twin(0, [], audits)
    made, promise = make(run)
    remade = shadows.Remade(make, run.root)
    seen = shadows.played(made, flags.shadows, _PUBLIC_SEED, engine=flags.engine, remade=remade)
    return Twin(made.records, membership.attacked(seen, promise, made.released), audits)


def of_crowd(run: RunDirectory) -> tuple[Tables, Promise]:
    """The pipeline of a crowd's run on public inputs, each of which is a voter."""
    opened = crowd_inputs.opened(run, tolerant=True)
    some, labels = _records(opened.inputs)
    number = next(one.event for one in steps.shown(run).numbers if isinstance(one.event, HeadCount))
    which = np.arange(len(some))
    each = []
    for line in steps.shown(run).tables:
        here = opened.at(steps.step_of(line))
        people = Voters(here.seen.public.inputs[some], labels.astype(np.int32), None)
        each.append(replicas.made_of(here, line.event, people, which))
    made = Tables(tuple(each), labels, which, number, max(1, len(some) // _REFERENCE))
    return made, made.promise(opened.choice.delta)


def of_teachers(run: RunDirectory) -> tuple[LinearTeachers, Promise]:
    """The pipeline of linear teachers on public inputs, which are cut into as many shards at random."""
    opened, promise = inputs.open(run, tolerant=True), replicas.promised(run)
    (asked, event), (some, labels) = answering(run), _records(opened)
    if opened.net.front is None:
        raise PateError(f"{run.root} has no linear teachers whose answers are repeated one by one")
    shards = np.random.default_rng(_PUBLIC_SEED).integers(0, event.teachers, len(some))
    made = LinearTeachers(
        entries=opened.net.front(opened.seen_of(opened.dataset.public)[some]),
        labels=labels,
        persons=np.arange(len(some)),
        teacher_of=shards,
        asked=opened.net.front(opened.seen_of(asked_inputs(opened))),
        teachers=event.teachers,
        classes=event.classes,
        penalty=opened.teacher.resolved().weight_decay or 0.0,
        mechanism=asked,
        promised=promise,
        reference=max(1, len(some) // _REFERENCE),
    )
    return made, promise


def _records(opened: Inputs) -> tuple[Int[np.ndarray, " record"], Int[np.ndarray, " record"]]:
    """The rows of public inputs that stand for records, and the released student's labels of these."""
    public = opened.dataset.public.inputs
    some = np.random.default_rng(_PUBLIC_SEED).permutation(len(public))[:LARGEST]
    return some, Student.load(opened.run.student)(public[some]).argmax(1).astype(np.int64)


def _keys() -> Key:
    """Keys that everybody knows, one after the other."""
    numbers = itertools.count(_PUBLIC_SEED)

    def following() -> jax.Array:
        return noise.seeded_key(next(numbers))

    return following


ATTACK = Attack(
    "twin",
    {
        "teachers": Way(lambda *of: of_run(mechanism.of_teachers, of_teachers, *of), unfit),
        "crowd": Way(lambda *of: of_run(mechanism.of_tables, of_crowd, *of), unfit),
    },
)
