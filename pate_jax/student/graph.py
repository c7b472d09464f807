"""A student as one ONNX file, from its inputs, or from pixels, to probabilities.

The file is an export: the student itself is `student.json` and `parameters.npz`. Its arithmetic is that of
`released/predict.py`, written as operations that any runtime of ONNX knows.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np
from jax.extend.core import jaxpr_as_fun

from pate_jax.data import encoders, folders, texts
from pate_jax.data.encoders import encoder
from pate_jax.errors import PateError, translated
from pate_jax.student import serving
from pate_jax.student.serving import Student, find
from pate_jax.system import onnx, storage
from pate_jax.system.onnx import Value, Writer

_CHECKED, _BLOCK, _APART = 1000, 100, 0.02  # inputs; a step of whole numbers moves a share a little
INPUT, OUTPUT = "inputs", "probabilities"
Number = np.ndarray | np.generic
_FEATURES, _NO_SHARE, _MOST = 8000, 1e-30, 8192  # length of features; of a class's share; of a whole number


def export(
    student: Student,
    release: Path | str,
    out: Path,
    source: Path,
    asked: np.ndarray,
    wanted: np.ndarray,
) -> str:
    """Write the file, if it answers as the student does; a sentence that says how well it does.

    It is asked about up to 1,000 of the inputs `asked`, whose probabilities are `wanted`; a graph that begins
    with pixels reads them from the folder `source`.
    """
    if out.suffix != ".onnx":
        raise PateError(f"--export {out} must end in .onnx")
    if not len(asked):
        raise PateError(f"{source} holds no inputs, and --export checks the file on some: give at least one")
    facts = _facts(find(release))
    content = write(student, facts) if student.program is None else _converted(student, facts)
    known = next(texts.seen(student.columns), None)
    some = asked[:_CHECKED]
    if known is not None and encoders.of_photos(known.name):
        side = cast(encoders.OfPhotos, encoders.same(known)).side
        some = _pixels(source, (side, side, 3))
    found = answers(content, some)
    apart = float(np.abs(found - wanted[: len(some)]).max())
    alike = float((found.argmax(1) == wanted[: len(some)].argmax(1)).mean())
    told = f"on {len(some):,} inputs its probabilities differ from the student's by {apart:.1g} at most"
    if apart > _APART:
        raise PateError(f"the ONNX file is not written, since {told}: report this, and use predict.py")
    storage.write_bytes(out, content)
    return f"{out}: {told}, and {alike:.2%} of the labels are the same"


def _pixels(source: Path, shape: encoder.Shape) -> np.ndarray:
    """The first photos of a folder or of an array, as the graph takes them."""
    if source.is_dir():
        return np.asarray(folders.read(source, shape, resized=True, most=_CHECKED).inputs)
    held = storage.read_foreign_arrays(source)["inputs"][:_CHECKED]
    return np.stack([encoder.photo(one, shape) for one in held])


@translated(encoder.InputError)
def answers(content: bytes, inputs: np.ndarray) -> np.ndarray:
    """What the file says of inputs: probabilities [input, class]."""
    session = encoder.session(content, "the exported student")
    kind = np.uint8 if session.get_inputs()[0].type == "tensor(uint8)" else np.float32
    blocks = (inputs[start : start + _BLOCK].astype(kind) for start in range(0, len(inputs), _BLOCK))
    return np.concatenate([session.run([OUTPUT], {INPUT: block})[0] for block in blocks])


def _facts(home: Path) -> dict[str, str]:
    """What the file says of its privacy: the statement that lies beside the student."""
    path = home / "statement.json"
    if not path.is_file():
        return {}
    said = storage.read_json(path, "statement").get("model_card_line")
    return {"privacy": str(said)} if said else {}


def write(student: Student, facts: Mapping[str, str]) -> bytes:
    """The content of the file; `facts` are what it says of itself.

    Nets that no operation covers are refused.
    """
    known, graph = next(texts.seen(student.columns), None), Writer()
    shape, flowing = list(student.description["input_shape"]), INPUT
    kind = "uint8" if student.dtype == "uint8" else "float32"
    if known is not None and encoders.of_photos(known.name):
        read = encoders.same(known)
        if not hasattr(read, "operations"):
            why = (
                "is a file of its own"
                if known.recipe
                else "is not installed (`pip install pate-jax[vision]`)"
            )
            raise PateError(f"the encoder {known.name!r} {why}, so export gives no graph of both")
        side = cast(encoders.OfPhotos, read).side
        shape, kind = [side, side, 3], "uint8"
        flowing = read.operations(graph, INPUT)
    elif kind == "uint8":
        flowing = graph.add("Cast", flowing, to=1)
    scaling = student.preprocessing
    offset, scale = (np.array(one, np.float32) for one in (scaling.offset, scaling.scale))
    flowing = graph.add("Div", graph.add("Sub", flowing, offset), scale)
    logits = _logits(graph, student, flowing)
    logits = graph.add("Mul", logits, np.float32(1 / student.temperature))
    graph.named(OUTPUT, graph.add("Softmax", logits, axis=1))
    said = {"class_names": json.dumps(student.class_names), **facts}
    takes, gives = (
        Value(INPUT, kind, ["n", *shape]),
        Value(OUTPUT, "float32", ["n", len(student.class_names)]),
    )
    return onnx.model(graph.nodes, [takes], [gives], graph.tensors, said)


def _converted(student: Student, facts: Mapping[str, str]) -> bytes:
    """The file of a net of somebody's own, from its module, by the converter jax2onnx."""
    name, shape = student.description["name"], student.description["input_shape"]
    if student.net is None:
        raise PateError(
            f"the net of this student is {name}, code that is not in its folder, and an ONNX file is made "
            "from that: name it (--net package.module:Class), or use program.stablehlo, which JAX runs alone"
        )
    try:
        import jax2onnx
    except ImportError as error:
        raise PateError(
            f"the net of this student is {name}, which only the converter jax2onnx writes as ONNX, and it is "
            "not there: `pip install jax2onnx`, or use program.stablehlo, which JAX runs alone"
        ) from error
    one = np.zeros((1, *shape), np.float32)
    traced = jaxpr_as_fun(jax.make_jaxpr(partial(serving.function(student), student.parameters))(one))
    try:
        made = jax2onnx.to_onnx(
            jax.vmap(lambda row: traced(row[None])[0][0]),  # a net may reshape by the number of inputs
            [("n", *shape)],
            input_names=[INPUT],
            output_names=[OUTPUT],
        )
    except Exception as error:  # a converter that knows not all operations
        raise PateError(
            f"jax2onnx does not convert {name} ({error}): use program.stablehlo, which JAX runs alone"
        ) from error
    for key, value in {"class_names": json.dumps(student.class_names), **facts}.items():
        said = made.metadata_props.add()
        said.key, said.value = key, value
    return bytes(made.SerializeToString())


