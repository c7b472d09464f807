"""What an owner is told of private values, and nobody else: how many are missing, or in no known category."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pate_jax.data import forms
from pate_jax.data.columns import OWN, Column
from pate_jax.data.tables import missing
from pate_jax.system.progress import warn


def unseen(table: Mapping[str, Sequence[str]], plan: Sequence[Column]) -> dict[str, int]:
    """How many values of each column are in no known category; sensitive, for private data."""
    counts = {}
    for column in plan:
        if column.categories is not None:
            known = set(column.categories)
            present = np.array(table[column.name], np.str_)[~missing(table[column.name])]
            counts[column.name] = sum(value not in known for value in present.tolist())
    return {name: count for name, count in counts.items() if count}


def filled(table: Mapping[str, Sequence[str]], plan: Sequence[Column]) -> dict[str, str]:
    """How many values of each column are missing, and what replaces them; sensitive, for private data.

    >>> filled({"age": ["3", "NA", ""]}, [Column("age", filling=40.0, indicator=True)])
    {'age': '2 filled with 40 and marked'}
    """
    return told_of_missing({column.name: int(missing(table[column.name]).sum()) for column in plan}, plan)


def told_of_missing(counts: Mapping[str, int], plan: Sequence[Column]) -> dict[str, str]:
    """The same in words, where the missing values of each column were counted."""
    there = [column for column in plan if counts[column.name]]
    return {column.name: f"{counts[column.name]} {_taken_for(column)}" for column in there}


def _taken_for(column: Column) -> str:
    if column.encoder is not None:
        return "taken for empty texts" + " and marked" * column.indicator
    if column.categories is not None:
        return "in a category of their own" if OWN in column.categories else "in no category"
    filling = 0.0 if column.filling is None else column.filling
    return f"filled with {forms.shown(filling, column.form)}" + " and marked" * column.indicator


def warn_of_strangers(unseen: Mapping[str, int], present: Mapping[str, int]) -> None:
    """Tell the owner of columns most of whose values are in no known category."""
    for name, count in unseen.items():
        if 2 * count > present[name]:
            warn(
                f"{count:,} of {present[name]:,} private values of the column {name!r} are in no known "
                "category and teach nothing: write them as the public part does, or declare --categories"
            )
