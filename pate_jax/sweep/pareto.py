"""The Pareto front: the cells that no other cell beats in every respect."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from pate_jax.sweep.results import Row


def front(rows: Iterable[Row]) -> list[Row]:
    """Rows that no other beats, by ascending epsilon: less epsilon, more answers, more of them right.

    Rows with a student are weighed by epsilon and the student's accuracy alone, among themselves. The epsilon
    is the data-independent one, which is what a run may publish. Rows without a finite epsilon or an answer
    are left out, and each source of votes has a front of its own data set: rows of different names are not
    weighed against each other.

    >>> rows = [
    ...     {"name": "a", "data_independent": e, "answered": n, "label_accuracy": r, "student_accuracy": None}
    ...     for e, n, r in [(1.0, 50, 0.9), (1.0, 40, 0.9), (2.0, 50, 0.95), (3.0, 50, 0.95)]
    ... ]
    >>> [(row["data_independent"], row["answered"]) for row in front(rows)]
    [(1.0, 50), (2.0, 50)]
    """
    groups: dict[tuple[str, bool], list[Row]] = {}
    for row in rows:
        if row["data_independent"] is not None and row["answered"]:
            groups.setdefault((row["name"], row["student_accuracy"] is not None), []).append(row)
    best: list[Row] = []
    for some in groups.values():
        values = np.array([worth(row) for row in some])
        best += [row for row, place in zip(some, range(len(some)), strict=True) if not _beaten(values, place)]
    return sorted(best, key=lambda row: (row["name"], row["data_independent"], -row["answered"]))


def worth(row: Row) -> tuple[float, ...]:
    """The values by which rows are compared; larger is better."""
    if row["student_accuracy"] is not None:
        return -row["data_independent"], row["student_accuracy"]
    accuracy = row["label_accuracy"]
    if accuracy is None:
        accuracy = row.get("plurality_agreement") or 0.0
    return -row["data_independent"], row["answered"], accuracy


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