def _logits(graph: Writer, student: Student, flowing: str) -> str:
    """The logits of inputs that have been scaled."""
    held = {name: np.asarray(leaf, np.float32) for name, leaf in _flat(student).items()}
    net = student.description
    strange = {"typical", "filters", "reach", "kernel1", "examples"} & held.keys()
    parted = sorted({name.partition("/")[0].rstrip("0123456789") for name in held if "/" in name})
    if strange or not {*parted} <= {"dense", "conv", "head"}:
        raise PateError(
            f"the net {net['name']!r} has {', '.join(sorted(strange) or parted)}, which export does not "
            "write: use release/student/predict.py, which needs NumPy alone"
        )
    if "directions" in held:
        return _of_sums(graph, held, net, flowing)
    layer, before = 0, net["input_shape"][-1]
    if "conv0/kernel" in held:
        flowing = graph.add("Transpose", flowing, perm=[0, 3, 1, 2])
        while f"conv{layer}/kernel" in held:
            flowing = _convolved(graph, held, f"conv{layer}", flowing, before)
            flowing = _active(graph, net, graph.add("MaxPool", flowing, kernel_shape=[2, 2], strides=[2, 2]))
            layer, before = layer + 1, held[f"conv{layer}/kernel"].shape[1]
        flowing = graph.add("Transpose", flowing, perm=[0, 2, 3, 1])
    flowing = graph.add("Flatten", flowing, axis=1)
    head = "head/" if "head/dense0/kernel" in held else ""
    layers = sum(name.startswith(head + "dense") and name.endswith("/kernel") for name in held)
    for layer in range(layers):
        flowing = _dense(graph, held, f"{head}dense{layer}", flowing)
        flowing = _active(graph, net, flowing) if layer < layers - 1 else flowing
    return flowing


def _flat(student: Student) -> dict[str, Any]:
    from pate_jax.models import trees

    return trees.flat(student.parameters)


