"""A whole run from Python: private and public data in, and a student with its privacy statement out."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np

from pate_jax import accounting
from pate_jax.data import frames, texts
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import Voting
from pate_jax.runs import inputs, pipeline
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.report import labels_page
from pate_jax.runs.report.run_pages import summary
from pate_jax.runs.settings import CUSTOMARY_EPSILON, DataChoice, PartitionChoice, RunConfig
from pate_jax.student import Student, Students
from pate_jax.system import locks, storage

Voters = Literal["auto", "teachers"] | Voting
_DECLARED = ("categories", "scales")


def run(
    private: Any = None,
    public: Any = None,
    test: Any = None,
    *,
    label: str | Sequence[str] | None = None,
    id: str | None = None,
    user: str | None = None,
    epsilon: float = CUSTOMARY_EPSILON,
    out: Path | str | None = None,
    voters: Voters | None = None,
    **settings: Any,
) -> Result:
    """Learn from private records under this epsilon, as `pate run` does, and return the student.

    Each part is a data frame, a dictionary of columns or arrays, an array of inputs, a pair of inputs and
    labels, or the path of a file or folder. `label`, `id` and `user` name columns, `label` perhaps several,
    which share one budget (`Result.students`). `settings` are further flags of `pate run` by their Python
    names (`delta`, `classes`, `by`, `teachers`, `student`, ...). Data that are no files are stored in the
    run's private folder, so that the run can be continued and verified. The same call with the same `out`
    continues a run, or returns its result.

    >>> import tempfile
    >>> people = {"age": list(range(90)), "sick": ["no"] * 45 + ["yes"] * 45}
    >>> asked = {"age": [3.5, 20.5, 33.5, 60.5, 75.5, 88.5]}
    >>> settings = {"voters": "sums", "epsilon": 20.0, "seed": 1, "classes": "no,yes"}
    >>> settings |= {"register": Path("none"), "out": tempfile.mkdtemp()}
    >>> run(people, asked, label="sick", **settings).predict(asked).shape
    (6,)
    """
    if label is not None and not isinstance(label, str):
        label = ",".join(label)
    name = DataChoice(settings.get("dataset", DataChoice.dataset))
    default = Path("runs/own") if private is not None else RunConfig(name).directory
    root = default if out is None else Path(out).expanduser()
    parts = {"private": private, "public": public, "test": test}
    names = {"labels": label, "ids": id, "users": user}
    config, contents = _asked(root, parts, names, epsilon, voters, settings)
    directory = RunDirectory(root)
    _store(directory, contents)
    with _unchanging(directory, shared=True):
        _check_stored(directory, contents)
        return Result(root, pipeline.run(config))


def check(
    private: Any,
    public: Any,
    *,
    out: Path,
    label: str | None = None,
    id: str | None = None,
    epsilon: float = CUSTOMARY_EPSILON,
    voters: Voters | None = None,
    **settings: Any,
) -> None:
    """Refuse data that `run` would refuse, such as public rows that are private ones; nothing is spent.

    The data are stored in the private folder of `out`, which the caller removes.
    """
    names = {"labels": label, "ids": id, "users": None}
    parts = {"private": private, "public": public}
    config, contents = _asked(out, parts, names, epsilon, voters, settings)
    _store(RunDirectory(out), contents)
    inputs.open_data(config.data)


def _asked(
    root: Path,
    parts: Mapping[str, Any],
    names: Mapping[str, str | None],
    epsilon: float,
    voters: Voters | None,
    settings: dict[str, Any],
) -> tuple[RunConfig, dict[str, Content]]:
    """The settings of a run, and the contents of its files."""
    directory = RunDirectory(root)
    if (parts["private"] is None) != (parts["public"] is None):
        raise PateError("private and public go together: give both")
    contents = _contents(parts, {**names, "labels": names["labels"] or settings.get("target")})
    declared = {name: settings.pop(name) for name in _DECLARED if isinstance(settings.get(name), Mapping)}
    contents |= {name: (".json", json.dumps(value).encode()) for name, value in declared.items()}
    files = {name: content for name, content in contents.items() if not name.endswith(".kinds")}
    paths = {name: _place(directory, name, content) for name, content in files.items()}
    columns = {"label_column": names["labels"], "id_column": names["ids"], "user_column": names["users"]}
    return _config({**settings, **columns, **paths}, voters, epsilon, root), contents


Content = Path | tuple[str, bytes]  # a file of the user's own, or the suffix and bytes of one of the run


def _contents(parts: Mapping[str, Any], names: Mapping[str, str | None]) -> dict[str, Content]:
    """Each part as the path of its file, or as the content of a file to be written."""
    found: dict[str, Content] = {}
    for part, values in parts.items():
        if isinstance(values, str | Path):
            found[part] = Path(values).expanduser()
        elif values is not None:
            content = frames.read(values, part, names)
            if part == "private":
                _check_names(content, names)
            found[part] = frames.stored(content)
            if isinstance(content, frames.Table):  # lie beside it: see `data.tables.kinds_file`
                found[f"{part}.kinds"] = (".json", json.dumps(content.kinds, sort_keys=True).encode())
    return found


def _check_names(content: frames.Table | frames.Arrays, names: Mapping[str, str | None]) -> None:
    """Refuse a private table whose labels are not named."""
    if isinstance(content, frames.Table) and names["labels"] is None:
        raise PateError(f"label is not given: name the column of the labels among {', '.join(content)}")


def _place(directory: RunDirectory, name: str, content: Content) -> Path:
    return content if isinstance(content, Path) else directory.data / f"{name}{content[0]}"


def _store(directory: RunDirectory, contents: Mapping[str, Content]) -> None:
    """Write what is no file yet into the private folder; other data than those of a begun run are refused."""
    with directory.writing():
        begun = "data" in directory.record.read()
        for name, path, content in _missing(directory, contents):
            if begun:
                raise PateError(
                    f"{directory.root} was begun with another {name} part: give the same data to continue "
                    "it, or choose another out"
                )
            with _unchanging(directory, shared=False):
                storage.write_bytes(path, content, mode=0o600)


def _check_stored(directory: RunDirectory, contents: Mapping[str, Content]) -> None:
    """Refuse to run where another call has replaced the stored data since."""
    for name, path, _ in _missing(directory, contents):
        raise PateError(
            f"{path} holds another {name} part than was given: another call with the same out has replaced "
            "it; choose another out, or repeat the call when no other one uses this out"
        )


def _missing(directory: RunDirectory, contents: Mapping[str, Content]) -> Iterator[tuple[str, Path, bytes]]:
    """Each part that is no file of the user's and that its file in the private folder does not hold."""
    for name, content in contents.items():
        path = _place(directory, name, content)
        if isinstance(content, Path) or (path.exists() and storage.read_bytes(path) == content[1]):
            continue
        yield name.removesuffix(".kinds"), path, content[1]


