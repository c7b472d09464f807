"""What a person reads of a run: the summary in the terminal and the two pages.

`private/report.html` shows all, `release/report.html` only what may be published. Both are single files that
need no network and are read on a phone as well; what only experts look for is folded. `page`, `picture` and
`folded` are what other pages are made of.
"""

from __future__ import annotations

import base64
import html
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pate_jax import __version__

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:54rem;margin:2rem auto;padding:0 1rem;color:#1c2330}
h1{font-size:1.6rem;margin-bottom:.2rem} h2{font-size:1.2rem;margin-top:2rem}
table{border-collapse:collapse;width:100%;margin:.5rem 0;font-size:.95rem}
td,th{padding:.35rem .6rem;text-align:left;border-bottom:1px solid #d8dde6;vertical-align:top}
.scroll{overflow-x:auto} .scroll td:last-child{min-width:13rem}
img{width:100%;min-width:27rem;height:auto} img.compact{min-width:0;max-width:36rem}
pre{white-space:pre-wrap} td:last-child,p,li{overflow-wrap:anywhere}
figure{margin:1.2rem 0} figcaption{color:#4b5565;font-size:.92rem}
.big{font-size:1.1rem} .warn{background:#fdecea;border-left:4px solid #b3261e;padding:.6rem 1rem}
.note{background:#eef4fb;border-left:4px solid #2b6cb0;padding:.6rem 1rem}
details{margin:1rem 0} summary{cursor:pointer;font-weight:600}
"""
CONSENSUS = (
    "How far the teachers agree: queries by the share of teachers behind the commonest vote. Sensitive."
)
CUMULATIVE = "What the queries cost, one after the other, by way of accounting. Sensitive."
BY_CONSENSUS = "What a query costs, by the share of teachers that agree on it. Sensitive."
SPLIT = "Where the cost goes: the test, the answer, and the price of delta. Sensitive."
ACCURACY = "How often each is right on public data, in %. The teachers' and the vote's figures are sensitive."
_MAY_LEAVE = ". Only what lies in the folder release/ may leave the house"
_FOR_EXPERTS = (CUMULATIVE, BY_CONSENSUS, SPLIT)
NOT_PRIVATE = "NOT PRIVATE: this run was made from a seed, so anyone can draw its noise again."
_SYNTHETIC = "The data is synthetic: it was drawn by a program, and nobody's records are in it."


def summary(results: Mapping[str, Any], statement_text: str) -> str:
    """The lines that a run ends with in the terminal."""
    lines = [] if results["private"] else [NOT_PRIVATE]
    lines += [f"Run {results['run_dir']}: {results['data']}."]
    lines += [_SYNTHETIC] if results["synthetic"] else []
    lines += [*_sentences(results), *_inside(results["inside"]), "", statement_text.rstrip(), ""]
    lines += [f"Hand over {results['run_dir']}/release, and keep {results['run_dir']}/private to yourself."]
    return "\n".join(lines)


def private_page(
    results: Mapping[str, Any],
    statement: Any,
    figures: Sequence[tuple[str, bytes]],
    details: Mapping[str, Mapping[str, Any]],
) -> str:
    """The whole report, for the owner of the data only; `statement` is the accountant's."""
    warning = (
        '<p class="warn"><strong>Keep this page inside.</strong> It shows figures that depend on the private '
        "data. The page in release/ is the one to hand over.</p>"
    )
    body = [
        _head(results),
        warning,
        _short(results, _MAY_LEAVE),
        "<h2>What one person risks</h2>",
        _promised(statement),
    ]
    body += [_own_promise(statement), _opened("All figures of the accountant", statement.html())]
    body += [
        "<h2>Pictures</h2>",
        *(picture(*one, compact=True) for one in figures if one[0] not in _FOR_EXPERTS),
    ]
    experts = "".join(picture(*one) for one in figures if one[0] in _FOR_EXPERTS)
    body += [f"<details><summary>Pictures for those who check the figures</summary>{experts}</details>"]
    body += [folded(title.capitalize(), content) for title, content in details.items() if content]
    return page(f"Run report: {results['dataset']} (private)", body)


def public_page(results: Mapping[str, Any], statement: Any) -> str:
    """The report that goes with the student: publishable figures only."""
    body = [_head(results), _short(results), "<h2>What one person risks</h2>", _promised(statement)]
    body += [f"<p>For experts: {html.escape(statement.model_card_line())}</p>", _explained()]
    body += [_opened("The figures", statement.html(publishable_only=True))]
    return page(f"Student report: {results['dataset']}", body)


def odds(epsilon: float, delta: float) -> str:
    """How often a guess whether somebody is in the data can be right, from any (epsilon, delta) release.

    `(e^epsilon + delta) / (1 + e^epsilon)`, of a guesser who starts from even odds and knows everything else;
    rounded up.

    >>> odds(0.0, 0.0), odds(1.0, 1e-5), odds(6.42, 1e-5)
    ('50.0%', '73.2%', '99.84%')
    """
    wrong = 1 / (1 + math.exp(min(epsilon, 700.0)))
    chance = min(1.0, (1 - wrong) + delta * wrong)
    digits = 1 if chance < 0.99 else 2 if chance < 0.999 else 4
    return f"{math.ceil(round(chance * 10 ** (2 + digits), 6)) / 10**digits:.{digits}f}%"


def consensus(votes: np.ndarray, answered: np.ndarray) -> bytes:
    """SVG: how many queries have how large a share of votes for their first class. Sensitive."""
    share = votes.max(1) / np.maximum(votes.sum(1), 1)
    figure, axes = _axes("share of the teachers that agree", "queries")
    edges = np.linspace(0, 1, 21)
    axes.hist(
        [share[answered], share[~answered]],
        edges,
        stacked=True,
        label=["answered", "refused"],
        color=["#2b6cb0", "#c9d3e0"],
    )
    axes.legend(frameon=False)
    return _svg(figure)


def accuracies(results: Mapping[str, Any], inside: Mapping[str, Any]) -> bytes:
    """SVG: accuracy of one teacher, of the vote, of the noisy answers and of the student. Sensitive."""
    rows = [
        ("one teacher\n(mean)", inside.get("accuracy", {}).get("mean")),
        ("all teachers' vote\nwithout noise", inside.get("accuracy", {}).get("plurality")),
        ("noisy answers", results["label_accuracy"]),
        ("student", results["student_accuracy"]),
    ]
    rows = [(name, value) for name, value in rows if value is not None]
    figure, axes = _axes("accuracy on public data, %", "")
    names, values = [name for name, _ in rows][::-1], [100 * value for _, value in rows][::-1]
    bars = axes.barh(names, values, color="#2b6cb0")
    axes.bar_label(bars, fmt="%.1f", padding=3)
    axes.set_xlim(0, 108)
    return _svg(figure)


def _sentences(results: Mapping[str, Any]) -> list[str]:
    asked, answered, teachers = results["queries"], results["answered"], results["teachers"]
    lines = [
        f"{teachers} teachers were asked about {asked:,} public inputs and answered {answered:,} of them."
    ]
    if results["label_accuracy"] is not None:
        lines.append(f"{results['label_accuracy']:.1%} of the answers are right.")
    if results["student_accuracy"] is not None:
        lines.append(f"The student is right on {results['student_accuracy']:.1%} of the public test inputs.")
    return lines


def _inside(inside: Mapping[str, Any]) -> list[str]:
    lines = []
    if "teachers" in inside:
        size = inside["teachers"]["shard_size"]
        lines.append(
            f"Inside: a teacher had {size['least']} to {size['most']} records, {size['mean']:.0f} on average."
        )
    if "accuracy" in inside:
        mean, vote = inside["accuracy"]["mean"], inside["accuracy"]["plurality"]
        lines.append(
            f"Inside: a teacher is right on {mean:.1%} of the queries, the vote without noise on {vote:.1%}."
        )
    return lines


def _head(results: Mapping[str, Any]) -> str:
    alarm = "" if results["private"] else f'<p class="warn"><strong>{NOT_PRIVATE}</strong></p>'
    synthetic = f'<p class="note">{_SYNTHETIC}</p>' if results["synthetic"] else ""
    return f"{alarm}<p>{html.escape(results['data'])}</p>{synthetic}"


def _short(results: Mapping[str, Any], also: str = "") -> str:
    explained = (
        "The private records were cut into separate parts and one teacher model was trained on each. The "
        "teachers voted on public inputs, random noise was added to their votes, and a student model learned "
        f"from the noisy answers{_beside(results)}. It never saw a private record{also}."
    )
    return f"<h2>In short</h2><p>{explained}</p><p>{' '.join(_sentences(results))}</p>"


def _beside(results: Mapping[str, Any]) -> str:
    return "" if results.get("method") in (None, "supervised") else " and from public inputs without answers"


def _promised(statement: Any) -> str:
    """The publishable figure in a sentence."""
    if not statement.private:
        return "<p><strong>Nothing is promised: the noise can be drawn again by anyone.</strong></p>"
    epsilon = statement.headline.epsilon
    if epsilon is None:
        return f"<p>No finite figure holds at delta = {statement.delta:g}: nothing can be promised.</p>"
    return f'<p class="big">{_sentence(statement, epsilon)} This holds whatever the private records are.</p>'


def _own_promise(statement: Any) -> str:
    epsilon = statement.figures[statement.smallest].epsilon
    if not statement.private or epsilon is None or statement.smallest == "data_independent":
        return ""
    return (
        "<p>For the votes that these teachers gave, a smaller figure holds: at most "
        f"<strong>{odds(epsilon, statement.delta)}</strong> (epsilon {epsilon:.2f}, rounded). It is computed "
        "from the private votes and would tell something about them, so it is for your eyes only.</p>"
    )


def _sentence(statement: Any, epsilon: float) -> str:
    guess = {
        "record": "whether one particular record is in the private data",
        "user": "whether all records of one person are in the private data",
        "contents": "which of two contents one particular record of the private data has",
        "party": "which of two collections of records one particular party holds",
    }
    declared = " Whom this covers is as declared by the makers of the votes." if statement.declared else ""
    return (
        "Somebody who sees everything that is released, who knows all other records, and who guesses "
        f"{guess[statement.relation]}, is right at most <strong>{odds(epsilon, statement.delta)}"
        f"</strong> of the time. Guessing blindly is right 50% of the time.{declared}"
    )


def _explained() -> str:
    return (
        "<details><summary>What the words mean</summary><p><em>Differentially private</em>: what is released "
        "would have come out almost as likely if the one record had been left out. <em>Epsilon</em> says how "
        "much more likely at most: 0 is perfect, each 0.7 doubles it. <em>Delta</em> is a small probability "
        "that is allowed to fall outside of that. <em>Data-independent</em>: the figure reads nothing from "
        "the private data, so it may be told to anyone.</p></details>"
    )


def _scrolling(fragment: str) -> str:
    return f'<div class="scroll">{fragment}</div>'


def picture(caption: str, svg: bytes, *, compact: bool = False) -> str:
    """A figure with its caption; on a narrow screen it scrolls by itself, unless it is drawn small enough."""
    encoded = base64.b64encode(svg).decode()
    text, kind = html.escape(caption), ' class="compact"' if compact else ""
    image = _scrolling(f'<img{kind} alt="{text}" src="data:image/svg+xml;base64,{encoded}">')
    return f"<figure>{image}<figcaption>{text}</figcaption></figure>"


def folded(title: str, content: Mapping[str, Any]) -> str:
    """A table of names and values that is folded until somebody asks for it."""
    cells = [
        f"<tr><td>{html.escape(name)}</td><td>{html.escape(value)}</td></tr>"
        for name, value in _flat(content)
    ]
    return _opened(html.escape(title), f"<table>{''.join(cells)}</table>")


def _opened(title: str, fragment: str) -> str:
    return f"<details><summary>{title}</summary>{_scrolling(fragment)}</details>"


def _flat(content: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, value in content.items():
        if isinstance(value, Mapping):
            rows += _flat(value, f"{prefix}{name} · ")
        else:
            rows.append((f"{prefix}{name}".replace("_", " "), _shown(value)))
    return rows


def _shown(value: Any) -> str:
    if value is None:
        return "not set"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def page(title: str, body: Sequence[str], style: str = "") -> str:
    """A whole page from fragments; `style` adds to the common one. No scripts, nothing from elsewhere."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width, initial-scale=1"><title>{html.escape(title)}</title>'
        f'<link rel="icon" href="data:,"><style>{_STYLE}{style}</style></head>'
        f"<body><h1>{html.escape(title)}</h1>"
        f"{''.join(body)}<p><small>pate_jax {__version__}</small></p></body></html>\n"
    )


def _axes(x_label: str, y_label: str):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.8, 2.6), layout="constrained")  # as wide as a phone
    axes = figure.subplots()
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _svg(figure) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()
