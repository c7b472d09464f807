"""A party's ledger: what it is charged, with whom it voted, and what was opened.

    charge   before anything is sent: the agreement, digests of the own ballot and noise, all figures
    begun    before any share is sent: who is there, and what each of them has promised to bring
    opened   after the vote: the digest of the transcript, and the numbers that everybody has

Each line is on disk before the step that it names. A vote that was begun can be repeated only by the same
parties with the same ballots and the same noise: then whoever watches both attempts sees one set of numbers.
The file is a chain (`runs.chain`), of kinds of lines that other runs refuse.

What a party's key has voted on is a file of its own, beside the key, whatever the --out of each vote is:

    claim    before a number is shared: the agreement, the parties, the vote's number, what it costs, the run

It belongs to the key in its folder: a new key, or a copy of the key in another folder, begins another file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from pate_jax.errors import PateError
from pate_jax.runs import chain
from pate_jax.runs.ledger import pack_table, unpack_table
from pate_jax.runs.parties.ballot import Member
from pate_jax.runs.plans import Plan, together

Table = Int[np.ndarray, "rows columns"]
_RESTORE = "restore it from a backup; a party whose ledger is lost must not vote on this agreement again"


class Charge(NamedTuple):
    """What a party is charged for one vote, before it takes part."""

    agreement: str
    name: str
    vote: int
    ballot: str  # digest of the own numbers
    promise: str  # of numbers and noise, as the others see it
    unit: str
    delta: float
    audiences: Mapping[str, float]


class Begun(NamedTuple):
    """Who takes part, and what each has promised."""

    present: dict[str, str]


class Opened(NamedTuple):
    """What a vote has opened."""

    transcript: str  # its digest
    rows: int
    columns: int
    values: str  # as `pack_table` writes them


_KINDS: dict[str, type[Charge | Begun | Opened]] = {"charge": Charge, "begun": Begun, "opened": Opened}


class Shown(NamedTuple):
    """What a ledger says so far."""

    charge: Charge | None = None
    begun: dict[str, str] | None = None
    opened: Opened | None = None

    @property
    def table(self) -> Table | None:
        """The numbers that were opened, if they were."""
        if self.opened is None:
            return None
        return unpack_table(self.opened.values, (self.opened.rows, self.opened.columns))


def read(path: Path) -> Shown:
    """What a party's ledger says; refused where its lines are not those of one vote."""
    found = Shown()
    for place, entry in enumerate(chain.entries(path)):
        kind = [*_KINDS, None][min(place, len(_KINDS))]
        if kind is None or entry.get("kind") != kind:
            raise PateError(f"line {place + 1} of {path} is not that of a vote among parties: {_RESTORE}")
        line: Any = chain.record(entry, _KINDS, path)
        found = found._replace(**{kind: line.present if kind == "begun" else line})
    return found


def charge(book: chain.Writer, wanted: Charge) -> None:
    """Record the charge before anything is sent; a repeated command must bring the same ballot and noise."""
    path = book.path
    with book:
        before = read(path).charge
        if before is None:
            book.add("charge", wanted)
        elif before != wanted:
            differs = next(name for name in Charge._fields if getattr(before, name) != getattr(wanted, name))
            raise PateError(
                f"{path} shows a charge with another {differs}, and other numbers under the same noise would "
                "show both: restore the run's files from a backup, or take part in a new agreement"
            )


def begin(book: chain.Writer, present: Mapping[str, str]) -> None:
    """Record who takes part with which promise, before a share is sent; another company is refused."""
    path = book.path
    with book:
        before = read(path).begun
        if before is None:
            book.add("begun", Begun(dict(present)))
        elif before != dict(present):
            raise PateError(_other_company(before, present))


def _other_company(before: Mapping[str, str], present: Mapping[str, str]) -> str:
    changed = [name for name in before if name in present and before[name] != present[name]]
    if changed:
        return (
            f"{changed[0]} brings another ballot or other noise than when this vote was begun, and two sums "
            "with different noise would show more than was charged: let it restore its run directory, or "
            "make a new agreement with a higher --vote, and add both costs"
        )
    gone, new = sorted({*before} - {*present}), sorted({*present} - {*before})
    who = f"{', '.join(gone)} is missing" if gone else f"{', '.join(new)} was not there"
    return (
        f"this vote was begun by {', '.join(before)}, and {who}: two sums of different parties would show "
        "the difference; repeat it with the same parties, or make a new agreement with a higher --vote, and "
        "add both costs"
    )


def opened(path: Path, transcript: str, values: Table) -> None:
    """Record what was opened; a second, different result is refused."""
    wanted = Opened(transcript, values.shape[0], values.shape[1], pack_table(values))
    with chain.Writer(path) as book:
        before = read(path)
        if before.begun is None:
            raise PateError(f"{path} shows no vote that was begun: {_RESTORE}")
        if before.opened is None:
            book.add("opened", wanted)
        elif before.opened != wanted:
            raise PateError(f"{path} shows that this vote has opened other numbers: {_RESTORE}")


def promised(names: Sequence[str], told: Mapping[str, bytes]) -> dict[str, str]:
    """What each party that is present has promised, as text; refused where it is no promise."""
    found = {}
    for name in names:
        text = told[name].decode("ascii", errors="replace")
        if len(text) != 64 or set(text) - set("0123456789abcdef"):
            raise PateError(f"{name} sends no promise of its ballot: it runs another version of pate_jax")
        found[name] = text
    return found


class Claim(NamedTuple):
    """One vote of a key, in one run."""

    agreement: str
    run: str  # what names it and tells nothing of its secret
    place: str
    vote: int
    parties: tuple[str, ...]  # the fingerprints of all, sorted
    plan: Plan


def claim_of(member: Member) -> Claim:
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


def claims(path: Path) -> list[Claim]:
    """All that a key has voted on."""
    return list(chain.records(path, {"claim": Claim}))


def others(path: Path, wanted: Claim) -> list[Claim]:
    """The key's votes on other agreements; refused where this vote would be opened twice."""
    found = claims(path)
    _check(found, wanted)
    return list({one.agreement: one for one in found if one.agreement != wanted.agreement}.values())


def enter(path: Path, wanted: Claim) -> None:
    """Record a vote beside the key, once; refused where it would be opened twice."""
    with chain.Writer(path) as book:
        found = claims(path)
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
    epsilon = together(plans, delta)
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
