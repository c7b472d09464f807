"""A run as scikit-learn's users expect it: `PateClassifier().fit(X, y, X_public).predict(X)`."""

from __future__ import annotations

import copy
import numbers
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np

from pate_jax import accounting
from pate_jax.data import frames, overlap, tables, trial_mark
from pate_jax.data.tables import Table
from pate_jax.errors import PateError, PateWarning, SharedInputs
from pate_jax.runs import own_data, samples
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.own_data import Result
from pate_jax.runs.samples import Base, Inputs, NotFitted
from pate_jax.runs.settings import CUSTOMARY_EPSILON
from pate_jax.student import Student, StudentConfig, named, serving
from pate_jax.system import progress, storage

Kind = TypeVar("Kind")
_IDS_COINCIDE = "equal_ids_are_coincidences=True"
_CHECK = "; check(X, y), with all records, finds this before any fold of a cross-validation is paid for"
_PARTS = {"private.npz": "X", "private.csv": "X", "public.npz": "X_public", "public.csv": "X_public"}


class PateClassifier(Base):
    """A classifier that keeps its training records private, by a whole run of `pate_jax.run`.

    `fit` takes private records X, their labels y, and public inputs without labels. The fitted estimator is
    the student with its privacy statement: it holds nothing else of the records, and may be published where
    the statement may. Each fit is a release of its own, so further fits on the same records cost more: the
    register of runs adds them up, and a warning says so before anything is spent.

    - `epsilon`, `delta`: what one fit may cost.
    - `classes`: all labels that may occur. Without it they are taken from y and published as they are, which
      the statement does not cover; that warns, and a run that is kept is refused.
    - `X_public`: the public inputs, unless `fit` is given them.
    - `voters`: `auto`, `sums`, `neighbours` or `teachers`, and `teachers` their number.
    - `student`: the name of a method or its settings; unset: by rule.
    - `directory`: where the run is kept. Unset: in a temporary folder, whose private part is removed when the
      fit ends, and the rest when Python does.
    - `random_state`: a whole number makes the fit reproducible and NOT private, and warns.
    - `equal_rows_are_coincidences`: declares that public rows which equal private ones belong to others.
    - `show_public`: declares that rows of X_public may go out as they are, also inside the student.
    - `transformer`: of scikit-learn, such as a ColumnTransformer. It is fitted on X_public alone, and X,
      X_public and new rows pass through it; as a step of a pipeline it would be fitted on private records.
    - `verbose`: whether a fit says on the terminal what it does; warnings are given in any case.
    - `equal_ids_are_coincidences`: declares that names in the index of `X_public` that private records have
      too, as `ids` or in the index of X, are of other people.
    - `text_column`: columns of X that hold free text, which `encoder` (unset: `words`) reads.

    A fitted estimator has `classes_`, `n_features_in_`, `feature_names_in_` (where columns have names),
    `student_`, `statement_`, `epsilon_` (the figure to publish) and `directory_`.

    >>> random = np.random.default_rng(0)
    >>> X, public = random.normal(size=(400, 2)), random.normal(size=(100, 2))
    >>> y = np.where(X[:, 0] > 0, "yes", "no")
    >>> model = PateClassifier(epsilon=2.0, classes=["no", "yes"]).fit(X, y, public)
    >>> model.predict([[3.0, 0.0], [-3.0, 0.0]]).tolist(), model.epsilon_ <= 2
    (['yes', 'no'], True)
    """

    def __init__(
        self,
        epsilon: float = CUSTOMARY_EPSILON,
        delta: float = 1e-5,
        *,
        classes: Sequence[Any] | np.ndarray | None = None,
        X_public: Any = None,
        voters: own_data.Voters = "auto",
        teachers: int | None = None,
        student: StudentConfig | str | None = None,
        directory: Path | str | None = None,
        random_state: int | None = None,
        equal_rows_are_coincidences: bool = False,
        show_public: bool = False,
        equal_ids_are_coincidences: bool = False,
        transformer: Any = None,
        verbose: bool = True,
        text_column: str | Sequence[str] | None = None,
        encoder: str | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.classes = classes
        self.X_public = X_public
        self.voters = voters
        self.teachers = teachers
        self.student = student
        self.directory = directory
        self.random_state = random_state
        self.equal_rows_are_coincidences = equal_rows_are_coincidences
        self.show_public = show_public
        self.equal_ids_are_coincidences = equal_ids_are_coincidences
        self.transformer = transformer
        self.verbose = verbose
        self.text_column = text_column
        self.encoder = encoder

    def fit(self, X: Any, y: Any, X_public: Any = None, ids: Any = None) -> Self:
        """Learn from private records with their labels, and from public inputs.

        `ids` name the records; teachers' guarantee covers a removed record only where each keeps its id.
        Records are covered one by one: of people with several, use `pate_jax.run(user=..., by="user")`.
        """
        settings, records = self._settings(), self._read(X, y, X_public, ids)
        self._warn()
        silent = nullcontext() if self.verbose else progress.quiet(warnings_too=False)
        with _folder(self.directory) as root, silent:
            result = _run(records, {**settings, "out": root}, own_data.run)
            if "trial" in result.facts:
                _warning(str(result.facts["trial"]))
            return self._keep(records, result)

    def check(self, X: Any, y: Any, X_public: Any = None, ids: Any = None) -> Self:
        """Refuse what a fit on these records would refuse; nothing is spent or kept.

        Call it with all records before a cross-validation. Each fold is a fit of its own and sees its own
        records alone: where a public row is one of them, that fold is refused, and the others are paid for.

        >>> X, y = np.arange(40.0).reshape(20, 2), np.array([0, 1] * 10)
        >>> PateClassifier(classes=[0, 1], X_public=X[19:]).check(X, y)
        Traceback (most recent call last):
        ...
        pate_jax.errors.SharedInputs: X_public: 1 of 1 inputs are private ones too (rows 0, counted from 0)...
        """
        settings, records = self._settings(), self._read(X, y, X_public, ids)
        with _folder(None) as root, progress.quiet():
            _run(records, {**settings, "out": root}, own_data.check)
        return self

    def _read(self, X: Any, y: Any, X_public: Any, ids: Any) -> _Records:
        """The records and public inputs that a fit is given, checked."""
        public = self.X_public if X_public is None else X_public
        people = samples.index(X), samples.index(public)  # which a transformer would drop
        marked = samples.is_marked(X) or samples.is_marked(public)  # and this as well
        records = _records(*self._transformed(X, public), y, ids, self.classes)._replace(trial=marked)
        if not self.equal_ids_are_coincidences:
            _check_people(people[0] if records.ids is None else records.ids, people[1])
        return records

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each row."""
        best = self.predict_proba(X).argmax(1)
        return np.asarray(self.classes_[best])

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class for each row, in the order of `classes_`."""
        if not self.__sklearn_is_fitted__():
            raise NotFitted(f"this {type(self).__name__} is not fitted yet: call fit(X, y, X_public) first")
        X = X if self.transformer is None else self.transformer_.transform(X)
        given = samples.inputs(X, "X")
        by_name = frames.names_of(X) is not None and hasattr(self, "feature_names_in_")
        if not by_name and samples.width(given) != self.n_features_in_:
            raise PateError(
                f"X has {samples.width(given)} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input"
            )
        return self.student_(self._encoded(given, by_name))

    def __getstate__(self) -> dict[str, Any]:
        """What a pickle holds: of a fitted estimator no public inputs, unless these may go out."""
        state: dict[str, Any] = dict(super().__getstate__())  # type: ignore[call-overload]
        hidden = self.__sklearn_is_fitted__() and not self.show_public
        return {**state, "X_public": None} if hidden else state

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "student_")

    def _transformed(self, X: Any, public: Any) -> tuple[Any, Any]:
        """X and X_public as a transformer makes them that has seen public inputs alone."""
        if self.transformer is None or public is None:
            return X, public
        self.transformer_ = copy.deepcopy(self.transformer).fit(public)
        made = self.transformer_.transform(public)
        samples.check_row_by_row(self.transformer_, public, made)
        return self.transformer_.transform(X), made

    def _settings(self) -> dict[str, Any]:
        """The parameters as settings of a run."""
        if not (self.random_state is None or isinstance(self.random_state, numbers.Integral)):
            raise PateError(f"random_state={self.random_state!r} must be None or a whole number")
        student = named(self.student) if isinstance(self.student, str) else self.student
        reads = {"text_column": self.text_column, "encoder": self.encoder}
        optional = {"student": student, "teachers": self.teachers, **reads}
        return {
            "epsilon": _number("epsilon", self.epsilon),
            "delta": _number("delta", self.delta),
            "voters": self.voters,
            "seed": None if self.random_state is None else int(self.random_state),
            "equal_rows_are_coincidences": bool(self.equal_rows_are_coincidences),
            "show_public": bool(self.show_public),
            "equal_ids_are_coincidences": bool(self.equal_ids_are_coincidences),
            **{name: value for name, value in optional.items() if value is not None},
        }

    def _warn(self) -> None:
        """Say what is not private by the parameters alone."""
        if self.classes is None and self.directory is not None:
            raise PateError(
                "classes is not given: a run that is kept in a directory may be published, and y must not "
                "decide which classes it shows; list all labels that may occur in classes=[...]"
            )
        if self.classes is None:
            _warning(
                "classes is not given: the set of classes is taken from y and published as it is, which the "
                "privacy statement does not cover; list all labels that may occur in classes=[...]"
            )
        if self.transformer is not None and self.directory is not None:
            _warning(
                f"the student that {self.directory} releases takes rows as transformer has made them, and "
                "does not hold the transformer: give it to whoever asks the student, or ask this classifier"
            )
        if self.random_state is not None:
            _warning(
                f"random_state={self.random_state} makes the noise reproducible, so this fit is NOT private: "
                "leave it at None for records that must not leak"
            )

    def _keep(self, records: _Records, found: Result) -> Self:
        """Hold the student and what may be published of its run, and nothing else."""
        self.classes_ = records.classes
        self.n_features_in_ = samples.width(records.private)
        self._columns = list(records.private) if isinstance(records.private, dict) else None
        self.__dict__.pop("feature_names_in_", None)
        if records.named:
            self.feature_names_in_ = np.array(self._columns, object)
        self.student_: Student = found.student
        public = storage.read_json(RunDirectory(found.directory).public_statement, "statement")
        self.statement_ = accounting.Statement.from_dict(public)
        epsilon = self.statement_.headline.epsilon
        self.epsilon_ = np.inf if epsilon is None else epsilon
        self.directory_ = found.directory
        return self

    def _encoded(self, given: Inputs, by_name: bool) -> np.ndarray:
        """Rows as the student takes them."""
        rows = samples.like(given, self._columns, "X")
        if not isinstance(rows, dict):
            return rows
        if not by_name:
            rows = rows.called(self._columns or ())
        known = {column.name for column in self.student_.columns}
        return serving.encoded(self.student_, rows.only(name for name in rows if name in known), "X")


