"""What is said of attacks: a paragraph of a public twin, which may leave, and the owner's section with all.

Both are made from the JSON that `pate attack` keeps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from pate_jax.runs.report import html

_KNOWS_ALL = "others known"  # how the name of the attacker ends who knows all other records
_RELEASED = "table", "answers"  # how the names of attacks begin that see more than the student
_NOTHING = "Nothing of this was computed from private records."
_NUMBER = r"-?[\d,.]+(?:e-?\d+)?"
_LIMITS = rf"{_NUMBER} points \(95%: {_NUMBER} to {_NUMBER}\)"
_NAMES = r"(?:loss|lira|lira, offline|rmia|(?:table|answers)(?:, others known)?)"
_PARAGRAPH = re.compile(
    rf"Attacked by {_NAMES}(?:; {_NAMES})* with {_NUMBER} shadow runs of a public twin of this run, in which "
    rf"{_NUMBER} public inputs with released labels take the place of private records: the best attack on "
    rf"the student has an advantage of {_LIMITS}(?: and whoever knows all other records and sees all "
    rf"that was released one of {_LIMITS})?; theory allows at most {_NUMBER} points\. "
)
_SEVERAL = rf"{_NUMBER}(?:, {_NUMBER})*"
_SAMPLER = re.compile(
    rf"Its noise was attacked by {_NUMBER} draws at the pair that tells most: epsilon of that pair is "
    rf"{_SEVERAL} at least, where the law that is charged for has {_SEVERAL}\. "
)
_MARKS = (  # what only attacks say: no name of a class or value in a table may look like one
    "shadow runs",
    "draws at the pair that tells most",
    "bad ones among those who vote",
    "false alarm in 1,000",
    "flipped labels, those that tell most",
)


def paragraph(twin: Mapping[str, Any]) -> str:
    """What the release says of attacks on the run's public twin."""
    said = [_guesses(twin["attacks"], twin["records"])] if twin["attacks"] else []
    return " ".join([*said, _draws(twin["mechanism"]), _NOTHING])


def _guesses(attacks: Sequence[Mapping[str, Any]], records: int) -> str:
    names, found = "; ".join(one["attack"] for one in attacks), best(attacks)
    others = [one for one in attacks if one["attack"].endswith(_KNOWS_ALL)]
    known = "" if not others else (
        " and whoever knows all other records and sees all that was released one of "
        f"{_points(others[0]['advantage'])}"
    )  # fmt: skip
    return (
        f"Attacked by {names} with {found['targets']:,} shadow runs of a public twin of this run, in which "
        f"{records:,} public inputs with released labels take the place of private records: the best attack "
        f"on the student has an advantage of {_points(found['advantage'])}{known}; theory allows at most "
        f"{100 * found['advantage']['most']:.1f} points."
    )


def best(attacks: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The attack on the student with the largest advantage."""
    seen = [one for one in attacks if not one["attack"].startswith(_RELEASED)]
    found: Mapping[str, Any] = max(seen, key=lambda one: one["advantage"]["share"])
    return found


def _points(advantage: Mapping[str, float]) -> str:
    """An advantage and its limits, in points.

    >>> _points({"share": 0.0123, "low": -0.004, "high": 0.0286})
    '1.2 points (95%: -0.4 to 2.9)'
    """
    share, low, high = (100 * advantage[name] for name in ("share", "low", "high"))
    return f"{share:.1f} points (95%: {low:.1f} to {high:.1f})"


def _draws(audits: Sequence[Mapping[str, Any]]) -> str:
    """Of each release one figure, in their order."""
    least, exact = (", ".join(f"{one[name]:.3g}" for one in audits) for name in ("lower", "exact"))
    return (
        f"Its noise was attacked by {audits[0]['draws']:,} draws at the pair that tells most: epsilon of "
        f"that pair is {least} at least, where the law that is charged for has {exact}."
    )


def published(results: Mapping[str, Any]) -> list[str]:
    """The section of both pages, if the twin was attacked."""
    if not results.get("attacked"):
        return []
    return [html.heading("What attacks found on a public twin"), f"<p>{escape(results['attacked'])}</p>"]


def private(found: Mapping[str, Any] | None) -> list[str]:
    """The section of the owner's page: all that attacks found."""
    if found is None:
        return []
    lines = [*_inside(found), *found.get("told", [])]
    said = "".join(f"<p>{escape(line)}</p>" for line in lines)
    warning = '<p class="warn"><strong>Sensitive: computed from the private records.</strong></p>'
    return [html.heading("What attacks found on this run"), warning, said]


def _inside(found: Mapping[str, Any]) -> Iterator[str]:
    """The paragraph of membership inference on the run's own records."""
    guessed = found.get("membership", {}).get("attacks", [])
    if guessed:
        names, one = "; ".join(each["attack"] for each in guessed), best(guessed)
        yield (
            f"Attacked by {names} with {one['targets']:,} shadow runs on halves of the private records: "
            f"the best attack on the student ({one['attack']}) has an advantage of "
            f"{_points(one['advantage'])}; theory allows at most {100 * one['advantage']['most']:.1f} points."
        )


def beyond(text: str) -> Iterator[str]:
    """What a text says of attacks beside the paragraph that may leave.

    >>> list(beyond("Of 90 labels 5% withstand 2 bad ones among those who vote."))
    ["what an attack found beside the public twin's paragraph: 'bad ones among those who vote'"]
    >>> list(beyond(paragraph({"attacks": [], "mechanism": [{"draws": 9, "lower": 0.1, "exact": 0.2}]})))
    []
    """
    rest = _SAMPLER.sub("", _PARAGRAPH.sub("", " ".join(text.split())))
    for mark in _MARKS:
        if mark in rest:
            yield f"what an attack found beside the public twin's paragraph: {mark!r}"
