"""What the private records have bought: the student beside what would have cost no privacy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from pate_jax.runs.report import html, words

ALONE, FREQUENT, THIS = "public labels alone", "the most frequent class", "this student"
Rows = Sequence[Mapping[str, Any]]


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
    said = f"{best['name'].capitalize()} {verb} right on {words.share(best['right'], best['inputs'])}"
    if low > 0:
        return f"{said}: the private records bought {100 * gain:.1f} points."
    if high < 0:
        return f"{said}, {-100 * gain:.1f} points more than the student: the private records bought nothing."
    return f"{said}, and the student is not surely better."


def told(results: Mapping[str, Any]) -> list[str]:
    """The verdict, where there is one."""
    said = verdict(results.get("bought", []))
    return [] if said is None else [said]


def section(rows: Rows) -> list[str]:
    """The rows on a page, and what follows from them."""
    said = verdict(rows)
    if said is None:
        return []
    heads = ("Learned from", "Right", "95% interval")
    body = [
        [
            escape(row["name"]),
            html.bar(row["right"] / row["inputs"], words.share(row["right"], row["inputs"])),
            words.interval(row["low"], row["high"]),
        ]
        for row in rows
    ]
    free = "The rows above this student read no private record and cost no privacy."
    return [html.heading("What the private records bought"), f"<p>{said} {free}</p>", html.rows(heads, body)]
