"""What a student says of inputs, written into a file or shown: labels and probabilities, or numbers."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pate_jax.data.targets import Target
from pate_jax.errors import PateError
from pate_jax.student.serving import Student
from pate_jax.system import progress, storage

_SHOWN = 10  # predictions on the terminal


def write(
    path: Path | str, student: Student, probabilities: np.ndarray, ids: np.ndarray | None = None
) -> None:
    """Write .npz (labels, probabilities, class_names, ids) or .csv (row or id, label, p_CLASS ...).

    Of a student of numbers an .npz holds `values` and `ids`, and a .csv the row or id and the number.
    """
    path, names = check_out(path), np.array(student.class_names)
    if path.suffix.lower() == ".csv":
        storage.write_bytes(path, _lines(student, probabilities, ids).encode())
        return
    if student.target is not None:
        arrays = {"values": student.target.values(probabilities[:, 1])}
    else:
        labels = names[probabilities.argmax(1)]
        arrays = {"labels": labels, "probabilities": probabilities, "class_names": names}
    more = {} if ids is None else {"ids": ids.astype(np.str_)}
    storage.write_arrays(path, "predictions", {**arrays, **more})


def _lines(student: Student, probabilities: np.ndarray, called: np.ndarray | None) -> str:
    """One line for each input, of classes or of a number."""
    if student.target is not None:
        return numbers_as_csv(student.target, probabilities, called)
    return as_csv(student.class_names, probabilities, called)


def check_out(path: Path | str) -> Path:
    """Refuse a name for predictions that is neither .csv nor .npz."""
    path = Path(path).expanduser()
    if path.suffix.lower() not in (".csv", ".npz"):
        raise PateError(f"--out {path} must end in .csv or .npz")
    return path


def as_csv(names: Sequence[str], probabilities: np.ndarray, called: np.ndarray | None = None) -> str:
    """One line for each input: its row or id, the most probable class, and the probability of each class.

    >>> print(as_csv(["cat", "dog"], np.array([[0.75, 0.25]])), end="")
    row,label,p_cat,p_dog
    0,cat,0.750000,0.250000
    """
    stream = io.StringIO(newline="")
    table = csv.writer(stream, lineterminator="\n")
    table.writerow(["row" if called is None else "id", "label", *(f"p_{name}" for name in names)])
    rows = range(len(probabilities)) if called is None else called.tolist()
    for row, values in zip(rows, probabilities, strict=True):
        table.writerow([row, names[values.argmax()], *(f"{value:.6f}" for value in values)])
    return stream.getvalue()


def numbers_as_csv(target: Target, probabilities: np.ndarray, called: np.ndarray | None = None) -> str:
    """One line for each input: its row or id, and the number that is predicted.

    >>> print(numbers_as_csv(Target("days", 0, 60), np.array([[0.75, 0.25]])), end="")
    row,days
    0,15
    """
    stream = io.StringIO(newline="")
    table = csv.writer(stream, lineterminator="\n")
    table.writerow(["row" if called is None else "id", target.name])
    rows = range(len(probabilities)) if called is None else called.tolist()
    found = target.values(probabilities[:, 1])
    table.writerows([row, f"{value:.6g}"] for row, value in zip(rows, found, strict=True))
    return stream.getvalue()


def show(student: Student, probabilities: np.ndarray, called: np.ndarray | None = None) -> None:
    """Print the first predictions, and say on the error stream how to get the rest."""
    first = None if called is None else called[:_SHOWN]
    print(_lines(student, probabilities[:_SHOWN], first), end="")
    if len(probabilities) > _SHOWN:
        rest = len(probabilities) - _SHOWN
        progress.say(f"and {rest:,} more: --out predictions.csv writes all {len(probabilities):,}")
