"""Frozen dataclasses and named tuples as JSON and back, strictly: what is read is what was written.

The kinds of the fields say all: whole numbers, finite numbers, texts, truth values, one of several literals,
tuples, mappings with texts as names, and further records. A class with a `name` writes it down, and where a
field may be one of several classes, it says which. A field that is missing, unknown, or of another kind is
refused, as is a value that the class itself refuses; the error says where it stands.
"""

from __future__ import annotations

import dataclasses
import sys
import types
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cache
from numbers import Integral, Real
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from pate_jax.errors import PateError

_TOO_LARGE = 1 << 1000  # for a float; left as it is, and refused
_SHOWN = 200  # characters of a value that an error shows
_RESTORE = "which is no such thing as was written there: restore it from a backup"


def settle_numbers(description: Any) -> None:
    """Give numbers of equal value one type: noise is named after the text of a description.

    A number of another library, or a whole number in place of a float, becomes Python's float; -0.0 is 0.0.

    >>> from pate_jax.mechanisms import GNMax
    >>> GNMax(sigma=40), GNMax(sigma=Fraction(81, 2))
    (GNMax(sigma=40.0), GNMax(sigma=40.5))
    """
    for field in dataclasses.fields(description):
        value, kind = getattr(description, field.name), str(field.type)
        settled = (type(value) is float and value) or (type(value) is int and kind == "int")
        if settled or not isinstance(value, Real) or isinstance(value, bool):
            continue
        fits = not isinstance(value, int | Fraction) or -_TOO_LARGE < value < _TOO_LARGE
        if kind.startswith("float") and fits:
            object.__setattr__(description, field.name, float(value) + 0.0)
        elif kind == "int" and isinstance(value, Integral):
            object.__setattr__(description, field.name, int(value))


def to_dict(record: object) -> dict[str, Any]:
    """A record as JSON; `from_dict` is the inverse.

    >>> from pate_jax.mechanisms import GNMax
    >>> to_dict(GNMax(sigma=40))
    {'name': 'gnmax', 'sigma': 40.0}
    """
    kind: Any = type(record)
    named = {} if name_of(kind) is None else {"name": name_of(kind)}
    return named | {field: _plain(getattr(record, field)) for field in _fields(kind)}


def from_dict(kind: Any, description: object, where: str) -> Any:
    """The record of this kind, or of one of these kinds, that `to_dict` described.

    >>> from pate_jax.mechanisms import GNMax, LNMax
    >>> from_dict(GNMax | LNMax, {"name": "lnmax", "scale": 20.0}, "mechanism")
    LNMax(scale=20.0)
    """
    return _read(kind, description, where, "")


def name_of(kind: Any) -> str | None:
    """The name of a class in files; None where no other class can stand in its place.

    >>> from pate_jax.mechanisms import GNMax
    >>> name_of(GNMax), name_of(int)
    ('gnmax', None)
    """
    name = getattr(kind, "name", None)
    return name if isinstance(name, str) else None


def _plain(value: Any) -> Any:
    if _is_record(type(value)):
        return to_dict(value)
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, tuple | list) else value


def _is_record(kind: Any) -> bool:
    return dataclasses.is_dataclass(kind) or (isinstance(kind, type) and hasattr(kind, "_fields"))


@cache
def _fields(kind: Any) -> dict[str, Any]:
    """The kind of each field of a record."""
    hints = get_type_hints(kind)
    if dataclasses.is_dataclass(kind):
        return {field.name: hints[field.name] for field in dataclasses.fields(kind) if field.init}
    return {name: hints[name] for name in kind._fields}


def _read(kind: Any, value: object, where: str, at: str) -> Any:
    """The value of this kind; refused with the field that it stands in."""
    kind = getattr(kind, "__bound__", kind)  # of a type variable
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _one_of(args, value, where, at)
    if _is_record(kind):
        return _record((kind,), value, where, at)
    if origin in (tuple, list, Sequence) and isinstance(value, list | tuple):
        kinds = args[:1] * len(value) if origin is not tuple or args[1:] == (...,) else args
        if len(kinds) == len(value):
            parts = enumerate(zip(kinds, value, strict=True))
            read = [_read(one, part, where, f"{at}[{place}]") for place, (one, part) in parts]
            return read if origin is list else tuple(read)
    if origin in (dict, Mapping) and isinstance(value, Mapping) and all(type(one) is str for one in value):
        return {name: _read(args[1], part, where, _below(at, name)) for name, part in value.items()}
    if kind is float and type(value) in (int, float) and abs(cast(float, value)) <= sys.float_info.max:
        return float(cast(float, value))
    if (origin is Literal and value in args) or (kind in (int, str, bool) and type(value) is kind):
        return value
    raise PateError(f"{where} has {at}={_short(value)}, {_RESTORE}")


def _one_of(kinds: Sequence[Any], value: object, where: str, at: str) -> Any:
    if value is None and type(None) in kinds:
        return None
    records = tuple(kind for kind in kinds if _is_record(kind))
    if records:
        return _record(records, value, where, at)
    for kind in kinds:
        try:
            return _read(kind, value, where, at)
        except PateError:
            continue
    raise PateError(f"{where} has {at}={_short(value)}, {_RESTORE}")


def _record(kinds: tuple[Any, ...], value: object, where: str, at: str) -> Any:
    what = f"{where} has {at}={_short(value)}:" if at else where
    if not isinstance(value, Mapping):
        raise PateError(f"{what if at else f'{where}={_short(value)}'} does not describe one")
    settings, known = dict(value), {name_of(kind): kind for kind in kinds}
    name = None if None in known else settings.pop("name", None)
    if not isinstance(name, str | None) or name not in known:
        names = ", ".join(map(str, known))
        raise PateError(f"{what} name {_short(name)} is unknown; the known ones are {names}")
    kind = known[name]
    fields = _fields(kind)
    if settings.keys() != fields.keys():
        named = "" if name is None else f" {name}"
        raise PateError(f"{what}{named} takes {sorted(fields)}, not {sorted(map(str, settings))}")
    read = {field: _read(of, settings[field], where, _below(at, field)) for field, of in fields.items()}
    try:
        return kind(**read)
    except PateError as error:
        raise PateError(f"{where}, {at}: {error}" if at else str(error)) from error


def _below(at: str, name: str) -> str:
    return f"{at}.{name}" if at else name


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
