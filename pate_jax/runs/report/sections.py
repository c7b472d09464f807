"""What both pages of every run show beside the guarantee: how good the student is, and what was answered.

All of it may be published, since it follows from public inputs, public labels, released answers and the
student. Only what was measured on private test rows may not: `runs.measured.published` takes it out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from pate_jax.accounting import Statement
from pate_jax.crowd.metric import Metric
from pate_jax.data.readable import MISSING
from pate_jax.runs.report import attacks, html, measures_page, numbers, words

_WORST = 12  # classes that are shown before the rest is folded


_LIMITS = (
    "<p><small>Covered: what anybody can learn of the one whom the figure names. Not covered: "
    "what holds for everybody alike, public inputs, and other releases of the same records.</small></p>"
)


def headline(results: Mapping[str, Any], statement: Statement) -> str:
    """The publishable figure, and beside it what the student is worth."""
    told, _, at = words.headline(statement).partition(" at ")
    covers = f"for {statement.covers}"
    name = "Privacy of the private part" if "trial" in results else "Privacy that may be published"
    facts = [(name, told, f"at {at}, {covers}" if at else covers)]
    seen = results.get("seen")
    if seen and results["student_accuracy"] is not None:
        limits = html.interval(seen["low"], seen["high"])
        more = f"of {seen['inputs']:,} {words.PARTS[seen['where']]}; 95% interval: {limits}"
        facts.append(("The student is right on", html.share(seen["right"], seen["inputs"]), more))
    if "numbers" in results:
        facts += numbers.tile(results)
    return html.tiles(facts) + (_LIMITS if statement.private else "")


def every(results: Mapping[str, Any], sheet: Mapping[str, Any] | None) -> list[str]:
    """All sections that the results of a run have something for."""
    found: list[str] = []
    seen = results.get("seen")
    found += measures_page.bought(results.get("bought", []))
    found += measures_page.section(results) + numbers.section(results)
    if seen:
        found += [*_classes(seen), *_unsure(seen, sheet)]
    if sheet:
        found += _asked(sheet)
    found += _planned(results.get("planned") or [], results.get("less"))
    found += _judged(results.get("compared"), results.get("method"))
    found += _compared(results.get("comparison") or [], results.get("method"))
    return found + attacks.published(results)


def _classes(seen: Mapping[str, Any]) -> list[str]:
    """How often the student is right, by class, the worst first."""
    rows = [_class(row) for row in seen["classes"]]
    if not rows:
        return []
    heads = ("Class", "Right", "Share", "95% interval")
    title = "Which classes it gets wrong"
    said = f"<p>Of {seen['inputs']:,} {words.PARTS[seen['where']]}, by their own label, the worst first.</p>"
    rest = html.folded(f"{len(rows) - _WORST} more classes", html.rows(heads, rows[_WORST:]))
    more = [rest] if len(rows) > _WORST else []
    return [html.heading(title), said, html.rows(heads, rows[:_WORST]), *more]


def _class(row: Mapping[str, Any]) -> list[str]:
    told = f"{row['right']:,} of {row['inputs']:,}"
    bar = html.bar(row["right"] / row["inputs"], html.share(row["right"], row["inputs"]))
    return [escape(row["name"]), told, bar, html.interval(row["low"], row["high"])]


def _unsure(seen: Mapping[str, Any], sheet: Mapping[str, Any] | None) -> list[str]:
    """How sure the student is, and whether it is right to be; then the inputs that it doubts most."""
    known = seen["right"] is not None
    said = (
        f"<p>How probable the student calls its own answer, on {seen['inputs']:,} "
        f"{words.PARTS[seen['where']]}.{' Where it is unsure, a person should look.' * known}</p>"
    )
    heads = ("It is sure to", "Inputs", *(("It says", "It is right on") * known))
    body = [
        html.heading("Where it is unsure"),
        said,
        html.rows(heads, [_band(seen, row) for row in seen["unsure"]]),
    ]
    if sheet and sheet["unsure"]:
        title = f"The {len(sheet['unsure'])} public inputs that it is least sure of"
        body.append(html.folded(title, _items(sheet["kind"], sheet["unsure"])))
    return body


def _band(seen: Mapping[str, Any], row: Mapping[str, Any]) -> list[str]:
    least, below = row["from"], row["below"]
    name = f"{least:.0%} to {below:.0%}" if least else f"under {below:.0%}"
    share = row["inputs"] / seen["inputs"]
    told = [name, html.bar(share, f"{row['inputs']:,} ({share:.1%})")]
    if row["right"] is None:
        return told
    limits = html.interval(row["low"], row["high"])
    return [*told, f"{row['said']:.1%}", f"{html.share(row['right'], row['inputs'])} ({limits})"]


def _asked(sheet: Mapping[str, Any]) -> list[str]:
    """The contact sheet."""
    if not (sheet["asked"] or sheet.get("shown")):
        return _counted(sheet)
    shown, labelled = len(sheet["asked"]), any(item["label"] is not None for item in sheet["asked"])
    held = shown + len(sheet["unsure"])
    where = (
        "Where the public part is a file of the owner's, these inputs go out with the page."
        if sheet.get("shown")
        else "The page in release/ shows none of them, since --show-public was not given."
    )
    said = (
        f"<p>{shown} of the {sheet['answered']:,} public inputs that got an answer, about equally many for "
        f"each answer. {'✗ marks what differs from the public label.' * labelled}</p>"
        f"<p>This page shows {held} public inputs as they are. {where} "
        "All of them are of the public part.</p>"
    )
    return [
        html.heading("What was asked, and what came back"),
        said,
        _items(sheet["kind"], sheet["asked"]),
    ]


def _counted(sheet: Mapping[str, Any]) -> list[str]:
    """How many inputs got each answer, where the inputs themselves may not go out."""
    total = max(1, sheet["answered"])
    body = [
        [escape(name), html.bar(count / total, f"{count:,} ({count / total:.1%})")]
        for name, count in sheet.get("counts", {}).items()
    ]
    said = (
        f"<p>{sheet['answered']:,} public inputs got an answer. They are not shown here: their owner has not "
        "said that they may go out.</p>"
    )
    return [html.heading("What was asked, and what came back"), said, html.rows(("Answer", "Inputs"), body)]


def _items(kind: str, items: Sequence[Mapping[str, Any]]) -> str:
    if kind == "image":
        return f'<ul class="sheet">{"".join(map(_picture, items))}</ul>'
    heads = ("Answer", *(("Label",) * (items[0]["label"] is not None)), "Record") if items else ()
    return html.rows(heads, [list(_row(item)) for item in items], wide=True)


def _answer(item: Mapping[str, Any]) -> str:
    sure = item["probability"]
    told = "" if sure is None else ", over 99%" if sure > 0.99 else f", {sure:.0%}"
    return f"{item['answer']}{told}"


def _picture(item: Mapping[str, Any]) -> str:
    label, wrong = item["label"], item["label"] not in (None, item["answer"])
    judged = "" if label is None else f"; wrong, its label is {label}" if wrong else "; right"
    alt = escape(f"public input, answer {_answer(item)}{judged}")
    mark = f"<br>{html.wrong(f'label {label}')}" if wrong else ""
    picture = f'<img src="{escape(item["picture"])}" alt="{alt}">'
    kind = ' class="off"' if wrong else ""
    return f"<li{kind}>{picture}<span>{escape(_answer(item))}{mark}</span></li>"


def _row(item: Mapping[str, Any]) -> Iterator[str]:
    label = item["label"]
    yield escape(_answer(item))
    if label is not None:
        yield escape(label) if label == item["answer"] else html.wrong(label)
    known = (
        f'<span title="column {place}">{escape(name)}: <b>{escape(value)}</b></span>'
        for place, (name, value) in enumerate(item["record"], 1)
        if value != MISSING
    )
    absent = ", ".join(escape(name) for name, value in item["record"] if value == MISSING)
    yield " ".join(known) + (f"<br>missing: {absent}" if absent else "")


def _planned(rows: Sequence[Mapping[str, Any]], less: str | None) -> list[str]:
    """What other budgets would have bought, as the plan before the run expects it."""
    if not rows:
        return []
    by = Metric(rows[0].get("metric", "accuracy"))
    right = by.name == "accuracy"
    body = [
        [
            f"{row['epsilon']:.4g}",
            html.bar(row["accuracy"], f"{row['accuracy']:.1%}" if right else by.text(row["accuracy"])),
            html.interval(row["low"], row["high"])
            if right
            else f"{by.text(row['low'])} to {by.text(row['high'])}",
        ]
        for row in rows
    ]
    several = rows[0].get("labels", 2) > 1
    ends = "lies between the least and the most kind of the made-up labels"
    ends = ends if several else "is where so few inputs leave it"
    no_forecast = ", since nothing public says which labels yours are like" if several else ""
    said = (
        f"<p>The {'share of right answers' if right else by.head} that the plan expected, before the run "
        "and from public facts alone. These are estimates: no private record was looked at. The range "
        f"{ends}; what is reached may lie outside{no_forecast}.</p>"
    )
    said += f"<p><strong>{escape(less)}.</strong></p>" if less else ""
    return [
        html.heading("What more or less privacy would give"),
        said,
        html.rows(("Epsilon", "Expected", "Range"), body),
    ]


def _compared(rows: Sequence[Mapping[str, Any]], taken: str | None) -> list[str]:
    """How the student's method was chosen, from released answers alone."""
    if not rows:
        return []
    body = [
        [_method(row["method"], taken), f"{row['score']:.3f}", f"{row['error']:.3f}", f"{row['answers']:,}"]
        for row in rows
    ]
    said = (
        "<p>Each method was judged on released answers that it had not seen. No true label was read, and "
        "the comparison costs no privacy.</p>"
    )
    heads = ("Method", "Score", "Standard error", "Answers")
    return [html.heading("How the student was chosen"), said, html.rows(heads, body)]


def _judged(compared: Mapping[str, Any] | None, taken: str | None) -> list[str]:
    """How the student was chosen, by voters who were held out."""
    if not compared:
        return []
    noise, (first, *_) = f"{100 * compared['noise']:.1f} points", compared["leads"]
    body = [[_method(first, taken), "", ""]]
    others = [(name, lead) for name, lead in compared["leads"].items() if name != first]
    body += [[_method(name, taken), f"{100 * lead:+.1f} points", noise] for name, lead in others]
    said = (
        f"<p>About {compared['voters']:,} voters, one in ten, were held out: they added nothing to the table "
        "from which the students follow. The share of them whose label a student gives was compared with "
        f"that of {escape(first)}, and released with noise. It is part of the figure, and raises it by "
        "nothing.</p>"
    )
    heads = ("Method", f"Beyond {escape(first)}", "Noise (one standard deviation)")
    return [html.heading("How the student was chosen"), said, html.rows(heads, body)]


def _method(name: str, taken: str | None) -> str:
    return f"<b>{escape(name)}</b>, taken" if name == taken else escape(name)
