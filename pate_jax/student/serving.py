"""A trained student in use: what it is, how it is called, saved and found again, and what it may be given.

Nothing here trains. A saved student is a folder of two files, `student.json` and `parameters.npz`, and needs
no other file of a run.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from pate_jax import models
from pate_jax.data import Preprocessing, columns, folders, frames, ids, tables
from pate_jax.data.dataset import IMAGE_RANKS, class_names_of
from pate_jax.errors import PateError
from pate_jax.models import trees
from pate_jax.system import progress, storage

_SIZES = (32, 250, 1000)  # batches that are compiled for; a part of one is padded
_PLACES = ("", "student", "release/student")  # where a student may lie below a path
_SHOWN = 10  # predictions on the terminal


class Student(NamedTuple):
    """A trained student: called on raw inputs, it returns class probabilities."""

    parameters: Any
    description: dict[str, Any]  # of the net, as `models.build` takes it
    preprocessing: Preprocessing
    class_names: tuple[str, ...]
    temperature: float = 1.0  # logits are divided by it before the softmax
    dtype: str = ""  # type of the inputs it was trained on, such as uint8 for pixels; "" where unknown
    columns: tuple[columns.Column, ...] = ()  # of a table that was read from text

    def __call__(self, inputs: np.ndarray) -> np.ndarray:
        """Probabilities [input, class]."""
        inputs = check_inputs(self, inputs)
        apply = _probabilities(json.dumps(self.description), self.preprocessing)
        _check_parameters(self)
        found = [np.zeros((0, len(self.class_names)), np.float32)]
        factor = np.float32(1 / self.temperature)
        starts = range(0, len(inputs), _SIZES[-1])
        for start in progress.track(starts, "predicting", total=len(starts)):
            chunk = inputs[start : start + _SIZES[-1]]
            found.append(np.asarray(apply(self.parameters, _padded(chunk), factor))[: len(chunk)])
        return np.concatenate(found)

    @property
    def classes_(self) -> np.ndarray:
        """The classes in the order of probabilities: names, or numbers where they have no names."""
        names = self.class_names
        return np.arange(len(names)) if names == class_names_of(len(names)) else np.array(names)

    def predict(self, inputs: Any) -> np.ndarray:
        """The most probable class [input], for inputs in any form that `predict_proba` takes."""
        return self.classes_[self.predict_proba(inputs).argmax(1)]

    def predict_proba(self, inputs: Any) -> np.ndarray:
        """Probabilities [input, class] of a data frame, columns by name, an array or a file.

        Columns that the student does not know, such as labels and ids, are not read.
        """
        if isinstance(inputs, str | Path):
            return self(read_inputs(self, inputs)[0])
        content = frames.read(inputs, "inputs")
        if isinstance(content, tables.Table):
            return self(encoded(self, content, "inputs"))
        return self(content["inputs"])

    def accuracy(self, inputs: np.ndarray, labels: np.ndarray) -> float:
        """Share of inputs whose most probable class is the label."""
        return float(np.mean(self(inputs).argmax(1) == labels))

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every parameter by its path."""
        return {name: tuple(leaf.shape) for name, leaf in trees.flat(self.parameters).items()}

    def save(self, folder: Path | str) -> None:
        """Write parameters and description into a folder; `load` is the inverse."""
        folder = Path(folder)
        arrays = {name: np.asarray(leaf) for name, leaf in trees.flat(self.parameters).items()}
        storage.write_arrays(folder / "parameters.npz", "student-parameters", arrays)
        body = {
            "net": self.description,
            "preprocessing": asdict(self.preprocessing),
            "class_names": list(self.class_names),
            "temperature": self.temperature,
            "dtype": self.dtype,
            "columns": [column._asdict() for column in self.columns],
        }
        storage.write_json(folder / "student.json", "student", body)

    @classmethod
    def load(cls, path: Path | str) -> Student:
        """The student that was saved in a folder; a run's directory or its release/ will do as well."""
        folder = find(path)
        body = storage.read_json(folder / "student.json", "student")
        arrays = storage.read_arrays(folder / "parameters.npz", "student-parameters")
        try:
            return _from_body(body, trees.nested(arrays))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, PateError):
                raise
            raise PateError(
                f"{folder / 'student.json'} describes no student ({error!r}); restore it"
            ) from error


