"""Encoders of the owner's: an ONNX file, or a folder as model hubs keep them, which `onnxruntime` runs.

What is done before and after the graph is read from the files beside it and written down as a `Recipe`, which
has part in the digest. Each record is run by itself, in one thread, so no record changes the last bit of
another, and any number of cores gives the same numbers.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8
from threadpoolctl import threadpool_limits

from pate_jax.data.encoders import encoder
from pate_jax.data.encoders.encoder import Pooling, Recipe
from pate_jax.errors import PateError, translated, within
from pate_jax.system.storage import UNREADABLE, parse_json, read_bytes

_OUTPUTS = ("sentence_embedding", "image_embeds", "text_embeds", "last_hidden_state")  # the best one first
_COLOURS = 3
_TOKENS = 512  # of a text, where nothing says how many
_IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # middles and deviations of red, green and blue
_BERT = {  # what a config.json must say, where it says anything
    "model_type": "bert",
    "hidden_act": "gelu",
    "position_embedding_type": "absolute",
    "layer_norm_eps": 1e-12,
}
_KINDS = {"tensor(float)": "float32", "tensor(uint8)": "uint8"}


def told(read: Recipe) -> str:
    """A recipe in a sentence."""
    pooled = {
        "none": f"its output {read.output}",
        "mean": f"the mean of its output {read.output} over the tokens",
        "first": f"its output {read.output} of the first token",
        "largest": f"the largest number of its output {read.output} over the tokens",
        "cells": f"the mean of its output {read.output} over the cells of the picture",
    }[read.pooling] + ", at length one" * read.unit
    if read.reads == "texts":
        return (
            f"the first {encoder.MOST:,} characters of a text as its first {read.tokens:,} tokens; "
            f"{pooled}; zeros for an empty text"
        )
    scaled = "pixels as they are"
    if read.kind != "uint8":
        scaled = f"pixels times {read.factor:.6g}, less {list(read.middle)}, divided by {list(read.spread)}"
    return f"a photo in three colours, resized to {read.side} x {read.side} pixels; {scaled}; {pooled}"


class Graph:
    """Vectors of texts or photos by an ONNX file."""

    def __init__(self, graph: Any, recipe: Recipe, tokenizer: Any, name: str, digest: str) -> None:
        from pate_jax.data.encoders import Known

        self.recipe, self.side = recipe, recipe.side
        self._session, self._tokenizer = graph, tokenizer
        probe = self._probed(name)
        title = f"{recipe.reads}:{name}" + f"-{recipe.side}" * (recipe.reads == "photos")
        self.known = Known(title, digest, len(probe), json.dumps(recipe._asdict()))

    @translated(encoder.InputError)
    def __call__(self, records: Sequence[str] | UInt8[np.ndarray, "record side side 3"]) -> np.ndarray:
        """One row of float32 for each record."""
        found = np.zeros((len(records), self.known.width), np.float32)
        for row, vector in enumerate(each(self._vector, records)):
            found[row] = encoder.fitting(vector, self.known.name, self.known.width)
        return found

    def _vector(self, record: Any) -> np.ndarray:
        """The vector of one record; no error shows the record."""
        if encoder.blank(record):
            return np.zeros(self.known.width, np.float32)
        return encoder.of_graph(self._session, self.recipe, self._tokenizer, record)

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


@translated(encoder.InputError)
def load(path: Path, side: int | None = None) -> Graph:
    """The encoder of a file or folder, of photos with so many pixels each way, or a sentence that says what
    is missing.
    """
    file = encoder.graph_file(path)
    content = read_bytes(file)
    if file.suffix == ".safetensors":
        return _of_weights(file, content, side)
    graph = encoder.session(content, file)
    given = {one.name for one in graph.get_inputs()}
    if "input_ids" in given and "pixel_values" not in given:
        tokens = _tokens(file, side)
        recipe = _for_texts(*_output(graph), file)
        tokenizer = encoder.tokenizer_of(tokens, recipe.tokens)
        return Graph(graph, recipe, tokenizer, _name(file), _digest(recipe, content, tokens))
    recipe = _for_photos(graph, file, side)
    return Graph(graph, recipe, None, _name(file), _digest(recipe, content))


def _of_weights(file: Path, content: bytes, side: int | None) -> Graph:
    """A net like BERT from its weights, in NumPy; other nets are refused, which `onnxruntime` can run."""
    said, tokens = _settings(file, "config.json"), _tokens(file, side)
    strange = {key: said.get(key) for key, wanted in _BERT.items() if said.get(key, wanted) != wanted}
    if strange or "model_type" not in said or not isinstance(said.get("num_attention_heads"), int):
        raise PateError(
            f"{file.parent} is no net like BERT (config.json: {strange or 'incomplete'}): make an ONNX file "
            f"by `optimum-cli export onnx --model {file.parent} FOLDER`, and name that folder"
        )
    recipe = _for_texts("the last layer", len("ntd"), file)._replace(heads=said["num_attention_heads"])
    tokenizer = encoder.tokenizer_of(tokens, recipe.tokens)
    digest = _digest(recipe, content, tokens)
    return Graph(encoder.weights_of(content), recipe, tokenizer, _name(file), digest)


def _tokens(file: Path, side: int | None) -> bytes:
    """The tokenizer.json of an encoder of texts."""
    if side is not None:
        raise PateError(f"--image-size {side} is for photos, and {file} reads texts: leave it out")
    found = encoder.beside(file, "tokenizer.json")
    if found is None:
        raise PateError(f"{file} reads texts: put its tokenizer.json beside it")
    return found


def _settings(file: Path, name: str) -> dict[str, Any]:
    """What a file of JSON beside a graph says; nothing where it is not there."""
    content = encoder.beside(file, name)
    found = {} if content is None else parse_json(content, file.parent / name)
    return found if isinstance(found, dict) else {}


def _name(file: Path) -> str:
    """What an encoder is called: its file, or the folder of a file that is called as all are."""
    named = file.parent if file.stem == "model" else file
    named = named.parent if named.name == "onnx" else named
    stem = named.resolve().name if named != file else file.stem
    return re.sub(r"[^\w.+-]+", "_", stem)[:60]


def each(function: Callable[[Any], np.ndarray], records: Iterable[Any]) -> Iterator[np.ndarray]:
    """A function of each record by itself, on as many cores as there are; in the order of the records.

    NumPy has one thread for each, so that the number of cores has no part in any bit.
    """
    cores = len(os.sched_getaffinity(0))
    with threadpool_limits(1), ThreadPoolExecutor(cores) as threads:
        yield from threads.map(function, records)


def _digest(recipe: Recipe, *files: bytes) -> str:
    return encoder.digest(*files, json.dumps(recipe._asdict()).encode())


def _output(graph: Any) -> tuple[str, int]:
    """The output that is the vector, and how many dimensions it has."""
    found = {one.name: len(one.shape or ()) for one in graph.get_outputs()}
    name = next((name for name in _OUTPUTS if name in found), next(iter(found)))
    return name, found[name]


def _for_texts(output: str, rank: int, file: Path) -> Recipe:
    """What is done with texts, from the files of sentence-transformers, if they are there."""
    pooled = _settings(file, "1_Pooling/config.json")
    pooling: Pooling = "none"
    if rank != 2:
        first, largest = (pooled.get(f"pooling_mode_{name}") for name in ("cls_token", "max_tokens"))
        pooling = "first" if first else "largest" if largest else "mean"
    most = _settings(file, "sentence_bert_config.json").get("max_seq_length")
    most = most or _settings(file, "tokenizer_config.json").get("model_max_length")
    tokens = int(most) if isinstance(most, int | float) and 2 < most <= 1 << 16 else _TOKENS
    unit = b"Normalize" in (encoder.beside(file, "modules.json") or b"")
    return Recipe("texts", output, pooling, unit, tokens)


def _for_photos(graph: Any, file: Path, side: int | None) -> Recipe:
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
    said = _settings(file, "preprocessor_config.json")
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