class _Records(NamedTuple):
    """What a run is given, checked as far as its own messages would not speak of X and y."""

    private: Inputs
    public: Inputs
    labels: np.ndarray  # the number of each record's class
    classes: np.ndarray
    ids: np.ndarray | None
    named: bool  # whether the columns of X have names
    trial: bool = False  # whether X or X_public, before a transformer, is marked as a part of a trial


def _records(X: Any, public: Any, y: Any, ids: Any, declared: Sequence[Any] | np.ndarray | None) -> _Records:
    private = samples.inputs(X, "X")
    labels = samples.labels(y, samples.rows(private))
    classes = samples.classes(labels, declared)
    if public is None:
        raise PateError(
            "X_public is not given: the student learns from public inputs without labels, of the same kind "
            "as X; give fit(X, y, X_public) or PateClassifier(X_public=...)"
        )
    header, known = frames.names_of(X), samples.inputs(public, "X_public")
    if isinstance(known, dict) and not isinstance(private, dict) and len(known) != samples.width(private):
        raise PateError(_misfit(private, known))
    if header is None:  # one record of X must not decide how all others are read
        private = samples.like(private, list(known) if isinstance(known, dict) else None, "X")
        if not isinstance(private, dict):
            samples.check_finite(private, "X")
    columns = list(private) if isinstance(private, dict) else None
    known = samples.like(known, columns, "X_public")
    if samples.width(known) != samples.width(private):
        raise PateError(_misfit(private, known))
    named = columns is not None and header is not None and all(isinstance(name, str) for name in header)
    return _Records(
        private,
        known,
        samples.codes(labels, classes),
        classes,
        samples.ids(ids, len(labels)),
        named,
    )


