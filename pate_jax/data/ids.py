"""Ids and users as texts: words, and exact whole numbers in one form, each by itself.

An id that is a whole number is the same however it is written or stored, so that no other record decides by
its type to which teacher a record goes: 000005 in a column of texts and 5 in a column of numbers are one id.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from pate_jax.data import kinds, tables
from pate_jax.data.tables import Table
from pate_jax.errors import PateError

_ID = re.compile(r"(.*[ _-])?(id|uuid|key|code|number|patient|person)|pid|index|row\.?names", re.IGNORECASE)
_WHOLE = re.compile(r"([+-]?)0*([0-9]+)", re.ASCII)


def same(text: str) -> str:
    """The one form of an id.

    >>> [same(text) for text in ("000005", "+5", "-0", "5.0", "A05")]
    ['5', '5', '0', '5.0', 'A05']
    """
    found = _WHOLE.fullmatch(text)
    if found is None:
        return text
    return "-" * (found[1] == "-" and found[2] != "0") + found[2]


def look_like_ids(name: str, values: Sequence[str]) -> bool:
    """Whether a column is called as ids are, and has another value in each row.

    >>> look_like_ids("visit_id", ["7", "8"]), look_like_ids("visit_id", ["7", "7"])
    (True, False)
    """
    differ = len({*values}) == len(values) and not tables.missing(values).any()
    return bool(_ID.fullmatch(name)) and differ


def of_table(table: Table, name: str, place: str) -> np.ndarray:
    """A column of ids or users.

    >>> of_table(tables.of({"patient": ["000005", 7]}, "private"), "patient", "private").tolist()
    ['5', '7']
    """
    kinds.check_names(name, table.kinds.get(name, {}), table[name], place)
    return np.array([same(text) for text in table[name]], np.str_)


def of_values(values: Any, name: str, place: str) -> np.ndarray:
    """Ids or users from an array, or from Python values.

    >>> of_values(np.array([6053, 7]), "ids", "private").tolist()
    ['6053', '7']
    """
    table = tables.of({name: _decoded(values, name, place)}, place)
    return of_table(table, name, place)


def _decoded(values: Any, name: str, place: str) -> Any:
    """The same with texts for bytes, as HDF5 keeps them."""
    if not isinstance(values, np.ndarray) or values.dtype.kind != "S":
        return values
    try:
        return np.char.decode(values, "utf-8")
    except UnicodeDecodeError as error:
        raise PateError(f"{place} has {name} that are no text in UTF-8 ({error}); give text") from error
