"""From the columns of a table to numbers: numeric columns unchanged, categorical ones as one-hot groups.

True and false become 1 and 0, dates become days since 1970, and a text the numbers of an encoder, at the end.
Numbers of few public values are codes, such as a stage or a score, and each code gets an indicator beside the
number. A limit such as <0.5 is read as the number that it names, with an indicator where the public part has
limits too. A plan says for each column what it is and what replaces a missing value. It is made from the
public part and the user's declarations. It encodes private rows, but never depends on them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pate_jax.data import forms, ids, kinds, tables, texts
from pate_jax.data.dataset import Preprocessing, WithVectors
from pate_jax.data.encoders import Known
from pate_jax.data.tables import Table, missing
from pate_jax.errors import PateError

OWN = ""  # the category of missing words
_MOST_WORDS = 200  # different words in the public part that become features
_FAR = 1000  # times what all others range over: the deviation that one absurd number makes
_FEW_WORDS = 20  # so many may differ in nearly every row
_CODES = range(3, 13)  # different public numbers that are codes; two are told apart by one number
_ROWS_OF_A_CODE = 10  # public rows that a code has, and that all of them have on average


_NONE: Mapping[str, Known] = {}  # no column is text


class Column(NamedTuple):
    """One column: a group of categories, or a number whose scale is declared or comes from public data."""

    name: str
    categories: tuple[str, ...] | None = None
    scale: tuple[float, float] | None = None
    logarithmic: bool = False  # whether the feature is log(1 + x)
    filling: float | None = None  # replaces a missing number; None: a missing number is refused
    indicator: bool = False  # whether there is one more feature, which is 1 if the number is missing
    form: str = forms.NUMBER  # how a number is written: see `pate_jax.data.forms`
    kind: str = ""  # of the values of a category: see `pate_jax.data.kinds`; "" for students of before
    codes: tuple[float, ...] = ()  # numbers that have an indicator each beside the number itself
    encoder: Known | None = None  # of a text

    @property
    def width(self) -> int:
        """The number of the column's features."""
        if self.encoder is not None:
            return self.encoder.width + self.indicator
        numeric = 1 + self.indicator + (self.form == forms.LIMITS) + len(self.codes)
        return numeric if self.categories is None else len(self.categories)

    def to_dict(self) -> dict[str, Any]:
        """As JSON; only columns of text name an encoder."""
        found = self._asdict()
        encoder = found.pop("encoder")
        return found if encoder is None else {**found, "encoder": encoder.to_dict()}


def from_dict(description: Mapping[str, Any]) -> Column:
    """The column that `Column.to_dict` described.

    >>> from_dict(Column("age", filling=40.0).to_dict()) == Column("age", filling=40.0)
    True
    """
    encoder = description.get("encoder")
    categories, scale = description["categories"], description["scale"]
    filling = description.get("filling")
    return Column(
        str(description["name"]),
        None if categories is None else tuple(map(str, categories)),
        None if scale is None else (float(scale[0]), float(scale[1])),
        bool(description["logarithmic"]),
        None if filling is None else float(filling),
        bool(description.get("indicator", False)),
        str(description.get("form", forms.NUMBER)),
        str(description.get("kind", "")),
        tuple(map(float, description.get("codes", ()))),
        None if encoder is None else Known(**encoder),
    )


def plan(
    public: Mapping[str, Sequence[str]],
    categories: Mapping[str, Sequence],
    scales: Mapping[str, Sequence],
    read: Mapping[str, Known] = _NONE,
) -> list[Column]:
    """What each column is, from declarations and the public part only; `read` are those of text.

    >>> [column.name for column in plan({"age": ["30", "41"], "sex": ["f", "m"]}, {"sex": ["m", "f"]}, {})]
    ['age', 'sex']
    """
    for option, declared in (("categories", categories), ("scales", scales)):
        unknown = sorted(set(declared) - set(public))
        if unknown:
            raise PateError(
                f"{option} names the column {unknown[0]!r}; the public part has {', '.join(public)}"
            )
        both = sorted(set(declared) & set(read))
        if both:
            raise PateError(
                f"{option} names the column {both[0]!r}, which --text-column names too: choose one"
            )
    own = [_planned(name, public, categories, scales) for name in public if name not in read]
    of_text = [
        Column(name, indicator=bool(missing(public[name]).any()), encoder=encoder)
        for name, encoder in read.items()
    ]
    return [*own, *of_text]


