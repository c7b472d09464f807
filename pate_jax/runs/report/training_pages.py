"""What a person reads of a net trained on the private records themselves: the two pages.

As with crowds, no figure is sensitive. The private page has the settings too, with the paths of files.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from pate_jax.accounting.training_statement import TrainingStatement
from pate_jax.runs import measured
from pate_jax.runs.report import html, measures_page, run_pages, sections, words

_SHORT = (
    "One net was trained on the private records themselves, by DP-SGD: each record's gradient was cut to a "
    "longest length, and random noise was added to the sum of each step. No teachers voted, and no public "
    "input was labelled."
)


def private_page(
    results: Mapping[str, Any], statement: TrainingStatement, settings: Mapping[str, Any]
) -> str:
    """The report for the owner of the data."""
    warning = run_pages.keep_inside(results, "It names files and settings of the run.")
    head, *body = _body(results, statement)
    folded = html.folded("Settings", html.table(settings))
    return html.page(
        f"Run report: {words.title(results)} (private)",
        [head, warning, *body, *measures_page.pictures(results), folded],
    )


def public_page(results: Mapping[str, Any], statement: TrainingStatement) -> str:
    """The report that goes with the net."""
    results = measured.published(results)
    return html.page(f"Student report: {words.title(results)}", _body(results, statement))


def _body(results: Mapping[str, Any], statement: TrainingStatement) -> list[str]:
    said = escape(" ".join(words.learned(results)))
    return [
        run_pages.head(results),
        sections.headline(results, statement),
        f"<h2>In short</h2><p>{_SHORT}</p><p>{said}</p>",
        "<h2>What one person risks</h2>",
        run_pages.promised(statement),
        f"<p>For experts: {escape(statement.model_card_line())}</p>",
        run_pages.explained(),
        html.folded("The figures", html.table(_figures(statement))),
        *sections.every(results, None),
    ]


def _figures(statement: TrainingStatement) -> dict[str, Any]:
    """Both figures, each with what it covers."""
    return {
        name.replace("_", " "): "no finite epsilon"
        if one.epsilon is None
        else f"{one.epsilon:.4f}: {one.note}"
        for name, one in statement.figures.items()
    }
