"""Ensembles that a sweep trains: once for each data set, number of teachers, net and seed.

The same teachers vote on every list of queries; each list, and the votes on it, is made once and kept. A
sweep's seed is known, so its votes serve to judge settings and can never be released.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np

from pate_jax import data, voting
from pate_jax.ensemble import TeacherConfig
from pate_jax.runs import queries, stages
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.inputs import Inputs, open_data
from pate_jax.runs.settings import DataChoice, PartitionChoice, to_settings
from pate_jax.student.settings import Selection
from pate_jax.sweep import cells
from pate_jax.system import locks, storage
from pate_jax.voting import Votes

_LIST = "sweep-queries"  # the kind of the file of a list
_WHERE = {"data_dir", "manual_dir", "devices"}  # they decide where work is done, never what comes out
NESTED: tuple[Selection, ...] = ("first", "random")  # a list of few queries is the beginning of a longer one


@dataclass(frozen=True)
class Ensemble:
    """Teachers of one data set, trained when their votes are first needed."""

    choice: DataChoice
    cut: PartitionChoice
    config: TeacherConfig
    folder: Path  # of the sweep

    @cached_property
    def digest(self) -> str:
        """The digest of everything that decides what the teachers say."""
        parts = (("data", self.choice), ("partition", self.cut), ("teacher", self.config))
        return cells.digest({name: _settings(one) for name, one in parts})

    @property
    def home(self) -> Path:
        """The run directory of the teachers."""
        return self.folder / "teachers" / self.digest

    def votes(self, selection: Selection, size: int) -> Votes:
        """What the teachers say of a list of public inputs."""
        with self._alone() as inputs:
            path = inputs.run.votes.with_name(f"votes-{selection}-{size}.npz")
            if path.exists():
                return voting.load_votes(path)
            stages.train(inputs)
            cast = stages.votes_on(inputs, self._asked(inputs.dataset, selection, size))
            voting.save_votes(path, cast)
            return cast

    @contextmanager
    def _alone(self) -> Iterator[Inputs]:
        """The opened inputs, while no other shard of the sweep works on the same teachers."""
        with locks.held(self.home / ".sweep.lock", self.home, wait=True), RunDirectory(self.home).writing():
            yield _begun(self)

    def _asked(self, dataset: data.Dataset, selection: Selection, size: int) -> data.Part:
        """The inputs of a list, which is the same for all ensembles of a data set and seed."""
        described = {"data": _settings(self.choice), "seed": self.cut.seed}
        name = cells.digest({**described, "selection": selection, "size": size})
        path = self.folder / "queries" / f"{name}.json"
        with locks.held(path.with_name(f".{name}.lock"), path, wait=True):
            if path.exists():
                ids = np.array(storage.read_json(path, _LIST)["ids"])
                return dataset.public.take(queries.rows_of(dataset.public.ids, ids))
            pool = dataset.public.take(queries.different(dataset.public, size, []))
            key = f"selection {self.cut.seed}".encode()
            asked = queries.select(pool, dataset.preprocessing, size, selection, key)
            storage.write_json(path, _LIST, {"ids": asked.ids.tolist()})
            return asked


@lru_cache(maxsize=1)
def opened(choice: DataChoice) -> data.Dataset:
    """A data set, opened or drawn once for all ensembles."""
    return open_data(choice)


@lru_cache(maxsize=1)
def _begun(ensemble: Ensemble) -> Inputs:
    """The inputs of an ensemble, opened once for all of its lists."""
    run, choice = RunDirectory(ensemble.home), ensemble.choice
    return stages.begin(run, choice, ensemble.cut, ensemble.config, opened=opened(choice))


def _settings(one: DataChoice | PartitionChoice | TeacherConfig) -> dict[str, object]:
    return {name: value for name, value in to_settings(one).items() if name not in _WHERE}