def left_out(public: Mapping[str, Sequence[str]], declared: Mapping[str, Sequence]) -> dict[str, str]:
    """The columns that differ in too many rows to be learned from, and what each holds.

    They are ids, names or free text as a rule. A column whose categories or scale are declared is kept.

    >>> left_out({"name": [f"person {row}" for row in range(50)], "town": ["Oslo", "Rome"] * 25}, {})
    {'name': "50 different words in 50 public rows, such as 'person 0'"}
    """
    found = {}
    for name, values in public.items():
        present = [value for value, blank in zip(values, missing(values), strict=True) if not blank]
        different = len(set(present))
        many = different > _MOST_WORDS or (different > _FEW_WORDS and 2 * different > len(present))
        if name in declared or not many:
            continue
        if ids.look_like_ids(name, values):
            found[name] = f"another value in each of {len(values):,} public rows, and the name of an id"
        elif _form(name, public, present) is None:
            found[name] = (
                f"{different:,} different texts in {len(values):,} public rows"
                if texts.looks_like_text(name, values)
                else f"{different:,} different words in {len(values):,} public rows, such as {present[0]!r}"
            )
    return found


def _kinds(table: Mapping[str, Sequence[str]], name: str) -> Mapping[str, int]:
    """The kinds of a column's values, where its source told them."""
    return table.kinds.get(name, {}) if isinstance(table, Table) else {}


def _form(name: str, public: Mapping[str, Sequence[str]], present: Sequence[str]) -> str | None:
    """How the numbers of a public column are written; None for words and for categories of any kind."""
    return None if kinds.LISTED in _kinds(public, name) else forms.form_of(name, present)


def _planned(
    name: str,
    public: Mapping[str, Sequence[str]],
    categories: Mapping[str, Sequence],
    scales: Mapping[str, Sequence],
) -> Column:
    values = public[name]
    blank = missing(values)
    present = [value for value, is_blank in zip(values, blank, strict=True) if not is_blank]
    if name in categories:
        known = _declared(name, categories[name], present)
        unlisted = any(value not in known for value in np.array(values, np.str_)[blank].tolist())
        return _category(public, name, (*known, OWN) if unlisted and OWN not in known else known)
    offset, scale, *declared = _scale(name, scales[name]) if name in scales else (0.0, 1.0)
    if not present and not declared:
        raise PateError(
            f"the public part has no value in the column {name!r}, so its kind is unknown: leave the column "
            "out of all parts, or declare its categories, or its scale with a value for missing ones"
        )
    form = _form(name, public, present)
    if name in scales or form is not None:
        form = form or forms.NUMBER
        filling = declared[0] if declared else _median(present, form)
        fixed = (offset, scale) if name in scales else None
        codes = () if fixed else codes_among(present, form)
        return Column(name, None, fixed, False, filling, bool(blank.any() or declared), form, codes=codes)
    return _category(public, name, tuple(sorted({*present, OWN} if blank.any() else {*present})))


def codes_among(present: Sequence[str], form: str) -> tuple[float, ...]:
    """The codes of a numeric column: its public numbers, if they are few and each is of many rows.

    >>> codes_among(["0", "1.0", "2"] * 10, forms.NUMBER), codes_among(["1", "2", "3"], forms.NUMBER)
    ((0.0, 1.0, 2.0), ())
    """
    if form != forms.NUMBER:
        return ()
    with np.errstate(over="ignore"):
        different, rows = np.unique(forms.numbers(present, form).astype(np.float32), return_counts=True)
    if len(different) not in _CODES or len(present) < _ROWS_OF_A_CODE * len(different):
        return ()
    return tuple(float(number) for number in different[rows >= _ROWS_OF_A_CODE])


def _category(public: Mapping[str, Sequence[str]], name: str, known: tuple[str, ...]) -> Column:
    return Column(name, known, kind=kinds.of_categories(name, _kinds(public, name)))


