"""Encoders of the owner's: an ONNX file, or a folder as model hubs keep them, which `onnxruntime` runs.

What is done before and after the graph is read from the files beside it and written down as a `Recipe`, which
has part in the digest. Each record is run by itself, in one thread, so no record changes the last bit of
another, and any number of cores gives the same numbers.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import UInt8

from pate_jax.data.encoders import words
from pate_jax.errors import PateError, within
from pate_jax.system.storage import UNREADABLE, parse_json, read_bytes

_GET = "`pip install pate-jax[onnx]`"
_GRAPHS = ("model.onnx", "onnx/model.onnx")  # in a folder
_OUTPUTS = ("sentence_embedding", "image_embeds", "text_embeds", "last_hidden_state")  # the best one first
_ELSEWHERE = "session.model_external_initializers_file_folder_path"
_COLOURS = 3
_TOKENS, _TINY = 512, 1e-12  # of a text, where nothing says how many; the shortest length
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # middles and deviations of red, green and blue
_KINDS = {"tensor(float)": "float32", "tensor(uint8)": "uint8"}
_WHOLE = {"tensor(int32)": np.int32}  # other inputs of texts are int64
Pooling = Literal["none", "mean", "first", "largest", "cells"]


class Recipe(NamedTuple):
    """What is done before and after a graph; it stands in a release, so it is public."""

    reads: Literal["texts", "photos"]
    output: str  # of the graph
    pooling: Pooling = "none"  # over tokens, or over the cells of a picture; none: a vector already
    unit: bool = False  # whether a vector is brought to length one
    tokens: int = 0  # most tokens of a text, with the marks at its ends
    side: int = 0  # pixels of a photo each way
    kind: str = "float32"  # of the pixels
    first: bool = True  # whether colours come before rows
    factor: float = 1.0  # of a pixel, before its colour's middle is taken away
    middle: tuple[float, ...] = (0.0, 0.0, 0.0)
    spread: tuple[float, ...] = (1.0, 1.0, 1.0)

    def told(self) -> str:
        """The recipe in a sentence."""
        pooled = {
            "none": f"its output {self.output}",
            "mean": f"the mean of its output {self.output} over the tokens",
            "first": f"its output {self.output} of the first token",
            "largest": f"the largest number of its output {self.output} over the tokens",
            "cells": f"the mean of its output {self.output} over the cells of the picture",
        }[self.pooling] + ", at length one" * self.unit
        if self.reads == "texts":
            return (
                f"the first {words.MOST:,} characters of a text as its first {self.tokens:,} tokens; "
                f"{pooled}; zeros for an empty text"
            )
        scaled = "pixels as they are"
        if self.kind != "uint8":
            scaled = (
                f"pixels times {self.factor:.6g}, less {list(self.middle)}, divided by {list(self.spread)}"
            )
        return f"a photo in three colours, resized to {self.side} x {self.side} pixels; {scaled}; {pooled}"


def recipe(content: str) -> Recipe:
    """The recipe that a release holds as JSON; refused where it is none.

    >>> recipe('{"reads": "texts", "output": "embedding", "tokens": 256}').told()[-57:]
    '256 tokens; its output embedding; zeros for an empty text'
    """
    said = parse_json(content, "the recipe of an encoder")
    try:
        said = {name: tuple(value) if isinstance(value, list) else value for name, value in said.items()}
        found = Recipe(**said)
        found.told()
    except UNREADABLE as error:
        raise PateError(f"the recipe of an encoder is damaged ({error!r}): restore the release") from error
    return found


class Graph:
    """Vectors of texts or photos by an ONNX file."""

    def __init__(self, graph: Any, recipe: Recipe, tokenizer: Any, name: str, digest: str) -> None:
        from pate_jax.data.encoders import Known

        self.recipe, self.side = recipe, recipe.side
        self._session, self._tokenizer = graph, tokenizer
        self._inputs = {one.name: _WHOLE.get(one.type, np.int64) for one in graph.get_inputs()}
        probe = self._probed(name)
        title = f"{recipe.reads}:{name}" + f"-{recipe.side}" * (recipe.reads == "photos")
        self.known = Known(title, digest, len(probe), json.dumps(recipe._asdict()))

    def __call__(self, records: Sequence[str] | UInt8[np.ndarray, "record side side 3"]) -> np.ndarray:
        """One row of float32 for each record."""
        found = np.zeros((len(records), self.known.width), np.float32)
        for row, vector in enumerate(each(self._vector, records)):
            if vector.shape != found[row].shape or not np.isfinite(vector).all():
                raise PateError(
                    f"the encoder {self.known.name!r} gives {list(vector.shape)} numbers for a record, "
                    f"or some that are not finite; {list(found[row].shape)} are needed: use another one"
                )
            found[row] = vector
        return found

    def _vector(self, record: Any) -> np.ndarray:
        """The vector of one record; no error shows the record."""
        if self.recipe.reads == "texts":
            plain = words.plain(record)
            if not plain.strip():
                return np.zeros(self.known.width, np.float32)
            feed = _of_text(plain, self._tokenizer, self._inputs)
        else:
            feed = {next(iter(self._inputs)): _of_photo(record, self.recipe)}
        try:
            (found,) = self._session.run([self.recipe.output], feed)
        except Exception as error:  # what onnxruntime raises is no common class, and may show its input
            raise PateError(
                f"the encoder fails on a record ({type(error).__name__}): use another file of it"
            ) from None
        return _pooled(np.asarray(found, np.float32)[0], self.recipe)

    def _probed(self, name: str) -> np.ndarray:
        """The vector of a record of nobody's, which is always the same."""
        side = self.recipe.side
        ramp = np.arange(side * side * 3, dtype=np.int64) % 251
        one = "a word" if self.recipe.reads == "texts" else ramp.astype(np.uint8).reshape(side, side, 3)
        found, again = self._vector(one), self._vector(one)
        if found.ndim != 1 or not len(found) or not np.isfinite(found).all():
            raise PateError(
                f"the encoder {name!r} gives numbers of shape {list(found.shape)}: one row is needed"
            )
        if found.tobytes() != again.tobytes():
            raise PateError(
                f"the encoder {name!r} answers the same record in two ways: export it for inference"
            )
        return found


