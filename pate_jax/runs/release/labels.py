"""The release of several labels: one student for each, and one statement, card and program for all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pate_jax.runs import measured
from pate_jax.runs.release import write as single
from pate_jax.runs.report import labels_page
from pate_jax.student import Student, exported
from pate_jax.student.several import LABELS
from pate_jax.system import storage

_FILES = ("student.json", "parameters.npz", exported.TENSORS, exported.PROGRAM)


def write(
    folder: Path,
    called: Mapping[str, str],
    students: Mapping[str, Path],
    statement: Mapping[str, Any],
    facts: Mapping[str, Any],
) -> None:
    """Write the students of all labels: `called` are the folders by label, and `students` what is in each."""
    home, facts = folder / "student", measured.published(facts)
    for place, student in students.items():
        for name in (name for name in _FILES if (student / name).exists()):
            storage.write_bytes(home / place / name, storage.read_bytes(student / name))
    storage.write_json(home / LABELS, "labels", {"folders": dict(called)})
    storage.write_json(folder / "statement.json", "statement", statement)
    storage.write_json(home / "statement.json", "statement", statement)
    first = Student.load(home / next(iter(students)))
    single.write_programs(folder, first)
    storage.write_bytes(home / "MODEL_CARD.md", model_card(first, statement, facts).encode())


def model_card(student: Student, statement: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    """The card of all labels; `student` is one of them, which takes the same inputs as all others."""
    sections = {
        "What it says, and of what": [
            f"Task: {len(facts['labels'])} labels of each input, each by a student of its own.",
            *(
                f"{single.plain(label)}: {len(one['classes'])} classes: {_classes(one['classes'])}."
                for label, one in facts["labels"].items()
            ),
            *single.reads(student),
        ],
        "Privacy": single.promised(statement, facts),
        "How it was made": [
            f"Data: {facts['data']}.",
            f"Trained on: {single.learned_from(statement, facts)}.",
        ],
        "How good it is": [
            *(f"{single.plain(label)}: {labels_page.told(one)}." for label, one in facts["labels"].items()),
            f"All labels: {labels_page.macro(facts)}.",
        ],
    }
    said = single.card(sections, statement, facts, student)
    return said.replace("pate_jax.Student.load", "pate_jax.student.Students.load")


def _classes(names: list[str]) -> str:
    return ", ".join(map(single.plain, names[:20])) + (" ..." if len(names) > 20 else "")
