"""Predictions of a published student with NumPy alone: no JAX, no pate_jax, no private file.

A student of free text or of photos needs its encoder too, which encoder.py beside this file reads.

    python predict.py inputs.npz --out labels.csv

In Python, `predict.predict(inputs)` returns class names and probabilities, and `predict.load(folder)` the
student. Inputs are an array `inputs` [n, ...] in an .npz archive, for a student of a text table a .csv file
with the same columns, or a folder of photos. student.json and parameters.npz must lie in the same folder as
this file.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import re
import struct
import sys
import tokenize
import zipfile
import zlib
from datetime import datetime
from functools import cache, cached_property
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

_CHUNK = 100  # images in one batch; a convolution needs nine or more times their memory
_GROUPS, _EPSILON, _TINY = 8, 1e-6, 1e-6  # of GroupNorm; and what is added under a root
_FEATURES, _FAINT, _NO_SHARE = 8000, 1e-12, 1e-30  # length of features; below a length, and a class's share
_OVERLAP = 1  # pixels by which a cell reaches into its neighbours
_PHOTOS = (".png", ".jpg", ".jpeg")
_SHOWN = 10  # predictions on the terminal
_ID = re.compile(r"(.*[ _-])?(id|uuid|key|code|number|patient|person)|pid|index|row\.?names", re.IGNORECASE)
_DECIMAL_COMMA = re.compile(r"([<>]=?\s*)?[+-]?[0-9]+,[0-9]+([eE][+-]?[0-9]+)?")
_LIMIT = re.compile(r"^[<>]=?\s*(?=[-+.\d])")  # before a number of which only a limit is known
_LARGEST = float(np.finfo(np.float32).max)
_MISSING = ("", "na", "nan", "null")  # values of a table, in any case
_PLACES = ("", "student", "release/student")
# What zipfile and NumPy raise when a file is not an archive of arrays, or is too large for memory.
_UNREADABLE = (
    *(ValueError, TypeError, LookupError, AttributeError, OverflowError, EOFError, OSError, MemoryError),
    *(RuntimeError, SyntaxError, zipfile.BadZipFile, zlib.error, struct.error, tokenize.TokenError),
)


class InputError(ValueError):
    """An input or a file cannot be used; the message names the value and the remedy."""


class Student:
    """A student: called on inputs [n, ...], it returns probabilities [n, class]."""

    def __init__(self, description: dict[str, Any], parameters: dict[str, np.ndarray]) -> None:
        self.net, self.columns = description["net"], description.get("columns", [])
        known = self.columns[0].get("encoder") if len(self.columns) == 1 else None
        self.photos = known if known and known["name"].startswith(("photos:", "lite")) else None
        self.target = description.get("target")  # of a number: its name, and the two ends of its range
        self.class_names = [str(name) for name in description["class_names"]]
        self.shape, self.dtype = tuple(self.net["input_shape"]), description.get("dtype", "")
        self.temperature = np.float32(description.get("temperature", 1.0))
        scaling = description["preprocessing"]
        self.offset, self.scale = (np.array(scaling[name], np.float32) for name in ("offset", "scale"))
        self.parameters, self.activation = parameters, _activation(self.net)
        self._parts = [
            Student({**description, "net": {**self.net, "name": part}}, _below(f"{part}/", parameters))
            for part in (("patches", "cnn") if self.net.get("name") == "tandem" else ())
        ]

        front = _below("front/", parameters)
        seen = {**self.net, "name": "cnn", "activation": "relu"}
        self._front = Student({**description, "net": seen}, front) if front else None

    def __call__(self, inputs: np.ndarray) -> np.ndarray:
        """Class probabilities [n, class] of inputs [n, ...]."""
        inputs = self.check(inputs)
        parts = [np.zeros((0, len(self.class_names)), np.float32)]
        for start in range(0, len(inputs), _CHUNK):
            chunk = (inputs[start : start + _CHUNK].astype(np.float32) - self.offset) / self.scale
            parts.append(_softmax(self.logits(chunk) / self.temperature))
        return np.concatenate(parts)

    def labels(self, probabilities: np.ndarray) -> np.ndarray:
        """The most probable class of each input, by name; or the number that is predicted."""
        if self.target is not None:
            low, high = float(self.target["low"]), float(self.target["high"])
            return low + (high - low) * probabilities[:, 1].astype(np.float64).round(7)
        return np.array(self.class_names)[probabilities.argmax(1)]

    def logits(self, inputs: np.ndarray) -> np.ndarray:
        """The logits of inputs that have already been scaled."""
        if self._parts:  # two nets, whose logits are added
            return np.sum([part.logits(inputs) for part in self._parts], 0)
        if _below("block0/", self.parameters):
            return self._residual(inputs)
        if "kernel1" in self.parameters:
            return self._strided(inputs)
        if "directions" in self.parameters:
            return self._of_sums(inputs)
        if "typical" in self.parameters:
            return self._dense("dense0", _likeness(self._patch_features(inputs), self._examples))
        if "reach" in self.parameters:
            return self._dense("dense0", self._nearness(inputs.reshape(len(inputs), -1)))
        for layer in range(self._count("conv{}")):
            inputs = self.activation(_pooled(self._convolved(f"conv{layer}", inputs)))
        head = "head/" if "head/dense0/kernel" in self.parameters else ""
        flowing, layers = inputs.reshape(len(inputs), -1), self._count(head + "dense{}")
        for layer in range(layers):
            flowing = self._dense(f"{head}dense{layer}", flowing)
            flowing = self.activation(flowing) if layer < layers - 1 else flowing
        return flowing

    def _of_sums(self, inputs: np.ndarray) -> np.ndarray:
        """Logits of a linear head, or of the shares that a crowd's classifier gives, on whole numbers."""
        if self._front is not None:
            seen = self._front.logits(inputs)
            seen = seen / (np.linalg.norm(seen, axis=1, keepdims=True) + np.float32(_FAINT))
        else:
            seen = self._seen(inputs)
        grid = (seen - self.parameters["origin"]) * self.parameters["steps"]
        along = _whole(grid, _FEATURES) @ self.parameters["directions"]
        length = self.net["length"]
        vectors = _whole(along * self.parameters["weights"], length) / np.float32(length)
        found = self._dense("dense0", vectors)
        return found if self.net["name"] == "head" else np.log(np.maximum(found, np.float32(_NO_SHARE)))

    def _seen(self, inputs: np.ndarray) -> np.ndarray:
        """What a space looks at: photos one by one, whose patches need much memory, others together."""
        if "filters" in self.parameters:
            return np.stack([self._photo_features(photo) for photo in inputs])
        return self._patch_features(inputs) if "typical" in self.parameters else self._columns(inputs)

    def _photo_features(self, photo: np.ndarray) -> np.ndarray:
        """How much of each typical direction is in each cell of a photo."""
        filters, within, offset = (self.parameters[name] for name in ("filters", "within", "offset"))
        size = math.isqrt(filters.shape[1] // photo.shape[-1])
        windows = np.lib.stride_tricks.sliding_window_view(photo, (size, size), (0, 1))
        seen = windows.transpose(0, 1, 3, 4, 2).reshape(-1, filters.shape[1])
        seen = seen - seen.mean(1, keepdims=True)
        seen /= np.sqrt((seen**2).mean(1, keepdims=True) + self.parameters["flat"])
        beyond = np.concatenate([seen @ side for side in filters]) - (offset + self.parameters["threshold"])
        return np.sqrt(np.maximum(beyond, 0).T @ np.concatenate(within)).ravel()

    def _columns(self, inputs: np.ndarray) -> np.ndarray:
        """The columns of a table, how far up its ramps each number is, and products of pairs of columns."""
        rows, known = inputs.reshape(len(inputs), -1), self.parameters
        if "low" not in known:
            return rows
        seen = [np.clip(rows, known["low"], known["high"])]
        if "column" in known:
            along = (seen[0][:, known["column"].astype(int)] - known["start"]) * known["steepness"]
            seen.append(np.clip(along, 0, known["height"]))
        if "left" in known:
            one, other = (seen[0][:, known[k].astype(int)] - known[f"{k}_middle"] for k in ("left", "right"))
            seen.append(np.clip(one * other * known["factor"], known["bottom"], known["top"]))
        return np.concatenate(seen, 1)

    def _nearness(self, inputs: np.ndarray) -> np.ndarray:
        """How near rows are to those that the net `rows` holds."""
        held = self.parameters["examples"]
        gaps = (inputs**2).sum(1)[:, None] + (held**2).sum(1) - 2 * inputs @ held.T
        return np.exp(-np.maximum(gaps, 0) / self.parameters["reach"])

    def _strided(self, inputs: np.ndarray) -> np.ndarray:
        """The net `papernot2021`: two convolutions with stride 2, each pooled at every pixel."""
        for layer, (size, pads) in enumerate(((8, True), (4, False))):
            seen = _blocks(inputs, size, pads) @ self.parameters[f"kernel{layer}"]
            seen = seen + self.parameters[f"bias{layer}"]
            rows = np.maximum(seen[:, :-1], seen[:, 1:])
            inputs = self.activation(np.maximum(rows[:, :, :-1], rows[:, :, 1:]))
        features = self.activation(self._dense("dense0", inputs.reshape(len(inputs), -1)))
        return self._dense("dense1", features)

    def check(self, inputs: Any) -> np.ndarray:
        """The inputs as an array of the right shape; an InputError if they are not."""
        inputs = np.asarray(inputs)
        if inputs.dtype.kind not in "buif":
            raise InputError(f"inputs are of type {inputs.dtype}; give numbers")
        if inputs.ndim == 3 and len(self.shape) == 3:
            inputs = inputs[..., None]
        if inputs.ndim == 0 or inputs.shape[1:] != self.shape:
            raise InputError(f"inputs have shape {inputs.shape[1:]} each; this student takes {self.shape}")
        if not np.isfinite(inputs).all():
            raise InputError("inputs hold NaN or infinity; fill or remove those records")
        if self.dtype == "uint8" and inputs.dtype != np.uint8 and inputs.size:
            low, high = float(inputs.min()), float(inputs.max())
            if low < 0 or high > 255 or (high <= 1 and (inputs != np.floor(inputs)).any()):
                raise InputError(
                    f"inputs go from {low:g} to {high:g}; this student takes pixels from 0 to 255 as they "
                    "are stored, so undo your own scaling"
                )
        return inputs

    def _count(self, pattern: str) -> int:
        return next(layer for layer in count() if not _below(pattern.format(layer) + "/", self.parameters))

    def _dense(self, layer: str, inputs: np.ndarray) -> np.ndarray:
        return inputs @ self.parameters[f"{layer}/kernel"] + self.parameters[f"{layer}/bias"]

    def _convolved(self, layer: str, inputs: np.ndarray, stride: int = 1) -> np.ndarray:
        size = round((len(self.parameters[f"{layer}/kernel"]) / inputs.shape[-1]) ** 0.5)
        return self._dense(layer, _patches(inputs, size, stride))

    def _normalised(self, layer: str, inputs: np.ndarray) -> np.ndarray:
        grouped = inputs.reshape(len(inputs), -1, _GROUPS, inputs.shape[-1] // _GROUPS)
        centred = grouped - grouped.mean((1, 3), keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean((1, 3), keepdims=True) + np.float32(_EPSILON))
        scale, bias = self.parameters[f"{layer}/scale"], self.parameters[f"{layer}/bias"]
        return scaled.reshape(inputs.shape) * scale + bias

    @cached_property
    def _examples(self) -> np.ndarray:
        images = self.parameters["examples"]
        blocks = [images[start : start + _CHUNK] for start in range(0, len(images), _CHUNK)]
        return np.concatenate([self._patch_features(block) for block in blocks])

    def _patch_features(self, inputs: np.ndarray) -> np.ndarray:
        flat, offset, whitening, typical, middle, shaky = (
            self.parameters[name] for name in ("flat", "offset", "whitening", "typical", "middle", "shaky")
        )
        seen = _patches(inputs, round((len(offset) / inputs.shape[-1]) ** 0.5), 1)
        seen = seen - seen.mean(-1, keepdims=True)
        sharp = seen / np.sqrt((seen**2).mean(-1, keepdims=True) + flat)
        white = (sharp - offset) @ whitening
        squares = (white**2).sum(-1, keepdims=True) - 2 * white @ typical.T + (typical**2).sum(-1)
        gaps = np.sqrt(np.maximum(squares, np.float32(_TINY)))
        alike = np.maximum(gaps.mean(-1, keepdims=True) - gaps, 0)
        cells = round((len(middle) / len(typical)) ** 0.5)
        rows, columns = (_cells(side, cells) for side in inputs.shape[1:3])
        sums = [alike[:, row, column].sum((1, 2)) for row in rows for column in columns]
        found = np.sqrt(np.concatenate(sums, -1)) - middle
        if "directions" in self.parameters:
            return (found - self._shaken(found)) / self.parameters["spread"]
        return (found - (found @ shaky * self.parameters["taken"]) @ shaky.T) / self.parameters["spread"]

    def _shaken(self, found: np.ndarray) -> np.ndarray:
        """What changes when images are moved, on the grid on which voters' images were measured."""
        shaky = self.parameters["shaky"]
        steps = np.float32(_FEATURES) / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), _TINY)
        there = np.round(found * steps) @ np.round(shaky * 2000) / np.float32(2000)
        fine = np.float32(1490) / np.maximum(np.linalg.norm(shaky, axis=1), np.float32(_TINY))
        taken = np.round(there * self.parameters["taken"]) @ np.round(shaky * fine[:, None]).T
        return taken / (steps * fine)

    def _residual(self, inputs: np.ndarray) -> np.ndarray:
        flowing = self._convolved("stem", inputs)
        for layer in range(self._count("block{}")):
            block, stride = f"block{layer}", 2 if layer else 1
            active = self.activation(self._normalised(f"{block}/norm0", flowing))
            if f"{block}/shortcut/kernel" in self.parameters:
                flowing = self._convolved(f"{block}/shortcut", active, stride)
            active = self._convolved(f"{block}/conv0", active, stride)
            active = self.activation(self._normalised(f"{block}/norm1", active))
            flowing = flowing + self._convolved(f"{block}/conv1", active)
        return self._dense("head", self.activation(self._normalised("norm", flowing)).mean((1, 2)))


