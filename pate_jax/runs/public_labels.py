"""What public labels alone teach, beside which it shows what private records have bought.

Where the public part of a table has labels, a student of these alone costs no privacy at all. It reads public
inputs and their labels and nothing else. Images are left out: their closed form takes minutes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pate_jax import student
from pate_jax.aggregate import Answers
from pate_jax.data import Dataset
from pate_jax.runs.report import seen
from pate_jax.runs.report.bought import ALONE, FREQUENT, THIS
from pate_jax.system import progress


def taught(dataset: Dataset) -> student.Student | None:
    """The student of a public table's labels; None of images, and where no two classes are labelled."""
    labels = dataset.public.labels
    if dataset.kind != "table" or labels is None or len({*np.asarray(labels).tolist()}) < 2:
        return None
    answers = Answers(jnp.asarray(labels, jnp.int32), jnp.ones(len(labels), bool))
    inputs = student.PublicInputs.of(replace(dataset, show_public=False))  # a line holds no rows
    return student.fit(jax.random.key(0), inputs, answers, student.Ridge())


def expected(dataset: Dataset) -> float | None:
    """The share of public rows on which the student of the labels of the other half is right."""
    public, right = dataset.public, 0
    for half in (0, 1):
        learned = taught(replace(dataset, public=public.take(slice(half, None, 2))))
        other = public.take(slice(1 - half, None, 2))
        if learned is None or other.labels is None or not len(other.labels):
            return None
        right += int(np.sum(learned(other.inputs).argmax(1) == other.labels))
    return right / len(public.inputs)


def sentence(dataset: Dataset) -> str | None:
    """What is said of public labels before anything is spent; None where they teach nothing."""
    share = expected(dataset)
    if share is None:
        return None
    most = np.bincount(np.asarray(dataset.public.labels)).max() / len(dataset.public.inputs)
    return (
        f"Public labels alone are expected to be right on {share:.0%} ({FREQUENT} {most:.0%}), at no cost "
        "in privacy: private records have to add to that."
    )


def say(dataset: Dataset) -> None:
    """Tell the user of public labels before anything is spent."""
    said = sentence(dataset)
    if said is not None:
        progress.say(said)


def bought(found: seen.Seen, dataset: Dataset) -> list[dict[str, Any]]:
    """How often the most frequent class, public labels alone and this student are right on the test part."""
    labels = found.part.labels
    if found.where != "test" or labels is None:
        return []
    most = np.bincount(labels, minlength=dataset.classes).argmax()
    alone = taught(dataset)
    named = {FREQUENT: labels == most}
    named |= {} if alone is None else {ALONE: alone(found.part.inputs).argmax(1) == labels}
    named[THIS] = found.probabilities.argmax(1) == labels
    return [
        {"name": name, **seen.count_of(right), "lead": [*seen.lead(named[THIS], right)]}
        for name, right in named.items()
    ]
