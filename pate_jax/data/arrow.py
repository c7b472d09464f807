"""A batch of Arrow's columns as the features that `columns.encode` makes of the same values, bit for bit.

Columns of numbers become numbers as they are. Of all others each different value is read once, by the same
rules as in a table of texts. Where something is wrong, the batch is read again as texts, for the sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from pate_jax.data import columns, forms, kinds, notes, tables
from pate_jax.data.columns import Column
from pate_jax.data.tables import Table
from pate_jax.errors import PateError

if TYPE_CHECKING:
    import pyarrow as pa


class Encoded(NamedTuple):
    """The features of some records, and of each column how many values were missing or in no category."""

    inputs: Float[np.ndarray, "record features"]
    missing: dict[str, int]
    unseen: dict[str, int]


class Values(NamedTuple):
    """The different values of a column as texts, and which of them each record has."""

    table: Table
    codes: Int[np.ndarray, " record"]


def encode(batch: pa.RecordBatch | Table, plan: Sequence[Column], place: str) -> Encoded:
    """The features of a batch that has the columns of the plan, and others.

    >>> import pyarrow
    >>> batch = pyarrow.RecordBatch.from_pydict({"age": [30, None], "sex": ["m", "x"]})
    >>> found = encode(batch, [Column("age", filling=40.0), Column("sex", ("f", "m"))], "private")
    >>> found.inputs.tolist(), found.missing, found.unseen
    ([[30.0, 0.0, 1.0], [40.0, 0.0, 0.0]], {'age': 1, 'sex': 0}, {'sex': 1})
    """
    if isinstance(batch, Table):
        return _of_texts(batch, plan, place)
    shape = batch.num_rows, sum(column.width for column in plan)
    made = Encoded(np.empty(shape, np.float32, order="F"), {}, {})  # column by column, as they are written
    start = 0
    try:
        for column in plan:
            _fill(made, start, batch.column(column.name), column, place)
            start += column.width
    except PateError:
        _of_texts(as_texts(batch, [column.name for column in plan], place), plan, place)
        raise
    return made


def _of_texts(table: Table, plan: Sequence[Column], place: str) -> Encoded:
    table = table.only(column.name for column in plan)
    known = {column.name: column.categories for column in plan if column.categories is not None}
    inputs = columns.encode(table, plan, place)
    kinds.refuse_other_spellings(table, known, place)
    missing = {column.name: int(tables.missing(table[column.name]).sum()) for column in plan}
    return Encoded(inputs, missing, notes.unseen(table, plan))


def _fill(made: Encoded, start: int, values: pa.Array, column: Column, place: str) -> None:
    """Write the features of one column, and count what is missing."""
    features = made.inputs[:, start : start + column.width]
    if _is_plain(values, column):
        blank = _numeric(values, column, features, place)
        made.missing[column.name] = int(blank.sum())
        return
    own = different(values, column.name, place)
    found = _of_texts(own.table, [column], place)
    features[:] = found.inputs[own.codes]
    times = np.bincount(own.codes, minlength=len(own.table[column.name]))
    blank = tables.missing(own.table[column.name])
    made.missing[column.name] = int(times[blank].sum())
    if column.categories is not None:
        strange = ~np.isin(np.array(own.table[column.name], np.str_), column.categories) & ~blank
        if strange.any():
            made.unseen[column.name] = int(times[strange].sum())


def _is_plain(values: pa.Array, column: Column) -> bool:
    """Whether the values are numbers that become a number."""
    from pyarrow import types

    number = types.is_integer(values.type) or types.is_float32(values.type) or types.is_float64(values.type)
    numeric = column.categories is None and column.encoder is None and not column.logarithmic
    return number and numeric and column.form in (forms.NUMBER, forms.LIMITS)


def _numeric(
    values: pa.Array, column: Column, features: np.ndarray, place: str
) -> Bool[np.ndarray, " record"]:
    """Write the features of numbers; which of them are missing."""
    there = values.to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):
        wide = there if there.dtype == np.float32 else there.astype(np.float64, copy=False)
        numbers = (wide + wide.dtype.type(0)).astype(np.float32, copy=False)
    blank = np.zeros(len(numbers), bool)
    if not np.isfinite(numbers).all():
        blank = np.isnan(wide)
        if column.filling is not None:
            numbers[blank] = column.filling
        if not np.isfinite(numbers).all():
            raise PateError(f"{place} has numbers in {column.name!r} that are not finite: correct them")
    if column.width == 1:
        features[:, 0] = numbers
    else:
        features[:] = columns.features_of(numbers, blank, np.zeros_like(blank), column, place)
    return blank


def different(values: pa.Array, name: str, place: str) -> Values:
    """The different values of a column of any type, each read once.

    >>> import pyarrow
    >>> own = different(pyarrow.array(["a", None, "a"]), "grade", "private")
    >>> own.table["grade"], own.codes.tolist()
    (['a', ''], [0, 1, 0])
    """
    import pyarrow as pa

    listed = [name] if kinds.is_listed(values) else []
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    try:
        coded = values.dictionary_encode("encode")
        codes, own = coded.indices.to_numpy(zero_copy_only=False), coded.dictionary
    except pa.ArrowException:  # of types that it cannot tell apart
        codes, own = np.arange(len(values)), values
    return Values(tables.of({name: own.to_pylist()}, place, listed), codes)


def as_texts(batch: pa.RecordBatch, names: Sequence[str], place: str) -> Table:
    """Columns as texts, value by value."""
    held = {name: batch.column(name) for name in names}
    listed = [name for name, values in held.items() if kinds.is_listed(values)]
    return tables.of({name: values.to_pylist() for name, values in held.items()}, place, listed)
