"""The Pareto front: the cells that no other cell beats in every respect."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, get_args

import numpy as np

from pate_jax.accounting.planning import value
from pate_jax.models.names import Metric
from pate_jax.sweep.results import Row

# What makes two rows draws of one setting, and what is measured of each draw.
_SETTING = ("name", "teachers", "net", "selection", "mechanism", "queries", "delta", "student", "lesson")
_OF_STUDENTS = tuple(f"student_{name}" for name in get_args(Metric))
_MEASURED = (*_OF_STUDENTS, "answered", "right", "label_accuracy", "plurality_agreement", "published")


def front(rows: Iterable[Row]) -> list[Row]:
    """Rows that no other beats, by ascending epsilon: less epsilon, more answers, more of them right.

    Rows with a student are weighed by epsilon and the student's accuracy alone, among themselves. The epsilon
    is the data-independent one, which is what a run may publish. Rows without a finite epsilon or an answer
    are left out. Rows of different data sets, of different votes files or at different deltas are not weighed
    against each other: each has a front of its own.

    >>> rows = [
    ...     {
    ...         **{"name": "a", "votes": "1f", "source": "1f", "delta": 1e-5, "student_accuracy": None},
    ...         **{"data_independent": e, "answered": n, "label_accuracy": r},
    ...     }
    ...     for e, n, r in [(1.0, 50, 0.9), (1.0, 40, 0.9), (2.0, 50, 0.95), (3.0, 50, 0.95)]
    ... ]
    >>> [(row["data_independent"], row["answered"]) for row in front(rows)]
    [(1.0, 50), (2.0, 50)]
    """
    groups: dict[tuple[str, str | None, float, bool], list[Row]] = {}
    for row in rows:
        if row["data_independent"] is not None and row["answered"]:
            alike = row["name"], _votes_file(row), row["delta"], row["student_accuracy"] is not None
            groups.setdefault(alike, []).append(row)
    best: list[Row] = []
    for some in groups.values():
        values = np.array([worth(row) for row in some])
        best += [row for row, place in zip(some, range(len(some)), strict=True) if not _beaten(values, place)]
    return sorted(
        best, key=lambda row: (row["name"], row["delta"], row["data_independent"], -row["answered"])
    )


def _votes_file(row: Row) -> str | None:
    """The digest of the votes file that a row was judged on; None for votes of a data set's own teachers."""
    return row["votes"] if row["votes"] == row["source"] else None


def told_apart(rows: Iterable[Row]) -> list[Row]:
    """The rows, where votes files of one name have a part of their digest behind it.

    >>> rows = [{"name": "a", "votes": votes, "source": votes} for votes in ("12345678", "abcdefgh")]
    >>> [row["name"] for row in told_apart(rows)], told_apart(rows[:1])[0]["name"]
    (['a (123456)', 'a (abcdef)'], 'a')
    """
    rows = list(rows)
    files: dict[str, set[str | None]] = {}
    for row in rows:
        files.setdefault(row["name"], set()).add(_votes_file(row))
    return [
        {**row, "name": f"{row['name']} ({row['votes'][:6]})"}
        if len(files[row["name"]]) > 1 and _votes_file(row)
        else row
        for row in rows
    ]


def worth(row: Row) -> tuple[float, ...]:
    """The values by which rows are compared; larger is better."""
    if row["student_accuracy"] is not None:
        return -row["data_independent"], score(row) or 0.0
    return -row["data_independent"], row["answered"], _right(row)


def score(row: Row) -> float | None:
    """How good a row's student is by the metric that rows are compared by; None where there is none."""
    value = row[f"student_{row.get('metric', 'accuracy')}"]
    return None if value is None else float(value)


def compared(rows: Iterable[Row], metric: Metric) -> list[Row]:
    """The rows as they are compared by this metric; students that were judged by accuracy alone are left out.

    >>> rows = [{"student": None}, {"student": "ridge"}, {"student": "ridge", "student_auroc": 0.8}]
    >>> [row.get("student_auroc") for row in compared(rows, "auroc")]
    [None, 0.8]
    """
    name = f"student_{metric}"
    known = (row for row in rows if row["student"] is None or row.get(name) is not None)
    return [{name: None, **row, "metric": metric} for row in known]