def load(path: Path, side: int | None = None) -> Graph:
    """The encoder of a file or folder, of photos with so many pixels each way, or a sentence that says what
    is missing.
    """
    file = _file(path.expanduser())
    content = read_bytes(file)
    graph = session(content, file)
    given = {one.name for one in graph.get_inputs()}
    beside = _Beside(file)
    if "input_ids" in given and "pixel_values" not in given:
        if side is not None:
            raise PateError(f"--image-size {side} is for photos, and {file} reads texts: leave it out")
        tokens = beside.content("tokenizer.json")
        if tokens is None:
            raise PateError(f"{file} reads texts: put its tokenizer.json beside it")
        recipe = _for_texts(graph, beside)
        tokenizer = _tokenizer(tokens, recipe.tokens, file)
        return Graph(graph, recipe, tokenizer, _name(file), _digest(recipe, content, tokens))
    recipe = _for_photos(graph, file, beside, side)
    return Graph(graph, recipe, None, _name(file), _digest(recipe, content))


class _Beside(NamedTuple):
    """The files of settings that lie beside a graph, or above its folder onnx/."""

    file: Path

    def content(self, name: str) -> bytes | None:
        """The content of a file, if it is there."""
        homes = [self.file.parent, *([self.file.parent.parent] if self.file.parent.name == "onnx" else [])]
        place = next((home / name for home in homes if (home / name).is_file()), None)
        return None if place is None else read_bytes(place)

    def settings(self, name: str) -> dict[str, Any]:
        """What a file of JSON says; nothing where it is not there."""
        content = self.content(name)
        found = {} if content is None else parse_json(content, self.file.parent / name)
        return found if isinstance(found, dict) else {}


