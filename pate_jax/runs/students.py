"""The student of a run: how it is trained on what the run has answered, and by which settings it was."""

from __future__ import annotations

import jax
import numpy as np

from pate_jax import aggregate, data, student
from pate_jax.runs import queries
from pate_jax.runs.answers import load_answers
from pate_jax.runs.directory import RunDirectory
from pate_jax.system import storage


def learn(
    run: RunDirectory,
    config: student.StudentConfig,
    dataset: data.Dataset,
    asked: data.Part,
    answers: aggregate.Answers | None = None,  # unset: those that teachers gave
) -> student.Student:
    """The student of a run: what public inputs and the answers give, and nothing else."""
    rest = queries.unasked(dataset.public, asked)  # students learn from these too
    pool = np.concatenate([asked.inputs, rest])
    inputs = student.PublicInputs(pool, dataset.preprocessing, dataset.classes, dataset.class_names)
    key = jax.random.key(int.from_bytes(run.secret.derive("student")[:4], "big"))
    learned = student.fit(key, inputs, answers or load_answers(run), config)
    return learned._replace(dtype=str(dataset.public.inputs.dtype), columns=dataset.columns)


def taught(run: RunDirectory) -> student.StudentConfig:
    """The settings by which the student of a run was trained; `auto` is what was chosen then."""
    config = run.record.read().student
    if not isinstance(config, student.Auto):
        return config
    return student.with_method(config, storage.read_json(run.results, "results")["method"])
