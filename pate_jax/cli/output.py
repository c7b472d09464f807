"""How the commands speak: one JSON object, or a summary in words."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

RunPath = Annotated[Positional[Path], arg(metavar="RUN")]


def say(facts: dict[str, Any], json: bool) -> None:
    """Print facts as JSON: on one line, or indented for people."""
    print(json_format.dumps(facts) if json else json_format.dumps(facts, indent=1))


def finish(results: dict[str, Any], json: bool) -> None:
    """Print what a run ended with."""
    if json:
        wanted = (
            "run_dir",
            "teachers",
            "queries",
            "answered",
            "label_accuracy",
            "student_accuracy",
            "statement",
        )
        print(json_format.dumps({name: results[name] for name in wanted}))
    else:
        from pate_jax import accounting
        from pate_jax.runs.report import run_pages

        print(run_pages.summary(results, accounting.Statement.from_dict(results["statement"]).text()))
