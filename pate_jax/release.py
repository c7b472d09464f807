"""Writes `release/`, the folder that may be handed over, and audits that nothing private is in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax

from pate_jax import artefact, models
from pate_jax.data import Preprocessing
from pate_jax.errors import PateError
from pate_jax.student import Student

# Everything a release may hold, and for each JSON file the only fields that it may have.
_FILES = {
    "statement.json",
    "report.html",
    "student/parameters.npz",
    "student/student.json",
    "student/MODEL_CARD.md",
}
_WORDS = ("sensitive", "votes.npz", "teacher_labels", "keys.json", "ledger", "private/", "seed=")
_NOT_PRIVATE = "**NOT PRIVATE: a reproducible run, whose noise anyone can draw again.**\n\n"


def write(folder: Path, student: Student, statement: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """Write student, statement and model card; `statement` must hold publishable figures only."""
    student.save(folder / "student")
    artefact.write_json(folder / "statement.json", "statement", statement)
    artefact.write_bytes(folder / "student" / "MODEL_CARD.md", _card(student, statement, facts).encode())


def audit(folder: Path) -> list[str]:
    """What in a release should not be there; an empty list means that nothing was found."""
    found = []
    for path in sorted(path for path in folder.rglob("*") if not path.is_dir()):
        name = path.relative_to(folder).as_posix()
        if name not in _FILES:
            found.append(f"{name} is no part of a release")
        elif path.is_symlink():
            found.append(f"{name} is a link to somewhere else")
        elif path.suffix != ".npz":
            text = path.read_text()
            found += [f"{name} speaks of {word!r}" for word in _WORDS if word in text]
    if (folder / "student" / "parameters.npz").exists():
        found += _foreign_arrays(folder / "student")
    if (folder / "statement.json").exists():
        found += _sensitive_figures(folder / "statement.json")
    return found


def check(folder: Path) -> None:
    """Raise where the audit finds something."""
    found = audit(folder)
    if found:
        raise PateError(f"{folder} must not be handed over: {'; '.join(found)}")


def _foreign_arrays(folder: Path) -> list[str]:
    """Arrays that are not just the parameters of the one net that student.json describes."""
    found = Student.load(folder).shapes()
    net = models.build(**artefact.read_json(folder / "student.json", "student")["net"])
    wanted = Student(jax.eval_shape(net.init, jax.random.key(0)), {}, Preprocessing((), ()), ()).shapes()
    return [f"student/parameters.npz holds {name}" for name in found if found[name] != wanted.get(name)]


def _sensitive_figures(path: Path) -> list[str]:
    figures = artefact.read_json(path, "statement").get("figures", {})
    return [
        f"statement.json holds the sensitive figure {name!r}"
        for name, figure in figures.items()
        if figure.get("status") != "publishable"
    ]


def _card(student: Student, statement: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    accuracy = facts.get("student_accuracy")
    measured = "not measured: no public test part" if accuracy is None else f"{accuracy:.2%}"
    warning = "" if facts["private"] else _NOT_PRIVATE
    names = ", ".join(student.class_names[:20]) + (" ..." if len(student.class_names) > 20 else "")
    asked, answered, teachers = statement["asked"], statement["answered"], facts["teachers"]
    return f"""{warning}# Model card

- Task: {len(student.class_names)} classes: {names}.
- Trained on: public inputs; {teachers} teachers were asked about {asked} of them and answered {answered}.
- Data: {facts["data"]}.
- Privacy: {statement["model_card_line"]}
- Accuracy on public test data: {measured}.
- Net: {json.dumps(student.description)}.

The guarantee covers what this student reveals of one {statement["relation"]} of the private data. It does not
cover public inputs, settings that somebody chose by looking at private data, or what else leaves its owner.
"""
