"""`pate report` and `verify`: what a run says of itself, and whether that is so."""

from __future__ import annotations

import sys

from pate_jax import stages, verify
from pate_jax.cli.printing import RunPath, finish, say
from pate_jax.rundir import RunDirectory


def report_command(run: RunPath, json: bool = False) -> None:
    """Write the report pages of a run and print its summary.

    Args:
        run: the run directory.
        json: print one JSON object in place of the summary.
    """
    directory = RunDirectory(run)
    with directory.writing():
        results = stages.tell(directory)
    finish(results, json)


def verify_command(run: RunPath, json: bool = False) -> None:
    """Recompute a run from its files, and list what does not fit; exit code 1 where something does not.

    Args:
        run: the run directory.
        json: print one JSON object.
    """
    found = verify.verify(RunDirectory(run))
    failed = [f"{check}: {finding}" for check, findings in found.items() for finding in findings]
    say({"checked": list(found), "failed": failed}, json)
    sys.exit(1 if failed else 0)
