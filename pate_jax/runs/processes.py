"""A run over several processes, one on each host: each trains and asks its own teachers, and the first
does the rest.

The first process owns the run directory, its secret and its noise. The others receive the two keys
that shards and teachers follow from, keep their teachers in a folder of their own, and end when the votes are
counted. Except for rounding, votes do not depend on the number of processes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pate_jax.runs import stages
from pate_jax.runs.directory import RunDirectory, close
from pate_jax.runs.secret import Secret
from pate_jax.runs.settings import RunConfig
from pate_jax.runs.thresholds import default_mechanism
from pate_jax.system import devices, locks, storage


class SharedSecret(Secret):
    """The secret of a run as one of its processes sees it: the first holds it and derives keys for all."""

    def draw(self, seed: int | None) -> None:
        """Draw it in the first process, once every one has opened and checked the data."""
        devices.from_first(b"opened")
        if devices.is_first():
            super().draw(seed)

    def derive(self, purpose: str) -> bytes:
        """What the first process derives: all processes have to call this together."""
        return devices.from_first(super().derive(purpose) if devices.is_first() else bytes(32))


@dataclass(frozen=True, init=False)
class Share(RunDirectory):
    """The run directory as one of several processes sees it while teachers are trained and asked."""

    index: int

    def __init__(self, root: Path | str) -> None:
        super().__init__(root)
        object.__setattr__(self, "index", devices.index())

    @property
    def own(self) -> Path:
        """The folder of this process."""
        return self.private / f"process-{self.index:03d}"

    @property
    def home(self) -> Path:
        """What the first process makes is the run's; the others keep theirs apart."""
        return self.own if self.index else self.private

    @property
    def secret(self) -> SharedSecret:
        """What its noise, shards and teachers follow from."""
        return SharedSecret(self.keys, self.ledger, self.root, self.release)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the run together with the other processes: no command may write it, nor may a second such run.

        What is written meanwhile is open to its owner only, on every host.
        """
        close(self.private)
        teachers = self.teachers / self.own.name
        usual = os.umask(0o077)
        try:
            for folder in (self.own, self.teachers, teachers):
                close(folder)
            with (
                locks.held(self.private / ".lock", self.root, shared=True),
                locks.held(self.own / ".lock", self.root),
            ):
                for folder in (self.own, teachers):  # the others write into the rest
                    storage.remove_leftovers(folder)
                yield
        finally:
            os.umask(usual)


def train_and_vote(config: RunConfig) -> bool:
    """Train and ask all teachers together; True for the process that goes on, the first.

    Interrupted and repeated on as many processes, each goes on with its own teachers.
    """
    run = Share(config.directory)
    with run.writing():
        _train_and_vote(run, config)
    going_on = devices.is_first()
    devices.leave()  # it waits for all, so nobody holds the run any more
    return going_on


def _train_and_vote(run: Share, config: RunConfig) -> None:
    if devices.from_first(bytes([run.votes.exists()]))[0]:
        return
    run.teacher_report.unlink(missing_ok=True)  # written again, from teachers that are finished
    inputs = stages.begin(
        run,
        config.data,
        config.partition,
        config.teacher,
        config.asks,
        config.delta,
        config.min_distance,
        config.student,
    )
    stages.train(inputs)
    mechanism = config.mechanism or default_mechanism(config.partition.number)
    stages.settle(inputs, mechanism, config.budget, config.delta)
    stages.vote(inputs, config.wanted, selection=config.chosen_by, min_distance=config.min_distance)
    if not devices.is_first():
        run.votes.unlink()
