"""How the values of a column that becomes one number are written: as numbers, as true and false, or as dates.

The form of a column follows from its public values. A student keeps it, so that new rows are read in the same
way: "" stands for numbers, "limits" for numbers of which some are limits, as laboratories write <0.5,
"boolean" for true and false, and a format of `datetime.strptime` for dates, which become days since 1970.
A time of day is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta

import numpy as np

from pate_jax.errors import PateError

NUMBER, LIMITS, BOOLEAN = "", "limits", "boolean"
_BOOLEANS = {"true": 1.0, "false": 0.0}  # in any case
_DATES = (
    *("%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%d %b %Y", "%d-%b-%Y", "%b %d, %Y"),
    *("%d %B %Y", "%d-%B-%Y", "%B %d, %Y"),
)
_EITHER = tuple((f"%d{mark}%m{mark}%Y", f"%m{mark}%d{mark}%Y") for mark in "/.-")
_WORDS = {"%Y": "year", "%m": "month", "%d": "day", "%b": "month", "%B": "month"}
_TIME = re.compile(r"[T ]\d{1,2}:.*")
_EPOCH = datetime(1970, 1, 1)
_TOLD = {
    NUMBER: "a finite number",
    BOOLEAN: "true or false",
    LIMITS: "a finite number, or a limit such as <0.5 that stands for it",
}
_GROUPED = re.compile(r"[-+]?\d{1,3}([,.' \u00a0\u202f]\d{3})+([.,]\d+)?")  # 1,234.5 and 1.234,5
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")
_LIMIT = re.compile(r"^[<>]=?\s*(?=[-+.\d])")  # before a number
_FEW = 20  # numbers among words, which may be the names of categories


def form_of(name: str, values: Sequence[str]) -> str | None:
    """The form of a column's public values, or None if they are words.

    Dates that could begin with the day or with the month are refused, and so are numbers with separators.

    >>> [form_of("x", values) for values in (["3", "4.5"], ["True", "false"], ["2024-05-01"], ["a", "3"])]
    ['', 'boolean', '%Y-%m-%d', None]
    >>> form_of("seen", ["01/02/2024", "13/02/2024"])
    '%d/%m/%Y'
    """
    different = list(dict.fromkeys(values))
    if are_numbers(different):
        return NUMBER
    if _have_limits(different):
        return LIMITS
    if different and all(value.lower() in _BOOLEANS for value in different):
        return BOOLEAN
    for form in _DATES:
        if _fits(different, form):
            return form
    for forms in _EITHER:
        fitting = [form for form in forms if _fits(different, form)]
        if len(fitting) == 1:
            return fitting[0]
        if fitting:
            raise PateError(
                f"the dates in the column {name!r} of the public part may begin with the day or with the "
                f"month ({different[0]}): write them as year-month-day"
            )
    _refuse_separators(name, different)
    _refuse_mixtures(name, different)
    return None


def are_numbers(values: Sequence[str] | np.ndarray) -> bool:
    """Whether there are values and all of them are numbers.

    >>> are_numbers(["3", "-1e5"]), are_numbers([]), are_numbers(["3", "x"])
    (True, False, False)
    """
    if not len(values):
        return False
    try:
        np.array(values, np.str_).astype(np.float64)
    except ValueError:
        return False
    return True


def at_limit(values: Sequence[str]) -> np.ndarray:
    """Whether each value is a number of which only a limit is known.

    >>> at_limit(["<0.5", "0.5", "> 90"]).tolist()
    [True, False, True]
    """
    return np.array([_LIMIT.match(value) is not None for value in values], bool)


def _have_limits(different: Sequence[str]) -> bool:
    """Whether these are numbers beside fewer limits; groups such as <20 and >=20 are words."""
    limits = int(at_limit(different).sum())
    return 0 < 2 * limits < len(different) and are_numbers([_LIMIT.sub("", value) for value in different])


def numbers(values: Sequence[str], form: str) -> np.ndarray:
    """The values as float64; NaN for one that is not of the form. A limit is read as the number it names.

    >>> numbers(["TRUE", "no"], "boolean").tolist(), numbers(["1970-01-03"], "%Y-%m-%d").tolist()
    ([1.0, nan], [2.0])
    >>> numbers(["<0.5", "2"], "limits").tolist()
    [0.5, 2.0]
    """
    if form in (NUMBER, LIMITS) and are_numbers(values):
        return np.array(values, np.str_).astype(np.float64) + 0.0  # no number is minus zero
    known = {value: _number(value, form) for value in dict.fromkeys(values)}
    return np.array([known[value] for value in values], np.float64)


def told(form: str) -> str:
    """What a value of a form is called.

    >>> told("%d/%m/%Y"), told(""), told("boolean")
    ('a date as day/month/year', 'a finite number', 'true or false')
    """
    if form in _TOLD:
        return _TOLD[form]
    for letter, word in _WORDS.items():
        form = form.replace(letter, word)
    return f"a date as {form}"


def shown(number: float, form: str) -> str:
    """A number as people read it, which for a date is the day.

    >>> shown(2.0, "%d/%m/%Y"), shown(2.5, "")
    ('1970-01-03', '2.5')
    """
    if form in _TOLD:
        return f"{number:g}"
    return f"{_EPOCH + timedelta(days=float(number)):%Y-%m-%d}"


def _number(value: str, form: str) -> float:
    if form in (NUMBER, LIMITS):
        value = _LIMIT.sub("", value)
        return float(np.str_(value)) + 0.0 if are_numbers([value]) else np.nan
    if form == BOOLEAN:
        return _BOOLEANS.get(value.lower(), np.nan)
    try:
        return float((datetime.strptime(_TIME.sub("", value), form) - _EPOCH).days)
    except ValueError:
        return np.nan


def _fits(values: Sequence[str], form: str) -> bool:
    return bool(values) and all(_number(value, form) == _number(value, form) for value in values)


def separated(value: str) -> bool:
    """Whether a text is a number with a thousands separator or with a decimal comma.

    >>> separated("1,234"), separated("3,5"), separated("1.5")
    (True, True, False)
    """
    return not are_numbers([value]) and bool(_GROUPED.fullmatch(value) or _DECIMAL_COMMA.fullmatch(value))


def _refuse_separators(name: str, different: Sequence[str]) -> None:
    found = [value for value in different if separated(value)]
    if found and all(separated(value) or are_numbers([value]) for value in different):
        raise PateError(
            f"the column {name!r} of the public part has the number {found[0]!r}: write numbers without "
            "thousands separators and with a decimal point"
        )


def _refuse_mixtures(name: str, different: Sequence[str]) -> None:
    others = [value for value in different if not are_numbers([value])]
    count = len(different) - len(others)
    if count > _FEW and count > len(others):
        raise PateError(
            f"the column {name!r} of the public part has {count} different numbers, but also {others[0]!r}: "
            "leave missing values blank, or declare the column's categories"
        )
