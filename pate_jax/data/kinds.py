"""Of what kind the values of a column are, where a source tells: a data frame, a Parquet file, Python values.

Whoever makes such a source infers the type of a column from all its records: the codes 007 and 010 become 7
and 10 unless one record has a letter. So wherever the type decides how a value reads (as a category, an id or
a user), the public part says which kind is right, and other private values are refused, never converted.
A CSV file tells no kinds: its values are words, and each is read as it is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import numpy as np

from pate_jax.errors import PateError

MISSING = frozenset({"", "na", "nan", "null"})  # in any case
GONE = ("nan", "NaT", "<NA>")  # how pandas and NumPy show a missing value that is no text
EXACT = 2.0**53  # whole numbers below this are exact as floats

WORDS, TRUTH, DATES = "words", "truth values", "dates"
WHOLE = "whole numbers"
FLOATS = "whole numbers stored as floats"  # as integers beside a missing value are
FRACTIONS = "floats that are no exact whole numbers"  # fractions, and whatever is 2^53 and above
LISTED = "categories"  # no kind of a value: the column itself is one of categories, whatever they are

Kinds = Mapping[str, Mapping[str, int]]  # of each column: every kind, and the row of the first such value
_CATEGORIES = {WORDS: WORDS, TRUTH: TRUTH, WHOLE: WHOLE, FLOATS: WHOLE}  # kinds that can be categories
_DTYPES = ("category", "categorical", "enum", "dictionary")  # of pandas, Polars and Arrow
_DIGITS = 400  # more than a float has before its point
_REMEDY = "as text (dtype=str where pandas reads a file) or as whole numbers"


def of(value: Any) -> str | None:
    """The kind of one value; None where it is missing.

    >>> [of(value) for value in ("007", 7, 7.0, True, None, float("nan"), "NA")]
    ['words', 'whole numbers', 'whole numbers stored as floats', 'truth values', None, None, None]
    >>> of(7.5), of(2.0**53)
    ('floats that are no exact whole numbers', 'floats that are no exact whole numbers')
    """
    if isinstance(value, str):
        return None if value.strip().lower() in MISSING else WORDS
    if value is None or str(value) in GONE or str(value).lower() in MISSING:
        return None
    if isinstance(value, bool | np.bool_):
        return TRUTH
    if isinstance(value, Decimal):
        return WHOLE if is_whole(value) else FRACTIONS
    if isinstance(value, Integral):
        return WHOLE
    if isinstance(value, Real):
        return FLOATS if float(value).is_integer() and abs(float(value)) < EXACT else FRACTIONS
    return DATES


def is_whole(value: Decimal) -> bool:
    """Whether a decimal is a whole number of a size that a person writes.

    >>> is_whole(Decimal("7.00")), is_whole(Decimal("7.5")), is_whole(Decimal("1e999999"))
    (True, False, False)
    """
    return value.is_finite() and value.adjusted() < _DIGITS and value == value.to_integral_value()


def of_column(values: Iterable[Any], listed: bool = False) -> dict[str, int]:
    """The kinds of a column's values; `listed` tells that the column was declared to be of categories.

    >>> of_column(["a", None, 3, "b"])
    {'words': 0, 'whole numbers': 2}
    """
    found = {LISTED: 0} if listed else {}
    for row, value in enumerate(values):
        kind = of(value)
        if kind is not None and kind not in found:
            found[kind] = row
    return found


def is_listed(column: Any) -> bool:
    """Whether the type of a column of pandas, Polars or Arrow is one of categories.

    >>> import pyarrow
    >>> is_listed(pyarrow.array(["a", "b"]).dictionary_encode()), is_listed(["a", "b"])
    (True, False)
    """
    return str(getattr(column, "dtype", getattr(column, "type", ""))).lower().startswith(_DTYPES)


def of_categories(name: str, kinds: Mapping[str, int]) -> str:
    """The one kind that a public column of categories has; others, and several, are refused.

    >>> of_categories("code", {"whole numbers": 0, "whole numbers stored as floats": 7})
    'whole numbers'
    """
    there = {kind: row for kind, row in kinds.items() if kind != LISTED}
    found = {_CATEGORIES.get(kind, "") for kind in there}
    if len(found) < 2 and "" not in found:
        return found.pop() if found else WORDS
    raise PateError(
        f"the public part has {' and '.join(there)} in the column {name!r}, whose values are "
        f"categories: give them {_REMEDY}"
    )


def check_categories(
    name: str, kinds: Mapping[str, int], wanted: str, values: Sequence[str], place: str
) -> None:
    """Refuse a column of categories that holds another kind of values than the public part's.

    >>> check_categories("code", {"words": 0}, "words", ["007"], "private")
    """
    for kind, row in kinds.items():
        if kind != LISTED and _CATEGORIES.get(kind) != wanted:
            raise PateError(
                f"{place} has {kind} in the column {name!r} ({values[row]} at row {row}) and the public part "
                f"{wanted}: read all parts alike, as text (dtype=str where pandas reads a file)"
            )


def check_names(name: str, kinds: Mapping[str, int], values: Sequence[str], place: str) -> None:
    """Refuse ids or users that are neither words nor whole numbers.

    >>> check_names("patient", {"words": 0, "whole numbers": 1}, ["A12", "7"], "private")
    """
    for kind, row in kinds.items():
        if kind not in (WORDS, WHOLE, LISTED):
            raise PateError(
                f"{place} has {kind} in the column {name!r} ({values[row]} at row {row}): give ids and users "
                f"{_REMEDY}"
            )


_WRITTEN = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]{1,3})?", re.ASCII | re.IGNORECASE)


def refuse_other_spellings(
    table: Mapping[str, Sequence[str]], known: Mapping[str, Sequence[str]], place: str
) -> None:
    """Refuse a value that is no known category, but the same number or truth value written otherwise.

    Whoever writes a file from a frame may write all values otherwise because of one of them: beside a missing
    one 7 becomes 7.0, and where no record has a letter 007 becomes 7.

    >>> refuse_other_spellings({"code": ["007", "8"]}, {"code": ("007", "B7")}, "private")
    """
    for name, categories in known.items():
        values = list(table[name])
        spelled = {_meant(category): category for category in categories}
        for value in sorted({*values} - {*categories}):
            meant = _meant(value)
            if meant != value and meant in spelled:
                raise PateError(
                    f"{place} has {name}={value!r} at row {values.index(value)}, which is the known "
                    f"category {spelled[meant]!r} written otherwise: write all parts alike, as text "
                    "(dtype=str where pandas reads a file), or declare both as --categories"
                )


def _meant(value: str) -> str | Decimal:
    """The number or truth value that a text writes, or the text.

    >>> _meant("007") == _meant("7.0") == _meant("7e0"), _meant("TRUE"), _meant("A7")
    (True, '=true', 'A7')
    """
    if _WRITTEN.fullmatch(value):
        return Decimal(value)
    return f"={value.lower()}" if value.lower() in ("true", "false") else value
