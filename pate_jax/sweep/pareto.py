"""The Pareto front: the cells that no other cell beats in every respect."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from pate_jax.sweep.results import Row


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
