"""What a person reads of a crowd's run, or of a net trained on the private records: the two pages.

Unlike those of teachers' runs the pages hardly differ: no figure is sensitive. The private one has the run's
settings too, with the paths of files.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from pate_jax.accounting import Statement, TrainingStatement
from pate_jax.runs import measured
from pate_jax.runs.report import attacks, crowd_words, html, measures_page, run_pages, sections, words

_TRAINED = (
    "One net was trained on the private records themselves, by DP-SGD: each record's gradient was cut to a "
    "longest length, and random noise was added to the sum of each step. No teachers voted, and no public "
    "input was labelled."
)


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
    if isinstance(statement, TrainingStatement):
        explained, sentences = _TRAINED, words.learned(results)
        together = f"<p>All releases together: {escape(statement.trade_off.words)}.</p>"
        figures = html.table(_figures(statement)) + together
    else:
        of_crowd = "explained" not in results  # a method in one file says itself how it went
        explained = crowd_words.explained(results) if of_crowd else escape(results["explained"])
        sentences = (crowd_words.sentences if of_crowd else words.learned)(results)
        figures = statement.html(publishable_only=True)
    return [
        run_pages.head(results),
        sections.headline(results, statement),
        f"<h2>In short</h2><p>{explained}</p><p>{escape(' '.join(sentences))}</p>",
        "<h2>What one person risks</h2>",
        run_pages.promised(statement),
        f"<p>For experts: {escape(statement.model_card_line())}</p>",
        run_pages.explained(),
        html.folded("The figures", figures),
        *sections.every(results, sheet),
    ]


def _figures(statement: TrainingStatement) -> dict[str, Any]:
    """Both figures, each with what it covers."""
    return {
        name.replace("_", " "): "no finite epsilon"
        if one.epsilon is None
        else f"{one.epsilon:.4f}: {one.note}"
        for name, one in statement.figures.items()
    }