def find(path: Path | str) -> Path:
    """The folder of the student that lies at a path: a student's folder, a release or a run."""
    path = Path(path).expanduser()
    for place in _PLACES:
        if (path / place / "student.json").is_file():
            return path / place
    raise PateError(f"{path} holds no student: give a run directory, its release/ or its release/student/")


def check_inputs(student: Student, inputs: Any, place: str = "inputs") -> np.ndarray:
    """The inputs as this student takes them, or one sentence that says what is wrong with them.

    Images without a channel axis get one; nothing else is changed.
    """
    inputs, wanted = np.asarray(inputs), tuple(student.description["input_shape"])
    if inputs.dtype.kind not in "buif":
        raise PateError(f"{place} are of type {inputs.dtype}; give numbers")
    if inputs.ndim + 1 in IMAGE_RANKS and len(wanted) + 1 in IMAGE_RANKS:
        inputs = inputs[..., None]
    if inputs.ndim == 0 or inputs.shape[1:] != wanted:
        raise PateError(
            f"{place} have shape {inputs.shape[1:]} each; this student takes {wanted}, so give an array "
            f"[n, {', '.join(map(str, wanted))}]"
        )
    flat = inputs.reshape(len(inputs), math.prod(wanted))
    if inputs.dtype.kind == "f" and not np.isfinite(flat).all():
        row = int(np.argmin(np.isfinite(flat).all(1)))
        raise PateError(f"{place} hold NaN or infinity (first at row {row}); fill or remove those records")
    if student.dtype == "uint8" and inputs.dtype != np.uint8 and inputs.size:
        _check_pixels(flat, place)
    return inputs


def read_inputs(
    student: Student, path: Path | str, id_column: str | None = None
) -> tuple[np.ndarray, np.ndarray | None]:
    """The inputs in a file or folder, and their ids, if there are any.

    An .npz holds an array `inputs`, a .csv or .parquet the columns that the student knows, a folder images.
    Unless `id_column` names one, ids of a table are a column that the student does not know, is called after
    ids, and differs in every row.
    """
    path = Path(path).expanduser()
    if path.is_dir():
        return _images(student, path)
    if path.suffix.lower() in tables.SUFFIXES:
        table = tables.read(path)
        named = _ids(student, table, id_column, str(path))
        return encoded(student, table, str(path)), named
    if id_column is not None:
        raise PateError(
            f"--id-column {id_column} names a column of a table, and {path} is none: leave it out"
        )
    arrays = storage.read_foreign_arrays(path)
    if "inputs" not in arrays:
        raise PateError(f"{path} has no array 'inputs'; it holds {', '.join(sorted(arrays)) or 'nothing'}")
    inputs, ids = check_inputs(student, arrays["inputs"], f"{path}: inputs"), arrays.get("ids")
    if ids is not None and ids.shape != inputs.shape[:1]:
        raise PateError(f"{path} has ids of shape {ids.shape} for {len(inputs)} inputs; give one for each")
    return inputs, ids


def write_predictions(
    path: Path | str, student: Student, probabilities: np.ndarray, ids: np.ndarray | None = None
) -> None:
    """Write .npz (labels, probabilities, class_names, ids) or .csv (row or id, label, p_CLASS ...)."""
    path, names = check_out(path), np.array(student.class_names)
    labels = names[probabilities.argmax(1)]
    if path.suffix.lower() == ".npz":
        more = {} if ids is None else {"ids": ids.astype(np.str_)}
        arrays = {"labels": labels, "probabilities": probabilities, "class_names": names, **more}
        storage.write_arrays(path, "predictions", arrays)
    else:
        storage.write_bytes(path, predictions_csv(student.class_names, probabilities, ids).encode())


def check_out(path: Path | str) -> Path:
    """Refuse a name for predictions that is neither .csv nor .npz."""
    path = Path(path).expanduser()
    if path.suffix.lower() not in (".csv", ".npz"):
        raise PateError(f"--out {path} must end in .csv or .npz")
    return path


