"""UCI Adult: its columns, categories and scales as constants, and its rows as numbers.

The categories are those in the data set's description (adult.names), and the scales are round numbers that
fit the meaning of each column. The measures come first and express common knowledge about wages: they rise
with age up to middle age, with schooling and with hours; married people, managers and professionals earn
more, manual and service workers less. Nothing here was fitted to rows. A teacher with a hundred records
learns little about forty countries, so the one-hot groups are divided by five. A row with `?` lacks a value
and is dropped; the others keep the number of their line.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pate_jax.data.archives.formats import Records
from pate_jax.errors import PateError

_HEADER = """age workclass fnlwgt education education-num marital-status occupation relationship race sex
    capital-gain capital-loss hours-per-week native-country income"""
COLUMNS = tuple(_HEADER.split())
LABELS = ("<=50K", ">50K")


class Measure(NamedTuple):
    """A number computed from one numeric column; none of them uses the survey weight fnlwgt."""

    column: str
    of: Callable[[float], float]
    offset: float
    scale: float


MEASURES = {
    "age": Measure("age", float, 40.0, 75.0),
    "age, up to 45": Measure("age", lambda age: min(max(age, 10.0), 45.0), 40.0, 15.0),
    "schooling": Measure("education-num", float, 9.0, 3.0),
    "gain": Measure("capital-gain", math.log1p, 0.0, 5.0),
    "great gain": Measure("capital-gain", lambda gain: float(gain > 5000), 0.0, 0.5),
    "loss": Measure("capital-loss", math.log1p, 0.0, 5.0),
    "hours, 16 to 52": Measure("hours-per-week", lambda hours: min(max(hours, 16.0), 52.0), 40.0, 12.0),
}
# name: (column, values for which the sign is 1, scale)
SIGNS = {
    "married": ("marital-status", ("Married-civ-spouse", "Married-AF-spouse"), 0.5),
    "manager or professional": ("occupation", ("Exec-managerial", "Prof-specialty"), 1.0),
    "manual or service": ("occupation", ("Other-service", "Handlers-cleaners", "Farming-fishing"), 1.0),
}
# Values as adult.names lists them, separated by blanks.
CATEGORIES = {
    column: tuple(values.split())
    for column, values in {
        "workclass": (
            "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay Never-worked"
        ),
        "education": (
            "Bachelors Some-college 11th HS-grad Prof-school Assoc-acdm Assoc-voc 9th 7th-8th "
            "12th Masters 1st-4th 10th Doctorate 5th-6th Preschool"
        ),
        "marital-status": (
            "Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent "
            "Married-AF-spouse"
        ),
        "occupation": (
            "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty "
            "Handlers-cleaners Machine-op-inspct Adm-clerical Farming-fishing Transport-moving "
            "Priv-house-serv Protective-serv Armed-Forces"
        ),
        "relationship": "Wife Own-child Husband Not-in-family Other-relative Unmarried",
        "race": "White Asian-Pac-Islander Amer-Indian-Eskimo Other Black",
        "sex": "Female Male",
        "native-country": (
            "United-States Cambodia England Puerto-Rico Canada Germany Outlying-US(Guam-USVI-etc) "
            "India Japan Greece South China Cuba Iran Honduras Philippines Italy Poland Jamaica "
            "Vietnam Mexico Portugal Ireland France Dominican-Republic Laos Ecuador Taiwan Haiti "
            "Columbia Hungary Guatemala Nicaragua Scotland Thailand Yugoslavia El-Salvador "
            "Trinadad&Tobago Peru Hong Holand-Netherlands"
        ),
    }.items()
}
_GROUPED = sum(map(len, CATEGORIES.values()))
FEATURES = len(MEASURES) + len(SIGNS) + _GROUPED
OFFSET = (*(measure.offset for measure in MEASURES.values()), *[0.0] * (len(SIGNS) + _GROUPED))
SCALE = (
    *(measure.scale for measure in MEASURES.values()),
    *(scale for _, _, scale in SIGNS.values()),
    *[5.0] * _GROUPED,
)


def parse(content: bytes, name: str) -> Records:
    """Rows of adult.data or adult.test: measures, signs, then one-hot groups; 1 is an income over 50K.

    >>> person = "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White"
    >>> records = parse(f"{person}, Male, 2174, 0, 40, United-States, <=50K".encode(), "adult.data")
    >>> records.inputs.shape, records.labels.tolist(), records.inputs[0, :3].tolist()
    ((1, 109), [0], [39.0, 39.0, 13.0])
    """
    rows, labels, numbers = [], [], []
    for number, line in enumerate(_lines(content, name)):
        fields = [field.strip() for field in line.split(",")]
        if not line.strip() or line.startswith("|"):  # a blank line, or the first line of adult.test
            continue
        if len(fields) != len(COLUMNS):
            raise PateError(
                f"{name} line {number + 1} has {len(fields)} columns where Adult has {len(COLUMNS)}"
            )
        if "?" in fields:
            continue
        row = dict(zip(COLUMNS, fields, strict=True))
        rows.append(_features(row, f"{name} line {number + 1}"))
        labels.append(_position(LABELS, row["income"].rstrip("."), f"{name} line {number + 1}", "income"))
        numbers.append(number)
    if not rows:
        raise PateError(f"{name} holds no complete rows; fetch it again")
    return Records(np.array(rows, np.float32), np.array(labels, np.int32), np.array(numbers, np.int64))


def _lines(content: bytes, name: str) -> list[str]:
    try:
        return content.decode("ascii").splitlines()
    except UnicodeDecodeError as error:
        raise PateError(f"{name} is not a table in ASCII ({error}); fetch it again") from error


def _features(row: dict[str, str], place: str) -> list[float]:
    features = [
        measure.of(_number(row[measure.column], measure.column, place)) for measure in MEASURES.values()
    ]
    features += [float(row[column] in values) for column, values, _ in SIGNS.values()]
    for column, categories in CATEGORIES.items():
        group = [0.0] * len(categories)
        group[_position(categories, row[column], place, column)] = 1.0
        features += group
    return features


def _number(text: str, column: str, place: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise PateError(f"{place} has {column}={text!r}, which is not a number") from error
    if not 0 <= value < 1e9:
        raise PateError(f"{place} has {column}={text}, which is out of range")
    return value


def _position(known: tuple[str, ...], value: str, place: str, column: str) -> int:
    if value not in known:
        raise PateError(f"{place} has {column}={value!r}, which Adult's description does not list")
    return known.index(value)
