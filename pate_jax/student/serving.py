"""A trained student in use: what it is, how it is called, saved and found again, and what it may be given.

Nothing here trains. A saved student is a folder of two files, `student.json` and `parameters.npz`, and needs
no other file of a run; that of somebody's own net has its arrays and its program in place of the second.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax
import numpy as np

from pate_jax import models
from pate_jax.data import Preprocessing, columns, encoders, folders, frames, ids, notes, tables, texts
from pate_jax.data.dataset import IMAGE_RANKS, class_names_of
from pate_jax.data.targets import Target
from pate_jax.errors import PateError, PateWarning
from pate_jax.models import identity, trees
from pate_jax.student import exported
from pate_jax.system import progress, storage

_SIZES = (32, 250, 1000)  # batches that are compiled for; a part of one is padded
_PLACES = ("", "student", "release/student")  # where a student may lie below a path
_DIGITS = 16  # of the digest of a source, which a release may show


class Student(NamedTuple):
    """A trained student: called on raw inputs, it returns class probabilities.

    >>> net = models.build("mlp", input_shape=(2,), classes=2, hidden=())
    >>> parameters = {"dense0": {"kernel": np.eye(2, dtype="f4"), "bias": np.zeros(2, "f4")}}
    >>> made = Student(parameters, net.description, Preprocessing((0.0,), (1.0,)), ("no", "yes"))
    >>> made.predict(np.array([[2.0, 0.0], [0.0, 2.0]])).tolist()
    ['no', 'yes']
    """

    parameters: Any
    description: dict[str, Any]  # of the net, as `models.build` takes it
    preprocessing: Preprocessing
    class_names: tuple[str, ...]
    temperature: float = 1.0  # logits are divided by it before the softmax
    dtype: str = ""  # type of the inputs it was trained on, such as uint8 for pixels; "" where unknown
    columns: tuple[columns.Column, ...] = ()  # of a table that was read from text
    target: Target | None = None  # where a number is predicted: its range, whose ends are the two classes
    program: exported.Program | None = None  # of somebody's own net; None where `models.build` makes it
    net: Any = None  # the module of that net, where its user has named it

    def __call__(self, inputs: np.ndarray) -> np.ndarray:
        """Probabilities [input, class]."""
        inputs = check_inputs(self, inputs)
        apply = _call(self)
        _check_parameters(self)
        found = [np.zeros((0, len(self.class_names)), np.float32)]
        starts = range(0, len(inputs), _SIZES[-1])
        for start in progress.track(starts, "predicting", total=len(starts)):
            chunk = inputs[start : start + _SIZES[-1]]
            found.append(np.asarray(apply(_padded(chunk)))[: len(chunk)])
        return np.concatenate(found)

    @property
    def classes_(self) -> np.ndarray:
        """The classes in the order of probabilities: names, or numbers where they have no names."""
        names = self.class_names
        return np.arange(len(names)) if names == class_names_of(len(names)) else np.array(names)

    def predict(self, inputs: Any) -> np.ndarray:
        """The most probable class [input], or its number, for inputs in any form of `predict_proba`."""
        found = self.predict_proba(inputs)
        return self.classes_[found.argmax(1)] if self.target is None else self.target.values(found[:, 1])

    def predict_proba(self, inputs: Any) -> np.ndarray:
        """Probabilities [input, class] of a data frame, columns by name, an array or a file.

        Columns that the student does not know, such as labels and ids, are not read.
        """
        if isinstance(inputs, str | Path):
            return self(read_inputs(self, inputs)[0])
        content = frames.read(inputs, "inputs")
        if isinstance(content, tables.Table):
            return self(encoded(self, content, "inputs"))
        return self(folders.as_seen(content["inputs"], texts.seen(self.columns), "inputs"))

    def accuracy(self, inputs: np.ndarray, labels: np.ndarray) -> float:
        """Share of inputs whose most probable class is the label."""
        return float(np.mean(self(inputs).argmax(1) == labels))

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every parameter by its path."""
        return {name: tuple(leaf.shape) for name, leaf in trees.flat(self.parameters).items()}

    def save(self, folder: Path | str) -> None:
        """Write parameters and description into a folder; `load` is the inverse.

        A net of somebody's own is written as safetensors, with its program beside them (`student.exported`).
        """
        folder = Path(folder)
        arrays = {name: np.asarray(leaf) for name, leaf in trees.flat(self.parameters).items()}
        if self.program is None:
            storage.write_arrays(folder / "parameters.npz", "student-parameters", arrays)
        else:
            exported.write_tensors(folder / exported.TENSORS, arrays)
            storage.write_bytes(folder / exported.PROGRAM, self.program.content)
        body = {
            "net": self.description,
            "preprocessing": {name: getattr(self.preprocessing, name) for name in ("offset", "scale")},
            "class_names": list(self.class_names),
            "temperature": self.temperature,
            "dtype": self.dtype,
            "columns": [column.to_dict() for column in self.columns],
            **({} if self.target is None else {"target": self.target._asdict()}),
        }
        storage.write_json(folder / "student.json", "student", body)

    def with_program(self) -> Student:
        """The same with its program, for a student of somebody's own net."""
        shapes = jax.eval_shape(lambda: self.parameters)
        made = exported.program(function(self), shapes, tuple(self.description["input_shape"]))
        net = {"name": "a net of somebody's own", "arguments": "", "source": "", **self.description}
        told = {"file": exported.PROGRAM, **made.facts, "jax": jax.__version__}
        net |= {name: net[name][:_DIGITS] for name in ("source", "start") if name in net}
        return self._replace(description={**net, "program": told}, program=made)

    @classmethod
    def load(cls, path: Path | str, net: Any = None, *, encoder: Path | str | None = None) -> Student:
        """The student that was saved in a folder; a run's directory or its release/ will do as well.

        That of somebody's own net is served by its program, so no code of that net is needed, and none is
        run; where `net` is its module, or where that is as package.module:Class, that is imported and serves.
        `encoder` is the file or folder of an encoder that no package holds; another one is refused.
        """
        folder = find(path)
        body = storage.read_json(folder / "student.json", "student")
        try:
            if exported.is_own(body["net"]):
                found = _own(folder, body, net)
            elif net is not None:
                raise PateError(f"{folder} holds a net of this library, {body['net']['name']}: leave out net")
            else:
                arrays = storage.read_arrays(folder / "parameters.npz", "student-parameters")
                found = _from_body(body, trees.nested(arrays))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, PateError):
                raise
            raise PateError(
                f"{folder / 'student.json'} describes no student ({error!r}); restore it"
            ) from error
        for known in texts.seen(found.columns):
            encoders.hold(known, folder)
            encoders.hold(known, folder.parent)  # of several labels
        if encoder is not None:
            _open_encoder(found, str(encoder))
        return found


