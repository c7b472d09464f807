"""The steps of one vote as one party takes them: compare people, promise, count, open, sign.

`Meeting` is what a party needs of the protocol (`parties.session`). Nothing private leaves by `exchange`;
numbers leave by `sum` and `answers` alone, which share them secretly with noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import numpy as np
from jaxtyping import Int

from pate_jax.errors import PateError
from pate_jax.parties import certificates
from pate_jax.runs import registration
from pate_jax.runs.parties import ballot, claims, ledger, people, transcript
from pate_jax.runs.parties.ballot import Member, Shares, Table
from pate_jax.runs.parties.transcript import Transcript
from pate_jax.system import progress

STEPS = 4


class Meeting(Protocol):
    """The protocol as one party sees it, once all who come are there."""

    @property
    def present(self) -> tuple[str, ...]:
        """The parties that are there."""

    def exchange(self, content: bytes) -> Mapping[str, bytes]:
        """Show these bytes to all, and return what each party has shown, by its name."""

    def sum(self, counts: Table, noise: Table) -> Table:
        """Open the sum of all parties' counts and noise."""

    def answers(
        self,
        counts: Table,
        vote_noise: Table,
        test_noise: Int[np.ndarray, " query"] | None = None,
    ) -> Int[np.ndarray, " query"]:
        """Open the class with the largest noisy count of each query; -1 where the test fails."""


def hold(meeting: Meeting, member: Member, table: Table, noise: Shares, key: str, file: Path) -> Transcript:
    """Take part in a vote that was charged, and return its transcript, signed by all and written to `file`.

    Who is there, and what each has promised, is in the ledger before a number is shared. So a vote that is
    repeated after a crash opens the same sum, or nothing.
    """
    book = member.run.ledger
    with progress.bar(f"vote of {member.agreement.name}", total=STEPS) as steps:
        people.compare(meeting, member)
        told = meeting.exchange(ballot.promise(member, table).encode())
        promises = ledger.promised(meeting.present, told)
        if member.votes is not None:
            claims.enter(member.votes, claims.of(member))
        ledger.begin(registration.Ledger(member.run, lambda: member.spends), promises)
        steps.advance(note="all are there")
        values = _opened(meeting, member, table, noise)
        steps.advance(note="opened")
        found = Transcript(member.agreement.digest, member.agreement.vote, promises, values)
        ledger.opened(book, found.digest, values)
        steps.advance(note="recorded")
        signatures = meeting.exchange(certificates.sign(key, found.digest.encode()))
        transcript.check_signatures(member.agreement, found, signatures)
        transcript.save(file, found, {name: signatures[name] for name in promises})
        steps.advance(note="signed")
    return found


def _opened(
    meeting: Meeting, member: Member, table: Table, noise: Shares
) -> Int[np.ndarray, "query columns"]:
    """The opened table; of answers it has one column."""
    if member.agreement.opened == "counts":
        found = meeting.sum(table, noise.counts)
    else:
        found = meeting.answers(table, noise.counts, noise.test)[:, None]
    rows, columns = member.agreement.queries, member.agreement.classes
    wanted = (rows, 1) if member.agreement.opened == "answers" else (rows, columns)
    if found.shape != wanted:
        raise PateError(f"the vote opened {list(found.shape)} numbers where {list(wanted)} were agreed on")
    return np.asarray(found, np.int64)
