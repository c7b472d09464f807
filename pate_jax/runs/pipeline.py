"""The main job on one screen: from private records to a student that may be published.

A run over several processes has one on each host. Each trains and asks its own teachers. The first owns the
run directory, its secret and its noise, and does the rest. The others receive the two keys that shards and
teachers follow from, keep their teachers in a folder of their own, and end when the votes are counted. Except
for rounding, votes do not depend on the number of processes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pate_jax import voting
from pate_jax.accounting.inputs import CUSTOMARY_DELTA
from pate_jax.data import Dataset, relation
from pate_jax.mechanisms.events import Answers
from pate_jax.mechanisms.stable import AnyMechanism
from pate_jax.models import Model
from pate_jax.runs import (
    batches,
    budget,
    config_file,
    crowds,
    labels,
    measured,
    numbers,
    plans,
    public_labels,
    registration,
    stages,
    teacher_plan,
)
from pate_jax.runs.directory import RunDirectory, close
from pate_jax.runs.inputs import Inputs, open_data
from pate_jax.runs.secret import Secret
from pate_jax.runs.settings import RunConfig
from pate_jax.runs.thresholds import check_threshold, default_mechanism, threshold_warning
from pate_jax.system import devices, locks, progress, storage
from pate_jax.system.tasks import HERE, Engine


def run(config: RunConfig, engine: Engine = HERE) -> dict[str, Any]:
    """Make a whole run, of one label, of several or of a number; what is finished already is not repeated.

    An `engine` reads a private table in several files.
    """
    if config.data.target is not None:
        return numbers.run(config)
    several = labels.named(config.data)
    one = partial(of_one_label, engine=engine)
    return labels.run(config, several, one) if several else one(config)


def of_one_label(config: RunConfig, engine: Engine = HERE) -> dict[str, Any]:
    """Train, vote, answer, account, teach and report; what is finished already is not repeated.

    A crowd counts and releases its noisy table in place of the first three (`crowds.run`). Where the voters
    are still to be chosen, a run begins as one of a crowd, and may go on with teachers.

    Of several processes all train and vote; the first does the rest, and the others return nothing.
    """
    run = RunDirectory(config.directory)
    planned = net = opened = None
    if config.who != "teachers":
        found = crowds.run(config, engine)
        if not isinstance(found, crowds.Chosen):
            return found
        planned, net, opened = found
        config = replace(config, voters="teachers")
    settled = teacher_plan.settled(run, config, planned, engine)
    config, net = settled.config, settled.net or net
    teachers = config.partition.number
    mechanism = config.mechanism or default_mechanism(teachers)
    check_threshold(mechanism, teachers)
    progress.warn(threshold_warning(mechanism, teachers))
    if devices.processes() > 1 and not train_and_vote(config):
        return {}
    with run.writing():
        inputs = _begin(run, config, net, settled.opened or opened, engine)
        metric = measured.metric(config.data, inputs.dataset)
        public_labels.begin(run, inputs.dataset, config.learn_from_public_labels, metric)
        config_file.write(run.config, replace(config, voters="teachers", mechanism=mechanism), settled.said)
        before_training(inputs, config, mechanism)
        progress.say(_trained(stages.train(inputs)))
        votes = _vote(inputs, config, mechanism)
        progress.say(f"votes: {teachers:,} teachers on {len(votes.votes):,} public inputs, counted by class")
        batches.answer(run, mechanism)
        stages.account(run, config.delta)
        stages.teach(run, config.student, inputs=inputs)
        return stages.tell(run) | registration.shown(run)


def _begin(
    run: RunDirectory,
    config: RunConfig,
    net: Model | None = None,
    opened: Dataset | None = None,
    engine: Engine = HERE,
) -> Inputs:
    """Open and record what a run of teachers is made from."""
    cut, delta, distance = config.partition, config.delta, config.min_distance
    asks, learner = config.asks, config.student
    return stages.begin(
        run, config.data, cut, config.teacher, asks, delta, distance, learner, net, opened, engine
    )


def _vote(inputs: Inputs, config: RunConfig, mechanism: AnyMechanism) -> voting.Votes:
    """Fix mechanism and budget, and ask the teachers."""
    stages.settle(inputs, mechanism, config.budget, config.delta)
    return stages.vote(inputs, config.wanted, selection=config.chosen_by, min_distance=config.min_distance)


def _trained(report: dict[str, Any]) -> str:
    """How the teachers were trained together, for whoever watches."""
    training = report["training"]
    number, devices_used = report["teachers"], training["devices"]
    return (
        f"teachers: {number:,} trained together, {min(training['plan']['wave'], number):,} at a time on "
        f"{devices_used} {training['backend']} device{'' if devices_used == 1 else 's'}"
    )


def before_training(inputs: Inputs, config: RunConfig, mechanism: AnyMechanism) -> None:
    """Enter a whole run with the most that its settings let it spend."""
    dataset, cut = inputs.dataset, inputs.cut
    most = None if config.budget is None else (config.budget, config.delta)
    settings = inputs.run.record.read()
    wished = Answers(mechanism, cut.number, dataset.classes, config.wanted)
    plan = plans.of_answers(wished, most, settings.limit, relation.of(dataset, cut.by))
    registration.enter(inputs.run, plan, lambda: dataset, config.register)


def before_answers(
    run: RunDirectory, file: Path | None, mechanism: AnyMechanism, epsilon: float | None, delta: float | None
) -> None:
    """Enter a run that has voted, or whose votes were made elsewhere."""
    votes, fixed = voting.load_votes(run.existing(run.votes, "vote")).votes, budget.fixed(run)
    most = None if epsilon is None else (epsilon, delta or CUSTOMARY_DELTA)
    if fixed is not None:
        most = (fixed.epsilon, fixed.delta)
    settings = run.record.read()
    wished = Answers(mechanism, int(votes.sum(1).max()), votes.shape[1], len(votes))
    plan = plans.of_answers(wished, most, settings.limit, stages.covered(run))

    def records() -> Dataset | None:
        return open_data(settings.data, run.encoded) if "data" in settings else None

    registration.enter(run, plan, records, file)


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
    inputs = _begin(run, config)
    stages.train(inputs)
    _vote(inputs, config, config.mechanism or default_mechanism(config.partition.number))
    if not devices.is_first():
        run.votes.unlink()
