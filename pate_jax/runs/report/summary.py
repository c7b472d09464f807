"""The lines that a run ends with in the terminal; the figure that may be published comes first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pate_jax.accounting import CrowdStatement, Statement
from pate_jax.accounting.statement import NOT_PRIVATE
from pate_jax.runs.report import crowd_words, run_pages, words


def summary(results: Mapping[str, Any], statement: Statement | CrowdStatement) -> str:
    """What came of a run, and its publishable figures; the sensitive ones stand on the owner's page."""
    sentences = crowd_words.sentences if "voters" in results else run_pages.sentences
    lines = [] if results["private"] else [NOT_PRIVATE]
    lines += [f"Publishable: {words.headline(statement)}."] if results["private"] else []
    lines += [f"Run {results['run_dir']}: {results['data']}."]
    lines += [words.SYNTHETIC] if results["synthetic"] else []
    lines += [*sentences(results), "", statement.text(publishable_only=True).rstrip(), ""]
    lines += [f"Pictures and the owner's figures: {results['run_dir']}/private/report.html"]
    lines += [f"Hand over {results['run_dir']}/release, and keep {results['run_dir']}/private to yourself."]
    lines += [results["register"]["text"]] if "register" in results else []
    return "\n".join(lines)
