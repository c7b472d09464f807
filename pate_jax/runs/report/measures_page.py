"""The measures of two classes as a clinic reads them, and what the private records have bought."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from pate_jax.accounting.plots import canvas, rendered
from pate_jax.runs.report import html

ALONE, FREQUENT, THIS = "public labels alone", "the most frequent class", "this student"
Rows = Sequence[Mapping[str, Any]]
_SIZE = (4.8, 3.2)  # inches
_MEANING = {
    "auroc": ("AUROC", "the chance that a row with the outcome is ranked above one without; 0.5 is guessing"),
    "auprc": ("AUPRC", "average precision; guessing reaches the share of the outcome"),
    "brier": ("Brier score", "mean squared error of the probability; smaller is better"),
    "intercept": ("Calibration intercept", "0 is best; above 0 outcomes are more frequent than is said"),
    "slope": ("Calibration slope", "1 is best; below 1 probabilities are too extreme"),
}
_SHARES = ("sensitivity", "specificity", "positive_value", "negative_value")
_OF_GROUPS = ("Rows", "Outcomes", "Right", "AUROC", "Sensitivity", "Specificity")
_HEADS = ("Threshold", "Outcomes found", "Others spared", "Right if called", "Right if not")


def told(results: Mapping[str, Any]) -> list[str]:
    """The sentence that the terminal, pages and the card share."""
    found = results.get("measures") or {}
    if "auroc" not in found:
        return []
    at = {row["threshold"]: row for row in found["thresholds"]}
    catches = "; ".join(
        f"at a threshold of {threshold:g} it finds {_percent(at[threshold]['sensitivity'])} of them"
        for threshold in (0.5, 0.2)
    )
    return [
        f"For {found['positive']} ({found['outcomes']:,} of {found['rows']:,} rows): AUROC "
        f"{_value(found['auroc'])}, AUPRC {_value(found['auprc'])}, calibration error "
        f"{found['calibration_error']:.3f}; {catches}."
    ]


def tables(results: Mapping[str, Any]) -> list[tuple[Sequence[str], list[list[str]]]]:
    """Heads and rows of what a model card shows of two classes: thresholds, and groups if asked for."""
    found = results.get("measures") or {}
    if "auroc" not in found:
        return []
    rows = [
        [f"{row['threshold']:g}", *(_percent(row[name], interval=True) for name in _SHARES)]
        for row in found["thresholds"]
    ]
    groups = [((found["by"], *_OF_GROUPS), _group_rows(found))] if "groups" in found else []
    return [(("Threshold", "Sensitivity", "Specificity", "PPV", "NPV"), rows), *groups]


def section(results: Mapping[str, Any]) -> list[str]:
    """All measures on a page; of more than two classes their averages."""
    found = results.get("measures")
    if not found:
        return []
    if "auroc" not in found:
        return _averages(found["averages"])
    counted = f"{found['outcomes']:,} of {found['rows']:,} test rows"
    people = (
        f", of {found['users']:,} users, who are drawn as a whole" if found["users"] < found["rows"] else ""
    )
    said = f"<p>The outcome {escape(found['positive'])} is that of {counted}{people}. Intervals are 95%.</p>"
    body = [
        [escape(name), escape(_value(found[key])), escape(meaning)]
        for key, (name, meaning) in _MEANING.items()
    ]
    far, luck = f"{found['calibration_error']:.3f}", found.get("calibration_luck")
    meaning = "how far outcomes lie from what is said, on average"
    meaning += "" if luck is None else f"; true probabilities show {luck:.3f} on so few rows"
    body.append(["Calibration error", far, meaning])
    return [
        html.heading(f"How well it tells {found['positive']}"),
        said,
        html.rows(("Measure", "Value", "Meaning"), body),
        *_thresholds(found),
        *_groups(found),
    ]


def pictures(results: Mapping[str, Any]) -> list[str]:
    """Calibration and net benefit, for the owner: a page that is handed over holds no such file."""
    found = results.get("measures") or {}
    if "auroc" not in found:
        return []
    said = "What the student says, and what happens: each dot is a tenth of the rows; below, their middles."
    return [
        html.heading(f"Calibration and net benefit for {found['positive']}"),
        html.picture(said, _bins(found), compact=True),
        html.picture("Net benefit beside calling all or nobody.", _net_benefit(found), compact=True),
    ]


def _averages(found: Mapping[str, float]) -> list[str]:
    body = [[name.capitalize(), f"{value:.1%}"] for name, value in found.items()]
    return [html.heading("Means over the classes"), html.rows(("Measure", "Mean"), body)]


def _thresholds(found: Mapping[str, Any]) -> list[str]:
    rows: Sequence[Mapping[str, Any]] = found["thresholds"]
    short = [[f"{row['threshold']:g}", *(_percent(row[name]) for name in _SHARES)] for row in rows]
    heads = ("Threshold", "Called", "Sensitivity", "Specificity", "PPV", "NPV", "Net benefit")
    whole = [
        [
            f"{row['threshold']:g}",
            f"{row['called']:,}",
            *(_percent(row[name], interval=True) for name in _SHARES),
            _value(row["net_benefit"]),
        ]
        for row in rows
    ]
    said = "<p>Whoever has at least this probability is called; which errors cost more decides where.</p>"
    return [
        said,
        html.rows(_HEADS, short),
        html.folded("Thresholds with intervals and net benefit", html.rows(heads, whole)),
    ]


def _groups(found: Mapping[str, Any]) -> list[str]:
    if "groups" not in found:
        return []
    body = [[escape(group), *cells] for group, *cells in _group_rows(found)]
    title = f"By {found['by']}, at a threshold of 0.5"
    return [f"<h3>{escape(title)}</h3>", html.scrolling(html.rows(("Group", *_OF_GROUPS), body), title)]


def _group_rows(found: Mapping[str, Any]) -> list[list[str]]:
    """The figures of each group, as they are read."""
    return [
        [
            row["group"],
            f"{row['rows']:,}",
            f"{row['outcomes']:,}",
            _percent(row["right"], interval=True),
            _value(row["auroc"]),
            *(_percent(row[name], interval=True) for name in ("sensitivity", "specificity")),
        ]
        for row in found["groups"]
    ]


def _value(found: Sequence[float | None]) -> str:
    """A figure with its interval.

    >>> _value([0.7941, 0.78, 0.81]), _value([None, None, None])
    ('0.794 (0.780 to 0.810)', 'not defined')
    """
    value, low, high = found
    if value is None or low is None or high is None:
        return "not defined"
    return f"{value:.3f} ({low:.3f} to {high:.3f})"


def _percent(found: Sequence[float | None], *, interval: bool = False) -> str:
    value, low, high = found
    if value is None or low is None or high is None:
        return "-"
    return f"{value:.0%}" + f" ({low:.0%} to {high:.0%})" * interval


def _bins(found: Mapping[str, Any]) -> bytes:
    figure, axes = canvas("probability that the student says", "share with the outcome", _SIZE)
    axes.plot([0, 1], [0, 1], color="#9aa0a6", linewidth=1)
    said, happens = zip(*((one["said"], one["outcomes"]) for one in found["bins"]), strict=True)
    axes.plot(said, happens, "o-", color="#2b6cb0")
    for outcome, (spread, colour) in enumerate(zip(found["by_outcome"], ("#4a4a4a", "#c8553d"), strict=True)):
        low, _, middle, _, high = spread
        height = -0.06 - 0.06 * outcome
        axes.plot([low, high], [height, height], color=colour, linewidth=3, alpha=0.5)
        axes.plot([middle], [height], "|", color=colour, markersize=9)
        axes.text(high + 0.01, height, ("without", "with")[outcome], va="center", fontsize=8, color=colour)
    axes.set_ylim(-0.17, 1.02)
    return rendered(figure)


def _net_benefit(found: Mapping[str, Any]) -> bytes:
    figure, axes = canvas("threshold", "net benefit", _SIZE)
    rows = found["thresholds"]
    at = [row["threshold"] for row in rows]
    value, low, high = zip(*(row["net_benefit"] for row in rows), strict=True)
    axes.fill_between(at, low, high, color="#2b6cb0", alpha=0.2)
    axes.plot(at, value, "o-", color="#2b6cb0", label="this student")
    axes.plot(at, [row["of_calling_all"] for row in rows], color="#9aa0a6", label="calling all")
    axes.axhline(0, color="#4a4a4a", linewidth=1, label="calling nobody")
    axes.set_ylim(min(-0.02, *low), 1.15 * max(0.02, *high))
    axes.legend(frameon=False)
    return rendered(figure)


def verdict(rows: Rows) -> str | None:
    """The best of what costs no privacy, and whether the student is better, in a sentence.

    >>> alone = {"name": ALONE, "right": 90, "inputs": 100, "lead": [0.01, -0.02, 0.04]}
    >>> verdict([alone])
    'Public labels alone are right on 90.0%, and the student is not surely better.'
    """
    rivals = [row for row in rows if row["name"] != THIS]
    if not rivals:
        return None
    best = max(rivals, key=lambda row: row["right"])
    gain, low, high = best["lead"]
    verb = "are" if best["name"] == ALONE else "is"
    said = f"{best['name'].capitalize()} {verb} right on {html.share(best['right'], best['inputs'])}"
    if low > 0:
        return f"{said}: the private records bought {100 * gain:.1f} points."
    if high < 0:
        return f"{said}, {-100 * gain:.1f} points more than the student: the private records bought nothing."
    return f"{said}, and the student is not surely better."


def told_bought(results: Mapping[str, Any]) -> list[str]:
    """The verdict, where there is one."""
    said = verdict(results.get("bought", []))
    return [] if said is None else [said + _areas(results["bought"])]


def _areas(rows: Rows) -> str:
    """The AUROC of all that learned, of two classes.

    >>> _areas([{"name": ALONE, "auroc": 0.71}, {"name": THIS, "auroc": 0.8249}])
    ' AUROC: public labels alone 0.710, this student 0.825.'
    """
    learned = [row for row in rows if row["name"] != FREQUENT and row["auroc"] is not None]
    figures = ", ".join(f"{row['name']} {row['auroc']:.3f}" for row in learned)
    return f" AUROC: {figures}." if learned else ""


def bought(rows: Rows) -> list[str]:
    """The rows on a page, and what follows from them."""
    said = verdict(rows)
    if said is None:
        return []
    areas = all(row["auroc"] is not None for row in rows)
    heads = ("Learned from", "Right", "95% interval", *(["AUROC"] if areas else []))
    body = [
        [
            escape(row["name"]),
            html.bar(row["right"] / row["inputs"], html.share(row["right"], row["inputs"])),
            html.interval(row["low"], row["high"]),
            *([f"{row['auroc']:.3f}"] if areas else []),
        ]
        for row in rows
    ]
    free = "The rows above this student read no private record and cost no privacy."
    return [html.heading("What the private records bought"), f"<p>{said} {free}</p>", html.rows(heads, body)]
