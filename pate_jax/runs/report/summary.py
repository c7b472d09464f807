"""The lines that a run ends with in the terminal; the figure that may be published comes first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pate_jax.accounting import Statement
from pate_jax.accounting.statement import NOT_PRIVATE
from pate_jax.runs.report import crowd_words, run_pages, words


def summary(results: Mapping[str, Any], statement: Statement) -> str:
    """What came of a run, and its publishable figures; the sensitive ones stand on the owner's page."""
    sentences = crowd_words.sentences if "voters" in results else run_pages.sentences
    trial = [results["trial"]] if "trial" in results else []
    lines = [*trial, *([] if results["private"] else [NOT_PRIVATE])]
    lines += [f"Publishable: {words.headline(statement)}."] if results["private"] and not trial else []
    lines += [f"Run {results['run_dir']}: {results['data']}."]
    lines += [words.SYNTHETIC] if results["synthetic"] else []
    lines += [*sentences(results), "", statement.text(publishable_only=True).rstrip(), ""]
    lines += [f"Pictures and the owner's figures: {results['run_dir']}/private/report.html"]
    return "\n".join([*lines, *last_lines(results)])


def last_lines(results: Mapping[str, Any]) -> list[str]:
    """What of a run may leave and what its records have cost so far; or last of all that nothing may leave.

    >>> last_lines({"run_dir": "runs/a", "trial": "trial: do not publish", "register": {"text": "2 runs"}})
    ['2 runs', 'trial: do not publish']
    """
    used = [results["register"]["text"]] if "register" in results else []
    if "trial" in results:
        return [*used, str(results["trial"])]
    root = results["run_dir"]
    return [f"Hand over {root}/release, and keep {root}/private to yourself.", *used]
