"""How the commands speak: one JSON object, or a summary in words."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

_SHOWN = (
    *("trial", "run_dir", "voters", "told", "teachers", "queries", "answered"),
    *("label_accuracy", "student_accuracy", "labels", "macro", "statement", "register"),
)
RunPath = Annotated[Positional[Path], arg(metavar="RUN")]


def say(facts: dict[str, Any], json: bool) -> None:
    """Print facts as JSON: on one line, or indented for people."""
    print(json_format.dumps(facts) if json else json_format.dumps(facts, indent=1))


def finish(results: dict[str, Any], json: bool) -> None:
    """Print what a run ended with, but for its sensitive figures."""
    from pate_jax import accounting

    statement = accounting.Statement.from_dict(results["statement"])
    if json:
        shown = {**results, "statement": statement.publishable()}
        print(json_format.dumps({name: shown[name] for name in _SHOWN if name in shown}))
    else:
        from pate_jax.runs.report import labels_page, run_pages

        summary = labels_page.summary if "labels" in results else run_pages.summary
        print(summary(results, statement))