def best(rows: Iterable[Row]) -> list[Row]:
    """The front of the means over seeds: of the rows with a student, where there are any."""
    rows = list(rows)
    taught = [row for row in rows if row["student_accuracy"] is not None]
    return front(averaged(taught or rows))


def averaged(rows: Iterable[Row]) -> list[Row]:
    """One row for each setting: the means over seeds, and in `cells` the digests of what they are means of.

    >>> common = {"name": "a", "source": "s", "mechanism": {"name": "gnmax"}, "right": 5, "cell": "1f"}
    >>> rows = [{**common, "seed": seed, "votes": f"v{seed}", "answered": 4 + seed} for seed in (0, 1)]
    >>> (row,) = averaged(rows)
    >>> row["answered"], row["cells"], averaged(rows[:1]) == rows[:1]
    (4.5, ['1f', '1f'], True)
    """
    groups: dict[str, list[Row]] = {}
    for row in rows:
        told = {name: row.get(name) for name in _SETTING}
        key = json.dumps({**told, "file": _votes_file(row)}, sort_keys=True)
        groups.setdefault(key, []).append(row)
    return [some[0] if len(some) == 1 else _mean(some) for some in groups.values()]


def _mean(some: Sequence[Row]) -> Row:
    means: dict[str, Any] = {"cells": [row["cell"] for row in some]}
    for name in _MEASURED:
        values = [row[name] for row in some if row.get(name) is not None]
        means[name] = float(np.mean(values)) if values else None
    return {**some[0], **means, "student_intervals": None}


def digests(row: Row) -> list[str]:
    """The cells that a row tells of."""
    return list(row.get("cells", [row["cell"]]))


def useful(rows: Iterable[Row]) -> list[Row]:
    """The settings whose answers are worth a student, the most promising first; means over seeds.

    Left out is a setting that another one beats with the same number of teachers and the same selection, and
    one whose answers are worth less than one right answer for each class. The rest is ordered by what its
    answers are worth (`planning.value`), as a share of the most that a setting with as many teachers gives
    for no more epsilon.

    >>> common = {"name": "a", "source": "s", "delta": 1e-5, "classes": 10, "student_accuracy": None}
    >>> rows = [
    ...     {**common, "cell": "", "data_independent": e, "answered": n, "label_accuracy": r, "queries": n}
    ...     | {"votes": "v", "teachers": 50}
    ...     for e, n, r in [(1.0, 50, 0.9), (2.0, 50, 0.9), (2.0, 200, 0.4), (1.0, 70, 0.85)]
    ... ]
    >>> [(row["data_independent"], row["queries"]) for row in useful(rows)]
    [(1.0, 70), (1.0, 50), (2.0, 200)]
    """
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in averaged(rows):
        groups.setdefault((row["teachers"], row.get("selection")), []).append(row)
    kept = [row for some in groups.values() for row in front(some) if _worth(row) >= row["classes"]]
    share = [_share(row, kept) for row in kept]
    return [kept[place] for place in np.argsort(-np.array(share), kind="stable")]


def _share(row: Row, rows: Sequence[Row]) -> float:
    """The worth of a setting's answers over the largest for no more epsilon."""
    alike = ("name", "teachers", "delta")
    others = [
        _worth(other)
        for other in rows
        if other["data_independent"] <= row["data_independent"]
        and all(other[name] == row[name] for name in alike)
    ]
    return _worth(row) / max(others)


def _worth(row: Row) -> float:
    """What the answers are worth to a student, in right answers."""
    return value(row["answered"], _right(row), row["classes"])


def _right(row: Row) -> float:
    accuracy = row["label_accuracy"]
    return float((row.get("plurality_agreement") or 0.0) if accuracy is None else accuracy)


def thinned(rows: Sequence[Row], most: int) -> list[Row]:
    """At most `most` rows, evenly spaced, with the first and the last among them.

    >>> thinned([{"n": n} for n in range(9)], 3)
    [{'n': 0}, {'n': 4}, {'n': 8}]
    """
    if len(rows) <= most:
        return list(rows)
    return [rows[place] for place in np.linspace(0, len(rows) - 1, most).round().astype(int)]


def _beaten(values: np.ndarray, place: int) -> bool:
    row = values[place]
    ahead = (values >= row).all(axis=1) & (values > row).any(axis=1)
    equal_and_earlier = (values[:place] == row).all(axis=1).any()
    return bool(ahead.any() or equal_and_earlier)
