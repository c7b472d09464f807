"""What a person reads of a crowd's run: the summary in the terminal and the two pages.

Unlike those of teachers' runs the pages hardly differ: no figure of a crowd is sensitive. The private one has
the run's settings too, with the paths of files.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from pate_jax.accounting import CrowdStatement, Statement
from pate_jax.accounting.statement import NOT_PRIVATE
from pate_jax.runs.report import crowd_words, html, run_pages


def summary(results: Mapping[str, Any], statement_text: str) -> str:
    """The lines that a run ends with in the terminal."""
    lines = [] if results["private"] else [NOT_PRIVATE]
    lines += [f"Run {results['run_dir']}: {results['data']}."]
    lines += [run_pages.SYNTHETIC] if results["synthetic"] else []
    lines += [*crowd_words.sentences(results), "", statement_text.rstrip(), ""]
    lines += [f"Hand over {results['run_dir']}/release, and keep {results['run_dir']}/private to yourself."]
    return "\n".join(lines)


def private_page(
    results: Mapping[str, Any], statement: Statement | CrowdStatement, settings: Mapping[str, Any]
) -> str:
    """The report for the owner of the data."""
    warning = (
        '<p class="warn"><strong>Keep this page inside.</strong> It names files and settings of the run. The '
        "page in release/ is the one to hand over.</p>"
    )
    body = [*_body(results, statement), html.folded("Settings", html.table(settings))]
    return html.page(f"Run report: {results['dataset']} (private)", [body[0], warning, *body[1:]])


def public_page(results: Mapping[str, Any], statement: Statement | CrowdStatement) -> str:
    """The report that goes with the student."""
    return html.page(f"Student report: {results['dataset']}", _body(results, statement))


def _body(results: Mapping[str, Any], statement: Statement | CrowdStatement) -> list[str]:
    short = f"<p>{crowd_words.explained(results)}</p><p>{' '.join(crowd_words.sentences(results))}</p>"
    return [
        run_pages.head(results),
        f"<h2>In short</h2>{short}",
        "<h2>What one person risks</h2>",
        run_pages.promised(statement),
        f"<p>For experts: {escape(statement.model_card_line())}</p>",
        run_pages.explained(),
        html.folded("The figures", statement.html(publishable_only=True)),
    ]
