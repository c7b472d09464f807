"""The student of a run: how its method is chosen, how it is trained, and by which settings it was."""

from __future__ import annotations

import jax
import numpy as np

from pate_jax import aggregate, data, student
from pate_jax.runs import queries
from pate_jax.runs.answers import load_answers
from pate_jax.runs.directory import RunDirectory
from pate_jax.system import storage


def choose(
    run: RunDirectory,
    config: student.StudentConfig,
    dataset: data.Dataset,
    asked: data.Part,
    answers: aggregate.Answers | None = None,  # unset: those that teachers gave
    *,
    independent: bool = True,
) -> student.Choice:
    """The method of a run's student: as told, or for `auto` by `student.choose`; the same at every call."""
    inputs, found = public_inputs(dataset, asked), answers or load_answers(run)
    key = jax.random.fold_in(_key(run), 1)
    return student.choose(key, inputs, found, config, independent=independent)


def learn(
    run: RunDirectory,
    config: student.StudentConfig,
    dataset: data.Dataset,
    asked: data.Part,
    answers: aggregate.Answers | None = None,  # unset: those that teachers gave
) -> student.Student:
    """The student of a run: what public inputs and the answers give, and nothing else."""
    inputs, found = public_inputs(dataset, asked), answers or load_answers(run)
    learned = student.fit(_key(run), inputs, found, config)
    return learned._replace(dtype=str(dataset.public.inputs.dtype), columns=dataset.columns)


def public_inputs(dataset: data.Dataset, asked: data.Part) -> student.PublicInputs:
    """The inputs that were asked about, and behind them all others, from which students learn too."""
    pool = np.concatenate([asked.inputs, queries.unasked(dataset.public, asked)])
    return student.PublicInputs(
        pool, dataset.preprocessing, dataset.classes, dataset.class_names, dataset.show_public
    )


def _key(run: RunDirectory) -> jax.Array:
    return jax.random.key(int.from_bytes(run.secret.derive("student")[:4], "big"))


def taught(run: RunDirectory) -> student.StudentConfig:
    """The settings by which the student of a run was trained; `auto` is what was chosen then."""
    settings = run.record.read()
    if not isinstance(settings.student, student.Auto):
        return settings.student
    results = storage.read_json(run.results, "results")
    compared = settings.rivals if "compared" in results else {}
    method = results["method"]
    return compared.get(method) or student.with_method(settings.student, method)
