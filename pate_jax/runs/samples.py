"""X and y as scikit-learn's users give them, in the forms that a run takes: a table of texts, or an array.

scikit-learn is no dependency: without it stand-ins of its classes serve, and with it the estimator is one of
its own, for `clone`, `Pipeline`, `cross_val_score` and the rest.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from pate_jax.data import forms, frames, kinds, tables, trial_mark
from pate_jax.data import ids as identities
from pate_jax.data.tables import Table
from pate_jax.errors import PateError

Inputs = Table | np.ndarray
_GONE = ("nan", "NaT", "<NA>", "None")  # how a missing label is shown


def inputs(values: Any, place: str) -> Inputs:
    """A table if columns have names or hold words, else an array of numbers.

    >>> inputs([[1.5, 2], [3, 4]], "X").tolist(), inputs([["Oslo", 2]], "X")
    ([[1.5, 2.0], [3.0, 4.0]], {'x0': ['Oslo'], 'x1': ['2']})
    """
    if hasattr(values, "toarray"):
        raise PateError(f"{place} is sparse: give {place}.toarray()")
    if frames.names_of(values) is not None:
        read = frames.read(values, place)
        found = read if isinstance(read, Table) else read["inputs"]
        if rows(found) == 0:
            raise PateError(f"{place} holds no records; give at least one")
        return found
    array = _array(values, place)
    return _table(array, None, place) if array.dtype.kind in "OUS" else array


def is_marked(values: Any) -> bool:
    """Whether values are of a part of a trial, by the mark that `pate split` gives each part.

    >>> is_marked({"inputs": np.ones((1, 2)), "pate_trial": ["do not publish"]}), is_marked(np.ones((1, 2)))
    (True, False)
    """
    return trial_mark.NAME in map(str, frames.names_of(values) or ())


def _array(values: Any, place: str) -> np.ndarray:
    try:
        array = np.asarray(values)
        if isinstance(values, list | tuple) and array.dtype.kind in "US":
            array = np.array(values, object)  # numbers among words stay numbers
    except ValueError as error:
        raise PateError(f"{place} has rows of different lengths ({error}); give all the same") from error
    if array.dtype.kind == "c":
        raise PateError(f"Complex data not supported: {place} is {array.dtype}; give real numbers")
    if array.ndim < 2:
        raise PateError(
            f"Expected 2D array, got {array.ndim}D array instead: {place} has shape {array.shape}. Reshape "
            "your data: a row for each record, by reshape(-1, 1) if each has a single number"
        )
    if array.dtype.kind not in "buifOUS" or (array.dtype.kind in "OUS" and array.ndim > 2):
        raise PateError(
            f"{place} is {array.dtype}{list(array.shape)}; give numbers, or words in 2 dimensions"
        )
    for axis, what in enumerate(("sample(s)", "feature(s)")):
        if not math.prod(array.shape[axis : axis + 1]):
            raise PateError(
                f"{place} has 0 {what} (shape={array.shape}) while a minimum of 1 is required: give more"
            )
    check_finite(array, place)
    return array


def check_finite(array: np.ndarray, place: str) -> None:
    """Refuse NaN and infinity."""
    if array.dtype.kind != "f":
        return
    finite = np.isfinite(array.reshape(len(array), -1)).all(1)
    if not finite.all():
        raise PateError(
            f"{place} holds NaN or infinity in {np.sum(~finite)} records (first at row {np.argmin(finite)}): "
            "fill or remove them, or give a data frame, whose missing values are filled by a public rule"
        )


def rows(values: Inputs) -> int:
    """The number of records.

    >>> rows({"age": ["30", "40"]})
    2
    """
    return len(next(iter(values.values()), ())) if isinstance(values, dict) else len(values)


def width(values: Inputs) -> int:
    """The number of features: columns, or numbers of one record.

    >>> width({"age": ["30", "40"]}), width(np.zeros((5, 4, 3)))
    (1, 12)
    """
    return len(values) if isinstance(values, dict) else math.prod(values.shape[1:])


def like(values: Inputs, names: Sequence[str] | None, place: str) -> Inputs:
    """The same as a table with these columns, or without names as an array of numbers.

    >>> like(np.array([[30.0, 1.5]]), ["age", "dose"], "X_public")
    {'age': ['30'], 'dose': ['1.5']}
    >>> like({"age": ["30", "31"]}, None, "X_public").tolist()
    [[30.0], [31.0]]
    """
    if names is None:
        return _numbers(values, place) if isinstance(values, dict) else values
    return values if isinstance(values, dict) else _table(values, names, place)


def _table(array: np.ndarray, names: Sequence[str] | None, place: str) -> Table:
    """An array as columns of texts, by these names or as x0, x1 and so on."""
    names = [f"x{column}" for column in range(array.shape[1])] if names is None else names
    if array.ndim != 2 or array.shape[1] != len(names):
        raise PateError(
            f"{place} has shape {array.shape}, and the columns are {', '.join(names)}: give one for each"
        )
    return tables.of({name: array[:, column] for column, name in enumerate(names)}, place)


def _numbers(table: Table, place: str) -> np.ndarray:
    """A table of numbers as an array; what is missing is NaN."""
    for name, column in table.items():
        words = [value for value in column if value and not forms.are_numbers([value])]
        if words:
            raise PateError(
                f"{place} has {words[0]!r} in the column {name!r}, where numbers are wanted: give numbers, "
                "or data frames everywhere"
            )
    return np.array([forms.numbers(column, forms.NUMBER) for column in table.values()]).T


def labels(y: Any, records: int) -> np.ndarray:
    """The label of each record, of any kind.

    >>> labels(["no", "yes"], 2).tolist()
    ['no', 'yes']
    """
    if y is None:
        raise PateError("PateClassifier requires y to be passed, but the target y is None: give labels")
    array = np.asarray(y)
    if array.ndim == 2 and array.shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected: give y.ravel()",
            DataConversionWarning,
            stacklevel=4,
        )
        array = array[:, 0]
    if array.ndim != 1:
        raise PateError(f"y should be a 1d array, got an array of shape {array.shape} instead")
    if len(array) != records:
        raise PateError(f"y has {len(array)} labels for the {records} records of X: give one for each")
    gone = [
        row for row, value in enumerate(array.tolist()) if str(value) in _GONE or value in (np.inf, -np.inf)
    ]
    if gone:
        raise PateError(
            f"y contains NaN, infinity or a missing label (first at row {gone[0]}): remove those records"
        )
    if array.dtype.kind == "f" and (np.abs(array) >= kinds.EXACT).any():
        raise PateError("y holds floats of 2^53 and above, which are not exact: give whole numbers or words")
    return array


def classes(y: np.ndarray, declared: Sequence[Any] | np.ndarray | None) -> np.ndarray:
    """The classes in ascending order: as declared, or those of the labels.

    >>> classes(np.array(["no", "no"]), ["yes", "no"]).tolist(), classes(np.array([1, -1, 1]), None).tolist()
    (['no', 'yes'], [-1, 1])
    """
    if declared is None and y.dtype.kind == "f" and (y != np.floor(y)).any():
        raise PateError(
            f"Unknown label type: continuous. y holds {y[y != np.floor(y)][0]:g}, which names no class: give "
            "the class of each record"
        )
    given = y if declared is None else np.asarray(declared)
    try:
        found = np.unique(given)
    except TypeError as error:
        raise PateError(
            f"labels of several kinds cannot be ordered ({error}): give words or numbers"
        ) from error
    if given.ndim != 1 or (declared is not None and len(found) != len(given)):
        raise PateError(f"classes={declared!r} must list each class once")
    if len(found) < 2:
        source = "y shows" if declared is None else "classes names"
        raise PateError(f"{source} only one class, {found.tolist()}: name at least two in classes=[...]")
    return found


def codes(y: np.ndarray, known: np.ndarray) -> np.ndarray:
    """The number of each label's class.

    >>> codes(np.array(["yes", "no"]), np.array(["no", "yes"])).tolist()
    [1, 0]
    """
    positions = {label: number for number, label in enumerate(known.tolist())}
    unknown = [label for label in y.tolist() if label not in positions]
    if unknown:
        raise PateError(
            f"y has the label {unknown[0]!r}, which is not one of classes={known.tolist()}: name it there "
            "too, or correct the record"
        )
    return np.array([positions[label] for label in y.tolist()], np.int32)


def names(known: np.ndarray) -> list[str] | None:
    """The names under which a release shows the classes; None where it must show numbers.

    >>> names(np.array([-1, 1])), names(np.array(["a,b", "c"]))
    (['-1', '1'], None)
    """
    texts = [str(label) for label in known.tolist()]
    plain = all(text and text == text.strip() and "," not in text for text in texts)
    return texts if plain and len(set(texts)) == len(texts) else None


def index(values: Any) -> np.ndarray | None:
    """The names of the rows of a data frame; None where it has none, or only numbers."""
    found = getattr(values, "index", None)
    if found is None or callable(found) or getattr(getattr(found, "dtype", None), "kind", "") in "iufbMm":
        return None
    return np.array([str(name) for name in found])


def ids(values: Any, records: int) -> np.ndarray | None:
    """The ids of the records as texts; None where there are none.

    >>> ids([7, "b"], 2).tolist()
    ['7', 'b']
    """
    if values is None:
        return None
    found = identities.of_values(np.asarray(values, object).ravel(), "ids", "fit")
    if len(found) != records:
        raise PateError(f"ids has {len(found)} ids for the {records} records of X: give one for each")
    return found


def check_row_by_row(transformer: Any, public: Any, made: Any) -> None:
    """Refuse a transformer that looks at other rows: one record would change how all others are read."""
    count = made.shape[0] if hasattr(made, "shape") else len(made)
    for rows in (slice(0, 1), slice(0, count // 2), slice(count // 2, count)):
        if len(range(count)[rows]) and not _same(
            transformer.transform(_rows(public, rows)), _rows(made, rows)
        ):
            raise PateError(
                f"{type(transformer).__name__} makes other values of some rows of X_public than of all of "
                "them, so it looks at rows together, and one record would change how all others are read: "
                "give a transformer whose transform takes each row by itself"
            )


def _rows(values: Any, rows: slice) -> Any:
    if hasattr(values, "iloc"):
        return values.iloc[rows]
    return values[rows] if hasattr(values, "shape") else np.asarray(values)[rows]


def _same(one: Any, other: Any) -> bool:
    """Whether values are equal, but for rounding."""
    first, second = (
        np.asarray(each.toarray() if hasattr(each, "toarray") else each) for each in (one, other)
    )
    if first.shape != second.shape:
        return False
    if first.dtype.kind in "fiub" and second.dtype.kind in "fiub":
        return bool(np.allclose(first, second, rtol=1e-5, atol=1e-6, equal_nan=True))
    return all(a == b or (a != a and b != b) for a, b in zip(first.ravel(), second.ravel(), strict=True))


if TYPE_CHECKING or find_spec("sklearn") is None:

    class NotFittedError(ValueError, AttributeError):
        """Raised by an estimator that is asked before it was fitted."""

    class DataConversionWarning(UserWarning):
        """Says that labels were given in another form than the wanted one."""

    class Base:
        """Parameters and accuracy of a classifier, as scikit-learn has them."""

        def get_params(self, deep: bool = True) -> dict[str, Any]:
            """The parameters by name; `deep` is for estimators that hold others."""
            names = list(inspect.signature(type(self).__init__).parameters)[1:]
            return {name: getattr(self, name) for name in names}

        def set_params(self, **params: Any) -> Self:
            """Replace parameters."""
            known = self.get_params()
            for name, value in params.items():
                if name not in known:
                    raise PateError(f"{name} is no parameter of {self}; they are {', '.join(known)}")
                setattr(self, name, value)
            return self

        def score(self, X: Any, y: Any) -> float:
            """The share of rows whose predicted label is the given one."""
            return float(np.mean(self.predict(X) == np.asarray(y)))  # type: ignore[attr-defined]

        def __repr__(self) -> str:
            return f"{type(self).__name__}()"

else:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.exceptions import DataConversionWarning as DataConversionWarning
    from sklearn.exceptions import NotFittedError as NotFittedError

    class Base(ClassifierMixin, BaseEstimator):
        """A classifier of scikit-learn that also takes words."""

        def __sklearn_tags__(self) -> Any:
            tags = super().__sklearn_tags__()
            tags.input_tags.string = tags.input_tags.categorical = True
            return tags


class NotFitted(NotFittedError, PateError):
    """An estimator was asked before it was fitted."""
