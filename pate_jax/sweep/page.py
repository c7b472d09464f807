"""What a person reads of a sweep: the front as a table for a terminal, and one HTML page without network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from rich import box
from rich.table import Table

from pate_jax.runs.report import html
from pate_jax.sweep.pareto import thinned
from pate_jax.sweep.results import Row

_SHOWN = 20  # rows of a table
_STYLE = ".wide table{font-size:.9rem} .wide td,.wide th{white-space:nowrap} .wide td:last-child{min-width:0}"
_RANKS = {"balanced": "student_balanced", "AUROC": "student_auroc", "AUPRC": "student_auprc"}
_HEADS = {
    "epsilon": "Data-independent: the figure a run may publish",
    "delta": "What that epsilon holds at",
    "right": "Share of the answers that are right",
    "answered": "Queries that were answered",
    "asked": "Queries",
    "setting": "Threshold/noise of the test/noise of the answer, or the noise alone",
    "net": "What the teachers are",
    "selection": "How the queries were chosen",
    "mechanism": "How the votes become an answer",
    "votes": "The votes, and how many teachers cast them",
    "published": "By the papers' analysis: a function of the votes",
    "exact": "Of exactly these votes: a function of them",
    "student": "How often a student is right that learned from the answers",
    "balanced": "Balanced accuracy of that student: the mean over the classes of how often it is right",
    "AUROC": "The chance that it ranks a row of the outcome (of several: of each class) above another",
    "AUPRC": "Its average precision for the outcome (of several classes: the mean over them)",
}


def judged(rows: Sequence[Row]) -> tuple[str, bool]:
    """What kind of votes the settings were judged on and what that costs, and whether to warn of it.

    >>> judged([{"judged_on": "synthetic"}])[1], judged([{"judged_on": "private"}])[1]
    (False, True)
    """
    private = sum(row["judged_on"] == "private" for row in rows)
    if private:
        return (
            "Judged on PRIVATE votes, and the choice is not paid for. Accuracy, answers, the published and "
            "the exact epsilon are functions of the private records. Choosing one of these "
            f"{private:,} settings by them is a release of its own without noise: one record may turn it, "
            f"it can tell up to {math.log2(max(2, private)):.1f} bits about the records, and no epsilon on "
            "this page or in a later statement includes that. A run with a setting chosen so does not have "
            "the guarantee that its statement names. Choose by public or synthetic votes instead (pate plan "
            "does, and so does a sweep over a public data set), and use this page only to look back.",
            True,
        )
    names = " and ".join(sorted({row["judged_on"] for row in rows}))
    return (
        f"Judged on {names} votes: nobody's private records are in these numbers, so choosing a setting by "
        "them costs no privacy. How well it carries over to the private records is not known.",
        False,
    )


def setting(row: Row) -> str:
    """A mechanism on one line.

    >>> setting({"mechanism": {"name": "gnmax", "sigma": 40.0}})
    'gnmax sigma=40'
    """
    values = {name: value for name, value in row["mechanism"].items() if name != "name"}
    return " ".join([row["mechanism"]["name"], *(f"{name}={value:.5g}" for name, value in values.items())])


def short(row: Row) -> str:
    """The same for a narrow table: threshold, noise of the test and noise of the answer, parted by slashes.

    >>> short({"mechanism": {"name": "confident-gnmax", "threshold": 9, "sigma_threshold": 8, "sigma": 3}})
    'confident-gnmax 9/8/3'
    """
    values = [f"{value:.4g}" for name, value in row["mechanism"].items() if name != "name"]
    return f"{row['mechanism']['name']} {'/'.join(values)}"


def terminal(rows: Sequence[Row], best: Sequence[Row]) -> Table:
    """The Pareto front for a terminal."""
    picked = [f"{_SHOWN} of them, evenly picked, are listed here"] * (len(best) > _SHOWN)
    table = Table(
        title="; ".join(
            [f"Pareto front: {len(best):,} of {len(rows):,} cells", *picked, *_shared(best).values()]
        ),
        caption=f"setting: {_HEADS['setting'][0].lower()}{_HEADS['setting'][1:]}",
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE,
        padding=(0, 1),
    )
    heads = _heads(best)
    for head in heads:
        left = head in ("votes", "net", "selection", "mechanism", "setting")
        table.add_column(head, justify="left" if left else "right", overflow="fold")
    for row in thinned(best, _SHOWN):
        table.add_row(*(_cell(row, head) for head in heads))
    return table


def of_runs(rows: Sequence[Row]) -> Table:
    """Whole runs for a terminal: means over seeds, by who votes and epsilon."""
    metric = rows[0]["metric"] if rows else "accuracy"
    table = Table(box=box.SIMPLE, padding=(0, 1))
    for head in ("runs", "voters", "student", "epsilon", metric):
        table.add_column(head, justify="left" if head in ("voters", "student") else "right")
    for row in sorted(rows, key=lambda row: (row["name"], row["teachers"], row["epsilon"] or 0.0)):
        right, cells = row[f"student_{metric}"], row.get("cells", [row["cell"]])
        voters = row["name"] + (f", {row['teachers']:,} teachers" if row["teachers"] else "")
        shown = "-" if right is None else f"{right:.2%}"
        spent = "none" if row["data_independent"] is None else f"{row['data_independent']:.4f}"
        table.add_row(f"{len(cells)}", voters, row["student"], spent, shown)
    return table


def page(rows: Sequence[Row], best: Sequence[Row], figures: Sequence[tuple[str, bytes | None]]) -> str:
    """The whole page."""
    verdict, alarming = judged(rows)
    lead, _, rest = verdict.partition(".")
    inside = (
        "Keep this page inside. Its answers were drawn with a known seed, and the published and the exact "
        "epsilon are functions of the votes."
        if alarming
        else "Answers were drawn with a known seed: they serve to judge, and none of them may be used."
    )
    body = [
        f'<p class="{"warn" if alarming else "note"}"><strong>{escape(lead)}.</strong>',
        f"{escape(rest)}</p>",
        f"<p>{escape(inside)}</p>",
        f"<h2>The settings worth a look</h2><p>{_explained(rows, best)}</p>",
        _table(thinned(best, _SHOWN), _heads(best)),
        "<h2>Pictures</h2>",
        *(html.picture(caption, svg, compact=True) for caption, svg in figures if svg is not None),
        f"<details><summary>All {len(best)} cells of the front</summary>",
        _table(best, _heads(best)) + "</details>",
        _made(rows),
    ]
    return html.page("Sweep of privacy settings", body, _STYLE)


def _explained(rows: Sequence[Row], best: Sequence[Row]) -> str:
    students = any(row["student_accuracy"] is not None for row in best)
    counts = "epsilon and its student's accuracy" if students else "epsilon, answers and how many are right"
    return escape(
        f"{len(rows):,} cells were judged; {len(best)} of them are beaten by no other in {counts} together. "
        f"{f'{_SHOWN} of these, evenly picked, are listed. ' if len(best) > _SHOWN else ''}Epsilon is the "
        "price in privacy, the smaller the better; it holds for all queries asked, answered or not. "
        f"{'All of these: ' + '; '.join(_shared(best).values()) + '.' if _shared(best) else ''}"
    )


def _heads(rows: Sequence[Row]) -> list[str]:
    """The columns that are neither empty nor the same in all rows."""
    names = {"exact": "exact", "student": "student_accuracy", "right": "label_accuracy"}
    empty = {head for head, name in names.items() if all(row.get(name) is None for row in rows)}
    empty |= {head for head, name in _RANKS.items() if all(row.get(name) is None for row in rows)}
    empty.add("balanced" if all(row["classes"] == 2 for row in rows) else "AUPRC")
    if "student" not in empty:
        empty.add("published")  # no guarantee, and the table is wide as it is
    return [head for head in _HEADS if head not in empty | set(_shared(rows))]


def _shared(rows: Sequence[Row]) -> dict[str, str]:
    """What all rows have in common, in words, in place of a column."""
    common = {}
    for head, words in (
        ("votes", "{} teachers"),
        ("net", "net {}"),
        ("selection", "queries by {}"),
        ("mechanism", "{}"),
        ("asked", "{} queries asked"),
        ("delta", "delta {}"),
    ):
        values = {_cell(row, head) for row in rows}
        if len(values) == 1:
            common[head] = words.format(*values)
    return common


def _cell(row: Row, head: str) -> str:
    values: dict[str, str] = {
        "votes": f"{row['name']}, {row['teachers']}",
        "net": row.get("net") or "default",
        "selection": row.get("selection") or "-",
        "mechanism": row["mechanism"]["name"],
        "setting": short(row).partition(" ")[2],
        "asked": f"{row['queries']:,}",
        "delta": f"{row['delta']:g}",
        "answered": f"{row['answered']:,.0f}",
        "right": _percent(row["label_accuracy"]),
        "epsilon": _up(row["data_independent"]),
        "published": _up(row["published"]),
        "exact": _up(row.get("exact")),
        "student": _percent(row["student_accuracy"]) + (f" {row['student']}" if row["student"] else ""),
    }
    return values[head] if head in values else _ranked(row, head)


def _ranked(row: Row, head: str) -> str:
    """A metric of the student with its interval, where rows are of one draw."""
    value, intervals = row.get(_RANKS[head]), row.get("student_intervals")
    if value is None:
        return "-"
    if not intervals:
        return f"{value:.3f}"
    _, low, high = intervals[_RANKS[head].removeprefix("student_")]
    return f"{value:.3f} ({low:.3f}-{high:.3f})"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}%"


def _up(epsilon: float | None) -> str:
    """Three decimals, rounded up."""
    return "none" if epsilon is None else f"{math.ceil(epsilon * 1e3 - 1e-9) / 1e3:.3f}"


def _table(rows: Sequence[Row], heads: Sequence[str]) -> str:
    top = "".join(f'<th title="{escape(_HEADS[head])}">{head}</th>' for head in heads)
    lines = "".join(
        "<tr>" + "".join(f"<td>{escape(_cell(row, head))}</td>" for head in heads) + "</tr>" for row in rows
    )
    meanings = "; ".join(f"{head}: {_HEADS[head][0].lower()}{_HEADS[head][1:]}" for head in heads)
    table = f'<div class="scroll wide"><table><tr>{top}</tr>{lines}</table></div>'
    return f"{table}<p><small>{meanings}.</small></p>"


def _made(rows: Sequence[Row]) -> str:
    facts = {
        "votes": ", ".join(sorted({f"{row['name']} ({row['votes'][:12]})" for row in rows})),
        "delta": ", ".join(sorted({f"{row['delta']:g}" for row in rows})),
        "seeds": ", ".join(sorted({str(row["seed"]) for row in rows})),
        "made with": "; ".join(
            sorted({", ".join(f"{k} {v}" for k, v in row["versions"].items()) for row in rows})
        ),
    }
    return html.folded("How it was made", html.table(facts))
