"""Computes parts of a run again from the inputs that should determine them, and compares the results.

The teachers label the public inputs again. Some teachers are trained again from only their own shard and
key, and the student is trained again from only public inputs and the answers.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from pate_jax import ensemble, student
from pate_jax.audit.subject import Subject
from pate_jax.data.partition import Shards
from pate_jax.ensemble import checkpoint
from pate_jax.runs import answers, students
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.inputs import Inputs
from pate_jax.runs.queries import asked_inputs
from pate_jax.runs.release.findings import Ended, Finding, failed, judged, passed, unchecked
from pate_jax.system import storage

_MOVED = 1e-3  # share of labels that rounding may move between two machines
_RELATIVE, _ABSOLUTE = 1e-3, 1e-4


def labels(subject: Subject) -> Iterator[Finding]:
    """Whether the stored teachers give the labels in the votes files."""
    run, opened = subject.run, _ready(subject)
    votes = answers.load_asked(run)
    if votes.teacher_labels is None:
        raise Ended(unchecked("the votes files hold no labels of single teachers"))
    asked = opened.seen_of(asked_inputs(opened))
    teachers = checkpoint.finished_teachers(run.teachers)
    again = ensemble.predict(opened.net, opened.dataset.preprocessing, teachers, asked)
    wrong = again != votes.teacher_labels
    if 0 < wrong.mean() <= _MOVED:
        yield unchecked(f"{wrong.sum()} of {wrong.size:,} labels differ, as rounding may between machines")
    else:
        yield from judged(
            [f"{wrong.sum()} of {wrong.size:,} labels are not the teachers'"] if wrong.any() else [],
            f"{len(again)} teachers give their {wrong.size:,} labels again",
        )


def teachers(subject: Subject) -> Iterator[Finding]:
    """Whether some teachers, each trained again from its own shard alone, equal the stored ones."""
    run, opened = subject.run, _ready(subject)
    dataset, shards = opened.dataset, opened.shards
    config = replace(opened.teacher, width=checkpoint.plan(checkpoint.folders(run.teachers)[0]).width)
    sampled = _sample(len(shards.counts), subject.retrained)
    before = dict(checkpoint.parameters_of(checkpoint.finished_teachers(run.teachers), sampled))
    for teacher, parameters in before.items():
        again = ensemble.fit(
            opened.net,
            dataset.preprocessing,
            opened.seen.private.inputs,
            np.asarray(dataset.private.labels),
            _alone(shards, teacher),
            key=opened.teacher_key,
            config=config,
        )
        trained = dict(checkpoint.parameters_of(again, [teacher]))[teacher]
        yield compared(parameters, trained, f"teacher {teacher}", "its own shard and key")


def _sample(teachers: int, wanted: int) -> list[int]:
    """An unpredictable sample of teachers."""
    return sorted(secrets.SystemRandom().sample(range(teachers), min(wanted, teachers)))


def _alone(shards: Shards, teacher: int) -> Shards:
    counts = np.zeros_like(shards.counts)
    counts[teacher] = shards.counts[teacher]
    return Shards(shards.rows, counts)


def compared(before: Any, again: Any, who: str, what: str) -> Finding:
    """Whether two trees of parameters are equal, bit for bit or up to rounding.

    >>> compared({"a": np.ones(2)}, {"a": np.ones(2)}, "the student", "the answers").outcome
    'passed'
    """
    pairs = list(zip(jax.tree.leaves(before), jax.tree.leaves(again), strict=False))
    same_tree = str(jax.tree.structure(before)) == str(jax.tree.structure(again))
    same_shapes = all(np.shape(old) == np.shape(new) for old, new in pairs)
    if not (same_tree and same_shapes):
        return failed(f"{who} is of another shape than {what} give")
    if all(np.array_equal(old, new) for old, new in pairs):
        return passed(f"{who} follows from {what} alone, bit for bit")
    if all(np.allclose(old, new, rtol=_RELATIVE, atol=_ABSOLUTE) for old, new in pairs):
        return passed(f"{who} follows from {what} alone, to rounding")
    return failed(f"{who} does not follow from {what} alone")


def student_again(subject: Subject) -> Iterator[Finding]:
    """Whether the student, trained again from public inputs and answers alone, is the one in release/."""
    run, opened = subject.run, subject.inputs
    if not run.results.exists():
        raise Ended(unchecked("there is no student yet: run `pate student`"))
    config, asked = subject.settings.student, asked_inputs(opened)
    yield from method_again(run, lambda: students.choose(run, config, opened.dataset, asked))
    again = students.learn(run, students.taught(run), opened.dataset, asked)
    released = student.Student.load(run.student)
    yield compared(released.parameters, again.parameters, "the student", "public inputs and answers")


def method_again(run: RunDirectory, choose: Callable[[], student.Choice]) -> Iterator[Finding]:
    """Whether the student's method, if answers decided on it, is what they decide on again."""
    results = storage.read_json(run.results, "results")
    if not results.get("comparison"):
        return
    method, again = results["method"], choose().config.method
    if method == again:
        yield passed(f"that the student learned by {method} follows from public inputs and answers alone")
    else:
        yield unchecked(
            f"the student learned by {method}, and compared again {again} is better: where two methods are "
            "about as good, rounding may decide between machines"
        )


def _ready(subject: Subject) -> Inputs:
    """The inputs of a run whose teachers are stored and have voted."""
    run = subject.run
    if "data" in subject.settings and not (checkpoint.folders(run.teachers) and run.answers.exists()):
        raise Ended(unchecked("no teachers are kept in this run, or nothing was answered yet"))
    return subject.inputs
