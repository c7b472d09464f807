"""A sweep of whole runs: each cell is one `pate run` in a folder of its own, and the picture is of them all.

A run without a seed is a release like any other: it is entered in the register and pays for itself. A cell
that was stopped goes on in its folder, so nothing is charged twice, and a finished one is never run again.
"""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

from pate_jax.accounting import Statement
from pate_jax.errors import PateError
from pate_jax.models.names import Metric
from pate_jax.runs import pipeline
from pate_jax.runs.settings import RunConfig, to_settings
from pate_jax.sweep import cells, charts, results
from pate_jax.sweep.pareto import averaged, best
from pate_jax.system import progress, storage, tasks
from pate_jax.system.tasks import Engine

_PICTURE = "plots/accuracy.svg"
_PLACES = ("out", "register")  # which decide nothing of what comes out


class Cell(NamedTuple):
    """A run of the grid, in its folder."""

    digest: str
    config: RunConfig

    @property
    def name(self) -> str:
        """Who votes, for people."""
        return f"{self.config.voters}, epsilon {self.config.budget}"


def sweep(configs: Sequence[RunConfig], folder: Path, engine: Engine = tasks.HERE) -> dict[str, Any]:
    """Do the runs that are left, and return a row for each; refused ones are named and left out."""
    every = cells_of(configs, folder)
    path, refused = results.file_of(folder), 0
    with results.writing(path):
        done = results.read(folder)
        left = [cell for cell in every if cell.digest not in done]
        with progress.bar("runs", total=len(every)) as steps:
            steps.advance(len(every) - len(left), found=True)
            for place, row in engine.each(one_run, [cell.config for cell in left]):
                cell = left[place]
                if "refused" in row:
                    progress.warn(f"{cell.name}: {tasks.said_by(row['host'])}{row['refused']}")
                    refused += 1
                else:
                    results.append(path, [{"cell": cell.digest, **row}])
                steps.advance(note=cell.name)
    known = results.read(folder)
    rows = [known[cell.digest] for cell in every if cell.digest in known]
    picture = charts.accuracy(rows) if rows else None
    if picture is not None:
        storage.write_bytes(folder / _PICTURE, picture, mode=0o600)
    return {
        "folder": str(folder),
        "picture": None if picture is None else str(folder / _PICTURE),
        "runs": len(every),
        "done_before": len(every) - len(left),
        "refused": refused,
        "rows": averaged(rows),
        "front": best(rows),
    }


def cells_of(configs: Sequence[RunConfig], folder: Path) -> list[Cell]:
    """Each run once, in a folder that its settings name.

    >>> (one,) = cells_of([RunConfig(voters="sums"), RunConfig(voters="sums")], Path("sweep"))
    >>> one.config.out == Path("sweep/runs") / one.digest
    True
    """
    found = {}
    for config in configs:
        if config.out is not None:
            raise PateError(f"--out {config.out}: every run of a grid has its own folder; leave it out there")
        digest = cells.digest(_settings(config))
        found[digest] = Cell(digest, dataclasses.replace(config, out=folder / "runs" / digest))
    return list(found.values())


def _settings(config: RunConfig) -> dict[str, Any]:
    """What decides a run, as JSON."""
    told = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    return {
        name: [type(value).__name__, to_settings(value)] if dataclasses.is_dataclass(value) else value
        for name, value in told.items()
        if name not in _PLACES
    }


def one_run(config: RunConfig) -> dict[str, Any]:
    """Make a run, or go on with it: the row of its results, or why it was refused."""
    try:
        found = pipeline.run(config)
    except PateError as error:  # the others of a grid go on, and the user reads why this one did not
        return {"refused": str(error), "host": platform.node()}
    statement = Statement.from_dict(found["statement"])
    teachers, measures = config.partition.teachers, found.get("measures") or found.get("macro") or {}
    one = dataclasses.replace(config, out=None, partition=dataclasses.replace(config.partition, seed=None))
    return {
        "name": found["dataset"] if teachers else f"{found['dataset']}, {config.voters}",
        "teachers": teachers or 0,  # as the grid names them, not as a run has planned them
        "data_independent": statement.headline.epsilon,
        "delta": statement.delta,
        "label_accuracy": found.get("label_accuracy"),
        "answered": found.get("answered", 1),
        "student": config.student.method,
        "lesson": cells.digest(_settings(one)),  # by which draws of one setting are known
        **{f"student_{name}": measures.get(name, [None])[0] for name in get_args(Metric)},
        "student_accuracy": found.get("student_accuracy"),
        "metric": config.data.metric,
        "seed": config.partition.seed,
        "epsilon": config.budget,
        "source": None,
        "votes": config.directory.name,
    }
