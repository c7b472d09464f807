"""What is measured of a student on the test part, for every kind of run.

Where the test rows are private records, all of it is a release that nothing has paid for: it stays on the
owner's page, and `published` takes it out of whatever leaves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np

from pate_jax.crowd.metric import Metric, auroc, named
from pate_jax.data import Dataset, Part, readable
from pate_jax.data.columns import Column
from pate_jax.errors import PateError
from pate_jax.models.names import Metric as Name
from pate_jax.runs import public_labels
from pate_jax.runs.report import measures, numbers, sheet
from pate_jax.runs.report.sheet import Seen
from pate_jax.runs.settings import DataChoice
from pate_jax.student import Student

_MOST_GROUPS = 12
_LOOKED = 1000  # public rows that show how many values a column has


def of_numbers(learned: Student, dataset: Dataset, data: Mapping[str, Any]) -> dict[str, Any]:
    """The same of a student of numbers."""
    return {
        **_predicts(dataset, {"label_column": data["target"]}),
        "student_accuracy": None,
        "seen": None,
        **numbers.results(learned, dataset, data),
    }


def results(found: Seen, dataset: Dataset, data: Mapping[str, Any]) -> dict[str, Any]:
    """The results that follow from the test part; `data` are the recorded settings of the data."""
    facts = sheet.facts(found, dataset.class_names)
    private = found.where == "test" and data.get("test_is_private")
    return {
        **_predicts(dataset, data),
        "student_accuracy": sheet.accuracy(found),
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
    hidden: dict[str, Any] = {"student_accuracy": None, "bought": [], "seen": None, "measures": None}
    if "numbers" in found:
        return {**found, **hidden, "numbers": numbers.published(found["numbers"])}
    if "labels" not in found:
        return {**found, **hidden}
    blank = {label: {**one, "usual": None, "figures": None} for label, one in found["labels"].items()}
    return {**found, **hidden, "labels": blank, "macro": None}


def metric(choice: DataChoice, dataset: Dataset) -> Metric:
    """What choices by rehearsal go by."""
    return named(choice.metric, choice.positive, dataset.class_names)


def check(dataset: Dataset, positive: str | None, by_group: str | None) -> None:
    """Refuse an outcome that is no class, and groups by a column of too many values, or of none."""
    if positive is not None and (positive not in dataset.class_names or dataset.classes != 2):
        raise PateError(
            f"--positive {positive} must be one of two classes; they are {', '.join(dataset.class_names)}"
        )
    if by_group is not None and not any(
        one.name == by_group and _few(one, dataset) for one in dataset.columns
    ):
        fit = ", ".join(one.name for one in dataset.columns if _few(one, dataset)) or "none"
        raise PateError(
            f"--by-group {by_group} must be a column that the student takes, with at most {_MOST_GROUPS} "
            f"values in the public part: {fit}"
        )


def _few(column: Column, dataset: Dataset) -> bool:
    """Whether a column can divide rows into groups: words, codes, or few public numbers such as 0 and 1."""
    if column.categories is not None or column.codes:
        return True
    rows = dataset.public.take(slice(_LOOKED))
    return column.encoder is None and len(np.unique(_values(rows, dataset, column.name))) <= _MOST_GROUPS


def compared(said: np.ndarray, part: Part, metric: Metric) -> dict[str, list[float | None]]:
    """Every metric of what is said of labelled rows, by which methods are compared, as [value, low, high].

    An interval draws users where rows have them, else rows.
    """
    truth = np.asarray(part.labels)
    rows = measures.judged(truth, np.zeros(len(truth)), 0, part.users)

    def figure(name: Name) -> measures.Figure:
        return lambda y, p, weights: metric._replace(name=name).weighted(said, truth, weights)

    return {name: measures.interval(figure(name), rows) for name in get_args(Name)}


def macro(judged: Sequence[tuple[Metric, np.ndarray, Part]]) -> dict[str, list[float | None]]:
    """The mean of every metric over several labels of the same rows, as [value, low, high]."""
    first = judged[0][2]
    rows = measures.judged(np.zeros(len(first.ids)), np.zeros(len(first.ids)), 0, first.users)

    def figure(name: Name) -> measures.Figure:
        return lambda y, p, weights: np.mean(
            [
                one._replace(name=name).weighted(said, np.asarray(part.labels), weights)
                for one, said, part in judged
            ],
            0,
        )

    return {name: measures.interval(figure(name), rows) for name in get_args(Name)}


def of_labels(
    students: Mapping[str, Student], data: Mapping[str, tuple[DataChoice, Dataset, str]]
) -> dict[str, Any]:
    """Every metric of each label's student on the test part, and their means, each with its interval.

    `data` are the settings and the data of each label, and who voted for it. The mean's interval draws the
    same rows (or users) for all labels, as labels of one row go together.
    """
    each: dict[str, dict[str, Any]] = {}
    judged = []
    for label, student in students.items():
        choice, dataset, voters = data[label]
        test, by = dataset.test, metric(choice, dataset)
        names = list(dataset.class_names)
        each[label] = {"classes": names, "voters": voters, "usual": None, "figures": None}
        if test is None or test.labels is None:
            continue
        said, truth = student(test.inputs), np.asarray(test.labels)
        judged.append((by, said, test))
        usual = float(np.bincount(truth).max() / len(truth))
        each[label] |= {"usual": usual, "figures": compared(said, test, by)}
    private = any(choice.test_is_private for choice, *_ in data.values())
    mean = macro(judged) if len(judged) == len(each) else None
    rows = len(judged[0][2].ids) if judged else 0
    return {"labels": each, "macro": mean, "rows": rows, **({"test_is_private": True} if private else {})}


def by_groups(said: np.ndarray, part: Part, dataset: Dataset, by: str, metric: Metric) -> dict[str, Any]:
    """The same for the rows of each value of a column, with how many they are."""
    values = _values(part, dataset, by)
    return {
        str(value): {
            "rows": int((values == value).sum()),
            **compared(said[values == value], part.take(values == value), metric),
        }
        for value in _frequent(values)
    }


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
    values = _values(found.part, dataset, by)
    return [{"group": str(value), **_group(found, values == value, positive)} for value in _frequent(values)]


def _values(part: Part, dataset: Dataset, by: str) -> np.ndarray:
    """What a column of categories or codes says of each row."""
    place = 0
    for column in dataset.columns:
        if column.name == by:
            break
        place += column.width
    (name,) = (one for one in dataset.columns if one.name == by)
    return np.array(
        [readable.decoded(row, [name])[0][1] for row in part.inputs[:, place : place + name.width]]
    )


def _frequent(values: np.ndarray) -> np.ndarray:
    different, counts = np.unique(values, return_counts=True)
    return np.asarray(different[np.argsort(-counts, kind="stable")][:_MOST_GROUPS])


def _group(found: Seen, rows: np.ndarray, positive: int) -> dict[str, Any]:
    part, p = found.part.take(rows), found.probabilities[rows]
    judged = measures.judged(np.asarray(part.labels), p[:, positive], positive, part.users)
    right = (p.argmax(1) == part.labels).astype(float)
    return {
        "rows": len(right),
        "outcomes": int(judged.y.sum()),
        "right": measures.interval(measures.share_of(right, np.ones_like(right)), judged),
        "auroc": measures.interval(auroc, judged),
        "sensitivity": measures.interval(measures.share_of((judged.p >= 0.5) * 1.0, judged.y), judged),
        "specificity": measures.interval(measures.share_of((judged.p < 0.5) * 1.0, 1 - judged.y), judged),
    }
