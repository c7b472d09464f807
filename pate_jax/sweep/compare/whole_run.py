"""Methods that are compared by a whole run: sums of images, where held-out voters compare students, and
methods in one file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pate_jax import accounting
from pate_jax.data import Part
from pate_jax.errors import PateError
from pate_jax.runs import methods, own_data
from pate_jax.runs.directory import RunDirectory
from pate_jax.sweep.compare.contender import Contender, Needs, Outcome
from pate_jax.sweep.compare.ground import Draw, Ground
from pate_jax.system import storage


def by_sums(ground: Ground, draw: Draw) -> Outcome:
    """What the student of `pate run --voters sums` says, in a folder that is removed in the end."""
    dataset = ground.dataset
    with tempfile.TemporaryDirectory(prefix="pate-") as folder:
        found = own_data.run(
            _arrays(dataset.private),
            {"inputs": dataset.public.inputs},
            voters="sums",
            epsilon=draw.epsilon,
            delta=ground.delta,
            classes=dataset.classes,
            equal_rows_are_coincidences=True,  # as far as they are not, the data set was refused
            ids_are_stable=dataset.ids_are == "stable",
            out=Path(folder),
            register="none",  # what this trial makes is thrown away, and nobody else sees it
        )
        said = np.asarray(found.student(ground.test.inputs))
        stated = storage.read_json(RunDirectory(Path(folder)).public_statement, "statement")
        epsilon = accounting.Statement.from_dict(stated).headline.epsilon
        if epsilon is None:
            raise PateError(f"a run with epsilon={draw.epsilon:g} states none: compare without sums")
        return Outcome(said, epsilon, {"student": str(found.facts["method"])})


def of_method(name: str, called: str = "", pool: str = "as it says", shard: int | None = None) -> Contender:
    """A method in one file (`runs.methods`) among those that are compared; teachers have `shard` records."""

    def learn(ground: Ground, draw: Draw) -> Outcome:
        promise = methods.Promise(draw.epsilon, ground.delta)
        teachers = None if shard is None else max(1, ground.records // shard)
        student, epsilon = methods.trial(name, ground.dataset, promise, teachers)
        settings: dict[str, float | str] = {"method": name}
        settings |= {} if teachers is None else {"teachers": teachers}
        return Outcome(np.asarray(student(ground.test.inputs)), epsilon, settings)

    needs = Needs(pool, "the owner of the records alone", "the student")
    return Contender(called or name, needs, learn)


def _arrays(part: Part) -> Mapping[str, np.ndarray]:
    if part.labels is None:
        raise PateError("private has no labels; voters vote by their labels")
    return {"inputs": part.inputs, "labels": np.asarray(part.labels), "ids": part.ids}