def _file(path: Path) -> Path:
    """The ONNX file that a path names."""
    if path.is_dir():
        inside = [path / name for name in _GRAPHS if (path / name).is_file()] or sorted(path.glob("*.onnx"))
        if not inside:
            raise PateError(
                f"--encoder {path} holds no ONNX file: make one by `optimum-cli export onnx --model {path} "
                "FOLDER`"
            )
        return inside[0]
    if not path.is_file():
        raise PateError(f"--encoder {path} does not exist: name an ONNX file, or a folder that holds one")
    return path


def _name(file: Path) -> str:
    """What an encoder is called: its file, or the folder of a file that is called as all are."""
    named = file.parent if file.stem == "model" else file
    named = named.parent if named.name == "onnx" else named
    stem = named.resolve().name if named != file else file.stem
    return re.sub(r"[^\w.+-]+", "_", stem)[:60]


def session(content: bytes, name: object, get: str = _GET) -> Any:
    """The graph in an ONNX file, ready to run in one thread on the CPU."""
    try:
        import onnxruntime
    except ImportError as error:
        raise PateError(f"the encoder {name} needs the package onnxruntime: {get}") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:  # weights that lie in other files are looked for in an empty folder: the digest is of all there is
        with TemporaryDirectory() as nothing:
            options.add_session_config_entry(_ELSEWHERE, nothing)
            return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # what onnxruntime raises is no common class
        told = str(error).strip().partition("\n")[0][:200]
        raise PateError(
            f"{name} is no ONNX file that can be read ({told}): save it whole, with its weights inside"
        ) from error


