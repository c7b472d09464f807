"""The students of several labels, which one release holds: each is asked about the same inputs."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pate_jax.errors import PateError
from pate_jax.student import predictions
from pate_jax.student.serving import Student
from pate_jax.system import progress, storage

LABELS = "labels.json"  # beside the folders of the students, with the folder of each label
_PLACES = ("", "student", "release/student")


class Students(NamedTuple):
    """One student for each label, by the label's name; all take the same inputs."""

    by_label: dict[str, Student]

    @property
    def first(self) -> Student:
        """One of them, by which inputs are read."""
        return next(iter(self.by_label.values()))

    def __call__(self, inputs: np.ndarray) -> dict[str, np.ndarray]:
        """Probabilities [input, class] by label."""
        return {label: one(inputs) for label, one in self.by_label.items()}

    def predict_proba(self, inputs: Any) -> dict[str, np.ndarray]:
        """The same for inputs in any form that a student takes."""
        return {label: one.predict_proba(inputs) for label, one in self.by_label.items()}

    def predict(self, inputs: Any) -> dict[str, np.ndarray]:
        """The most probable class [input] by label."""
        return {label: one.predict(inputs) for label, one in self.by_label.items()}

    @classmethod
    def load(cls, path: Path | str, encoder: Path | str | None = None) -> Students:
        """The students of a run of several labels, of its release/ or of its release/student/."""
        home = find(path)
        if home is None:
            raise PateError(f"{path} holds no students of several labels: name the folder of their release")
        folders = storage.read_json(home / LABELS, "labels").get("folders")
        if not isinstance(folders, dict) or not folders or not all(map(_plain, folders.values())):
            raise PateError(f"{home / LABELS} names no folders of students: restore it")
        found = cls(
            {str(label): Student.load(home / place, encoder=encoder) for label, place in folders.items()}
        )
        other = next(
            (label for label, one in found.by_label.items() if one.columns != found.first.columns), None
        )
        if other is not None:
            raise PateError(
                f"{home / folders[other]} takes other inputs than the students beside it: restore it"
            )
        return found


def folder_of(labels: Sequence[str], label: str) -> str:
    """The folder of one of several labels.

    >>> folder_of(("sick", "in/out"), "in/out")
    '2-in-out'
    """
    plain = re.sub(r"[^A-Za-z0-9]+", "-", label).strip("-")[:40]
    return f"{[*labels].index(label) + 1}-{plain}".rstrip("-")


def find(path: Path | str) -> Path | None:
    """The folder below a path that holds students of several labels, if one does."""
    root = Path(path).expanduser()
    return next((root / place for place in _PLACES if (root / place / LABELS).is_file()), None)


def write(
    path: Path | str,
    students: Students,
    found: Mapping[str, np.ndarray],
    ids: np.ndarray | None = None,
) -> None:
    """Write what they say: .csv, or .npz with probabilities_LABEL and classes_LABEL."""
    path = predictions.check_out(path)
    if path.suffix.lower() == ".csv":
        storage.write_bytes(path, lines(students, found, ids).encode())
        return
    arrays = {f"probabilities_{label}": one for label, one in found.items()}
    arrays |= {f"classes_{label}": np.array(one.class_names) for label, one in students.by_label.items()}
    storage.write_arrays(path, "predictions", arrays | ({} if ids is None else {"ids": ids.astype(np.str_)}))


def show(students: Students, found: Mapping[str, np.ndarray], ids: np.ndarray | None, most: int = 10) -> None:
    """Print the first predictions, and say how to get the rest."""
    rows = len(next(iter(found.values())))
    print(lines(students, {one: each[:most] for one, each in found.items()}, ids), end="")
    if rows > most:
        progress.say(f"and {rows - most:,} more: --out predictions.csv writes all {rows:,}")


def lines(students: Students, found: Mapping[str, np.ndarray], ids: np.ndarray | None = None) -> str:
    """A line for each input: its row or id, and for each label the most probable class and probabilities."""
    stream = io.StringIO(newline="")
    table = csv.writer(stream, lineterminator="\n")
    heads: list[str] = []
    for label, one in students.by_label.items():
        heads += [label, *(f"p_{label}_{name}" for name in one.class_names)]
    table.writerow(["row" if ids is None else "id", *heads])
    number = len(next(iter(found.values())))
    for place in range(number):
        row: list[Any] = [place if ids is None else ids[place]]
        for label, one in students.by_label.items():
            values = found[label][place]
            row += [one.class_names[values.argmax()], *(f"{value:.6f}" for value in values)]
        table.writerow(row)
    return stream.getvalue()


def _plain(folder: Any) -> bool:
    """Whether this is the name of a folder, and no path to elsewhere."""
    return isinstance(folder, str) and folder not in ("", ".", "..") and not set(folder) & set("/\\:")
