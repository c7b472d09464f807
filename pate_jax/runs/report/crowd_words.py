"""What is said of a crowd wherever a person reads of its run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SPACES = {
    "patches": "patches of images",
    "columns": "columns of a table",
    "identity": "the numbers as they are",
    "encoder": "what the owner's encoder makes of them",
    "contrast": "what a net has learned from public images alone",
    "student": "what an earlier student has learned",
}


def voters(facts: Mapping[str, Any]) -> str:
    """How many voters there are, as the run tells it, and what each of them is.

    >>> voters({"told": 60_000, "by": "record", "voters": "sums"})
    'about 60,000 voters, each of them one record'
    """
    each = "one record" if facts["by"] == "record" else "all records of one user"
    return f"about {facts['told']:,} voters, each of them {each}"


def asked(facts: Mapping[str, Any]) -> str:
    """Which public inputs have got labels.

    >>> asked({"voters": "neighbours", "queries": 80, "pool": 9000})
    '80 public inputs, one for each of as many clusters of 9,000'
    """
    if facts["voters"] == "sums":
        return f"all {facts['queries']:,} public inputs"
    clusters = f"one for each of as many clusters of {facts['pool']:,}"
    return f"{facts['queries']:,} public inputs, {clusters}"


def space(facts: Mapping[str, Any]) -> str:
    """What the voters see of an input.

    >>> space({"space": {"kind": "patches", "features": 4900, "directions": 200}})
    'patches of images (200 directions of 4,900 features)'
    """
    seen = facts["space"]
    return f"{_SPACES[seen['kind']]} ({seen['directions']:,} directions of {seen['features']:,} features)"


def explained(facts: Mapping[str, Any]) -> str:
    """How the run went, in plain words."""
    who = "record" if facts["by"] == "record" else "user's records together"
    if facts["voters"] == "sums":
        said = (
            "Every input was turned into a bounded vector, by a rule that public inputs alone had taught. "
            f"Each {who} added one such vector to the row of its class, random noise was added to every cell "
            "of this table, and labels were computed from the noisy table and the public inputs"
        )
    else:
        said = (
            "Public inputs were sorted into clusters, and one of each was chosen. Each "
            f"{who} voted with its own label at the few that are nearest, random noise was added to every "
            "count of votes, and labels were read from the noisy counts"
        )
    return f"{said}. A student model learned from these labels and public inputs. It saw no private record."


def sentences(facts: Mapping[str, Any]) -> list[str]:
    """What came of it."""
    lines = [f"{voters(facts).capitalize()}, gave labels to {asked(facts)}."]
    lines += [f"Their space, which public inputs alone taught: {space(facts)}."]
    if facts.get("doubt"):
        lines.append(f"Beware: {facts['doubt']}.")
    if facts["label_accuracy"] is not None:
        lines.append(f"{facts['label_accuracy']:.1%} of these labels are right.")
    if facts["student_accuracy"] is not None:
        lines.append(f"The student is right on {facts['student_accuracy']:.1%} of the public test inputs.")
    return lines
