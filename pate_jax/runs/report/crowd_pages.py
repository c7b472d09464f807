"""What a person reads of a crowd's run: the two pages.

Unlike those of teachers' runs the pages hardly differ: no figure of a crowd is sensitive. The private one has
the run's settings too, with the paths of files.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from pate_jax.accounting import Statement
from pate_jax.runs import measured
from pate_jax.runs.report import attacks, crowd_words, html, measures_page, run_pages, sections, words


def private_page(
    results: Mapping[str, Any],
    statement: Statement,
    settings: Mapping[str, Any],
    sheet: Mapping[str, Any] | None = None,
    attacked: Mapping[str, Any] | None = None,
) -> str:
    """The report for the owner of the data; `attacked` is what attacks found."""
    warning = run_pages.keep_inside(results, "It names files and settings of the run.")
    folded = html.folded("Settings", html.table(settings))
    body = [*_body(results, statement, sheet), *measures_page.pictures(results)]
    body += [*attacks.private(attacked), folded]
    return html.page(f"Run report: {words.title(results)} (private)", [body[0], warning, *body[1:]])


def public_page(
    results: Mapping[str, Any],
    statement: Statement,
    sheet: Mapping[str, Any] | None = None,
) -> str:
    """The report that goes with the student."""
    results = measured.published(results)
    return html.page(f"Student report: {words.title(results)}", _body(results, statement, sheet))


def _body(results: Mapping[str, Any], statement: Statement, sheet: Mapping[str, Any] | None) -> list[str]:
    said = escape(" ".join(crowd_words.sentences(results)))
    short = f"<p>{crowd_words.explained(results)}</p><p>{said}</p>"
    return [
        run_pages.head(results),
        sections.headline(results, statement),
        f"<h2>In short</h2>{short}",
        "<h2>What one person risks</h2>",
        run_pages.promised(statement),
        f"<p>For experts: {escape(statement.model_card_line())}</p>",
        run_pages.explained(),
        html.folded("The figures", statement.html(publishable_only=True)),
        *sections.every(results, sheet),
    ]