def _open_encoder(student: Student, place: str) -> None:
    """Read the encoder of this student from a place; another one is refused."""
    known = next(texts.seen(student.columns), None)
    if known is None:
        raise PateError(f"--encoder {place}: this student needs none; leave it out")
    encoders.same(known, place)


def find(path: Path | str) -> Path:
    """The folder of the student that lies at a path: a student's folder, a release or a run."""
    path = Path(path).expanduser()
    for place in _PLACES:
        if (path / place / "student.json").is_file():
            return path / place
        if (path / place / "labels.json").is_file():
            raise PateError(
                f"{path} holds students of several labels: pate_jax.student.Students.load reads them"
            )
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

    An .npz holds an array `inputs`, a table (.csv, .parquet, .xlsx) the student's columns, a folder images.
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
    seen = folders.as_seen(arrays["inputs"], texts.seen(student.columns), f"{path}: inputs")
    inputs, ids = check_inputs(student, seen, f"{path}: inputs"), arrays.get("ids")
    if ids is not None and ids.shape != inputs.shape[:1]:
        raise PateError(f"{path} has ids of shape {ids.shape} for {len(inputs)} inputs; give one for each")
    return inputs, ids


def _ids(student: Student, table: tables.Table, name: str | None, place: str) -> np.ndarray | None:
    """The ids of a table's rows, from the column of this name or the one that looks like them."""
    if name is None:
        known = {column.name for column in student.columns}
        name = next((one for one in table if one not in known and ids.look_like_ids(one, table[one])), None)
    elif name not in table:
        raise PateError(f"{place} has no column {name!r}; {tables.columns_like(name, table)}")
    return None if name is None else np.array(table[name], np.str_)


