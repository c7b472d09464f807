"""`pate report` and `verify`: what a run says of itself, and whether that is so."""

from __future__ import annotations

import json as json_format
import sys

from pate_jax.cli.output import RunPath, finish


def report_command(run: RunPath, json: bool = False) -> None:
    """Write the report pages of a run and print its summary.

    Args:
        run: the run directory.
        json: print one JSON object in place of the summary.
    """
    from pate_jax.runs import stages
    from pate_jax.runs.crowds import inputs
    from pate_jax.runs.crowds import stages as crowd_stages
    from pate_jax.runs.directory import RunDirectory

    directory = RunDirectory(run)
    with directory.writing():
        results = (crowd_stages if inputs.is_crowd(directory) else stages).tell(directory)
    finish(results, json)


def verify_command(
    run: RunPath, deep: bool = False, retrain: int = 3, strict: bool = False, json: bool = False
) -> None:
    """Recompute a run, or check a release/ by itself; exit code 1 where something does not fit.

    Args:
        run: the run directory, or the release/ that somebody was given.
        deep: let the teachers vote again, train some of them and the student again, and compare.
        retrain: with --deep, how many teachers to train again, each from its own shard alone.
        strict: count what could not be checked as a failure too.
        json: print one JSON object.
    """
    from pate_jax.audit import verify

    findings = verify.at(run, deep=deep, retrained=retrain)
    print(json_format.dumps(findings.to_dict()) if json else findings.text())
    sys.exit(1 if findings.of("failed") or (strict and findings.of("unchecked")) else 0)