def each(function: Callable[[Any], np.ndarray], records: Iterable[Any]) -> Iterator[np.ndarray]:
    """A function of each record by itself, on as many cores as there are; in the order of the records."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        yield from threads.map(function, records)


def _digest(recipe: Recipe, *files: bytes) -> str:
    return words.digest(*files, json.dumps(recipe._asdict()).encode())


def _output(graph: Any) -> tuple[str, int]:
    """The output that is the vector, and how many dimensions it has."""
    found = {one.name: len(one.shape or ()) for one in graph.get_outputs()}
    name = next((name for name in _OUTPUTS if name in found), next(iter(found)))
    return name, found[name]


def _for_texts(graph: Any, beside: _Beside) -> Recipe:
    """What is done with texts, from the files of sentence-transformers, if they are there."""
    output, rank = _output(graph)
    pooled = beside.settings("1_Pooling/config.json")
    pooling: Pooling = "none"
    if rank != 2:
        first, largest = (pooled.get(f"pooling_mode_{name}") for name in ("cls_token", "max_tokens"))
        pooling = "first" if first else "largest" if largest else "mean"
    most = beside.settings("sentence_bert_config.json").get("max_seq_length")
    most = most or beside.settings("tokenizer_config.json").get("model_max_length")
    tokens = int(most) if isinstance(most, int | float) and 2 < most <= 1 << 16 else _TOKENS
    unit = b"Normalize" in (beside.content("modules.json") or b"")
    return Recipe("texts", output, pooling, unit, tokens)


def _for_photos(graph: Any, file: Path, beside: _Beside, side: int | None) -> Recipe:
    """What is done with photos, from the shape of the input and preprocessor_config.json, if it is there."""
    (one, *more) = graph.get_inputs()
    shape = list(one.shape or ())
    layouts = [place for place in (1, 3) if len(shape) == 4 and shape[place] == _COLOURS]
    if one.name == "pixel_values" and len(shape) == 4 and not isinstance(shape[1], int):
        layouts = [1]  # as model hubs export it
    if more or not layouts or one.type not in _KINDS:
        told = ", ".join(f"{each.name} {each.type} {each.shape}" for each in (one, *more))
        raise PateError(
            f"{file} takes {told}: an encoder takes photos alone, [n, 3, side, side] or [n, side, side, 3] "
            "in float32 or uint8, or texts, as input_ids"
        )
    first = layouts[0] == 1
    fixed = {size for size in (shape[2:] if first else shape[1:3]) if isinstance(size, int)}
    said = beside.settings("preprocessor_config.json")
    sides = fixed or {side or _side(said)}
    if len(sides) != 1 or (side is not None and sides != {side}) or 0 in sides:
        raise PateError(
            f"{file} takes photos of {sorted(fixed) or 'any number of'} pixels each way, and --image-size is "
            f"{side}: give the one that it was trained with"
        )
    (chosen,) = sides
    within(8, 1024, " pixels", image_size=chosen)
    output, rank = _output(graph)
    pooling: Pooling = "none" if rank == 2 else "cells" if rank == 4 else "first"
    recipe = Recipe("photos", output, pooling, side=chosen, kind=_KINDS[one.type], first=first)
    return recipe if recipe.kind == "uint8" else recipe._replace(**_scaling(said))


def _side(said: dict[str, Any]) -> int:
    """The pixels each way that a preprocessor_config.json names; 0 where it names none."""
    size = (said.get("crop_size") if said.get("do_center_crop", True) else None) or said.get("size") or 0
    if isinstance(size, dict):
        size = size.get("height") or size.get("shortest_edge") or 0
    return size if isinstance(size, int) else 0


def _scaling(said: dict[str, Any]) -> dict[str, Any]:
    """How pixels are scaled: as preprocessor_config.json says, or else as is customary for ImageNet."""
    normal = said.get("do_normalize", True)
    try:
        middle = tuple(map(float, said.get("image_mean", _IMAGENET[0]) if normal else (0.0,) * _COLOURS))
        spread = tuple(map(float, said.get("image_std", _IMAGENET[1]) if normal else (1.0,) * _COLOURS))
        factor = float(said.get("rescale_factor", 1 / 255)) if said.get("do_rescale", True) else 1.0
        numbers = np.array([factor, *middle, *spread])
        if len(middle) == len(spread) == _COLOURS and np.isfinite(numbers).all() and min(spread) > 0:
            return {"factor": factor, "middle": middle, "spread": spread}
    except UNREADABLE:
        pass
    raise PateError(
        "preprocessor_config.json must hold three finite numbers for each of image_mean and image_std, and a "
        "rescale_factor"
    )


def _tokenizer(content: bytes, tokens: int, file: Path) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise PateError(f"--encoder {file} needs the package tokenizers: {_GET}") from error
    try:
        found = Tokenizer.from_str(content.decode())
        found.no_padding()
        found.enable_truncation(tokens)
    except Exception as error:  # what this package raises is no common class
        raise PateError(f"the tokenizer.json beside {file} is damaged ({error})") from error
    return found


def _of_text(text: str, tokenizer: Any, inputs: Mapping[str, type]) -> dict[str, np.ndarray]:
    """The inputs of a graph for one text."""
    ids = np.array([tokenizer.encode(text).ids], np.int64)
    given = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    given["position_ids"] = np.arange(ids.shape[1], dtype=np.int64)[None]
    return {name: given[name].astype(kind) for name, kind in inputs.items() if name in given}


def _of_photo(photo: UInt8[np.ndarray, "side side 3"], recipe: Recipe) -> np.ndarray:
    """The input of a graph for one photo."""
    seen = photo
    if recipe.kind != "uint8":
        scaled = photo.astype(np.float32) * np.float32(recipe.factor)
        seen = (scaled - np.array(recipe.middle, np.float32)) / np.array(recipe.spread, np.float32)
    return np.ascontiguousarray(seen.transpose(2, 0, 1) if recipe.first else seen)[None]


def _pooled(found: np.ndarray, recipe: Recipe) -> np.ndarray:
    """One vector of what a graph says of the parts of a record."""
    if recipe.pooling == "mean":
        found = found.mean(0)
    elif recipe.pooling == "first":
        found = found[0]
    elif recipe.pooling == "largest":
        found = found.max(0)
    elif recipe.pooling == "cells":
        found = found.mean((1, 2))
    return found / max(float(np.linalg.norm(found)), _TINY) if recipe.unit else found
