"""Classes and labels of the user's own records.

Which classes there are is public knowledge: it is declared, or follows from public labels. Private labels are
compared with it, and never add a class.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from pate_jax.data import tables
from pate_jax.data.dataset import Dataset, Part, class_names_of
from pate_jax.data.tables import missing
from pate_jax.data.targets import Target
from pate_jax.errors import PateError

_MOST = 2000  # classes, unless they are declared
_LISTED = 200  # classes that a command may name
_MOST_NAMED = 62  # labels, each of which is a bit of one whole number


class Known(NamedTuple):
    """What labels are: classes by name or by number, or steps of a number's range."""

    names: tuple[str, ...]
    numbered: bool
    target: Target | None = None


class NotNumbers(PateError):
    """Labels are no whole numbers, so they may be names."""


def classes(
    public: Sequence[np.ndarray], declared: int | str | Sequence[str] | None
) -> tuple[tuple[str, ...], bool]:
    """The class names, and whether labels are class numbers, from public labels or a declaration.

    >>> classes([np.array(["no", "yes", "no"])], None), classes([], "low,high"), classes([], 3)
    ((('no', 'yes'), False), (('low', 'high'), False), (('0', '1', '2'), True))
    """
    if isinstance(declared, int | np.integer):
        return class_names_of(int(declared)), True
    if declared is not None:
        return _declared(declared), False
    if not sum(map(len, public)):
        raise PateError(
            "classes is not given and there are no public or test labels to take them from (private labels "
            "must not be used); pass the number of classes or their names, such as --classes no,yes"
        )
    values = np.concatenate([labels.astype(np.str_) for labels in public])
    if any(labels.dtype.kind == "U" for labels in public) and missing(values.tolist()).any():
        raise PateError(
            "some public or test labels are missing, but the classes are taken from them: remove those rows, "
            "leave the label column out of that part, or pass the number of classes or their names"
        )
    try:
        numbers, by_name = whole(values, "public or test"), False
        count = int(numbers.max()) + 1
        if numbers.min() != 0:
            shown = [f"{one:.0f}" for one in np.unique(values.astype(np.float64))]
            hidden = f", or --classes {count} if public records of the others are missing"
            raise PateError(
                f"the public or test labels are numbers from {shown[0]} to {shown[-1]}, and classes are "
                f"numbered from 0: pass --classes {','.join(shown[:9])} and so on if these are their names"
                + (hidden if numbers.min() > 0 else "")
            )
    except NotNumbers:
        if not all(labels.dtype.kind in "Ub" for labels in public):
            raise
        count, by_name = len(set(values.tolist())), True
    if count > _MOST:
        raise PateError(
            f"the public labels show {count:,} classes, as a number or a name would: give the labels of "
            "classes, or pass the number of classes or their names"
        )
    return (_apart(sorted({*values.tolist()})), False) if by_name else (class_names_of(count), True)


def names_of_numbers(values: Sequence[str]) -> tuple[str, ...]:
    """The names that classes must be given whose labels are whole numbers and do not start at 0; else none.

    >>> names_of_numbers(["1", "-1", "1"]), names_of_numbers(["0", "2"]), names_of_numbers(["a"])
    (('-1', '1'), (), ())
    """
    different = {*values}
    if not 0 < len(different) <= _LISTED or not all(re.fullmatch(r"-?[0-9]+", value) for value in different):
        return ()
    return () if min(map(int, different)) == 0 else tuple(sorted(different, key=int))


def _declared(declared: str | Sequence[str]) -> tuple[str, ...]:
    given = declared.split(",") if isinstance(declared, str) else declared
    names = tuple(str(name).strip() for name in given)
    if len(set(names)) != len(names) or "" in names:
        raise PateError(f"classes={list(names)} names a class twice, or one by nothing")
    return _apart(names)


def _apart(names: Sequence[str]) -> tuple[str, ...]:
    """The names of classes, refused where two of them are one value in a column of numbers or truth values.

    >>> _apart(["01", "02"])
    ('01', '02')
    """
    called: dict[str, str] = {}
    for name in names:
        try:
            value = str(float(name) + 0.0)
        except ValueError:
            value = name.lower() if name.lower() in ("true", "false") else name
        if value in called:
            raise PateError(
                f"the classes {called[value]!r} and {name!r} are one value in a column of numbers or truth "
                "values: give one of them another name"
            )
        called[value] = name
    return tuple(names)


