"""What a person reads of a run: the two pages, and the lines that it ends with.

`private/report.html` shows all, `release/report.html` only what may be published. Both are single files that
need no network and fit a phone as well; what only experts look for is folded.
Where no figure is sensitive the two hardly differ: the private one has the run's settings too, with the paths
of files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from pate_jax.accounting import Statement, TrainingStatement, plots, trade_off
from pate_jax.accounting.plots import canvas, rendered
from pate_jax.accounting.statement import NOT_PRIVATE
from pate_jax.mechanisms.stable import AnyMechanism, StableAnswers
from pate_jax.runs import measured
from pate_jax.runs.report import attacks, html, measures_page, sections, words

CONSENSUS = (
    "How far the teachers agree: queries by the share of teachers behind the commonest vote. Sensitive."
)
CUMULATIVE = "What the queries cost, one after the other, by way of accounting. Sensitive."
BY_CONSENSUS = "What a query costs, by the share of teachers that agree on it. Sensitive."
SPLIT = "Where the cost goes: the test, the answer, and the price of delta. Sensitive."
ACCURACY = "How often each is right on public data, in %. The teachers' and the vote's figures are sensitive."
_MAY_LEAVE = ". Only what lies in the folder release/ may leave the house"
_TRAINED = (
    "One net was trained on the private records themselves, by DP-SGD: each record's gradient was cut to a "
    "longest length, and random noise was added to the sum of each step. No teachers voted, and no public "
    "input was labelled."
)
_SIZE = (4.8, 2.6)  # of a picture, in inches: as wide as a phone
_FOR_EXPERTS = (CUMULATIVE, BY_CONSENSUS, SPLIT)


def private_page(
    results: Mapping[str, Any],
    statement: Any,
    figures: Sequence[tuple[str, bytes]],
    details: Mapping[str, Mapping[str, Any]],
    sheet: Mapping[str, Any] | None = None,
    attacked: Mapping[str, Any] | None = None,
) -> str:
    """The whole report, for the owner of the data only; `statement` is the accountant's.

    `attacked` is what attacks found.
    """
    warning = keep_inside(results, "It shows figures that depend on the private data.")
    body = [
        head(results),
        warning,
        sections.headline(results, statement),
        _short(results, "" if "trial" in results else _MAY_LEAVE),
        "<h2>What one person risks</h2>",
        promised(statement),
    ]
    body += [_own_promise(statement), html.folded("All figures of the accountant", statement.html())]
    body += [*sections.every(results, sheet), *measures_page.pictures(results)]
    body += _of_the_votes(details)
    body += attacks.private(attacked)
    body += [
        "<h2>Pictures</h2>",
        *(html.picture(*one, compact=True) for one in figures if one[0] not in _FOR_EXPERTS),
    ]
    experts = "".join(html.picture(*one) for one in figures if one[0] in _FOR_EXPERTS)
    body += [f"<details><summary>Pictures for those who check the figures</summary>{experts}</details>"]
    body += [
        html.folded(title.capitalize(), html.table(content)) for title, content in details.items() if content
    ]
    return html.page(f"Run report: {words.title(results)} (private)", body)


def plain_page(
    results: Mapping[str, Any],
    statement: Any,
    settings: Mapping[str, Any],
    sheet: Mapping[str, Any] | None = None,
    attacked: Mapping[str, Any] | None = None,
) -> str:
    """The report for the owner where no figure is sensitive; `attacked` is what attacks found."""
    warning = keep_inside(results, "It names files and settings of the run.")
    first, *rest = _body(results, statement, sheet)
    body = [first, warning, *rest, *measures_page.pictures(results), *attacks.private(attacked)]
    body += [html.folded("Settings", html.table(settings))]
    return html.page(f"Run report: {words.title(results)} (private)", body)


def public_page(results: Mapping[str, Any], statement: Any, sheet: Mapping[str, Any] | None = None) -> str:
    """The report that goes with the student: publishable figures only."""
    results = measured.published(results)
    return html.page(f"Student report: {words.title(results)}", _body(results, statement, sheet))


def _body(results: Mapping[str, Any], statement: Any, sheet: Mapping[str, Any] | None) -> list[str]:
    return [
        head(results),
        sections.headline(results, statement),
        _short(results),
        "<h2>What one person risks</h2>",
        promised(statement),
        f"<p>For experts: {escape(statement.model_card_line())}</p>",
        explained(),
        html.folded("The figures", _figures(statement)),
        *sections.every(results, sheet),
    ]


def _figures(statement: Any) -> str:
    """The figures that may be published; both of a training, each with what it covers."""
    if not isinstance(statement, TrainingStatement):
        return str(statement.html(publishable_only=True))
    rows = {
        name.replace("_", " "): "no finite epsilon"
        if one.epsilon is None
        else f"{one.epsilon:.4f}: {one.note}"
        for name, one in statement.figures.items()
    }
    return f"{html.table(rows)}<p>All releases together: {escape(statement.trade_off.words)}.</p>"


def consensus(votes: np.ndarray, answered: np.ndarray) -> bytes:
    """SVG: how many queries have how large a share of votes for their first class. Sensitive."""
    share = votes.max(1) / np.maximum(votes.sum(1), 1)
    figure, axes = canvas("share of the teachers that agree", "queries", _SIZE)
    edges = np.linspace(0, 1, 21)
    axes.hist(
        [share[answered], share[~answered]],
        edges,
        stacked=True,
        label=["answered", "refused"],
        color=["#2b6cb0", "#c9d3e0"],
    )
    axes.legend(frameon=False)
    return rendered(figure)


def costs(mechanism: AnyMechanism, votes: np.ndarray, delta: float) -> list[tuple[str, bytes]]:
    """The pictures of what each query costs; none of stable answers, whose cost is the whole list's, nor of
    noisy counts, whose queries cost the same.
    """
    if isinstance(mechanism, StableAnswers) or mechanism.releases_counts:
        return []
    titles = (CUMULATIVE, BY_CONSENSUS, SPLIT)
    return list(zip(titles, plots.every(mechanism, votes, delta), strict=True))


def accuracies(results: Mapping[str, Any], inside: Mapping[str, Any]) -> bytes:
    """SVG: accuracy of one teacher, of the vote, of the noisy answers and of the student. Sensitive."""
    rows = [
        ("one teacher\n(mean)", inside.get("accuracy", {}).get("mean")),
        ("all teachers' vote\nwithout noise", inside.get("accuracy", {}).get("plurality")),
        ("noisy answers", results["label_accuracy"]),
        ("student", results["student_accuracy"]),
    ]
    rows = [(name, value) for name, value in rows if value is not None]
    figure, axes = canvas("accuracy on public data, %", "", _SIZE)
    names, values = [name for name, _ in rows][::-1], [100 * value for _, value in rows][::-1]
    bars = axes.barh(names, values, color="#2b6cb0")
    axes.bar_label(bars, fmt="%.1f", padding=3)
    axes.set_xlim(0, 108)
    return rendered(figure)


def sentences(results: Mapping[str, Any]) -> list[str]:
    """What came of it."""
    asked, answered, teachers = results["queries"], results["answered"], results["teachers"]
    lines = [
        f"{teachers} teachers were asked about {asked:,} public inputs and answered {answered:,} of them."
    ]
    if results.get("cutoff") is not None:
        lines.append(_ended(asked - answered, results["cutoff"]))
    if results["label_accuracy"] is not None:
        what = "largest noisy counts" if results.get("counts") else "answers"
        lines.append(f"{results['label_accuracy']:.1%} of the {what} are right.")
    by_query = results.get("cutoff") is None  # a list of stable answers is charged as a whole
    return (
        lines
        + words.near(asked, results.get("near"), charged=by_query)
        + words.learned(results)
        + measures_page.told(results)
        + measures_page.told_bought(results)
    )


def _ended(unanswered: int, cutoff: int) -> str:
    """Whether a list of stable answers has ended."""
    if unanswered < cutoff:
        return f"Their list of stable answers goes on until {cutoff - unanswered:,} more are not answered."
    return (
        "The last of these was not answered and ended the list: nothing more can be asked of these teachers."
    )


def _of_the_votes(inside: Mapping[str, Any]) -> list[str]:
    """What only the owner may know of the teachers."""
    lines = []
    if "teachers" in inside:
        size = inside["teachers"]["shard_size"]
        lines.append(
            f"A teacher had {size['least']} to {size['most']} records, {size['mean']:.0f} on average."
        )
    if "accuracy" in inside:
        mean, vote = inside["accuracy"]["mean"], inside["accuracy"]["plurality"]
        lines.append(
            f"A teacher is right on {mean:.1%} of the queries, and the vote without noise on {vote:.1%}. "
            "Both are sensitive."
        )
    return [html.heading("The teachers"), f"<p>{' '.join(lines)}</p>"] if lines else []


def head(results: Mapping[str, Any]) -> str:
    """What must be said first: of a trial, of a seeded run, and of synthetic data."""
    said = [results["trial"]] if "trial" in results else []
    said += [] if results["private"] else [NOT_PRIVATE]
    alarm = "".join(f'<p class="warn"><strong>{escape(one)}</strong></p>' for one in said)
    synthetic = f'<p class="note">{words.SYNTHETIC}</p>' if results["synthetic"] else ""
    return f"{alarm}<p>{escape(results['data'])}</p>{synthetic}"


def keep_inside(results: Mapping[str, Any], why: str) -> str:
    """The warning of a page for the owner alone, and which page is for others; of a trial none is."""
    other = "" if "trial" in results else " The page in release/ is the one to hand over."
    return f'<p class="warn"><strong>Keep this page inside.</strong> {why}{other}</p>'


def _short(results: Mapping[str, Any], also: str = "") -> str:
    if "explained" in results:  # a method in one file says itself how it went
        said = escape(results["explained"])
    elif "voters" in results:
        said = words.explained(results)
    elif "teachers" not in results:
        said = _TRAINED
    else:
        said = (
            "The private records were cut into separate parts and one teacher model was trained on each. The "
            f"teachers voted on public inputs, {_noise(results)}{_beside(results)}. It never saw a "
            f"private record{also}."
        )
    return f"<h2>In short</h2><p>{said}</p><p>{escape(' '.join(_told(results)))}</p>"


def _told(results: Mapping[str, Any]) -> list[str]:
    """What came of a run, in sentences."""
    if "explained" in results or not {"voters", "teachers"} & {*results}:
        return words.learned(results)
    return words.sentences(results) if "voters" in results else sentences(results)


def _noise(results: Mapping[str, Any]) -> str:
    """Where the noise was, and what the student had of it."""
    if results.get("cutoff") is None:
        return "random noise was added to their votes, and a student model learned from the noisy answers"
    return (
        "those votes that a noisy test found to be far from a change were answered as they were, and a "
        "student model learned from these answers"
    )


def _beside(results: Mapping[str, Any]) -> str:
    also = " and from public labels" if "learned_from_public_labels" in results else ""
    return (
        also
        if results.get("method") in (None, "supervised")
        else f" and from public inputs without answers{also}"
    )


def promised(statement: Any) -> str:
    """The publishable figures in sentences."""
    if not statement.private:
        return "<p><strong>Nothing is promised: the noise can be drawn again by anyone.</strong></p>"
    if statement.headline.epsilon is None:
        return (
            f"<p>No finite figure holds at delta = {statement.delta:g}: nothing can be promised.</p>"
            f"<p>All releases together: {escape(statement.trade_off.words)}.</p>"
        )
    holds = "This holds whatever the private records are."
    right = trade_off.percent(statement.trade_off.guess)
    said = escape(_sentence(statement)).replace(right, f"<strong>{right}</strong>")
    return f'<p class="big">{said} {holds}</p>'


def _own_promise(statement: Any) -> str:
    epsilon = statement.figures[statement.smallest].epsilon
    if not statement.private or epsilon is None or statement.smallest == "data_independent":
        return ""
    guess = min(trade_off.variation(epsilon, statement.delta), 2 * statement.trade_off.guess - 1)
    return (
        f"<p>For the votes that these teachers gave, a smaller epsilon holds: {epsilon:.2f}, rounded, and a "
        f"guess that is right at most <strong>{trade_off.percent((1 + guess) / 2)}</strong> of the time. It "
        "is computed from the private votes and would tell something about them, so it is for your eyes "
        "only.</p>"
    )


def _sentence(statement: Any) -> str:
    """What a guesser can reach at most, which says to everybody what the figures mean."""
    guess = {
        "record": "whether one particular record is in the private data",
        "user": "whether all records of one person are in the private data",
        "contents": "which of two contents one particular record of the private data has",
        "party": "which of two collections of records one particular party holds",
    }
    curve = statement.trade_off
    right = trade_off.percent(curve.guess)
    apart = f", {curve.apart}" if curve.apart else ""
    declared = " Whom this covers is as declared by the makers of the votes." if statement.declared else ""
    return (
        f"Somebody who sees everything that is released{apart}, who knows all other records, and who guesses "
        f"{guess[statement.relation]}, is right at most {right} of the time. "
        f"Guessing blindly is right 50% of the time.{declared}"
    )


def explained() -> str:
    """The words of the guarantee, folded."""
    return (
        "<details><summary>What the words mean</summary><p><em>Differentially private</em>: what is released "
        "would have come out almost as likely if the one record had been left out. <em>Epsilon</em> says how "
        "much more likely at most: 0 is perfect, each 0.7 doubles it. <em>Delta</em> is a small probability "
        "that is allowed to fall outside of that. <em>Data-independent</em>: the figure reads nothing from "
        "the private data, so it may be told to anyone.</p></details>"
    )


def summary(results: Mapping[str, Any], statement: Statement) -> str:
    """What came of a run, and its publishable figures; the sensitive ones stand on the owner's page."""
    lines = [results["trial"]] if "trial" in results else []
    lines += [] if results["private"] else [NOT_PRIVATE]
    lines += _headlines(results, statement)
    lines += ["", f"Run {results['run_dir']}: {results['data']}."]
    lines += [words.SYNTHETIC] if results["synthetic"] else []
    lines += [*_told(results), ""]
    lines += [f"Pictures and all figures: {results['run_dir']}/private/report.html"]
    return "\n".join([*lines, *last_lines(results)])


def _headlines(results: Mapping[str, Any], statement: Statement) -> list[str]:
    """The figure to publish, and what it means for one person; nothing where nothing is promised."""
    if not results["private"]:
        return []
    name = "Privacy of the private part" if "trial" in results else "Publishable"
    finite = statement.headline.epsilon is not None
    return [f"{name}: {words.headline(statement)}.", *([_sentence(statement)] if finite else [])]


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
