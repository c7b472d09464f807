"""What public labels teach alone, beside which it shows what private records have bought; or beside these.

Where the public part of a table has labels, a student of these alone costs no privacy at all. It reads public
inputs and their labels and nothing else. Images are left out: their closed form takes minutes. The student of
a run may learn from them too, if its owner says so (`student.labelled`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pate_jax import student
from pate_jax.aggregate import Answers
from pate_jax.crowd.metric import Metric, auroc
from pate_jax.data import Dataset
from pate_jax.data.columns import Column
from pate_jax.errors import PateError
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.record import LABELLED
from pate_jax.runs.report import sheet
from pate_jax.runs.report.measures_page import ALONE, FREQUENT, THIS
from pate_jax.student import labelled
from pate_jax.system import progress

_TELLING = 0.9  # AUROC of one column alone
_FEWEST = 10  # rows with and without a label that are judged


def taught(dataset: Dataset) -> student.Student | None:
    """The student of a public table's labels; None of images, and where no two classes are labelled."""
    labels = dataset.public.labels
    if dataset.kind != "table" or labels is None or len({*np.asarray(labels).tolist()}) < 2:
        return None
    answers = Answers(jnp.asarray(labels, jnp.int32), jnp.ones(len(labels), bool))
    inputs = student.PublicInputs.of(replace(dataset, show_public=False))  # a line holds no rows
    return student.fit(jax.random.key(0), inputs, answers, student.Ridge())


def expected(dataset: Dataset, metric: Metric = Metric()) -> float | None:  # noqa: B008 (it is frozen)
    """How good the student of the labels of each half of the public rows is on the other half, on average."""
    public, found = dataset.public, []
    for half in (0, 1):
        learned = taught(replace(dataset, public=public.take(slice(half, None, 2))))
        other = public.take(slice(1 - half, None, 2))
        if learned is None or other.labels is None or not len(other.labels):
            return None
        found.append(metric.of(learned(other.inputs), np.asarray(other.labels)))
    return sum(found) / len(found)


def sentence(dataset: Dataset, metric: Metric = Metric()) -> str | None:  # noqa: B008 (it is frozen)
    """What is told of public labels before anything is spent; None where they teach nothing."""
    found = expected(dataset, metric)
    if found is None:
        return None
    most = metric.text(metric.of_constant(np.asarray(dataset.public.labels)))
    what = "be right on" if metric.name == "accuracy" else f"reach {metric.head}"
    return (
        f"Public labels alone are expected to {what} {metric.text(found)} ({FREQUENT} {most}), at no cost in "
        "privacy: private records have to add to that."
    )


def telltale(dataset: Dataset) -> list[str]:
    """The columns that alone tell a public label nearly always, in a question to the owner each.

    A time of follow-up, or another thing that is known only after the outcome, looks like a good column and
    is useless where the student is asked. Public rows and labels alone are read.
    """
    labels, place, found = dataset.public.labels, 0, []
    for column in dataset.columns if labels is not None else ():
        values = dataset.public.inputs[:, place : place + column.width]
        place += column.width
        area = 0.0 if column.encoder is not None else _alone(values, np.asarray(labels), column)
        if area >= _TELLING:
            found.append(
                f"the column {column.name!r} alone tells the labels of public rows (AUROC {area:.2f}): is it "
                "known when the student is asked, and neither a time of follow-up nor a part of the outcome? "
                "If not, leave it out of all files"
            )
    return found


def _alone(values: np.ndarray, labels: np.ndarray, column: Column) -> float:
    """The best AUROC, over the classes, of a column's number, or of how frequent a class is at its word.

    These frequencies are those of every other row, and judge the rest.
    """
    best = 0.0
    for label in np.unique(labels):
        y, said = (labels == label).astype(float), values[:, 0]
        if column.categories is not None:
            known = values[::2].sum(0)
            said, y = (values[1::2] * ((y[::2] @ values[::2] + y.mean()) / (known + 1))).sum(1), y[1::2]
        if _FEWEST <= y.sum() <= len(y) - _FEWEST:
            area = float(auroc(y, said, np.ones((1, len(y)))).item())
            best = max(best, area, 1 - area)
    return best


def begin(run: RunDirectory, dataset: Dataset, wanted: bool, metric: Metric) -> None:
    """Tell of public labels before anything is spent, and record whether the student learns from them."""
    told = sentence(dataset, metric)
    if told is not None:
        progress.say(told)
    for line in telltale(dataset):
        progress.warn(line)
    before = LABELLED in run.record.read()
    if wanted and run.results.exists() and not before:
        raise PateError(
            f"--learn-from-public-labels is given, and {run.root} has a student that did not: choose another "
            "--out, and add up what both runs cost"
        )
    labels = dataset.public.labels
    if wanted and (dataset.kind != "table" or labels is None):
        raise PateError(
            "--learn-from-public-labels is given, and the public part is no table with labels: leave it out, "
            "or give labels to the public file"
        )
    if wanted and labels is not None:
        labelled.check(labels)
    if wanted or before:
        run.record.agree(LABELLED, {"learned": wanted})


def informed(run: RunDirectory, learned: student.Student, dataset: Dataset) -> student.Student:
    """The student of a run, which has learned from public labels where its owner has said so."""
    labels = dataset.public.labels
    if not said(run) or labels is None:
        return learned
    found = labelled.learned(learned, dataset.public.inputs, labels)
    progress.say(
        f"student: right on {found.right:.1%} of public rows that were left out, having learned from public "
        f"labels too, and on {found.alone:.1%} without them"
    )
    return found.student


def said(run: RunDirectory) -> dict[str, bool]:
    """What results say of a student that learned from public labels too; nothing of others."""
    return {"learned_from_public_labels": True} if LABELLED in run.record.read() else {}


def unlearned(run: RunDirectory, dataset: Dataset) -> Dataset:
    """The data on which a run's student may be judged: without public labels, if it learned from these."""
    return replace(dataset, public=dataset.public._replace(labels=None)) if said(run) else dataset


def bought(found: sheet.Seen, dataset: Dataset) -> list[dict[str, Any]]:
    """How good the most frequent class, public labels alone and this student are on the test part."""
    labels = found.part.labels
    if found.where != "test" or labels is None:
        return []
    shares = np.bincount(labels, minlength=dataset.classes) / len(labels)
    alone = taught(dataset)
    named = {FREQUENT: np.tile(shares, (len(labels), 1))}
    named |= {} if alone is None else {ALONE: alone(found.part.inputs)}
    named[THIS] = found.probabilities
    right = {name: said.argmax(1) == labels for name, said in named.items()}
    return [
        {
            "name": name,
            **sheet.count_of(right[name]),
            "lead": [*sheet.lead(right[THIS], right[name])],
            "auroc": _auroc(said, np.asarray(labels)),
        }
        for name, said in named.items()
    ]


def _auroc(said: np.ndarray, labels: np.ndarray) -> float | None:
    """Of two classes, if there are rows of both."""
    if said.shape[1] != 2 or len({*labels.tolist()}) < 2:
        return None
    return float(auroc(labels, said[:, 1], np.ones((1, len(labels)))).item())