def predictions_csv(names: Sequence[str], probabilities: np.ndarray, called: np.ndarray | None = None) -> str:
    """One line for each input: its row or id, the most probable class, and the probability of each class.

    >>> print(predictions_csv(["cat", "dog"], np.array([[0.75, 0.25]])), end="")
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


def show_predictions(student: Student, probabilities: np.ndarray, called: np.ndarray | None = None) -> None:
    """Print the first predictions, and say on the error stream how to get the rest."""
    first = None if called is None else called[:_SHOWN]
    print(predictions_csv(student.class_names, probabilities[:_SHOWN], first), end="")
    if len(probabilities) > _SHOWN:
        rest = len(probabilities) - _SHOWN
        progress.say(f"and {rest:,} more: --out predictions.csv writes all {len(probabilities):,}")


def _ids(student: Student, table: tables.Table, name: str | None, place: str) -> np.ndarray | None:
    """The ids of a table's rows, from the column of this name or the one that looks like them."""
    if name is None:
        known = {column.name for column in student.columns}
        name = next((one for one in table if one not in known and ids.look_like_ids(one, table[one])), None)
    elif name not in table:
        raise PateError(f"{place} has no column {name!r}; {tables.columns_like(name, table)}")
    return None if name is None else np.array(table[name], np.str_)


def _images(student: Student, path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    shape = student.description["input_shape"]
    if len(shape) + 1 not in IMAGE_RANKS or student.dtype != "uint8":
        raise PateError(f"{path} is a folder, and this student was not trained on pixels; give a file")
    found = folders.read(path, tuple(shape), resized=True)
    return check_inputs(student, found.inputs, str(path)), found.ids


def encoded(student: Student, table: tables.Table, place: str) -> np.ndarray:
    """A table as the inputs of this student; columns that it does not know are not read."""
    if not student.columns:
        raise PateError(f"{place} is a table of text, and this student was trained on arrays; give .npz")
    known = [column.name for column in student.columns]
    unread = [name for name in table if name not in known]
    if unread:
        progress.say(f"not read, since the student does not know them: columns {', '.join(unread)}")
    missing = [name for name in known if name not in table]
    if missing:
        raise PateError(f"{place} lacks the column {missing[0]!r}; this student takes {', '.join(known)}")
    table = table.only(known)
    unseen = columns.unseen(table, student.columns)
    if unseen:
        told = ", ".join(f"{name} ({count})" for name, count in unseen.items())
        progress.say(f"values of no known category are taken as none of them: {told}")
    inputs = columns.encode(table, student.columns, place)
    filled = columns.filled(table, student.columns)
    if filled:
        told = ", ".join(f"{name} ({what})" for name, what in filled.items())
        progress.say(f"missing values are taken as in training: {told}")
    return check_inputs(student, inputs, place)


def _check_pixels(flat: np.ndarray, place: str) -> None:
    """Refuse numbers that were scaled already, which would all look black."""
    low, high = float(flat.min()), float(flat.max())
    if low < 0 or high > 255 or (high <= 1 and (flat != np.floor(flat)).any()):
        raise PateError(
            f"{place} go from {low:g} to {high:g}; this student takes pixels from 0 to 255 as they are "
            "stored, so undo your own scaling"
        )


def _from_body(body: dict[str, Any], parameters: Any) -> Student:
    constants = {name: tuple(values) for name, values in body["preprocessing"].items()}
    return Student(
        parameters,
        body["net"],
        Preprocessing(**constants),
        tuple(body["class_names"]),
        float(body.get("temperature", 1.0)),
        str(body.get("dtype", "")),
        tuple(columns.from_dict(column) for column in body.get("columns", ())),
    )


@lru_cache(maxsize=8)
def _probabilities(description: str, preprocessing: Preprocessing):
    model = _net(description)
    return jax.jit(
        lambda parameters, inputs, factor: jax.nn.softmax(
            model.apply(parameters, preprocessing.apply(inputs)) * factor
        )
    )


def _net(description: str) -> models.Model:
    try:
        return models.build(**json.loads(description))
    except PateError:
        raise
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
        raise PateError(f"student.json describes no net ({error!r}); restore the student's files") from error


@lru_cache(maxsize=8)
def _wanted_shapes(description: str) -> dict[str, tuple[int, ...]]:
    model = _net(description)
    return {
        name: tuple(leaf.shape)
        for name, leaf in trees.flat(jax.eval_shape(model.init, jax.random.key(0))).items()
    }


def _check_parameters(student: Student) -> None:
    wanted, found = _wanted_shapes(json.dumps(student.description)), student.shapes()
    for name in sorted({*wanted, *found}):
        if wanted.get(name) != found.get(name):
            raise PateError(
                f"parameter {name} has shape {found.get(name)} where the net has {wanted.get(name)}; "
                "restore the student's files"
            )


def _padded(chunk: np.ndarray) -> np.ndarray:
    missing = next(size for size in _SIZES if size >= len(chunk)) - len(chunk)
    return np.concatenate([chunk, np.repeat(chunk[-1:], missing, axis=0)]) if missing else chunk