def _misfit(private: Inputs, public: Inputs) -> str:
    """Why X and X_public do not fit, with the columns that one of them lacks, and the usual cause."""
    named = ""
    if isinstance(private, dict) and isinstance(public, dict):
        apart = {"X_public": set(private) - set(public), "X": set(public) - set(private)}
        lacks = (f"; {part} lacks {', '.join(sorted(names))}" for part, names in apart.items() if names)
        named = "".join(lacks)
    return (
        f"X_public has {samples.width(public)} features and X has {samples.width(private)}: give both the "
        f"same{named}. A transformer before this step of a pipeline changes X alone: give it as "
        "PateClassifier(transformer=...), which fits it on X_public (docs/start/scikit_learn.md)"
    )


def _check_people(private: np.ndarray | None, public: np.ndarray | None) -> None:
    """Refuse public rows whose names, in the index of their frame, private records have too."""
    if private is not None and public is not None:
        shared = overlap.common(private, public, stable=False)
        if len(shared):
            message = overlap.same_people("X_public", "ids", shared, public)
            raise PateError(message.replace("--equal-ids-are-coincidences", _IDS_COINCIDE))


def _run(records: _Records, settings: dict[str, Any], how: Callable[..., Kind]) -> Kind:
    """The run on these records, or its check; its errors speak of the arguments of `fit`."""
    names = samples.names(records.classes)
    labels = records.labels if names is None else np.array(names)[records.labels]
    roles = {"labels": labels} | ({} if records.ids is None else {"ids": records.ids})
    settings = {**settings, "classes": len(records.classes) if names is None else names}
    if isinstance(records.private, dict):
        called = {role: _free(role, records.private) for role in roles}
        added = {called[role]: values for role, values in roles.items()}
        if records.trial and trial_mark.NAME not in records.private:  # a transformer has dropped it
            added = trial_mark.marked_arrays(added, len(labels))
        named = tables.of(added, "y")
        private: Any = Table({**records.private, **named}, {**records.private.kinds, **named.kinds})
        settings |= {"label": called["labels"], "id": called.get("ids")}
        public: Any = records.public
    else:
        private, public = {"inputs": records.private, **roles}, {"inputs": records.public}
        if records.trial:  # a table has kept the mark among its columns
            private = trial_mark.marked_arrays(private, len(labels))
    try:
        return how(private, public, **settings)
    except PateError as error:
        check = _CHECK if isinstance(error, SharedInputs) and how is not own_data.check else ""
        raise type(error)(_of_fit(str(error), RunDirectory(settings["out"])) + check) from error


