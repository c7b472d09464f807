"""Sentences that the terminal, the pages and the model card share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pate_jax.accounting import Statement
from pate_jax.accounting.figures import rounded_up
from pate_jax.runs.report import numbers

SYNTHETIC = "The data is synthetic: it was drawn by a program, and nobody's records are in it."
PARTS = {"test": "public test inputs", "private": "private test rows", "public": "public inputs"}


def title(results: Mapping[str, Any]) -> str:
    """What a page is headed by: what is predicted, or else the name of the data.

    >>> title({"dataset": "own", "predicts": "died, from 33 columns"}), title({"dataset": "mnist"})
    ('died, from 33 columns', 'mnist')
    """
    return str(results.get("predicts", results["dataset"]))


def headline(statement: Statement) -> str:
    """The figure that may be published, which comes first wherever a run is told of."""
    if not statement.private:
        return "no privacy is promised: the noise can be drawn again by anyone"
    epsilon = statement.headline.epsilon
    if epsilon is None:
        return f"no finite epsilon holds at delta {statement.delta:g}"
    return f"epsilon {rounded_up(epsilon)} at delta {statement.delta:g}"


def near(asked: int, found: int | None, *, remedy: bool = True, charged: bool = True) -> list[str]:
    """How many of the public inputs asked about are near-duplicates of an earlier one, in a sentence.

    >>> near(500, 0)[0]
    'None of the 500 inputs asked about is a near-duplicate of an earlier one.'
    >>> print(near(500, 46)[0])
    46 of the 500 inputs asked about are near-duplicates of an earlier one (nearer than half of the typical \
distance to the nearest), and an answer to each was charged: --min-distance 0.5 leaves them out.
    """
    if found is None:  # sums answer for every input
        return []
    if not found:
        return [f"None of the {asked:,} inputs asked about is a near-duplicate of an earlier one."]
    verb = "is a near-duplicate" if found == 1 else "are near-duplicates"
    said = (
        f"{found:,} of the {asked:,} inputs asked about {verb} of an earlier one (nearer than half of the "
        "typical distance to the nearest)"
    )
    each = ", and an answer to each was charged" * charged
    return [f"{said}{each}: --min-distance 0.5 leaves them out." if remedy else f"{said}."]


def share(right: int, inputs: int) -> str:
    """A share in per cent.

    >>> share(197, 200)
    '98.5%'
    """
    return f"{right / inputs:.1%}"


def interval(low: float, high: float) -> str:
    """Limits in per cent, each rounded away from the middle.

    >>> interval(0.97651, 0.98149)
    '97.6% to 98.2%'
    """
    least, most = math.floor(round(low * 1000, 6)) / 10, math.ceil(round(high * 1000, 6)) / 10
    return f"{least:.1f}% to {most:.1f}%"


def accuracy(results: Mapping[str, Any]) -> str | None:
    """How often the student is right on the test part, with its interval where the run knows it.

    >>> accuracy({"student_accuracy": 0.9, "seen": {"where": "test", "right": 9, "inputs": 10,
    ...     "low": 0.5549, "high": 0.9975}})
    '90.0% of 10 public test inputs (95% interval: 55.4% to 99.8%)'
    >>> accuracy({"student_accuracy": None}) is None
    True
    """
    seen = results.get("seen")
    if results.get("student_accuracy") is None or seen is None:
        return None
    limits = interval(seen["low"], seen["high"])
    told = share(seen["right"], seen["inputs"])
    return f"{told} of {seen['inputs']:,} {PARTS[seen['where']]} (95% interval: {limits})"


def learned(results: Mapping[str, Any]) -> list[str]:
    """What the answers and the student are worth, in sentences; of unlabelled data nothing is known."""
    if "numbers" in results:
        return [f"{numbers.told(results)}."]
    right = accuracy(results)
    said = [] if right is None else [f"The student is right on {right}."]
    classes = (results.get("seen") or {}).get("classes", [])
    if right is not None and len(classes) > 1:
        worst = classes[0]
        limits = interval(worst["low"], worst["high"])
        said.append(
            f"It does worst on the class {worst['name']}: {share(worst['right'], worst['inputs'])} of "
            f"{worst['inputs']:,} (95% interval: {limits})."
        )
    return said