def _dense(graph: Writer, held: Mapping[str, np.ndarray], layer: str, flowing: str) -> str:
    return graph.add("Add", graph.add("MatMul", flowing, held[f"{layer}/kernel"]), held[f"{layer}/bias"])


def _convolved(graph: Writer, held: Mapping[str, np.ndarray], layer: str, flowing: str, before: int) -> str:
    """A convolution whose kernel is kept as a matrix of patches and channels."""
    kernel, bias = held[f"{layer}/kernel"], held[f"{layer}/bias"]
    size = math.isqrt(len(kernel) // before)
    weights = kernel.reshape(size, size, before, -1).transpose(3, 2, 0, 1)
    low, high = (size - 1) // 2, size // 2
    return graph.add("Conv", flowing, weights, bias, kernel_shape=[size] * 2, pads=[low, low, high, high])


def _active(graph: Writer, net: Mapping[str, Any], flowing: str) -> str:
    name = net.get("activation", "relu")
    if name in ("relu", "tanh"):
        return graph.add(name.capitalize(), flowing)
    given = {"scale": 2.0, "temperature": 2.0, "offset": 1.0, **net}
    scale, temperature, offset = (np.float32(given[key]) for key in ("scale", "temperature", "offset"))
    risen = graph.add("Sigmoid", graph.add("Mul", flowing, temperature))
    return graph.add("Sub", graph.add("Mul", risen, scale), offset)


def _of_sums(graph: Writer, held: Mapping[str, np.ndarray], net: Mapping[str, Any], flowing: str) -> str:
    """Logits of a linear head, or of the shares of a crowd's classifier, on whole numbers."""
    seen = _columns(graph, held, graph.add("Flatten", flowing, axis=1))
    grid = graph.add("Mul", graph.add("Sub", seen, held["origin"]), held["steps"])
    along = graph.add("MatMul", _whole(graph, grid, len(held["directions"]), _FEATURES), held["directions"])
    length = int(net["length"])
    vectors = _whole(graph, graph.add("Mul", along, held["weights"]), held["directions"].shape[1], length)
    found = _dense(graph, held, "dense0", graph.add("Div", vectors, np.float32(length)))
    return (
        found if net["name"] == "head" else graph.add("Log", graph.add("Max", found, np.float32(_NO_SHARE)))
    )


def _columns(graph: Writer, held: Mapping[str, np.ndarray], rows: str) -> str:
    """The columns of a table, how far up its ramps each number is, and products of pairs of columns."""
    if "low" not in held:
        return rows
    inside = _between(graph, rows, held["low"], held["high"])
    parts = [inside]

    def picked(name: str) -> str:
        return graph.add("Gather", inside, held[name].astype(np.int64), axis=1)

    if "column" in held:
        along = graph.add("Mul", graph.add("Sub", picked("column"), held["start"]), held["steepness"])
        parts.append(_between(graph, along, np.float32(0), held["height"]))
    if "left" in held:
        one, other = (graph.add("Sub", picked(k), held[f"{k}_middle"]) for k in ("left", "right"))
        both = graph.add("Mul", graph.add("Mul", one, other), held["factor"])
        parts.append(_between(graph, both, held["bottom"], held["top"]))
    return graph.add("Concat", *parts, axis=1)


def _between(graph: Writer, flowing: str, low: Number, high: Number) -> str:
    return graph.add("Min", graph.add("Max", flowing, low), high)


def _whole(graph: Writer, flowing: str, width: int, length: int) -> str:
    """The nearest whole numbers, in rows that are no longer than `length`; exact, as in predict.py."""
    most, one = np.float32(min(_MOST, math.isqrt((2**31 - 1) // width))), np.int64(1)
    rows = graph.add("Cast", _between(graph, graph.add("Round", flowing), -most, most), to=7)
    square = graph.add("ReduceSum", graph.add("Mul", rows, rows), np.array([1]), keepdims=1)
    real = graph.add("Cast", graph.add("Max", square, one), to=11)
    root = graph.add("Cast", graph.add("Floor", graph.add("Sqrt", real)), to=7)
    short = graph.add("Cast", graph.add("Less", graph.add("Mul", root, root), square), to=7)
    root = graph.add("Max", graph.add("Add", root, short), one)
    size = graph.add("Div", graph.add("Mul", graph.add("Abs", rows), np.int64(length)), root)
    shrunk = graph.add("Mul", graph.add("Sign", rows), size)
    long = graph.add("Greater", square, np.int64(length**2))
    return graph.add("Cast", graph.add("Where", long, shrunk, rows), to=1)
