"""The whole job with a crowd in place of teachers."""

from __future__ import annotations

from typing import Any

from pate_jax.runs import register
from pate_jax.runs.crowds import processes, release, stages
from pate_jax.runs.crowds.inputs import Crowd
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
        return stages.tell(run)


def _released(run: RunDirectory, config: RunConfig) -> None:
    with run.writing():
        _release(run, config)


def _release(run: RunDirectory, config: RunConfig) -> Crowd:
    """Begin and release; of a run that has released, nothing but its data is read."""
    crowd = stages.begin(run, config.data, config.crowd, config.student)
    if config.register is not None:
        records = register.digest_of(crowd.dataset.private.ids)
        register.enter(run, config.register, register.crowd_plan(run, records))
    release.release(crowd)
    return crowd