def _unchanging(directory: RunDirectory, *, shared: bool) -> AbstractContextManager[None]:
    """Hold the stored data: calls with the same data share them, and nobody replaces them meanwhile."""
    return locks.held(directory.private / ".data.lock", directory.data, shared=shared)


def _config(settings: Mapping[str, Any], voters: Voters | None, epsilon: float, root: Path) -> RunConfig:
    """The settings of the run, each in its place."""
    homes: dict[type, dict[str, Any]] = {DataChoice: {}, PartitionChoice: {}, RunConfig: {}}
    for name, value in settings.items():
        home = next((kind for kind in homes if name in _fields(kind)), None)
        if home is None:
            known = sorted(set().union(*map(_fields, homes)) - {"data", "partition"})
            raise PateError(f"{name} is no setting of a run; the settings are {', '.join(known)}")
        homes[home][name] = _as_flag(name, value)
    if voters not in (None, "auto", "teachers", *get_args(Voting)):
        raise PateError(f"voters={voters!r} must be auto, teachers, {' or '.join(get_args(Voting))}")
    return RunConfig(
        data=DataChoice(**homes[DataChoice]),
        partition=PartitionChoice(**homes[PartitionChoice]),
        out=root,
        voters=voters or "teachers",
        epsilon=epsilon,
        **homes[RunConfig],
    )


def _fields(kind: type) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}


def _as_flag(name: str, value: Any) -> Any:
    """A setting as the command line would hold it: paths as paths, and names of classes in one text."""
    if name in ("data_dir", "manual_dir", "register", *_DECLARED) and isinstance(value, str):
        return Path(value).expanduser()
    if name in ("text_column", "leave_out") and value is not None:
        return ",".join(texts.named(value, name))
    if name == "classes" and not isinstance(value, int | str | None):
        classes = [str(one) for one in cast(list[Any], value)]
        if any("," in one for one in classes):
            raise PateError(f"classes={classes} has a comma in a name: give categories={{label: classes}}")
        return ",".join(classes)
    return value


@dataclass(frozen=True)
class Result:
    """A finished run. Only `directory / "release"`, the student and the statement may be published."""

    directory: Path
    facts: Mapping[str, Any] = field(repr=False)  # as the last line of `pate run --json` shows them, and more

    @cached_property
    def student(self) -> Student:
        """The student, which takes inputs in any form that the run took."""
        return Student.load(self.directory)

    @cached_property
    def students(self) -> Students:
        """The students of several labels."""
        return Students.load(self.directory)

    @cached_property
    def statement(self) -> accounting.Statement:
        """What the run costs, and whom its guarantee covers."""
        return accounting.Statement.from_dict(self.facts["statement"])

    def predict(self, inputs: Any) -> np.ndarray:
        """The most probable class of each input: its name, or its number where classes are numbered."""
        return self.student.predict(inputs)

    def predict_proba(self, inputs: Any) -> np.ndarray:
        """The probability of each class for each input, in the order of `student.class_names`.

        Inputs are given in any form that the run took; labels, ids and other columns are not read.
        """
        return self.student.predict_proba(inputs)

    def __str__(self) -> str:
        return (labels_page.summary if "labels" in self.facts else summary)(self.facts, self.statement)
