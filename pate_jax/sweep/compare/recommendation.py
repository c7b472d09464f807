"""What a comparison says: a table, one sentence, and what the sentence costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from pate_jax.sweep.results import Row

JudgedOn = Literal["private", "public", "synthetic"]
_ERRORS = 2.0  # standard errors that two methods are apart at least, if one is called better


class Standing(NamedTuple):
    """A method over all draws of one epsilon."""

    method: str
    right: float  # mean share of the test rows
    error: float  # its standard error: of the draws and of the test rows
    spent: float | None  # the largest epsilon stated
    seconds: float
    draws: int


def standings(rows: Sequence[Row]) -> list[Standing]:
    """Of the rows of one epsilon and those without privacy: each method's mean, the best first.

    >>> row = {"method": "sums", "right": 0.8, "test": 400, "spent": 1.0, "seconds": 2.0}
    >>> [(one.method, round(one.error, 3)) for one in standings([row])]
    [('sums', 0.02)]
    """
    names = dict.fromkeys(row["method"] for row in rows if "right" in row)
    each = [_standing([row for row in rows if row["method"] == name and "right" in row]) for name in names]
    return sorted(each, key=lambda one: -one.right)


def _standing(rows: Sequence[Row]) -> Standing:
    """Draws share the test rows, so their number makes the first part of the error no smaller."""
    rights = [row["right"] for row in rows]
    mean = sum(rights) / len(rights)
    of_test = mean * (1 - mean) / rows[0]["test"]
    of_draws = sum((one - mean) ** 2 for one in rights) / max(1, len(rights) - 1) / len(rights)
    spent = [row["spent"] for row in rows if row["spent"] is not None]
    seconds = sum(row["seconds"] for row in rows) / len(rows)
    error = math.sqrt(of_test + of_draws)
    return Standing(rows[0]["method"], mean, error, max(spent, default=None), seconds, len(rows))


def sentence(rows: Sequence[Row], epsilon: float, majority: float, judged_on: JudgedOn) -> str:
    """The recommendation, with what it rests on.

    `majority` is the share of test rows of their most frequent class.
    """
    found = [one for one in standings(rows) if one.spent is not None]
    if not found:
        return f"No method learned anything at epsilon {epsilon:g}: raise epsilon, or gather more records."
    best = found[0]
    if best.right - majority < _ERRORS * best.error:
        return (
            f"At epsilon {epsilon:g} no method is surely better than the most frequent class, which "
            f"{majority:.1%} of the test rows have: raise epsilon, or gather more records."
        )
    near = [one.method for one in found[1:] if not _apart(best, one)]
    others = f", which the test rows do not tell from {_listed(near)}" if near else ""
    return (
        f"At epsilon {epsilon:g} take {best.method} ({best.right:.1%} of the test rows right){others}; "
        f"{covered(judged_on)}."
    )


def _listed(names: Sequence[str]) -> str:
    """Names in a sentence.

    >>> _listed(["sums"]), _listed(["sums", "teachers", "neighbours"])
    ('sums', 'sums, teachers and neighbours')
    """
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _apart(best: Standing, other: Standing) -> bool:
    return best.right - other.right >= _ERRORS * math.hypot(best.error, other.error)


def covered(judged_on: JudgedOn) -> str:
    """Whether the choice of a method by these figures is covered by an epsilon.

    >>> covered("public")
    'the records that judged are public, so this choice costs no privacy, and may not carry over to others'
    """
    if judged_on == "private":
        return (
            "but this choice is made on private records and no epsilon covers it (`pate tune` is the "
            "way to pay for one)"
        )
    return (
        f"the records that judged are {judged_on}, so this choice costs no privacy, and may not carry over "
        "to others"
    )


def warning(judged_on: JudgedOn, methods: int) -> str | None:
    """What may not be done with the figures, where they are of private records."""
    if judged_on != "private":
        return None
    return (
        "SENSITIVE: every accuracy here is a function of the private records without protection (most noise "
        "has a known seed, and one model has none), so neither the table nor the models may be published. "
        f"To pick one of {methods} methods by it is a release of its own, of up to "
        f"{math.log2(max(2, methods)):.1f} bits, that no statement of a later run includes. Compare on a "
        "public or synthetic stand-in (--judged-on), or fix the method without looking"
    )
