"""A party's ledger: what it is charged, with whom it voted, and what was opened.

    charge   before anything is sent: the agreement, digests of the own ballot and noise, all figures
    begun    before any share is sent: who is there, and what each of them has promised to bring
    opened   after the vote: the digest of the transcript, and the numbers that everybody has

Each line is on disk before the step that it names. A vote that was begun can be repeated only by the same
parties with the same ballots and the same noise: then whoever watches both attempts sees one set of numbers.
The file is a chain (`runs.chain`), of kinds of lines that other runs refuse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from pate_jax.errors import PateError
from pate_jax.runs import chain
from pate_jax.runs.ledger import pack_table, unpack_table

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
