"""What a party's key has voted on: a file beside the key, whatever the --out of each vote is.

    claim    before a number is shared: the agreement, the parties, the vote's number, what it costs, the run

The file belongs to the key in its folder: a new key, or a copy of the key in another folder, begins another
file. It is a chain (`runs.chain`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pate_jax.errors import PateError
from pate_jax.runs import chain, sums
from pate_jax.runs.parties.ballot import Member
from pate_jax.runs.plans import Plan


class Claim(NamedTuple):
    """One vote of a key, in one run."""

    agreement: str
    run: str  # what names it and tells nothing of its secret
    place: str
    vote: int
    parties: tuple[str, ...]  # the fingerprints of all, sorted
    plan: Plan


def of(member: Member) -> Claim:
    """What a party is about to vote on."""
    agreement, run = member.agreement, member.run
    return Claim(
        agreement.digest,
        run.secret.derive("name of a run that voted").hex(),
        str(run.root.resolve()),
        agreement.vote,
        tuple(sorted(party.fingerprint for party in agreement.parties)),
        member.spends,
    )


def read(path: Path) -> list[Claim]:
    """All that a key has voted on."""
    return list(chain.records(path, {"claim": Claim}))


def others(path: Path, wanted: Claim) -> list[Claim]:
    """The key's votes on other agreements; refused where this vote would be opened twice."""
    found = read(path)
    _check(found, wanted)
    return list({one.agreement: one for one in found if one.agreement != wanted.agreement}.values())


def enter(path: Path, wanted: Claim) -> None:
    """Record a vote beside the key, once; refused where it would be opened twice."""
    with chain.Writer(path) as book:
        found = read(path)
        _check(found, wanted)
        if all(one.agreement != wanted.agreement for one in found):
            book.add("claim", wanted)


def warning(earlier: Sequence[Claim], wanted: Claim, delta: float) -> str | None:
    """What the key's other votes and this one cost together; None where there is no other."""
    if not earlier:
        return None
    unit = wanted.plan.relation
    plans = [one.plan for one in earlier if one.plan.relation == unit]
    left = len(earlier) - len(plans)
    before, after = (_said(some, delta) for some in (plans, [*plans, wanted.plan]))
    figures = f"; at delta {delta:g} one {unit} loses at most {before} by these and {after} with this vote"
    unknown = f"; {left} of these protect another unit, and no sum here has them"
    return (
        f"this key has taken part in {len(earlier)} other vote{'s' * (len(earlier) > 1)} "
        f"({', '.join(one.place for one in earlier)}), and the costs add up for whoever is in several"
        f"{figures if plans else ''}{unknown if left else ''}. The statement is of this vote alone: publish "
        "the sum"
    )


def _said(plans: Sequence[Plan], delta: float) -> str:
    epsilon = sums.together(plans, delta)
    return "no finite epsilon" if epsilon is None else f"epsilon {math.ceil(epsilon * 1e4) / 1e4:.4f}"


def _check(found: Sequence[Claim], wanted: Claim) -> None:
    """Refuse a second run of an agreement, and a second agreement of the same parties under one number.

    Each would have other noise, and no run's ledger would show both sums.
    """
    same = [one for one in found if one.agreement == wanted.agreement]
    higher = 1 + max(one.vote for one in [*found, wanted])
    if same and same[0].run != wanted.run:
        raise PateError(
            f"this key has voted on this agreement in {same[0].place}, and a second run has other noise and "
            "costs as much again: repeat the command there, which costs nothing more, or make a new "
            f"agreement (--vote {higher}) and add both costs"
        )
    taken = [one for one in found if (one.vote, one.parties) == (wanted.vote, wanted.parties)]
    if taken and not same:
        raise PateError(
            f"vote={wanted.vote} among these parties was taken by another agreement, in {taken[0].place}: if "
            "that vote did not end, repeat `pate party join` there, which costs nothing more; a further "
            "vote costs as much again, also where you saw no result of the first, so make its agreement "
            f"with --vote {higher} and add both costs"
        )
