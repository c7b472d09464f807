"""Rows of a table as people read them: the inverse of `columns.encode`, as far as there is one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float

from pate_jax.data import forms
from pate_jax.data.archives import sources
from pate_jax.data.columns import OWN, Column
from pate_jax.data.dataset import Dataset

MISSING = "missing"
MOST = 60  # columns that are shown
_MEASURES = {"age": "age", "schooling": "years of schooling", "hours, 16 to 52": "hours a week (16 to 52)"}
_ADULT = (  # the features of Adult; a column without a name repeats what another one says
    *(Column(_MEASURES.get(name, "")) for name in sources.MEASURES),
    *(Column("") for _ in sources.SIGNS),
    *(Column(name, categories) for name, categories in sources.CATEGORIES.items()),
)
Record = list[tuple[str, str]]  # the name and the value of each column


def records(dataset: Dataset, inputs: Float[np.ndarray, "rows features"]) -> list[Record]:
    """Names and values of the columns of each row; features without a name get their number."""
    width = inputs.shape[1]
    plan: Sequence[Column] = dataset.columns or (_ADULT if dataset.name == "adult" else ())
    if sum(column.width for column in plan) != width:  # features of an encoder, or an array without names
        plan = [Column(f"number {place + 1}") for place in range(width)]
    return [decoded(row, plan) for row in inputs]


def decoded(row: Float[np.ndarray, " features"], plan: Sequence[Column]) -> Record:
    """One row; a column without a name is left out.

    >>> plan = [Column("age", filling=40.0, indicator=True), Column("sex", ("f", "m")), Column("pay")]
    >>> decoded(np.array([40.0, 1.0, 0.0, 1.0, 12345.0]), plan)
    [('age', 'missing'), ('sex', 'm'), ('pay', '12,345')]
    """
    found = [(column.name, text) for column, text in _values(row, plan) if column.name]
    if len(found) > MOST:
        found = [*found[: MOST - 1], ("and", f"{len(found) - MOST + 1:,} more columns")]
    return found


def _values(row: np.ndarray, plan: Sequence[Column]) -> Iterator[tuple[Column, str]]:
    place = 0
    for column in plan:
        yield column, _value(row[place : place + column.width], column)
        place += column.width


def _value(features: np.ndarray, column: Column) -> str:
    if column.encoder is not None:
        return MISSING if not features[column.indicator :].any() else "a text"
    if column.categories is not None:
        word = column.categories[int(features.argmax())] if features.any() else "other"
        return MISSING if word == OWN else word
    if column.indicator and features[1]:
        return MISSING
    number = float(np.expm1(features[0])) if column.logarithmic else float(features[0])
    if column.form == forms.BOOLEAN:
        return "yes" if number else "no"
    return (
        _number(number) if column.form in (forms.NUMBER, forms.LIMITS) else forms.shown(number, column.form)
    )


def _number(number: float) -> str:
    """Three digits, or a whole number with separators: so no number looks like an id or like an epsilon.

    >>> _number(0.67614), _number(61.5), _number(12345.6)
    ('0.676', '61.5', '12,346')
    """
    return f"{number:.3g}" if abs(number) < 999.5 else f"{round(number):,}"