def _images(student: Student, path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    known = next(texts.seen(student.columns), None)
    if known is not None and encoders.of_photos(known.name):
        seen = folders.encoded(path, cast(encoders.OfPhotos, encoders.same(known)))
        return check_inputs(student, seen.inputs, str(path)), seen.ids
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
    unseen = notes.unseen(table, student.columns)
    if unseen:
        told = ", ".join(f"{name} ({count})" for name, count in unseen.items())
        progress.say(f"values of no known category are taken as none of them: {told}")
    inputs = columns.encode(table, student.columns, place)
    filled = notes.filled(table, student.columns)
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
        Target(**body["target"]) if "target" in body else None,
    )


def _own(folder: Path, body: dict[str, Any], net: Any) -> Student:
    """The student of a net of somebody's own: by its program, or by the module that its user names."""
    arrays, program = exported.read_tensors(folder / exported.TENSORS), exported.read_program(folder)
    told = body["net"]
    if net is None:
        return _from_body(body, trees.nested(arrays))._replace(program=program)
    shape, classes = tuple(told["input_shape"]), len(body["class_names"])
    if isinstance(net, str):
        net = identity.net_named(net, told["arguments"], shape, classes)
    model = models.model_of(net, shape)
    if model.description.get("source", "")[:_DIGITS] != told["source"]:
        warnings.warn(
            f"the source of {told['name']} is not that of the training: compare its probabilities with those "
            "of the program, which Student.load(folder) serves",
            PateWarning,
            stacklevel=4,
        )
    like = jax.eval_shape(model.init, jax.random.key(0))
    return _from_body(body, trees.filled(like, arrays))._replace(net=net, program=program)


def _call(student: Student) -> Any:
    """Inputs that were checked -> probabilities."""
    program = student.program
    if program is None or student.net is not None:
        apply, factor = _probabilities(_model(student).apply, student.preprocessing), _factor(student)
        return lambda inputs: apply(student.parameters, inputs, factor)
    arrays = trees.flat(student.parameters)
    return lambda inputs: program.call(arrays, np.asarray(inputs, np.float32))


def function(student: Student) -> Any:
    """(parameters, inputs) -> probabilities, of a net whose module is known."""
    apply, factor = _probabilities(_model(student).apply, student.preprocessing), _factor(student)
    return lambda parameters, inputs: apply(parameters, inputs, factor)


def _factor(student: Student) -> np.float32:
    return np.float32(1 / student.temperature)


def _model(student: Student) -> models.Model:
    """The net of a student as pure functions."""
    if student.net is None:
        return _net(json.dumps(student.description))
    return models.model_of(student.net, tuple(student.description["input_shape"]))


@lru_cache(maxsize=8)
def _probabilities(apply: Any, preprocessing: Preprocessing):
    return jax.jit(
        lambda parameters, inputs, factor: jax.nn.softmax(
            apply(parameters, preprocessing.apply(inputs)) * factor
        )
    )


def _net(description: str) -> models.Model:
    try:
        return models.build(**json.loads(description))
    except PateError:
        raise
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
        raise PateError(f"student.json describes no net ({error!r}); restore the student's files") from error


def shapes_wanted(student: Student) -> Mapping[str, tuple[int, ...]]:
    """The shape of every parameter that the student's net has, by path."""
    program = student.program
    return program.shapes if program is not None else _wanted_shapes(_model(student).init)


@lru_cache(maxsize=8)
def _wanted_shapes(init: Any) -> dict[str, tuple[int, ...]]:
    wanted = trees.flat(jax.eval_shape(init, jax.random.key(0)))
    return {name: tuple(leaf.shape) for name, leaf in wanted.items()}


def _check_parameters(student: Student) -> None:
    wanted, found = shapes_wanted(student), student.shapes()
    for name in sorted({*wanted, *found}):
        if wanted.get(name) != found.get(name):
            raise PateError(
                f"parameter {name} has shape {found.get(name)} where the net has {wanted.get(name)}; "
                "restore the student's files"
            )


def _padded(chunk: np.ndarray) -> np.ndarray:
    missing = next(size for size in _SIZES if size >= len(chunk)) - len(chunk)
    return np.concatenate([chunk, np.repeat(chunk[-1:], missing, axis=0)]) if missing else chunk
