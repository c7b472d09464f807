"""UCI Adult: its columns, categories and scales as constants, and its rows as numbers.

The categories are those that the data set's own description lists (adult.names), the scales are round numbers
for what each column means. Nothing here was fitted on rows. A row with `?` misses a value and is dropped; the
others keep the number of their line.
"""

from __future__ import annotations

import numpy as np

from pate_jax.archives.layouts import Records
from pate_jax.errors import PateError

_HEADER = """age workclass fnlwgt education education-num marital-status occupation relationship race sex
    capital-gain capital-loss hours-per-week native-country income"""
COLUMNS = tuple(_HEADER.split())
LABELS = ("<=50K", ">50K")
# column: (offset, scale). Capital is money and enters as log(1 + x); the survey weight fnlwgt is left out.
NUMBERS = {
    "age": (40.0, 15.0),
    "education-num": (9.0, 3.0),
    "capital-gain": (0.0, 5.0),
    "capital-loss": (0.0, 5.0),
    "hours-per-week": (40.0, 12.0),
}
LOGARITHMIC = ("capital-gain", "capital-loss")
# Values as adult.names lists them, parted by blanks.
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
FEATURES = len(NUMBERS) + sum(map(len, CATEGORIES.values()))
OFFSET = (*(offset for offset, _ in NUMBERS.values()), *[0.0] * (FEATURES - len(NUMBERS)))
SCALE = (*(scale for _, scale in NUMBERS.values()), *[1.0] * (FEATURES - len(NUMBERS)))


def parse(content: bytes, name: str) -> Records:
    """Rows of adult.data or adult.test: numbers first, then one-hot groups; 1 is an income over 50K.

    >>> person = "39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White"
    >>> records = parse(f"{person}, Male, 2174, 0, 40, United-States, <=50K".encode(), "adult.data")
    >>> records.inputs.shape, records.labels.tolist(), records.inputs[0, :2].tolist()
    ((1, 104), [0], [39.0, 13.0])
    """
    rows, labels, numbers = [], [], []
    for number, line in enumerate(_lines(content, name)):
        fields = [field.strip() for field in line.split(",")]
        if not line.strip() or line.startswith("|"):  # a blank line, or the remark that heads adult.test
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
    features = []
    for column in NUMBERS:
        try:
            value = float(row[column])
        except ValueError as error:
            raise PateError(f"{place} has {column}={row[column]!r}, which is no number") from error
        if not 0 <= value < 1e9:
            raise PateError(f"{place} has {column}={row[column]}, which is out of range")
        features.append(float(np.log1p(value)) if column in LOGARITHMIC else value)
    for column, categories in CATEGORIES.items():
        group = [0.0] * len(categories)
        group[_position(categories, row[column], place, column)] = 1.0
        features += group
    return features


def _position(known: tuple[str, ...], value: str, place: str, column: str) -> int:
    if value not in known:
        raise PateError(f"{place} has {column}={value!r}, which Adult's description does not list")
    return known.index(value)
