"""ONNX files, written: a graph of operations as the bytes that `onnxruntime` and model hubs read.

Only what a graph of dense numbers needs is here. The format is that of protocol buffers: each field is its
number and kind, and then its content.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

_OPERATORS, _VERSION = 17, 8  # of the set of operations, and of the file
_TYPES = {"float32": 1, "uint8": 2, "int32": 6, "int64": 7, "bool": 9, "float64": 11}
_FLOAT, _WHOLE, _TEXT, _WHOLES = 1, 2, 3, 7  # kinds of attributes
Attribute = float | int | str | Sequence[int]
Shape = Sequence[int | str]  # a text is the name of a size that is open


class Node(NamedTuple):
    """One operation of a graph."""

    operation: str
    inputs: Sequence[str]
    output: str
    attributes: Mapping[str, Attribute] = {}


class Value(NamedTuple):
    """What a graph takes or gives."""

    name: str
    kind: str  # such as float32
    shape: Shape


class Writer:
    """A graph that is being written: its operations, in order, and the numbers that it holds."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.tensors: dict[str, np.ndarray] = {}

    def add(self, operation: str, *inputs: str | np.ndarray | np.generic, **attributes: Attribute) -> str:
        """One more operation, on earlier results and on numbers; the name of its result.

        >>> graph = Writer()
        >>> graph.add("Add", "x", np.float32([1, 2])), graph.nodes[0].inputs
        ('v0', ['x', 't0'])
        """
        names = [one if isinstance(one, str) else self._held(np.asarray(one)) for one in inputs]
        self.nodes.append(Node(operation, names, f"v{len(self.nodes)}", attributes))
        return self.nodes[-1].output

    def _held(self, value: np.ndarray) -> str:
        name = f"t{len(self.tensors)}"
        self.tensors[name] = value
        return name

    def named(self, name: str, result: str) -> None:
        """Give a result the name of an output."""
        self.nodes.append(Node("Identity", [result], name))


def model(
    nodes: Iterable[Node],
    inputs: Iterable[Value],
    outputs: Iterable[Value],
    tensors: Mapping[str, np.ndarray],
    facts: Mapping[str, str] | None = None,
) -> bytes:
    """The content of an ONNX file; `facts` are what the file says of itself.

    >>> double = Node("Add", ["x", "x"], "y")
    >>> made = model([double], [Value("x", "float32", ["n"])], [Value("y", "float32", ["n"])], {})
    >>> made[:2], len(made)
    (b'\\x08\\x08', 79)
    """
    graph = b"".join(
        [
            *(_part(1, _node(node)) for node in nodes),
            _part(2, b"graph"),
            *(_part(5, _tensor(name, value)) for name, value in tensors.items()),
            *(_part(11, _value(value)) for value in inputs),
            *(_part(12, _value(value)) for value in outputs),
        ]
    )
    said = ((_part(1, key.encode()) + _part(2, value.encode())) for key, value in (facts or {}).items())
    return b"".join(
        [
            _number(1, _VERSION),
            _part(2, b"pate_jax"),
            _part(7, graph),
            _part(8, _part(1, b"") + _number(2, _OPERATORS)),
            *(_part(14, one) for one in said),
        ]
    )


def _node(node: Node) -> bytes:
    attributes = (_part(5, _attribute(*one)) for one in node.attributes.items())
    names = (_part(1, name.encode()) for name in node.inputs)
    return b"".join([*names, _part(2, node.output.encode()), _part(4, node.operation.encode()), *attributes])


def _attribute(name: str, value: Attribute) -> bytes:
    head = _part(1, name.encode())
    if isinstance(value, str):
        return head + _part(4, value.encode()) + _number(20, _TEXT)
    if isinstance(value, float):
        return head + bytes([2 << 3 | 5]) + struct.pack("<f", value) + _number(20, _FLOAT)
    if isinstance(value, int):
        return head + _number(3, value) + _number(20, _WHOLE)
    return head + b"".join(_number(8, one) for one in value) + _number(20, _WHOLES)


def _tensor(name: str, value: np.ndarray) -> bytes:
    sizes = b"".join(_number(1, size) for size in value.shape)
    content = np.ascontiguousarray(value, value.dtype.newbyteorder("<")).tobytes()
    return sizes + _number(2, _TYPES[value.dtype.name]) + _part(8, name.encode()) + _part(9, content)


def _value(value: Value) -> bytes:
    sizes = (
        _part(1, _part(2, size.encode()) if isinstance(size, str) else _number(1, size))
        for size in value.shape
    )
    tensor = _number(1, _TYPES[value.kind]) + _part(2, b"".join(sizes))
    return _part(1, value.name.encode()) + _part(2, _part(1, tensor))


def _number(field: int, value: int) -> bytes:
    return _whole(field << 3) + _whole(value % (1 << 64))


def _part(field: int, content: bytes) -> bytes:
    return _whole(field << 3 | 2) + _whole(len(content)) + content


def _whole(value: int) -> bytes:
    """A whole number in groups of seven bits, the lowest first."""
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])
