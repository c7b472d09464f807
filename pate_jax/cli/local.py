"""`pate local`: a vote in which every voter noises its own answers and trusts nobody."""

from __future__ import annotations

import json as json_format
import shlex
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from pate_jax.accounting.local import ASSUMED_ACCURACY

Name = Literal["randomised-response", "one-hot", "truncated-geometric"]


def plan(
    out: Annotated[Positional[Path], arg(metavar="PLAN")],
    classes: int,
    questions: int,
    voters: int,
    budget: float,
    delta: float = 0.0,
    mechanism: Name | None = None,
    assumed_accuracy: float = ASSUMED_ACCURACY,
    json: bool = False,
) -> None:
    """Choose how many questions each voter answers, and with how much noise, and write the plan for all.

    Args:
        out: the file to write; all parties get it.
        classes: how many classes there are.
        questions: how many public inputs are asked about.
        voters: about how many voters (teachers) all parties have together.
        budget: epsilon of one voter, for all its answers together.
        delta: delta of that budget, at most one over the voters; 0 asks for pure epsilon.
        mechanism: how an answer gets its noise; unset: the better one; truncated-geometric is for comparison.
        assumed_accuracy: how often a voter is right, as you believe; never measured on private records.
        json: print one JSON object.
    """
    from pate_jax.accounting import local as figures
    from pate_jax.mechanisms.codec import to_dict
    from pate_jax.runs.local import terms

    asked = {"classes": classes, "questions": questions, "voters": voters}
    found = figures.plan(mechanism, **asked, budget=budget, delta=delta, accuracy=assumed_accuracy)
    made = terms.write(out, found, questions=questions, voters=voters, budget=budget, delta=delta)
    if json:
        print(json_format.dumps({**to_dict(made), "expected": found.right}))
        return
    print(
        f"{out}: each voter answers {made.answers_each} of {questions:,} questions, at epsilon "
        f"{made.mechanism.epsilon:.4g} each ({made.mechanism.name})\n"
        f"budget of each voter: epsilon {budget:g} at delta {delta:g}\n"
        f"expected: {found.right:.0%} right, if a voter is right {assumed_accuracy:.0%} of the time\n"
        f"next, at each party: {shlex.join(['pate', 'local', 'vote', str(out)])} VOTES --party NAME "
        "--ledger FOLDER --out FILE"
    )


def vote(
    plan: Annotated[Positional[Path], arg(metavar="PLAN")],
    votes: Annotated[Positional[Path], arg(metavar="VOTES")],
    party: str,
    ledger: Path,
    out: Path,
    budget: float | None = None,
    json: bool = False,
) -> None:
    """Noise the answers of this party's voters, charge them to its ledger, and write what may leave it.

    Repeating the command writes the same answers and charges nothing.

    Args:
        plan: the plan (`pate local plan`).
        votes: this party's votes with teacher_labels, such as private/votes.npz of a run; they stay here.
        party: the name of this party, which no other party may have.
        ledger: the private folder with this party's ledger, the same for all votes on its records.
        out: the file to give to whoever counts; it may be published.
        budget: epsilon of one voter in all votes together, at the first plan's delta; fixed by the first
            vote; unset: the plan's.
        json: print one JSON object.
    """
    from pate_jax.accounting.figures import rounded_up
    from pate_jax.runs.local import ballot

    made = ballot.vote(plan, votes, party=party, folder=ledger, out=out, budget=budget)
    if json:
        print(json_format.dumps({"out": str(out), **made._asdict()}))
        return
    again = " (drawn and charged before)" if made.repeated else ""
    print(f"{out}: {made.voters:,} voters answered {made.answers} questions each{again}")
    print(
        f"spent by each voter: epsilon {rounded_up(made.spent)} of {made.budget:g} at delta {made.delta:g} "
        f"(plain sum {rounded_up(made.plain)} at delta 0); by all of the party together: epsilon "
        f"{rounded_up(made.whole_party)} at delta {made.delta:g}"
    )


def count(
    plan: Annotated[Positional[Path], arg(metavar="PLAN")],
    files: Annotated[Positional[tuple[Path, ...]], arg(metavar="FILE...")],
    out: Path,
    json: bool = False,
) -> None:
    """Count the noisy answers of all parties: the answer to each question, and unbiased counts.

    Anybody can do this. It costs no privacy, and can be repeated when more parties have voted.

    Args:
        plan: the plan (`pate local plan`).
        files: what the parties gave (`pate local vote`).
        out: the file for answers[question], estimates[question, class] and voters[question].
        json: print one JSON object.
    """
    from pate_jax.runs.local import ballot

    found = ballot.count(plan, files)
    ballot.write(out, found)
    answered = int((found.answers >= 0).sum())
    if json:
        print(json_format.dumps({"out": str(out), "answered": answered, "parties": found.parties}))
        return
    print(f"{out}: {answered:,} of {len(found.answers):,} questions answered by {len(found.parties)} parties")