def load(folder: Path | str | None = None) -> Student:
    """Load the student from its folder, a release or a run; by default from the folder of this file."""
    root = Path(__file__).resolve().parent if folder is None else Path(folder)
    for place in _PLACES:
        path = root / place
        if (path / "student.json").is_file():
            parameters = _arrays(path / "parameters.npz")
            parameters.pop("artefact", None)
            try:
                return Student(json.loads((path / "student.json").read_text(encoding="utf-8")), parameters)
            except (*_UNREADABLE, RecursionError) as error:
                raise InputError(f"{path / 'student.json'} describes no student: {error!r}") from error
    raise InputError(f"{root} holds no student.json; give the folder of a student")


def load_all(folder: Path | str | None = None) -> dict[str, Student]:
    """The students of a release of several labels, by label; none where there is one label."""
    root = Path(__file__).resolve().parent if folder is None else Path(folder)
    for place in _PLACES:
        listed = root / place / "labels.json"
        if listed.is_file():
            try:
                folders = dict(json.loads(listed.read_text(encoding="utf-8"))["folders"])
            except (*_UNREADABLE, RecursionError) as error:
                raise InputError(f"{listed} names no students: {error!r}") from error
            return {label: load(listed.parent / Path(name).name) for label, name in folders.items()}
    return {}


