"""The whole job with a crowd in place of teachers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pate_jax.runs import config_file, registration
from pate_jax.runs.crowds import choice, processes, release, stages
from pate_jax.runs.crowds.inputs import Crowd, plan_of
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.settings import RunConfig


def run(config: RunConfig) -> dict[str, Any]:
    """Count, release, account, teach and report; what is finished already is not repeated.

    Of several processes all count; the first does the rest, and the others return nothing.
    """
    run = RunDirectory(config.directory)
    if not processes.together(config, lambda: _released(run, config)):
        return {}
    with run.writing():
        crowd = _release(run, config)
        stages.account(run, config.delta)
        stages.teach(run, config.student, crowd)
        return stages.tell(run) | registration.shown(run)


def _released(run: RunDirectory, config: RunConfig) -> None:
    with run.writing():
        _release(run, config)


def _release(run: RunDirectory, config: RunConfig) -> Crowd:
    """Begin, choose the voters if that is left open, and release; what is released is not counted again."""
    open_yet = config.who == "auto"
    begun = choice.begun_as(run)
    wanted = config.crowd_as(begun.voters) if open_yet else config.crowd
    crowd = stages.begin(run, config.data, wanted, config.student)
    registration.enter(run, plan_of(run), lambda: crowd.dataset, config.register)
    crowd = choice.decided(crowd) if open_yet else crowd
    made = crowd.choice
    chosen = replace(config, voters=made.voters, epsilon=made.epsilon)
    config_file.write(run.config, chosen)
    release.release(crowd)
    return crowd
