"""What is measured of a student on the test part, for every kind of run.

Where the test rows are private records, all of it is a release that nothing has paid for: it stays on the
owner's page, and `published` takes it out of whatever leaves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pate_jax.data import Dataset, readable
from pate_jax.errors import PateError
from pate_jax.runs import public_labels
from pate_jax.runs.report import measures, seen
from pate_jax.runs.report.seen import Seen

_MOST_GROUPS = 12


def results(found: Seen, dataset: Dataset, data: Mapping[str, Any]) -> dict[str, Any]:
    """The results that follow from the test part; `data` are the recorded settings of the data."""
    facts = seen.facts(found, dataset.class_names)
    private = found.where == "test" and data.get("test_is_private")
    return {
        **_predicts(dataset, data),
        "student_accuracy": seen.accuracy(found),
        "bought": public_labels.bought(found, dataset),
        "seen": {**facts, "where": "private"} if private else facts,
        "measures": _measures(found, dataset, data),
        **({"test_is_private": True} if private else {}),
    }


def _predicts(dataset: Dataset, data: Mapping[str, Any]) -> dict[str, str]:
    """What a page is headed by: the label of a table, and from how many columns it follows."""
    label, columns = data.get("label_column"), len(dataset.columns)
    if label is None or not columns:
        return {}
    return {"predicts": f"{label}, from {columns} column{'' if columns == 1 else 's'}"}


def published(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """The results that may leave: of private test rows nothing.

    >>> published({"student_accuracy": 0.9, "test_is_private": True})["student_accuracy"] is None
    True
    """
    if not found.get("test_is_private"):
        return found
    return {**found, "student_accuracy": None, "bought": [], "seen": None, "measures": None}


def check(dataset: Dataset, positive: str | None, by_group: str | None) -> None:
    """Refuse an outcome that is no class, and groups by what is no column of categories or codes."""
    if positive is not None and (positive not in dataset.class_names or dataset.classes != 2):
        raise PateError(
            f"--positive {positive} must be one of two classes; they are {', '.join(dataset.class_names)}"
        )
    if by_group is not None:
        columns = [one.name for one in dataset.columns if one.categories is not None or one.codes]
        if by_group not in columns:
            raise PateError(
                f"--by-group {by_group} must be a column of categories or codes that the student takes; they "
                f"are {', '.join(columns) or 'none'}"
            )


def _measures(found: Seen, dataset: Dataset, data: Mapping[str, Any]) -> dict[str, Any] | None:
    labels = found.part.labels
    if found.where != "test" or labels is None:
        return None
    labels, names = np.asarray(labels), dataset.class_names
    best = found.probabilities.argmax(1)
    made: dict[str, Any] = {"averages": measures.averages(labels, best, dataset.classes)}
    if dataset.classes != 2 or len({*labels.tolist()}) < 2:
        return made
    counts = np.bincount(labels, minlength=2)
    wanted = data.get("positive")
    positive = int(counts.argmin()) if wanted is None else names.index(wanted)
    p, users = found.probabilities[:, positive], found.part.users
    made |= {"positive": names[positive], **measures.measures(measures.judged(labels, p, positive, users))}
    by = data.get("by_group")
    if by is not None:
        made |= {"by": by, "groups": _groups(found, dataset, by, positive)}
    return made


def _groups(found: Seen, dataset: Dataset, by: str, positive: int) -> list[dict[str, Any]]:
    """The figures of the rows of each value of a column, the most frequent values first."""
    place = 0
    for column in dataset.columns:
        if column.name == by:
            break
        place += column.width
    (name,) = (one for one in dataset.columns if one.name == by)
    parts = found.part.inputs[:, place : place + name.width]
    values = np.array([readable.decoded(row, [name])[0][1] for row in parts])
    different, counts = np.unique(values, return_counts=True)
    chosen = different[np.argsort(-counts, kind="stable")][:_MOST_GROUPS]
    return [{"group": str(value), **_group(found, values == value, positive)} for value in chosen]


def _group(found: Seen, rows: np.ndarray, positive: int) -> dict[str, Any]:
    part, p = found.part.take(rows), found.probabilities[rows]
    judged = measures.judged(np.asarray(part.labels), p[:, positive], positive, part.users)
    right = (p.argmax(1) == part.labels).astype(float)
    return {
        "rows": len(right),
        "outcomes": int(judged.y.sum()),
        "right": measures.interval(measures.share_of(right, np.ones_like(right)), judged),
        "auroc": measures.interval(measures.auroc, judged),
        "sensitivity": measures.interval(measures.share_of((judged.p >= 0.5) * 1.0, judged.y), judged),
        "specificity": measures.interval(measures.share_of((judged.p < 0.5) * 1.0, 1 - judged.y), judged),
    }