def _declared(name: str, declared: Sequence, present: Sequence[str]) -> tuple[str, ...]:
    """The declared categories as texts; they are refused if they are of no public value."""
    known = tuple(tables.texts(name, declared, "categories"))
    if not known or len(set(known)) != len(known):
        raise PateError(f"categories of {name!r} must name at least one value and none twice: {list(known)}")
    if present and not {*present} & {*known}:
        raise PateError(
            f"categories of {name!r} name {known[0]!r}, and no public value is one of them (the first is "
            f"{present[0]!r}): write them as the public part does"
        )
    return known


def _median(present: Sequence[str], form: str) -> float | None:
    """The median of public values; None if some are not finite numbers, which `encode` refuses."""
    with np.errstate(over="ignore"):
        numbers = forms.numbers(present, form).astype(np.float32)
    return float(np.float32(np.median(numbers.astype(np.float64)))) if np.isfinite(numbers).all() else None


def _scale(name: str, declared: Sequence) -> tuple[float, ...]:
    """The declared offset and scale and, if it is declared too, the value for missing ones."""
    try:
        numbers = tuple(map(float, declared))
    except (TypeError, ValueError, OverflowError):
        numbers = ()
    if len(numbers) not in (2, 3) or not np.abs(numbers[-1]) < np.finfo(np.float32).max:
        raise PateError(
            f"scales of {name!r} must be [offset, scale] or [offset, scale, value for missing ones], "
            f"not {list(declared)}"
        )
    return numbers


def encode(
    table: Mapping[str, Sequence[str]], plan: Sequence[Column], place: str, keep: Path | None = None
) -> np.ndarray:
    """A part as float32 [rows, features] by the plan; a value outside the known categories is all zeros.

    The vectors of texts are kept in the folder `keep`.

    >>> encode({"sex": ["m", "x"]}, [Column("sex", ("f", "m"))], "private").tolist()
    [[0.0, 1.0], [0.0, 0.0]]
    """
    check_names(table, plan, place)
    return np.concatenate([_encode(table, column, place, keep) for column in plan], axis=1)


def check_names(names: Collection[str], plan: Sequence[Column], place: str) -> None:
    """Refuse a part that has other columns than the public one."""
    wanted = {column.name for column in plan}
    missing, more = sorted(wanted - set(names)), sorted(set(names) - wanted)
    if missing:
        raise PateError(
            f"{place} lacks the column {missing[0]!r} that the public part has; give it there too"
        )
    if more:
        raise PateError(
            f"{place} has the column {more[0]!r}, which the public part lacks; give it to both or to neither"
        )


def _encode(table: Mapping[str, Sequence[str]], column: Column, place: str, keep: Path | None) -> np.ndarray:
    values = table[column.name]
    blank = missing(values)
    if column.encoder is not None:
        marks = [blank[:, None].astype(np.float32)] if column.indicator else []
        return np.concatenate([*marks, texts.encode(column.name, values, column.encoder, keep)], axis=1)
    if column.categories is not None:
        if column.kind:
            kinds.check_categories(column.name, _kinds(table, column.name), column.kind, values, place)
        positions = {category: number for number, category in enumerate(column.categories)}
        others = [positions.get(OWN, -1) if is_blank else -1 for is_blank in blank]
        places = np.array([positions.get(value, other) for value, other in zip(values, others, strict=True)])
        return (places[:, None] == np.arange(column.width)).astype(np.float32)
    numbers = _numbers(values, blank, column, place)
    limits = forms.at_limit(values) if column.form == forms.LIMITS else np.zeros_like(blank)
    return features_of(numbers, blank, limits, column, place)


def features_of(
    numbers: np.ndarray, blank: np.ndarray, limits: np.ndarray, column: Column, place: str
) -> np.ndarray:
    """The features of a numeric column, given its numbers, which of them were missing, and which are limits.

    >>> none = np.zeros(2, bool)
    >>> features_of(np.array([1, 2], np.float32), none, none, Column("stage", codes=(1.0, 2.0)), "").tolist()
    [[1.0, 1.0, 0.0], [2.0, 0.0, 1.0]]
    """
    features = [_logarithm(numbers, column, place) if column.logarithmic else numbers]
    features += [blank.astype(np.float32)] if column.indicator else []
    features += [limits.astype(np.float32)] if column.form == forms.LIMITS else []
    features += [((numbers == code) & ~blank).astype(np.float32) for code in column.codes]
    return np.stack(features, axis=1)


