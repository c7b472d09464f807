"""Descriptions from their JSON, and one spelling of equal numbers in them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from fractions import Fraction
from numbers import Integral, Real
from typing import Any, TypeVar

from pate_jax.errors import PateError

Kind = TypeVar("Kind")
_TOO_LARGE = 1 << 1000  # for a float; left as it is, and refused


def settle_numbers(description: Any) -> None:
    """Give numbers of equal value one type: noise is named after the text of a description.

    A number of another library, or a whole number in place of a float, becomes Python's float; -0.0 is 0.0.

    >>> from pate_jax.mechanisms import GNMax
    >>> GNMax(sigma=40), GNMax(sigma=Fraction(81, 2))
    (GNMax(sigma=40.0), GNMax(sigma=40.5))
    """
    for field in dataclasses.fields(description):
        value, kind = getattr(description, field.name), str(field.type)
        if not isinstance(value, Real) or isinstance(value, bool):
            continue
        fits = not isinstance(value, int | Fraction) or -_TOO_LARGE < value < _TOO_LARGE
        if kind.startswith("float") and fits:
            object.__setattr__(description, field.name, float(value) + 0.0)
        elif kind == "int" and isinstance(value, Integral):
            object.__setattr__(description, field.name, int(value))


def described(description: object, kinds: Mapping[str, Callable[..., Kind]], what: str) -> Kind:
    """What a JSON object of a name and the fields of that kind describes.

    >>> from pate_jax.mechanisms import GNMax
    >>> described({"name": "gnmax", "sigma": 40.0}, {"gnmax": GNMax}, "mechanism")
    GNMax(sigma=40.0)
    """
    if not isinstance(description, Mapping):
        raise PateError(f"{what}={description!r} does not describe one; it must be an object with a name")
    settings = dict(description)
    name = settings.pop("name", None)
    if not isinstance(name, str) or name not in kinds:
        raise PateError(f"{what} name {name!r} is unknown; the known ones are {', '.join(kinds)}")
    kind: Any = kinds[name]
    wanted = {field.name for field in dataclasses.fields(kind)}
    if set(settings) != wanted:
        raise PateError(f"{what} {name} takes {sorted(wanted)}, not {sorted(map(str, settings))}")
    return kinds[name](**settings)
