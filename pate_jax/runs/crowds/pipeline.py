"""The whole job with a crowd in place of teachers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from pate_jax.mechanisms.crowds import Voting
from pate_jax.runs import config_file, public_labels, registration
from pate_jax.runs.crowds import choice, processes, release, stages, steps, teachers
from pate_jax.runs.crowds.inputs import Crowd, metric_of, plan_of
from pate_jax.runs.crowds.teachers import Chosen
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.settings import RunConfig
from pate_jax.system.tasks import HERE, Engine


def run(config: RunConfig, engine: Engine = HERE) -> dict[str, Any] | Chosen:
    """Count, release, account, teach and report; what is finished already is not repeated.

    Of several processes all count; the first does the rest, and the others return nothing. Where teachers
    are chosen, all return these, and nothing but the number of voters was released.
    """
    run = RunDirectory(config.directory)
    ended = processes.together(config, lambda: _released(run, config, engine))
    if ended.chosen is not None:
        return ended.chosen
    if not ended.goes_on:
        return {}
    with run.writing():
        crowd = _release(run, config, engine)
        if isinstance(crowd, Chosen):
            return crowd
        stages.account(run, config.delta)
        stages.teach(run, config.student, crowd)
        return stages.tell(run) | registration.shown(run)


def _released(run: RunDirectory, config: RunConfig, engine: Engine) -> Chosen | None:
    with run.writing():
        found = _release(run, config, engine)
    return found if isinstance(found, Chosen) else None


def _release(run: RunDirectory, config: RunConfig, engine: Engine) -> Crowd | Chosen:
    """Begin, choose the voters if that is left open, and release; what is released is not counted again."""
    open_yet = config.who == "auto"
    before = teachers.of(run) if open_yet else None
    if before is not None:
        return before
    begun = choice.begun_as(run)
    wanted = config.crowd_as(cast(Voting, begun.voters)) if open_yet else config.crowd
    crowd = stages.begin(run, config.data, steps.as_begun(run, wanted), config.student, engine)
    public_labels.begin(run, crowd.dataset, config.learn_from_public_labels, metric_of(crowd))
    registration.enter(run, plan_of(run), lambda: crowd.dataset, config.register)
    if open_yet:
        decided = choice.decided(crowd)
        if isinstance(decided, Chosen):
            return decided
        crowd = decided
    made = crowd.choice
    chosen = replace(config, voters=made.voters, epsilon=made.epsilon)
    config_file.write(run.config, chosen)
    release.release(crowd)
    if made.voters == "sums":
        config_file.write(run.config, replace(chosen, steps=steps.planned(run)))
    return crowd
