"""A student of a user's own net in files that need no code of its maker: numbers, and a program of StableHLO.

    parameters.safetensors   all arrays of the net by their paths, in the form of Hugging Face
    program.stablehlo        (arrays by path, inputs as stored) -> probabilities, by `jax.export`

Nothing here runs Python of the release: the program is arithmetic, and one that calls anything else is
refused.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import ml_dtypes
import numpy as np
from jax import export

from pate_jax.errors import PateError
from pate_jax.models import trees
from pate_jax.system import storage

TENSORS, PROGRAM = "parameters.safetensors", "program.stablehlo"
PLATFORMS = ("cpu", "cuda", "tpu")
_CALLS = frozenset({"Sharding", "shape_assertion", "mhlo.topk", "mhlo.erf"})  # of XLA itself
_TYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": ml_dtypes.bfloat16,
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "u1",
    "BOOL": "?",
}
_LONGEST = 1 << 24  # bytes of a header
_OF_MLIR = {name.lower().replace("u", "ui"): np.dtype(kind) for name, kind in _TYPES.items()}
_CONSTANT = re.compile(r'dense<("0x[0-9A-F]*"|[^>]*)>(?: : tensor<((?:\d+x)*)(\w+)>)?')


class Program(NamedTuple):
    """What a net of somebody's own says of inputs as stored, as arithmetic that `jax.export` wrote."""

    content: bytes
    """of its file"""
    call: Callable[[Mapping[str, Any], Any], Any]
    """(arrays by path, inputs [input, ...] of float32) -> probabilities [input, class]"""
    shapes: Mapping[str, tuple[int, ...]]
    """of its arrays, by path"""
    text: str
    """itself, in the language of MLIR"""
    facts: Mapping[str, Any]
    """how it is called, and where it runs"""


def is_own(net: Mapping[str, Any]) -> bool:
    """Whether a student's net is somebody's own, which its folder does not hold.

    >>> is_own({"name": "my_package.nets:Small", "source": "..."}), is_own({"name": "cnn"})
    (True, False)
    """
    return "source" in net