def whole(labels: np.ndarray, place: str) -> np.ndarray:
    """Labels as whole numbers.

    >>> whole(np.array(["1", "0"]), "public").tolist()
    [1, 0]
    """
    try:
        numbers = labels.astype(np.float64)
    except (ValueError, TypeError) as error:
        raise NotNumbers(
            f"{place} labels are not numbers ({error}); pass the names of the classes, such as "
            "--classes no,yes"
        ) from error
    broken = ~np.isfinite(numbers) | (numbers != np.floor(numbers))
    if broken.any():
        row = int(np.argmax(broken))
        raise NotNumbers(
            f"{place} label {labels[row]} at row {row} is not a whole number; number the classes from 0"
        )
    return np.clip(numbers, -1, 2**31 - 1).astype(np.int32)


def named(labels: np.ndarray, class_names: Sequence[str], place: str) -> np.ndarray:
    """Labels given by class name, as numbers.

    >>> named(np.array(["yes", "no"]), ("no", "yes"), "private").tolist()
    [1, 0]
    """
    positions = {name: number for number, name in enumerate(class_names)}
    values = tables.texts("labels", labels, place)
    unknown = [row for row, value in enumerate(values) if value not in positions]
    if unknown:
        raise PateError(
            f"{place} label {values[unknown[0]]!r} at row {unknown[0]} is not one of the classes "
            f"{list(class_names)}; declare it in classes or correct the row"
        )
    return np.array([positions[value] for value in values], np.int32)


def joined(names: Sequence[str], each: Sequence[Dataset]) -> Dataset:
    """The data of several labels, from those of each: a record's label is a number with a bit for each.

    >>> from pate_jax import data
    >>> drawn = replace(data.load("strokes", size=4), classes=2, class_names=("no", "yes"))
    >>> rows = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    >>> of = [replace(drawn, private=drawn.private._replace(labels=one)) for one in rows]
    >>> both = joined(["sick", "died"], of)
    >>> both.private.labels.tolist(), of_one(both, 1).private.labels.tolist()
    ([0, 2, 1, 3], [0, 1, 0, 1])
    """
    first = each[0]
    for name, one in zip(names, each, strict=True):
        if one.classes != 2:
            raise PateError(
                f"--label-column {name} has {one.classes} classes, and teachers name labels of two: give "
                "--voters sums, neighbours or auto"
            )
        if one.scan is not None:
            raise PateError(
                f"teachers of several labels need private records in one file: {one.scan.scan.place}"
            )
        if one.private.ids.tolist() != first.private.ids.tolist() or one.columns != first.columns:
            raise PateError(f"the private file was changed while --label-column {name} was read: repeat")
    if len(each) > _MOST_NAMED:
        raise PateError(f"{len(each)} labels are more than the {_MOST_NAMED} that teachers name: give fewer")
    test = None if first.test is None else _joined([one.test for one in each])
    return replace(
        first,
        private=_joined([one.private for one in each]),
        public=_joined([one.public for one in each]),
        test=test,
        several=tuple((name, one.class_names) for name, one in zip(names, each, strict=True)),
    )


def _joined(parts: Sequence[Part | None]) -> Part:
    """A part with all labels; without any where one of them is not known."""
    there = [part for part in parts if part is not None]
    known = [np.asarray(part.labels, np.int64) for part in there if part.labels is not None]
    if len(known) < len(parts):
        return there[0]._replace(labels=None)
    return there[0]._replace(labels=np.sum([one << place for place, one in enumerate(known)], 0))


def bits(labels: np.ndarray, number: int) -> np.ndarray:
    """Which of so many labels each record has, [record, label].

    >>> bits(np.array([0, 2, 3]), 2).tolist()
    [[False, False], [False, True], [True, True]]
    """
    return np.asarray(labels[:, None] >> np.arange(number) & 1, bool)


def of_one(dataset: Dataset, place: int) -> Dataset:
    """The data of one of several labels; of records that may not be read nothing is read."""

    def one(part: Part) -> Part:
        known = part.labels if isinstance(part.labels, np.ndarray) else None
        return part if known is None else part._replace(labels=(known >> place & 1).astype(np.int32))

    return replace(
        dataset,
        private=one(dataset.private),
        public=one(dataset.public),
        test=None if dataset.test is None else one(dataset.test),
        class_names=dataset.several[place][1],
        several=(),
    )
