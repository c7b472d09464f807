"""The whole job with a crowd in place of teachers."""

from __future__ import annotations

from typing import Any

from pate_jax.errors import PateError
from pate_jax.runs import register
from pate_jax.runs.crowds import release, stages
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.settings import RunConfig
from pate_jax.system import devices


def run(config: RunConfig) -> dict[str, Any]:
    """Count, release, account, teach and report; what is finished already is not repeated."""
    if devices.processes() > 1:
        raise PateError(
            f"--voters {config.voters} runs in one process, which uses all its devices: leave out --processes"
        )
    run = RunDirectory(config.directory)
    with run.writing():
        crowd = stages.begin(run, config.data, config.crowd)
        if config.register is not None:
            records = register.digest_of(crowd.dataset.private.ids)
            register.enter(run, config.register, register.crowd_plan(run, records))
        release.release(crowd)
        stages.account(run, config.delta)
        stages.teach(run, config.student, crowd)
        return stages.tell(run)
