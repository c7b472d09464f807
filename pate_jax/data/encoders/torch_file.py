"""Tensors in a file of weights that PyTorch wrote before its version 1.6, read without running any of it.

Such a file is five pickles and then the numbers. A pickle is a program; here its steps are read one by one by
a reader that knows how to put texts, numbers, tuples and dictionaries together, and two names that stand for
a dictionary and for a tensor. It can call nothing. Whatever else a file asks for is refused.
"""

from __future__ import annotations

import io
import pickletools
from collections.abc import Iterator
from typing import Any

import numpy as np

from pate_jax.errors import PateError
from pate_jax.system.storage import UNREADABLE

_TYPES = {"torch FloatStorage": "<f4", "torch LongStorage": "<i8"}
_DICTIONARY, _TENSOR = "collections OrderedDict", "torch._utils _rebuild_tensor_v2"
_NAMES = {*_TYPES, _DICTIONARY, _TENSOR}
_VALUES = ("BINUNICODE", "SHORT_BINUNICODE", "BININT", "BININT1", "BININT2", "LONG1")
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_MARK = object()
_MOST = 1 << 20  # steps of one program
Stack = list[Any]


class _Name(str):
    """A name in a file, which stands for itself."""


def tensors(content: bytes) -> dict[str, np.ndarray]:
    """The tensors in a file of weights, by their names; refused where it holds anything else."""
    stream = io.BytesIO(content)
    try:
        *_, described, order = (_value(stream) for _ in range(5))
        kinds = {storage[2]: _TYPES[storage[1]] for storage, *_ in described.values()}
        numbers = {}
        for key in order:
            count = int.from_bytes(stream.read(8), "little")
            kind = np.dtype(kinds[key])
            numbers[key] = np.frombuffer(stream.read(count * kind.itemsize), kind, count)
        return {name: _tensor(numbers[one[0][2]], *one[1:4]) for name, one in described.items()}
    except UNREADABLE as error:
        if isinstance(error, PateError):
            raise
        raise PateError(f"the file of weights is damaged ({error!r}): install its package again") from error


def _value(stream: io.BytesIO) -> Any:
    """What one program puts together, without anything that it would call.

    >>> _value(io.BytesIO(b"\\x80\\x02}X\\x01\\x00\\x00\\x00aK\\x07s."))
    {'a': 7}
    >>> _value(io.BytesIO(b"cos\\nsystem\\n."))
    Traceback (most recent call last):
    pate_jax.errors.PateError: a file of weights asks for 'os system', which no weights need: do not use it
    """
    stack: Stack = []
    kept: dict[Any, Any] = {}
    for number, (code, argument, _) in enumerate(pickletools.genops(stream)):
        if number > _MOST:
            raise PateError(f"a file of weights has more than {_MOST} steps: do not use it")
        if code.name == "STOP":
            return stack.pop()
        if code.name in ("BINPUT", "LONG_BINPUT"):
            kept[argument] = stack[-1]
        elif code.name in ("BINGET", "LONG_BINGET"):
            stack.append(kept[argument])
        else:
            _step(code.name, argument, stack)
    raise ValueError("it ends early")


def _step(code: str, argument: Any, stack: Stack) -> None:
    """One step of a program that only puts values together."""
    if code in _VALUES:
        stack.append(argument)
    elif code in _CONSTANTS:
        stack.append(_CONSTANTS[code])
    elif code == "MARK":
        stack.append(_MARK)
    elif code in ("EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE"):
        stack.append({"EMPTY_DICT": {}, "EMPTY_LIST": [], "EMPTY_TUPLE": ()}[code])
    elif code == "GLOBAL":
        stack.append(_named(argument))
    elif code in ("TUPLE1", "TUPLE2", "TUPLE3"):
        count = int(code[-1])
        stack[-count:] = [tuple(stack[-count:])]
    elif code == "TUPLE":
        stack.append(tuple(_since_mark(stack)))
    elif code in ("SETITEM", "SETITEMS", "APPEND", "APPENDS"):
        _fill(code, stack)
    elif code == "REDUCE":
        stack.append(_made(stack))
    elif code == "BUILD":  # attributes, such as a version, which no tensor needs
        stack.pop()
    elif code not in ("PROTO", "BINPERSID"):  # where the numbers of a tensor lie is a value like others
        raise PateError(f"a file of weights has the step {code}, which no weights need: do not use it")


def _named(name: str) -> _Name:
    if name not in _NAMES:
        raise PateError(f"a file of weights asks for {name!r}, which no weights need: do not use it")
    return _Name(name)


def _since_mark(stack: Stack) -> Stack:
    """What was put on the stack since the last mark."""
    marks = [place for place, value in enumerate(stack) if value is _MARK]
    place = marks[-1]  # an error of its own where there is none
    found = stack[place + 1 :]
    del stack[place:]
    return found


def _fill(code: str, stack: Stack) -> None:
    """Put values into the list or the dictionary below them."""
    if code.endswith("S"):
        values = _since_mark(stack)
    else:
        count = 2 if code == "SETITEM" else 1
        values = stack[-count:]
        del stack[-count:]
    if code.startswith("APPEND"):
        stack[-1].extend(values)
    else:
        stack[-1].update(_pairs(values))


def _pairs(values: Stack) -> Iterator[tuple[Any, Any]]:
    return zip(values[::2], values[1::2], strict=True)


def _made(stack: Stack) -> Any:
    """What stands for a call: an empty dictionary, or the description of a tensor."""
    given, name = stack.pop(), stack.pop()
    if not isinstance(name, _Name) or name not in (_DICTIONARY, _TENSOR):
        raise PateError(f"a file of weights calls {name!r}, which no weights need: do not use it")
    return {} if name == _DICTIONARY else given


def _tensor(numbers: np.ndarray, start: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """A tensor from its numbers, by indices that NumPy checks."""
    places = np.full(shape, start, np.int64)
    for axis, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        along = np.arange(size, dtype=np.int64) * stride
        places += along.reshape([-1 if other == axis else 1 for other in range(len(shape))])
    return numbers[places]