def write_tensors(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays as safetensors: the length of a header, the header as JSON, and all numbers."""
    names = _check_types(arrays)
    header, parts, end = {}, [], 0
    for name, array in sorted(arrays.items()):
        content = np.ascontiguousarray(array).tobytes()
        header[name] = {
            "dtype": names[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [end, end + len(content)],
        }
        parts.append(content)
        end += len(content)
    told = json.dumps(header, separators=(",", ":")).encode()
    told += b" " * (-len(told) % 8)
    storage.write_bytes(path, b"".join([len(told).to_bytes(8, "little"), told, *parts]))


def _check_types(arrays: Mapping[str, Any]) -> dict[Any, str]:
    """Refuse arrays of a type that safetensors do not have; the names of those that they have."""
    names = {np.dtype(kind): name for name, kind in _TYPES.items()}
    for name, array in arrays.items():
        if array.dtype not in names:
            raise PateError(f"{name} is of type {array.dtype}, which {TENSORS} cannot hold: use float32")
    return names


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file of safetensors; every byte after its header belongs to one of them."""
    content = storage.read_bytes(path)
    length = int.from_bytes(content[:8], "little")
    try:
        if not 2 <= length <= min(_LONGEST, len(content) - 8):
            raise ValueError("its header has no such length")
        header, found, end = json.loads(content[8 : 8 + length]), {}, 0
        for name, told in sorted(header.items(), key=lambda one: tuple(one[1]["data_offsets"])):
            first, last = told["data_offsets"]
            kind, shape = np.dtype(_TYPES[told["dtype"]]), tuple(map(int, told["shape"]))
            if (
                first != end
                or min(shape, default=0) < 0
                or last - first != kind.itemsize * int(np.prod(shape))
            ):
                raise ValueError(f"the places of {name} are wrong")
            found[name] = np.frombuffer(content[8 + length + first : 8 + length + last], kind).reshape(shape)
            end = last
        if end != len(content) - 8 - length:
            raise ValueError("bytes belong to no array")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PateError(f"{path} is no file of safetensors ({error}); restore it") from error
    return found


def program(function: Callable[[Any, Any], Any], parameters: Any, input_shape: tuple[int, ...]) -> Program:
    """The program of `function(parameters, inputs)` for any number of inputs; parameters may be mere shapes.

    It says nothing of the files that the function stands in.

    >>> made = program(lambda tree, rows: rows * tree["by"], {"by": np.ones(2, np.float32)}, (2,))
    >>> made.call({"by": np.array([1.0, 2.0], np.float32)}, np.ones((3, 2), np.float32)).tolist()
    [[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]]
    """
    leaves = trees.flat(parameters)
    _check_types(leaves)

    def flat_function(named: dict[str, Any], inputs: Any) -> Any:
        tree = jax.tree.unflatten(jax.tree.structure(parameters), [named[name] for name in leaves])
        # A net may reshape by the number of its inputs, which is not known yet: it sees one at a time.
        return jax.vmap(lambda one: function(tree, one[None])[0])(inputs)

    (count,) = export.symbolic_shape("count")
    shapes = {name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for name, leaf in leaves.items()}
    rows = jax.ShapeDtypeStruct((count, *input_shape), np.float32)
    try:
        with _without_places():
            made = export.export(jax.jit(flat_function), platforms=PLATFORMS)(shapes, rows)
    except Exception as error:  # a module of the user's may do anything
        why = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise PateError(f"the net cannot be exported ({why}): leave out what calls the host") from error
    return _read(bytes(made.serialize()), "the net's program")


@contextmanager
def _without_places() -> Iterator[None]:
    """Let JAX leave out the paths of source files, which are nobody's business."""
    before: int = jax.config.jax_traceback_in_locations_limit  # type: ignore[attr-defined]
    jax.config.update("jax_traceback_in_locations_limit", 0)
    try:
        yield
    finally:
        jax.config.update("jax_traceback_in_locations_limit", before)


def read_program(folder: Path) -> Program:
    """The program of a student's folder, which needs neither the net's module nor its source."""
    path = folder / PROGRAM
    if not path.is_file():
        raise PateError(f"{folder} holds no {PROGRAM}: restore it")
    return _read(storage.read_bytes(path), str(path))


def _read(content: bytes, place: str) -> Program:
    try:
        made = export.deserialize(bytearray(content))
        arrays, _ = jax.tree.unflatten(made.in_tree, made.in_avals)[0]
        shapes = {name: tuple(one.shape) for name, one in arrays.items()}
    except Exception as error:  # it is not said which
        raise PateError(f"{place} is no program of jax.export ({error}); restore it") from error
    text = made.mlir_module()
    _check_calls(text, place)
    told = {"calling_convention": made.calling_convention_version, "platforms": list(made.platforms)}
    return Program(content, jax.jit(made.call), shapes, text, told)


def constants(text: str) -> tuple[str, list[np.ndarray]]:
    """The text of a program without its constants, and those that are more than one number.

    >>> constants("constant dense<[1, 2]> : tensor<2xi32> and dense<0.5> : tensor<3xf32>")
    ('constant dense<> and dense<>', [array([1, 2], dtype=int32)])
    """
    found: list[np.ndarray] = []

    def taken(match: re.Match[str]) -> str:
        held, sizes, kind = match[1], match[2] or "", match[3] or ""
        shape = tuple(int(size) for size in sizes.split("x") if size)
        if held.startswith('"'):
            array = np.frombuffer(bytes.fromhex(held[3:-1]), _OF_MLIR.get(kind, np.uint8))
        elif held.startswith("["):
            numbers = [float(one) for one in re.findall(r"[-+]?\d[\d.]*(?:[eE][-+]?\d+)?", held)]
            array = np.array(numbers, _OF_MLIR.get(kind, np.float32))
        else:
            return "dense<>"
        found.append(array.reshape(shape) if array.size == math.prod(shape) else array)
        return "dense<>"

    return _CONSTANT.sub(taken, text), found


def _check_calls(text: str, place: str) -> None:
    """Refuse a program that calls anything beside XLA's own operations, such as Python on the host."""
    named = set(re.findall(r"custom_call\s*@?\"?([\w.]+)", text))
    for call in sorted(named - _CALLS):
        raise PateError(f"{place} calls {call}, which is no arithmetic: leave callbacks out of the net")
