"""Students on trial: how accurate one is that learns from the answers of one setting. None is released."""

from __future__ import annotations

from typing import Any, NamedTuple, get_args

import jax
import numpy as np

from pate_jax import student
from pate_jax.aggregate import Answers
from pate_jax.crowd import metric
from pate_jax.data import Dataset, Part
from pate_jax.errors import PateError
from pate_jax.models.names import Metric as Name
from pate_jax.runs import measured
from pate_jax.runs.students import public_inputs
from pate_jax.student.settings import KINDS, Linear, Own


class Lesson(NamedTuple):
    """All public inputs, those that were asked about first and in their order, and the test part."""

    public: student.PublicInputs
    test: Part


def methods() -> tuple[str, ...]:
    """The ways a student can learn from teachers' answers.

    >>> "supervised" in methods()
    True
    """
    return tuple(name for name in KINDS if name not in (Linear.method, Own.method))


def check_methods(names: tuple[str, ...]) -> None:
    """Refuse an unknown method."""
    for name in names:
        if name not in methods():
            raise PateError(f"student {name!r} is unknown; the known ones are {', '.join(methods())}")


def lesson(dataset: Dataset, asked: Part) -> Lesson:
    """What students learn from, as in a run, and are judged by."""
    if dataset.test is None or dataset.test.labels is None:
        raise PateError("students are judged on a labelled test part, and there is none: give --test")
    return Lesson(public_inputs(dataset, asked), dataset.test)


def measures(
    key: jax.Array,
    given: Lesson,
    answers: Answers,
    method: str,
    config: student.StudentConfig,
    positive: str | None = None,
) -> dict[str, Any]:
    """How good a student of this kind is on the test part, by every metric; None without answers."""
    if not np.asarray(answers.answered).any() or given.test.labels is None:
        return {f"student_{name}": None for name in get_args(Name)}
    told = student.with_method(config, method)
    chosen = student.choose(jax.random.fold_in(key, 1), given.public, answers, told)
    learned = student.fit(key, given.public, answers, chosen.config)
    by = metric.named("accuracy", positive, given.public.class_names)
    found = measured.compared(np.asarray(learned(given.test.inputs)), given.test, by)
    return {f"student_{name}": one[0] for name, one in found.items()} | {"student_intervals": found}