def _free(name: str, table: Table) -> str:
    """A name that no column has."""
    while name in table:
        name += "_"
    return name


def _of_fit(message: str, run: RunDirectory) -> str:
    """An error of the run in words of `fit`."""
    for file, argument in _PARTS.items():
        message = message.replace(str(run.data / file), argument)
    message = message.replace("--equal-ids-are-coincidences", _IDS_COINCIDE)
    for argument in ("equal_rows_are_coincidences", "show_public"):
        message = message.replace(f"--{argument.replace('_', '-')}", f"{argument}=True")
    return message


def _number(name: str, value: Any) -> float:
    """A number of any type as Python's own."""
    if not isinstance(value, numbers.Real):
        raise PateError(f"{name}={value!r} must be a number")
    return float(value)


def _warning(text: str) -> None:
    warnings.warn(text, PateWarning, stacklevel=4)


@contextmanager
def _folder(directory: Path | str | None) -> Iterator[Path]:
    """The folder of a run: the user's, or a temporary one without its private part in the end."""
    if directory is not None:
        yield Path(directory).expanduser()
        return
    root = Path(tempfile.mkdtemp(dir=_scratch().name))
    try:
        yield root
    finally:
        private = RunDirectory(root).private
        if private.exists():
            shutil.rmtree(private)


@lru_cache(maxsize=1)
def _scratch() -> tempfile.TemporaryDirectory[str]:
    """The folder of this process for runs that nobody keeps, which is removed when Python ends."""
    return tempfile.TemporaryDirectory(prefix="pate-")