def _numbers(values: Sequence[str], blank: np.ndarray, column: Column, place: str) -> np.ndarray:
    """The values as float32 [rows], with the column's filling in place of missing ones."""
    filled = blank if column.filling is not None else np.zeros_like(blank)
    numbers = np.full(len(values), column.filling or 0, np.float32)
    there = [value for value, is_blank in zip(values, filled, strict=True) if not is_blank]
    with np.errstate(over="ignore"):
        numbers[~filled] = forms.numbers(there, column.form)
    if np.isfinite(numbers).all():
        return numbers
    row = int(np.argmin(np.isfinite(numbers)))
    how = " (without thousands separators, with a decimal point)" if forms.separated(values[row]) else ""
    if np.isfinite(forms.numbers([values[row]], column.form)).all():
        how = " (numbers are kept up to 3.4e38)"
    raise PateError(
        f"{place} has {column.name}={values[row]!r} at row {row}, which is not {forms.told(column.form)}; "
        f"correct it{how}, remove the row, or declare the column's categories"
    )


def _logarithm(numbers: np.ndarray, column: Column, place: str) -> np.ndarray:
    if numbers.min(initial=0) < 0:
        row = int(numbers.argmin())
        raise PateError(
            f"{place} has {column.name}={numbers[row]:g} at row {row}; it must not be negative: correct it"
        )
    return np.log1p(numbers)


def preprocessing(public: np.ndarray, plan: Sequence[Column]) -> Preprocessing:
    """Scaling by declared scales or else by public statistics; one-hot groups are not scaled.

    The numbers of a text share one scale, as an encoder's have one unit.
    """
    measured, offset, scale, place = standard(public), [], [], 0
    for column in plan:
        if column.encoder is not None:
            start = place + column.indicator
            middle, one = texts.scale(public[:, start : place + column.width])
            offset += [*[0.0] * column.indicator, *middle]
            scale += [*[1.0] * column.indicator, *[one] * len(middle)]
        elif column.categories is not None:
            offset += [0.0] * column.width
            scale += [1.0] * column.width
        else:
            offset.append(measured.offset[place] if column.scale is None else column.scale[0])
            scale.append(measured.scale[place] if column.scale is None else column.scale[1])
            offset += [0.0] * (column.width - 1)
            scale += [1.0] * (column.width - 1)
        place += column.width
    encoded = sum(column.width for column in plan if column.encoder is not None)
    if encoded:
        return WithVectors(tuple(offset), tuple(scale), encoded)
    return Preprocessing(tuple(offset), tuple(scale))


def drowned(public: np.ndarray, plan: Sequence[Column]) -> dict[str, float]:
    """The columns of numbers that are scaled by one absurd public value, beside which all others are alike.

    >>> drowned(np.array([[*range(30), 1e9]]).T, [Column("age")]), drowned(np.eye(30)[:, :1], [Column("age")])
    ({'age': 1000000000.0}, {})
    """
    if len(public) < 3:
        return {}
    found, place = {}, 0
    for column in plan:
        if column.categories is None and column.scale is None and column.encoder is None:
            numbers = np.partition(public[:, place].astype(np.float64), (1, -2))
            least, low, high, most = numbers[[0, 1, -2, -1]]
            if 0 < (high - low) * _FAR < numbers.std():
                found[column.name] = float(max(least, most, key=lambda one: abs(one - low)))
        place += column.width
    return found


def standard(public: np.ndarray) -> Preprocessing:
    """Mean and standard deviation of public inputs along the last axis; 1 in place of a deviation of 0."""
    flat = public.reshape(-1, public.shape[-1]).astype(np.float64)
    spread = flat.std(0)
    return Preprocessing(tuple(flat.mean(0).tolist()), tuple(np.where(spread > 1e-12, spread, 1.0).tolist()))
