"""Sentences that the terminal, the pages and the model card share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pate_jax.accounting import Statement
from pate_jax.accounting.figures import rounded_up
from pate_jax.crowd.plan import Plan
from pate_jax.crowd.step_choice import enough
from pate_jax.crowd.steps import Steps
from pate_jax.mechanisms.crowds import MOST_STEPS
from pate_jax.runs.report import html, measures_page, numbers

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
    limits = html.interval(seen["low"], seen["high"])
    told = html.share(seen["right"], seen["inputs"])
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
        limits = html.interval(worst["low"], worst["high"])
        said.append(
            f"It does worst on the class {worst['name']}: {html.share(worst['right'], worst['inputs'])} of "
            f"{worst['inputs']:,} (95% interval: {limits})."
        )
    return said


_SPACES = {
    "patches": "patches of images",
    "columns": "columns of a table, and ramps along these",
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
    if "steps" in facts:
        said += (
            f". That was the first of {facts['steps']} steps; in each other one every {who} added the "
            "direction in which the labels so far should be corrected, with noise again"
        )
    public = "public inputs and their labels" if "learned_from_public_labels" in facts else "public inputs"
    return f"{said}. A student model learned from these labels and {public}. It saw no private record."


def steps(facts: Mapping[str, Any]) -> list[str]:
    """How many tables the voters' sums took, if there were several.

    >>> steps({"voters": "sums"}), steps({"steps": 8, "step_directions": 200})
    ([], ['Their sums were released in 8 steps, each at the weights so far, along 200 directions.'])
    """
    if "steps" not in facts:
        return []
    made, wide = facts["steps"], facts["step_directions"]
    return [f"Their sums were released in {made} steps, each at the weights so far, along {wide} directions."]


def steps_planned(made: Plan, classes: int) -> str:
    """The plan's line about the steps of sums, or why there is one table.

    >>> from types import SimpleNamespace
    >>> steps_planned(SimpleNamespace(steps=None), 30)
    'one table, since 30 classes want 34 steps, and a run by itself takes 20 at most'
    """
    if made.steps is not None:
        return _of_steps(made.steps)
    wanted = enough(classes)
    if wanted > MOST_STEPS:
        most = f"a run by itself takes {MOST_STEPS} at most"
        return f"one table, since {classes} classes want {wanted} steps, and {most}"
    return "one table, since noise leaves no room for enough steps"


def _of_steps(made: Steps) -> str:
    return (
        f"{made.number} steps in {len(made.space.variances):,} directions, whitened down to "
        f"{made.strength:g} of the largest variance, with noise of scale {made.release.sigma:,.0f} in each"
    )


def compared(found: Mapping[str, Any]) -> str:
    """What voters who were held out say of several students.

    >>> leads = {"linear": 0.0, "supervised": -0.0042, "fixmatch": 0.0213}
    >>> compared({"leads": leads, "noise": 0.01, "voters": 6000})
    'Of about 6,000 held-out voters 0.4 points fewer agree with supervised and 2.1 points more agree with \
fixmatch than with linear (noise: 1.0 points).'
    """
    first, *others = found["leads"].items()
    said = [f"{_points(lead)} agree with {name}" for name, lead in others]
    noise = f"(noise: {100 * found['noise']:.1f} points)"
    return f"Of about {found['voters']:,} held-out voters {' and '.join(said)} than with {first[0]} {noise}."


def _points(lead: float) -> str:
    return f"{abs(100 * lead):.1f} points {'fewer' if lead < 0 else 'more'}"


def tuned(facts: Mapping[str, Any]) -> list[str]:
    """How settings were chosen on private data, where they were, and the score of those that won.

    >>> tuned({"voters": "sums"})
    []
    >>> facts = {"settings": 3, "expected": 10, "random": True, "score": 0.861, "noise": 0.004}
    >>> tuned({"tuned": facts})[0]
    'Settings were drawn from a list of 3, a secret number of times, 10 on average; the best are these.'
    >>> tuned({"tuned": facts})[1]
    'About 86.1% of the held-out voters, one in ten, agree with the student (noise: 0.4 points; the best of \
several noisy scores, which is too high as a rule).'
    """
    if "tuned" not in facts:
        return []
    found = facts["tuned"]
    often = f"a secret number of times, {found['expected']:g} on average"
    how = f"drawn from a list of {found['settings']}, {often}"
    if not found["random"]:
        how = f"a list of {found['settings']}, each tried once and paid for"
    agree = f"About {found['score']:.1%} of the held-out voters, one in ten, agree with the student"
    return [
        f"Settings were {how}; the best are these.",
        f"{agree} (noise: {100 * found['noise']:.1f} points; the best of several noisy scores, which is too "
        "high as a rule).",
    ]


def sentences(facts: Mapping[str, Any]) -> list[str]:
    """What came of it."""
    lines = [f"{voters(facts).capitalize()}, gave labels to {asked(facts)}."]
    lines += [f"Their space, which public inputs alone taught: {space(facts)}."]
    lines += steps(facts)
    if "compared" in facts:
        lines += ["One voter in ten was held out, to compare students.", compared(facts["compared"])]
    lines += tuned(facts)
    if facts.get("doubt"):
        lines.append(f"Beware: {facts['doubt']}.")
    if facts["label_accuracy"] is not None:
        lines.append(f"{facts['label_accuracy']:.1%} of these labels are right.")
    lines += near(facts["queries"], facts.get("near"), remedy=False)
    return lines + learned(facts) + measures_page.told(facts) + measures_page.told_bought(facts)
