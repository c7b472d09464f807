"""One spelling of equal numbers in descriptions."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from numbers import Integral, Real
from typing import Any

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
