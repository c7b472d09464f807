"""A student of a user's own net in files that need no code of its maker: numbers, and a program of StableHLO.

    parameters.safetensors   all arrays of the net by their paths, in the form of Hugging Face
    program.stablehlo        inputs as stored -> probabilities, by `jax.export`, for CPU, GPU and TPU

Nothing here runs Python of the release: the program is arithmetic, and one that calls anything else is
refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
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


def is_own(net: Mapping[str, Any]) -> bool:
    """Whether a student's net is somebody's own, which its folder does not hold.

    >>> is_own({"name": "my_package.nets:Small", "source": "..."}), is_own({"name": "cnn"})
    (True, False)
    """
    return "source" in net


def write_tensors(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays as safetensors: the length of a header, the header as JSON, and all numbers."""
    names = {np.dtype(kind): name for name, kind in _TYPES.items()}
    header, parts, end = {}, [], 0
    for name, array in sorted(arrays.items()):
        if array.dtype not in names:
            raise PateError(f"{name} is of type {array.dtype}, which {path.name} cannot hold: use float32")
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


def write_program(
    path: Path, function: Callable[[Any, Any], Any], parameters: Any, input_shape: tuple[int, ...], dtype: str
) -> dict[str, Any]:
    """Write `function(parameters by path, inputs)` for any number of inputs; what its reader must know."""
    leaves = trees.flat(parameters)

    def flat_function(named: dict[str, Any], inputs: Any) -> Any:
        tree = jax.tree.unflatten(jax.tree.structure(parameters), [named[name] for name in leaves])
        # A net may reshape by the number of its inputs, which is not known yet: it sees one at a time.
        return jax.vmap(lambda one: function(tree, one[None])[0])(inputs)

    (count,) = export.symbolic_shape("count")
    shapes = {name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for name, leaf in leaves.items()}
    rows = jax.ShapeDtypeStruct((count, *input_shape), np.dtype(dtype or "float32"))
    try:
        made = export.export(jax.jit(flat_function), platforms=PLATFORMS)(shapes, rows)
    except Exception as error:  # a module of the user's may do anything
        why = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise PateError(f"the net cannot be exported ({why}): leave out what calls the host") from error
    _check_calls(made, path)
    storage.write_bytes(path, bytes(made.serialize()))
    return {
        "file": PROGRAM,
        "calling_convention": made.calling_convention_version,
        "platforms": list(made.platforms),
        "jax": jax.__version__,
    }


def read_program(folder: Path) -> Callable[[np.ndarray], np.ndarray]:
    """What a folder's program says of inputs as stored: probabilities [input, class].

    It needs neither the net's module nor its source.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> scales = {"by": np.array([1.0, 2.0], np.float32)}
    >>> write_tensors(folder / TENSORS, scales)
    >>> told = write_program(folder / PROGRAM, lambda tree, rows: rows * tree["by"], scales, (2,), "")
    >>> read_program(folder)(np.ones((3, 2), np.float32)).tolist()
    [[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]]
    """
    path = folder / PROGRAM
    if not path.is_file():
        raise PateError(f"{folder} holds no {PROGRAM}: only students of nets of somebody's own have one")
    try:
        made = export.deserialize(bytearray(storage.read_bytes(path)))
    except Exception as error:  # it is not said which
        raise PateError(f"{path} is no program of jax.export ({error}); restore it") from error
    _check_calls(made, path)
    arrays = read_tensors(folder / TENSORS)
    call = jax.jit(made.call)
    return lambda inputs: np.asarray(call(arrays, np.asarray(inputs, made.in_avals[-1].dtype)))


def _check_calls(made: export.Exported, path: Path) -> None:
    """Refuse a program that calls anything beside XLA's own operations, such as Python on the host."""
    named = set(re.findall(r"custom_call\s*@?\"?([\w.]+)", made.mlir_module()))
    for call in sorted(named - _CALLS):
        raise PateError(f"{path} calls {call}, which is no arithmetic: leave callbacks out of the net")