def predict(inputs: Any, student: Student | Path | str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The predicted class names [n] and the class probabilities [n, class]."""
    served = student if isinstance(student, Student) else load(student)
    probabilities = served(inputs)
    return served.labels(probabilities), probabilities


def read(path: Path | str, student: Student) -> np.ndarray:
    """Read inputs from an .npz or .csv file."""
    return read_named(path, student)[0]


def read_named(
    path: Path | str, student: Student, id_column: str | None = None, encoder: Path | str | None = None
) -> tuple[np.ndarray, list[str] | None]:
    """Read inputs, and their ids where there are any.

    Ids are an array `ids`, or the column `id_column`, or an unknown column that is called as ids are, or the
    names of photos. `encoder` is the file or folder of an encoder that neither a package nor a release holds.
    """
    path = Path(path)
    if path.is_dir():
        return _photos(path, student, encoder)
    if not path.is_file():
        raise InputError(f"{path} is no file; give .npz or .csv")
    if path.suffix.lower() in (".csv", ".tsv"):
        return _table(path, student, id_column, encoder)
    arrays = _arrays(path)
    if "inputs" not in arrays:
        raise InputError(f"{path} has no array 'inputs'; it holds {', '.join(sorted(arrays)) or 'nothing'}")
    inputs, ids = arrays["inputs"], arrays.get("ids")
    if inputs.ndim in (3, 4) and student.photos:
        inputs = _vectors(student.photos, inputs, encoder)
    if ids is not None and ids.shape != inputs.shape[:1]:
        raise InputError(f"{path} has ids of shape {ids.shape} for inputs of shape {inputs.shape}")
    return inputs, None if ids is None else ids.tolist()


def write(
    path: Path | str, student: Student, probabilities: np.ndarray, ids: list[str] | None = None
) -> None:
    """Write labels and probabilities as .npz, or as .csv with a row, or its id, for each input."""
    path = Path(path)
    if path.suffix.lower() == ".npz" and student.target is not None:
        named = {} if ids is None else {"ids": np.array(ids, str)}
        np.savez_compressed(path, allow_pickle=False, values=student.labels(probabilities), **named)
    elif path.suffix.lower() == ".npz":
        arrays: dict[str, Any] = {"labels": student.labels(probabilities), "probabilities": probabilities}
        arrays |= {} if ids is None else {"ids": np.array(ids, str)}
        np.savez_compressed(path, allow_pickle=False, class_names=student.class_names, **arrays)
    else:
        path.write_text(_lines(student, probabilities, ids), encoding="utf-8")


def main() -> None:
    """Read inputs, predict their classes, and write the predictions."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("inputs", help=".npz with an array `inputs`, a .csv table, or a folder of photos")
    parser.add_argument("--encoder", help="file or folder of the encoder, where no package holds it")
    parser.add_argument("--out", help="labels.csv or labels.npz; default: the first ten to the terminal")
    parser.add_argument(
        "--id-column", help="column that names the rows; default: one that is called as ids are"
    )
    parser.add_argument("--student", help="folder of the student; default: the folder of this file")
    chosen = parser.parse_args()
    try:
        several = load_all(chosen.student)
        student = next(iter(several.values())) if several else load(chosen.student)
        inputs, ids = read_named(chosen.inputs, student, chosen.id_column, chosen.encoder)
        if several:
            return _tell_all(several, inputs, ids, chosen.out)
        probabilities = student(inputs)
    except InputError as error:
        print(f"predict.py: {error}", file=sys.stderr)
        sys.exit(2)
    if chosen.out:
        return write(chosen.out, student, probabilities, ids)
    print(_lines(student, probabilities[:_SHOWN], ids and ids[:_SHOWN]), end="")
    if len(probabilities) > _SHOWN:
        _say(f"and {len(probabilities) - _SHOWN:,} more: --out labels.csv writes all {len(probabilities):,}")
    return None


def _activation(net: dict[str, Any]) -> Any:
    name = net.get("activation", "relu")
    if name in ("relu", "tanh"):
        return np.tanh if name == "tanh" else lambda x: np.maximum(x, np.float32(0))
    if name != "tempered_sigmoid":
        raise InputError(f"activation={name!r} is unknown to this file; use pate_jax")
    given = {"scale": 2.0, "temperature": 2.0, "offset": 1.0, **net}
    scale, temperature, offset = (np.float32(given[key]) for key in ("scale", "temperature", "offset"))
    half = np.float32(0.5)  # 1 / (1 + exp(-x)) is (1 + tanh(x/2)) / 2, which never overflows
    return lambda x: scale * (half + half * np.tanh(half * temperature * x)) - offset


def _cells(side: int, cells: int) -> list[slice]:
    """The pixels of each cell along one side of the image, with the overlap."""
    ends = [side * cell // cells for cell in range(cells + 1)]
    return [slice(max(0, ends[i] - _OVERLAP), ends[i + 1] + _OVERLAP) for i in range(cells)]


def _below(start: str, parameters: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {path.removeprefix(start): leaf for path, leaf in parameters.items() if path.startswith(start)}


def _softmax(logits: np.ndarray) -> np.ndarray:
    raised = np.exp(logits - logits.max(1, keepdims=True))
    return raised / raised.sum(1, keepdims=True)


def _whole(numbers: np.ndarray, length: int) -> np.ndarray:
    """The nearest whole numbers, in rows that are no longer than `length`."""
    most = min(8192, math.isqrt((2**31 - 1) // numbers.shape[1]))
    rows = np.clip(np.round(numbers), -most, most).astype(np.int64)
    square = (rows**2).sum(1, keepdims=True)
    root = np.floor(np.sqrt(np.maximum(square, 1))).astype(np.int64)
    root += root * root < square  # no less than the row's length
    shrunk = np.sign(rows) * (np.abs(rows) * length // np.maximum(root, 1))
    return np.where(square <= length**2, rows, shrunk).astype(np.float32)


def _likeness(ones: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The arc-cosine kernel of order 1 (Cho and Saul 2009): similarity by the angle between features."""
    cosine = np.clip(_unit(ones) @ _unit(others).T, -1, 1)
    angle = np.arccos(cosine)
    return (np.sin(angle) + (np.float32(np.pi) - angle) * cosine) / np.float32(np.pi)


def _unit(directions: np.ndarray) -> np.ndarray:
    return directions / np.maximum(np.linalg.norm(directions, axis=-1, keepdims=True), np.float32(_TINY))


def _pooled(inputs: np.ndarray) -> np.ndarray:
    height, width = (extent // 2 * 2 for extent in inputs.shape[1:3])
    rows = np.maximum(inputs[:, 0:height:2], inputs[:, 1:height:2])
    return np.maximum(rows[:, :, 0:width:2], rows[:, :, 1:width:2])


def _patches(inputs: np.ndarray, size: int, stride: int) -> np.ndarray:
    """Each pixel with its neighbours as one channel axis, padded with zeros at the border."""
    rows, columns = (-(-extent // stride) for extent in inputs.shape[1:3])
    if size == 1:
        return inputs[:, ::stride, ::stride]
    high, wide = (max(-(-e // stride) * stride - stride + size - e, 0) for e in inputs.shape[1:3])
    padded = np.pad(inputs, ((0, 0), *((extra // 2, -(-extra // 2)) for extra in (high, wide)), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), (1, 2))[:, ::stride, ::stride]
    return windows.transpose(0, 1, 2, 4, 5, 3).reshape(len(inputs), rows, columns, -1)


def _blocks(inputs: np.ndarray, size: int, pads: bool) -> np.ndarray:
    """Windows at every second pixel, as one channel axis: blocks of 2 x 2, their pixels, channels."""
    extra = [max((-(-side // 2) - 1) * 2 + size - side, 0) * pads for side in inputs.shape[1:3]]
    padded = np.pad(inputs, ((0, 0), *((one // 2, one - one // 2) for one in extra), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), (1, 2))[:, ::2, ::2]
    count, rows, columns, channels = windows.shape[:4]
    parts = windows.reshape(count, rows, columns, channels, size // 2, 2, size // 2, 2)
    return parts.transpose(0, 1, 2, 4, 6, 5, 7, 3).reshape(count, rows, columns, -1)


def _tell_all(
    several: dict[str, Student], inputs: np.ndarray, ids: list[str] | None, out: str | None
) -> None:
    """Write what the students of several labels say, or print the first lines of it."""
    heads, columns = ["row" if ids is None else "id"], [range(len(inputs)) if ids is None else ids]
    for label, student in several.items():
        probabilities = student(inputs)
        heads += [label, *(f"p_{label}_{name}" for name in student.class_names)]
        columns += [student.labels(probabilities).tolist(), *(_six(one) for one in probabilities.T)]
    stream = io.StringIO(newline="")
    csv.writer(stream, lineterminator="\n").writerows([heads, *zip(*columns, strict=True)])
    text = stream.getvalue()
    if out and not out.lower().endswith(".csv"):
        raise InputError(f"--out {out} must end in .csv, which has a column for each label")
    if out:
        Path(out).write_text(text, encoding="utf-8")
    else:
        print("".join(text.splitlines(keepends=True)[: 1 + _SHOWN]), end="")


def _six(values: np.ndarray) -> list[str]:
    return [f"{value:.6f}" for value in values]


def _arrays(path: Path) -> dict[str, np.ndarray]:
    try:
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
            if not all(isinstance(array, np.ndarray) for array in arrays.values()):
                raise ValueError("it holds an entry that is not an array")
            return arrays
    except _UNREADABLE as error:
        raise InputError(f"{path} is not a readable .npz archive: {error}") from error


def _table(
    path: Path, student: Student, named: str | None, place: Path | str | None = None
) -> tuple[np.ndarray, list[str] | None]:
    if not student.columns:
        raise InputError(f"{path} is a table of text, and this student was trained on arrays; give .npz")
    csv.field_size_limit(1 << 24)  # as where the student was trained
    try:
        text = io.StringIO(path.read_bytes().decode("utf-8-sig"), newline="")
        first = next(csv.reader(text), [""])
        mark = next((one for one in (";", "\t") if len(first) == 1 and one in first[0]), ",")
        text.seek(0)
        # strict: no quote left open swallows rows
        lines = csv.reader(text, delimiter=mark, skipinitialspace=mark != "\t", strict=True)
        header = [name.strip() or "index" * (not place) for place, name in enumerate(next(lines, []))]
        rows = [[_plain(value, mark) for value in row] for row in lines if row]
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a CSV table in UTF-8: {error}") from error
    if not header or "" in header or len(set(header)) < len(header):
        raise InputError(f"{path} must begin with a line that names each column once; it names {header}")
    for number, row in enumerate(rows):
        if len(row) != len(header):
            raise InputError(f"{path} row {number} has {len(row)} values for {len(header)} columns")
    known = [column["name"] for column in student.columns]
    missing = [name for name in known if name not in header]
    if missing:
        raise InputError(f"{path} lacks the column {missing[0]!r}; this student takes {', '.join(known)}")
    table = {name: [row[place] for row in rows] for place, name in enumerate(header)}
    unread = [name for name in header if name not in known]
    if unread:
        _say(f"not read, since the student does not know them: columns {', '.join(unread)}")
    if named is not None and named not in table:
        raise InputError(f"{path} has no column {named!r}; it has {', '.join(header)}")
    named = named or next((name for name in unread if _look_like_ids(name, table[name])), None)
    for column in student.columns:
        _report(column, table[column["name"]])
    features = [_column(table[column["name"]], column, path, place) for column in student.columns]
    return np.concatenate(features, 1), None if named is None else table[named]


def _plain(value: str, mark: str) -> str:
    """A value with a decimal point, which is a comma where semicolons separate columns."""
    value = value.strip()
    return value.replace(",", ".") if mark == ";" and _DECIMAL_COMMA.fullmatch(value) else value


def _look_like_ids(name: str, values: list[str]) -> bool:
    gone = any(value.lower() in _MISSING for value in values)
    return bool(_ID.fullmatch(name)) and not gone and len({*values}) == len(values)


def _report(column: dict[str, Any], values: list[str]) -> None:
    """Say how many values are of no known category, and how many are missing."""
    known, gone = column["categories"], sum(value.lower() in _MISSING for value in values)
    if known is not None:
        others = sum(value not in known and value.lower() not in _MISSING for value in values)
        if others:
            _say(f"values of no known category are taken as none of them: {column['name']} ({others})")
    elif gone and column.get("filling") is not None:
        _say(f"missing values are taken as in training: {column['name']} ({gone})")


def _say(text: str) -> None:
    print(f"predict.py: {text}", file=sys.stderr)


def _column(
    values: list[str], column: dict[str, Any], path: Path, place: Path | str | None = None
) -> np.ndarray:
    """One column as numbers: an unknown category becomes zeros, and a missing number is filled in."""
    missing = np.array([value.lower() in _MISSING for value in values], bool)
    if column.get("encoder"):
        marks = [missing[:, None]] if column.get("indicator") else []
        texts = ["" if gone else value for value, gone in zip(values, missing, strict=True)]
        return np.concatenate([*marks, _vectors(column["encoder"], texts, place)], 1).astype(np.float32)
    known, filling, form = column["categories"], column.get("filling"), column.get("form", "")
    if known is not None:
        named = ["" if value.lower() in _MISSING and value not in known else value for value in values]
        return (np.array(named, str)[:, None] == np.array(known, str)).astype(np.float32)
    numbers = np.zeros(len(values), np.float64)
    for row, value in enumerate(values):
        numbers[row] = filling if missing[row] and filling is not None else _number(value, form)
        if not np.abs(numbers[row]) <= _LARGEST or (column.get("logarithmic") and numbers[row] < 0):
            raise InputError(f"{path} has {column['name']}={value!r} at row {row}; correct or remove the row")
    numbers = numbers.astype(np.float32)
    features = [np.log1p(numbers) if column.get("logarithmic") else numbers]
    features += [missing] if column.get("indicator") else []
    features += [np.isin([value[:1] for value in values], ["<", ">"])] if form == "limits" else []
    features += [(numbers == code) & ~missing for code in column.get("codes", ())]
    return np.stack(features, axis=1).astype(np.float32)


@cache
def _encoder() -> Any:
    """The module encoder.py beside this file, which is compiled without a trace in the folder."""
    path, found = Path(__file__).with_name("encoder.py"), ModuleType("encoder")
    if not path.is_file():
        raise InputError(f"{path} is not there, and this student needs it: restore the release")
    found.__file__ = str(path)
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), vars(found))
    return found


def _vectors(known: dict[str, Any], records: Any, place: Path | str | None) -> np.ndarray:
    """What the encoder of a student makes of texts, or of the photos of paths."""
    try:
        return _encoder().vectors(known, records, place)
    except ValueError as error:
        raise InputError(str(error)) from error


def _photos(folder: Path, student: Student, place: Path | str | None) -> tuple[np.ndarray, list[str]]:
    """The photos of a folder as the student takes them, and their names."""
    paths = sorted(one for one in folder.rglob("[!.]*") if one.suffix.lower() in _PHOTOS)
    if student.photos is None or not paths:
        raise InputError(f"{folder} is a folder: give photos ({', '.join(_PHOTOS)}) to a student of photos")
    return _vectors(student.photos, paths, place), [path.relative_to(folder).as_posix() for path in paths]


def _number(value: str, form: str) -> float:
    """A value as a number: a date of this form as days since 1970, true as 1; NaN where it is none."""
    if form == "boolean":
        return {"true": 1.0, "false": 0.0}.get(value.lower(), np.nan)
    try:
        if form in ("", "limits"):
            return float(_LIMIT.sub("", value))  # a limit stands for what lies beyond it
        return (datetime.strptime(re.sub(r"[T ]\d{1,2}:.*", "", value), form) - datetime(1970, 1, 1)).days
    except ValueError:
        return np.nan


def _lines(student: Student, probabilities: np.ndarray, ids: list[str] | None = None) -> str:
    stream = io.StringIO(newline="")
    table = csv.writer(stream, lineterminator="\n")
    labels, first = student.labels(probabilities).tolist(), "row" if ids is None else "id"
    if student.target is not None:
        numbers = zip(range(len(labels)) if ids is None else ids, labels, strict=True)
        table.writerows([[first, student.target["name"]], *([row, f"{one:.6g}"] for row, one in numbers)])
        return stream.getvalue()
    table.writerow([first, "label", *(f"p_{name}" for name in student.class_names)])
    named = zip(range(len(labels)) if ids is None else ids, labels, probabilities, strict=True)
    table.writerows([row, label, *(f"{value:.6f}" for value in values)] for row, label, values in named)
    return stream.getvalue()


if __name__ == "__main__":
    main()
