"""The main job on one screen: from private records to a student that may be published."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pate_jax.runs import (
    batches,
    config_file,
    crowds,
    processes,
    public_labels,
    registration,
    reservation,
    stages,
    teacher_plan,
)
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.settings import RunConfig
from pate_jax.runs.thresholds import check_threshold, default_mechanism, threshold_warning
from pate_jax.system import devices, progress


def run(config: RunConfig) -> dict[str, Any]:
    """Train, vote, answer, account, teach and report; what is finished already is not repeated.

    A crowd counts and releases its noisy table in place of the first three (`crowds.run`). Where the voters
    are still to be chosen, a run begins as one of a crowd, and may go on with teachers.

    Of several processes all train and vote; the first does the rest, and the others return nothing.
    """
    run = RunDirectory(config.directory)
    planned = net = opened = None
    if config.who != "teachers":
        found = crowds.run(config)
        if not isinstance(found, crowds.Chosen):
            return found
        planned, net, opened = found
        config = replace(config, voters="teachers")
    settled = teacher_plan.settled(run, config, planned)
    config, net = settled.config, settled.net or net
    teachers = config.partition.number
    mechanism = config.mechanism or default_mechanism(teachers)
    check_threshold(mechanism, teachers)
    progress.warn(threshold_warning(mechanism, teachers))
    if devices.processes() > 1 and not processes.train_and_vote(config):
        return {}
    with run.writing():
        inputs = stages.begin(
            run,
            config.data,
            config.partition,
            config.teacher,
            config.asks,
            config.delta,
            config.min_distance,
            config.student,
            net,
            settled.opened or opened,
        )
        public_labels.say(inputs.dataset)
        config_file.write(run.config, replace(config, voters="teachers", mechanism=mechanism), settled.said)
        reservation.before_training(inputs, config, mechanism)
        progress.say(_trained(stages.train(inputs)))
        stages.settle(inputs, mechanism, config.budget, config.delta)
        votes = stages.vote(
            inputs, config.wanted, selection=config.chosen_by, min_distance=config.min_distance
        )
        progress.say(f"votes: {teachers:,} teachers on {len(votes.votes):,} public inputs, counted by class")
        batches.answer(run, mechanism)
        stages.account(run, config.delta)
        stages.teach(run, config.student, inputs=inputs)
        return stages.tell(run) | registration.shown(run)


def _trained(report: dict[str, Any]) -> str:
    """How the teachers were trained together, for whoever watches."""
    training = report["training"]
    number, devices_used = report["teachers"], training["devices"]
    return (
        f"teachers: {number:,} trained together, {min(training['plan']['wave'], number):,} at a time on "
        f"{devices_used} {training['backend']} device{'' if devices_used == 1 else 's'}"
    )
