"""`pate`: the stages of a run as commands, with flags made from the dataclasses that the functions take."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from pate_jax.system import devices, exits, topology

devices.prepare()

import tyro  # noqa: E402
from tyro.conf import CascadeSubcommandArgs, FlagCreatePairsOff, OmitSubcommandPrefixes  # noqa: E402

from pate_jax import __version__  # noqa: E402
from pate_jax.cli import account, budget, inspect, run, student, student_flags, sweep  # noqa: E402

_COMMANDS: dict[str, Callable[..., Any]] = {
    "run": run.run,
    "train": run.train,
    "vote": run.vote,
    "aggregate": run.aggregate,
    "account": account.account,
    "student": student.student,
    "predict": student.predict,
    "budget": budget.budget_command,
    "report": inspect.report_command,
    "verify": inspect.verify_command,
    "sweep": sweep.sweep,
    "plan": sweep.plan,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; bad input ends with one sentence and exit code 2."""
    given = sys.argv[1:] if arguments is None else arguments
    if list(given) == ["--version"]:
        print(f"pate {__version__}")
        return
    settings = (CascadeSubcommandArgs, OmitSubcommandPrefixes, FlagCreatePairsOff)
    with exits.told("pate"):
        topology.prepare(given)
        tyro.extras.subcommand_cli_from_dict(
            _COMMANDS,
            prog="pate",
            args=arguments,
            config=settings,
            description=__doc__,
            registry=student_flags.REGISTRY,
        )
