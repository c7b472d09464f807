"""What a person reads of a run of several labels: the two pages, and the lines that it ends with."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

from pate_jax.accounting import Statement
from pate_jax.accounting.statement import NOT_PRIVATE
from pate_jax.runs import measured
from pate_jax.runs.report import html, run_pages, words

_HEADS = {"accuracy": "Right", "balanced": "Balanced accuracy", "auroc": "AUROC", "auprc": "AUPRC"}
_SHARES = ("accuracy", "balanced")
_NOT_MEASURED = "not measured, no public test part"


def told(one: Mapping[str, Any]) -> str:
    """How good the student of a label is, in words.

    >>> told({"usual": 0.7, "figures": {"accuracy": [0.81, 0.8, 0.82], "auroc": [0.9, 0.88, 0.92]}})
    'right on 81.0% (95% interval: 80.0% to 82.0%), AUROC 0.900 (0.880 to 0.920); most frequent class 70.0%'
    >>> told({"usual": None, "figures": None})
    'not measured, no public test part'
    """
    if one["figures"] is None:
        return _NOT_MEASURED
    return f"{_figures(one['figures'])}; most frequent class {one['usual']:.1%}"


def _figures(found: Mapping[str, list[float | None]]) -> str:
    value, low, high = found["accuracy"]
    said = f"right on {value:.1%} (95% interval: {html.interval(low or 0, high or 0)})"
    value, low, high = found["auroc"]
    return said if value is None else f"{said}, AUROC {value:.3f} ({low:.3f} to {high:.3f})"


def macro(results: Mapping[str, Any]) -> str:
    """The means over all labels, in words."""
    found = results["macro"]
    return _NOT_MEASURED if found is None else f"on average {_figures(found)}"


def private_page(results: Mapping[str, Any], statement: Statement, own: Mapping[str, str]) -> str:
    """The page of the owner, with where the page of each label lies."""
    warning = run_pages.keep_inside(results, "It names files of the run.")
    body = _body(results, statement)
    pages = [html.folded("The owner's page of each label", html.table(own))] if own else []
    return html.page(f"Run report: {title(results)} (private)", [body[0], warning, *body[1:], *pages])


def public_page(results: Mapping[str, Any], statement: Statement, sheet: Any = None) -> str:
    """The page that goes with the students."""
    results = measured.published(results)
    return html.page(f"Student report: {title(results)}", _body(results, statement))


def title(results: Mapping[str, Any]) -> str:
    """What a page is headed by.

    >>> title({"labels": {"sick": {}, "died": {}}})
    '2 labels: sick, died'
    """
    names = [*results["labels"]]
    return f"{len(names)} labels: {', '.join(names[:4])}{' ...' if len(names) > 4 else ''}"


def _body(results: Mapping[str, Any], statement: Statement) -> list[str]:
    headline, _, at = words.headline(statement).partition(" at ")
    name = "Privacy of the private part" if "trial" in results else "Privacy that may be published"
    covers = f"for {statement.covers}, and all labels together"
    facts = [(name, headline, f"at {at}, {covers}" if at else covers)]
    found = results["macro"]
    if found is not None:
        value, low, high = found["accuracy"]
        limits = html.interval(low or 0, high or 0)
        more = f"the mean over labels, on {results['rows']:,} test rows; 95% interval: {limits}"
        facts.append(("The students are right on", f"{value:.1%}", more))
    return [
        run_pages.head(results),
        html.tiles(facts),
        f"<h2>In short</h2><p>{escape(_explained(results))}</p>",
        html.heading("Each label"),
        _table(results),
        "<h2>What one person risks</h2>",
        run_pages.promised(statement),
        f"<p>For experts: {escape(statement.model_card_line())}</p>",
        run_pages.explained(),
        html.folded("The figures", statement.html(publishable_only=True)),
    ]


def _explained(results: Mapping[str, Any]) -> str:
    if "explained" in results:
        return str(results["explained"])
    of: dict[str, list[str]] = {}
    for label, one in results["labels"].items():
        of.setdefault(one["voters"], []).append(label)
    said = (
        f"{len(results['labels'])} labels of each record were learned under one budget: the figure above is "
        "of the tables of all labels together."
    )
    for voters, labels in of.items():
        how = words.explained({**results, "voters": voters})
        whom = "each label" if len(of) == 1 else ", ".join(labels)
        said += f" For {whom}: {how}"
    return said


def _table(results: Mapping[str, Any]) -> str:
    if results["macro"] is None:
        rows = [
            [escape(label), ", ".join(map(escape, one["classes"][:8]))]
            for label, one in results["labels"].items()
        ]
        return html.rows(("Label", "Classes"), rows)
    rows = [
        [escape(label), f"{one['usual']:.1%}", *_cells(one["figures"])]
        for label, one in results["labels"].items()
    ]
    rows.append(["<b>mean of all</b>", "", *_cells(results["macro"])])
    said = "<p>On the test rows, each with its 95% interval.</p>"
    return said + html.rows(("Label", "Most frequent class", *_HEADS.values()), rows)


def _cells(found: Mapping[str, list[float | None]]) -> list[str]:
    return [_cell(name, found[name]) for name in _HEADS]


def _cell(name: str, found: list[float | None]) -> str:
    value, low, high = found
    if value is None or low is None or high is None:
        return ""
    if name in _SHARES:
        return f"{value:.1%} ({html.interval(low, high)})"
    return f"{value:.3f} ({low:.3f} to {high:.3f})"


def summary(results: Mapping[str, Any], statement: Statement) -> str:
    """What came of a run, for a terminal."""
    trial = [results["trial"]] if "trial" in results else []
    lines = [*trial, *([] if results["private"] else [NOT_PRIVATE])]
    lines += (
        [f"Publishable: {words.headline(statement)}, all labels together."]
        if results["private"] and not trial
        else []
    )
    lines += [f"Run {results['run_dir']}: {results['data']}."]
    lines += [words.SYNTHETIC] if results["synthetic"] else []
    lines += [f"{label}: {told(one)}." for label, one in results["labels"].items()]
    lines += [f"All labels: {macro(results)}.", "", statement.text(publishable_only=True).rstrip(), ""]
    lines += [f"Pictures and the owner's figures: {results['run_dir']}/private/report.html"]
    return "\n".join([*lines, *run_pages.last_lines(results)])
