"""From cells to rows: all settings of a votes file answered in one program and accounted for in one call."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np

from pate_jax import __version__
from pate_jax.accounting.many import many
from pate_jax.aggregate import Answers
from pate_jax.mechanisms import Mechanism, to_dict
from pate_jax.student import StudentConfig
from pate_jax.sweep import students, tallies
from pate_jax.sweep.cells import Cell
from pate_jax.sweep.results import Row
from pate_jax.sweep.vote_sources import Source, content_digest
from pate_jax.system import progress
from pate_jax.voting import Votes

_TOGETHER, _TABLES = 1000, 200  # settings in one program; fewer where each has a table of its noise
_OF_SETTING = ("exact", "exact_order", "declared")  # which lines add to the row of a setting later
Keep = Callable[[list[dict[str, Any]]], None]


def versions() -> dict[str, str]:
    """The versions that a row was made with.

    >>> sorted(versions())
    ['jax', 'numpy', 'pate_jax', 'python']
    """
    return {
        "pate_jax": __version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def judge(source: Source, cells: Sequence[Cell], votes: Votes, keep: Keep) -> None:
    """Judge these cells of one source, and hand over each row as soon as it is complete."""
    sizes = sorted({cell.queries for cell in cells})
    mechanisms = list(dict.fromkeys(cell.mechanism for cell in cells))
    with progress.bar(f"{source.name}, {source.teachers} teachers", total=len(cells)) as steps:
        for some in _together(mechanisms):
            these = [cell for cell in cells if cell.mechanism in some]
            keep(_rows(source, these, some, votes, sizes))
            steps.advance(len(these))


def teach(
    source: Source, cells: Sequence[tuple[Cell, Row]], config: StudentConfig, keep: Keep, done: progress.Bar
) -> None:
    """Train the student of each cell; its setting was judged before, in the row that goes with it."""
    votes = source.votes()
    lesson, made = source.lesson(votes), versions()
    for cell, row in cells:
        told = {name: value for name, value in row.items() if name not in _OF_SETTING}
        own = {"cell": cell.digest, "student": cell.student, "lesson": cell.lesson, "versions": made}
        keep([{**told, **own, "student_accuracy": _taught(cell, votes, lesson, config)}])
        done.advance(note=f"{source.name}, {source.teachers} teachers, {cell.student}")


def _together(mechanisms: Sequence[Mechanism]) -> Iterable[dict[Mechanism, int]]:
    """The mechanisms by kind, in parts that fit into one program, with the place of each."""
    kinds: dict[type, list[Mechanism]] = {}
    for mechanism in mechanisms:
        kinds.setdefault(type(mechanism), []).append(mechanism)
    for some in kinds.values():
        size = _TABLES if some[0].noise.is_discrete else _TOGETHER
        for start in range(0, len(some), size):
            yield {mechanism: place for place, mechanism in enumerate(some[start : start + size])}


def _rows(
    source: Source, cells: Sequence[Cell], some: dict[Mechanism, int], votes: Votes, sizes: list[int]
) -> list[dict[str, Any]]:
    first = {cell.mechanism: cell for cell in reversed(cells)}
    words = [first[mechanism].words("noise") for mechanism in some]
    counted = tallies.tallies(list(some), votes.votes, votes.labels, sizes, words)
    settings = list(dict.fromkeys((cell.mechanism, cell.queries) for cell in cells))
    costs = many(
        [mechanism for mechanism, _ in settings],
        votes.votes,
        cells[0].delta,
        queries=[queries for _, queries in settings],
    )
    place_of = {setting: place for place, setting in enumerate(settings)}
    made, content = versions(), content_digest(votes)
    rows = []
    for cell in cells:
        row, column = some[cell.mechanism], sizes.index(cell.queries)
        at = place_of[cell.mechanism, cell.queries]
        answered = int(counted.answered[row, column])
        right = None if votes.labels is None else int(counted.right[row, column])
        rows.append(
            {
                "cell": cell.digest,
                "name": source.name,
                "source": cell.source,
                "judged_on": source.judged_on,
                "teachers": cell.teachers,
                "classes": int(votes.votes.shape[1]),
                "mechanism": to_dict(cell.mechanism),
                "queries": cell.queries,
                "delta": cell.delta,
                "seed": cell.seed,
                "net": source.net,
                "selection": source.selection,
                "student": None,
                "answered": answered,
                "right": right,
                "label_accuracy": None if right is None or not answered else right / answered,
                "plurality_agreement": int(counted.same[row, column]) / answered if answered else None,
                "student_accuracy": None,
                "expected_answers": float(costs.answered[at]),
                "published": _finite(costs.published[at]),
                "published_order": float(costs.published_order[at]),
                "data_independent": _finite(costs.data_independent[at]),
                "basis": costs.basis[at],
                "votes": content,
                "versions": made,
            }
        )
    return rows


def _taught(cell: Cell, votes: Votes, lesson: students.Lesson, config: StudentConfig) -> float | None:
    answers = tallies.answers(cell.mechanism, votes.votes, cell.words("noise"))
    asked = Answers(answers.labels[: cell.queries], answers.answered[: cell.queries])
    key = jax.random.key(int.from_bytes(bytes.fromhex(cell.digest[:8]), "big"))
    return students.accuracy(key, lesson, asked, str(cell.student), config)


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
