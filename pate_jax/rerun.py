"""Makes parts of a run again from what they should follow from, and compares.

The teachers label the public inputs again; some teachers are trained again with nothing but their own shard
and key; the student is trained again with nothing but public inputs and the answers.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pate_jax import data, ensemble, models, partition, stages, student, voting
from pate_jax.config import DataChoice, PartitionChoice, from_settings
from pate_jax.ensemble import kept
from pate_jax.errors import PateError
from pate_jax.findings import Finding, failed, judged, passed, unchecked
from pate_jax.partition import Shards
from pate_jax.rundir import RunDirectory

_LABELS = 1e-3  # share of labels that rounding may move between two machines
_CLOSE = {"rtol": 1e-3, "atol": 1e-4}


def labels(run: RunDirectory) -> Iterator[Finding]:
    """Whether the teachers that are kept give the labels that the votes file holds."""
    if (why := _cannot(run)) is not None:
        yield unchecked(why)
        return
    votes, dataset = voting.load_votes(run.votes), _data(run)
    if votes.teacher_labels is None or votes.ids is None:
        yield unchecked("the votes file holds no labels of single teachers")
        return
    asked = dataset.public.take(stages._rows_of(dataset.public.ids, votes.ids))
    model = _model(run, dataset)
    again = ensemble.predict(model, dataset.preprocessing, kept.kept(run.teachers), asked.inputs)
    wrong = again != votes.teacher_labels
    if 0 < wrong.mean() <= _LABELS:
        yield unchecked(f"{wrong.sum()} of {wrong.size:,} labels differ, as rounding may between machines")
    else:
        yield from judged(
            [f"{wrong.sum()} of {wrong.size:,} labels are not the teachers'"] if wrong.any() else [],
            f"{len(again)} teachers give their {wrong.size:,} labels again",
        )


def teachers(run: RunDirectory, sample: int) -> Iterator[Finding]:
    """Whether some teachers, trained again where nobody else has a record, come out as they are kept."""
    if (why := _cannot(run)) is not None:
        yield unchecked(why)
        return
    dataset, settings = _data(run), run.recorded()
    cut = from_settings(PartitionChoice, settings["partition"])
    shards = partition.divide(dataset.private, cut.teachers, key=run.derive("partition"), by=cut.by)
    config = from_settings(ensemble.TeacherConfig, settings["teacher"])
    config = replace(config, width=kept.plan(run.teachers).width)
    key = jax.random.wrap_key_data(
        jnp.asarray(np.frombuffer(run.derive("teachers")[:8], np.uint32)), impl="threefry2x32"
    )
    before = dict(kept.of(kept.kept(run.teachers), _sample(cut.teachers, sample)))
    for teacher, parameters in before.items():
        again = ensemble.fit(
            _model(run, dataset),
            dataset.preprocessing,
            dataset.private.inputs,
            dataset.private.labels,
            _alone(shards, teacher),
            key=key,
            config=config,
        )
        own = dict(kept.of(again, [teacher]))[teacher]
        yield _compared(parameters, own, f"teacher {teacher}", "its own shard and key")


def _sample(teachers: int, wanted: int) -> list[int]:
    """Some teachers that nobody could foresee."""
    return sorted(secrets.SystemRandom().sample(range(teachers), min(wanted, teachers)))


def _alone(shards: Shards, teacher: int) -> Shards:
    counts = np.zeros_like(shards.counts)
    counts[teacher] = shards.counts[teacher]
    return Shards(shards.rows, counts)


def _compared(before: Any, again: Any, who: str, what: str) -> Finding:
    pairs = list(zip(jax.tree.leaves(before), jax.tree.leaves(again), strict=False))
    same_tree = jax.tree.structure(before) == jax.tree.structure(again)
    same_shapes = all(np.shape(old) == np.shape(new) for old, new in pairs)
    if not (same_tree and same_shapes):
        return failed(f"{who} is of another shape than {what} give")
    if all(np.array_equal(old, new) for old, new in pairs):
        return passed(f"{who} follows from {what} alone, bit for bit")
    if all(np.allclose(old, new, **_CLOSE) for old, new in pairs):
        return passed(f"{who} follows from {what} alone, to rounding")
    return failed(f"{who} does not follow from {what} alone")


def student_again(run: RunDirectory) -> Iterator[Finding]:
    """Whether the student, trained again from public inputs and answers alone, is the one in release/."""
    settings = run.recorded()
    if "data" not in settings:
        yield unchecked("the public inputs are not recorded in this run")
        return
    if not run.results.exists():
        yield unchecked("there is no student yet: run `pate student`")
        return
    votes = voting.load_votes(run.votes)
    dataset, asked = stages._public(run, votes, None, None)
    inputs = student.PublicInputs(asked.inputs, dataset.preprocessing, dataset.classes, dataset.class_names)
    key = jax.random.key(int.from_bytes(run.derive("student")[:4], "big"))
    config = from_settings(student.StudentConfig, settings["student"])
    again = student.fit(key, inputs, stages.load_answers(run), config)
    released = student.Student.load(run.student)
    yield _compared(released.parameters, again.parameters, "the student", "public inputs and answers")


def _cannot(run: RunDirectory) -> str | None:
    if "data" not in run.recorded():
        return "the votes were made elsewhere, and their teachers are not here"
    if not kept.folders(run.teachers) or not run.votes.exists():
        return "no teachers are kept in this run"
    try:
        _data(run)
    except PateError as error:
        return f"the data cannot be opened: {error}"
    return None


def _data(run: RunDirectory) -> data.Dataset:
    return stages.open_data(from_settings(DataChoice, run.recorded()["data"]))


def _model(run: RunDirectory, dataset: data.Dataset) -> models.Model:
    return stages._model(from_settings(ensemble.TeacherConfig, run.recorded()["teacher"]), dataset)
