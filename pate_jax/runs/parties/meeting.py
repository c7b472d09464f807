"""The steps of one vote as one party takes them: compare people, promise, count, open, sign.

`Meeting` is what a party needs of the protocol (`parties.session`). Nothing private leaves by `exchange`;
numbers leave by `sum` and `answers` alone, which share them secretly with noise.

Before a vote the parties may count, without showing who, whether somebody is with two of them:
every party hides its ids (`parties.hidden_ids`), and the lists go around until each has passed all parties,
which hide and sort them once more. Then equal ids are equal points. All see how many people two parties
have in common, and nobody, not even these two, sees who they are.

What a vote has opened is the transcript, signed by every party over one digest, in a file that all parties
have alike.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Int

from pate_jax.data import relation
from pate_jax.data.partition import units_of
from pate_jax.errors import PateError
from pate_jax.parties import certificates
from pate_jax.parties.agreement import Agreement
from pate_jax.parties.connections import Refusal
from pate_jax.parties.hidden_ids import SIZE, Blinder, padded, points
from pate_jax.runs import registration
from pate_jax.runs.ledger import pack_table, unpack_table
from pate_jax.runs.parties import ballot, ledger, terms
from pate_jax.runs.parties.ballot import Member, Shares, Table
from pate_jax.system import progress, storage

Lists = Mapping[str, list[bytes]]
STEPS = 4


class Round(Protocol):
    """What a comparison needs of a meeting: who is there, and to show one another bytes."""

    @property
    def present(self) -> tuple[str, ...]:
        """The parties that are there."""

    def exchange(self, content: bytes) -> Mapping[str, bytes]:
        """Show these bytes to all, and return what each party has shown, by its name."""


class Meeting(Round, Protocol):
    """The protocol as one party sees it, once all who come are there."""

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
        compare_people(meeting, member)
        told = meeting.exchange(ballot.promise(member, table).encode())
        promises = ledger.promised(meeting.present, told)
        if member.votes is not None:
            ledger.enter(member.votes, ledger.claim_of(member))
        ledger.begin(registration.Ledger(member.run, lambda: member.spends), promises)
        steps.advance(note="all are there")
        values = _opened(meeting, member, table, noise)
        steps.advance(note="opened")
        found = Transcript(member.agreement.digest, member.agreement.vote, promises, values)
        ledger.opened(book, found.digest, values)
        steps.advance(note="recorded")
        signatures = meeting.exchange(certificates.sign(key, found.digest.encode()))
        check_signatures(member.agreement, found, signatures)
        save(file, found, {name: signatures[name] for name in promises})
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


def compare_people(meeting: Round, member: Member) -> None:
    """Refuse a vote where one person is with two parties: whoever is moves the votes of both."""
    agreement = member.agreement
    if agreement.unit == "party" or agreement.people == "unchecked":
        return
    lists = _around(meeting, member.name, own_ids(member), _sizes(member))
    if without := [name for name in meeting.present if not lists[name]]:
        progress.warn(
            f"the ids of {', '.join(without)} are row numbers, so nobody can tell whether people there are "
            "with other parties too; the statement holds if nobody is"
        )
    for first, second in combinations(meeting.present, 2):
        if common := len({*lists[first]} & {*lists[second]}):
            raise Refusal(
                f"{first} and {second} have {common} {member.by} id{'s' * (common > 1)} in common, and "
                "whoever is with two parties moves the votes of both: let one of the two leave these out, or "
                "agree on --people unchecked, whose statement covers nobody who is with two parties"
            )


def own_ids(member: Member) -> list[bytes]:
    """The points of the party's own people, and random ones; none where ids are row numbers."""
    dataset = ballot.open_dataset(member)
    if relation.renumbers(dataset, member.by):
        return []
    found = sorted({str(name) for name in units_of(dataset.private, member.by)})
    size = _sizes(member).get(member.name, 1 << (len(found) - 1).bit_length())
    return padded(points(found, bytes.fromhex(member.agreement.digest)), size)


def _sizes(member: Member) -> Mapping[str, int]:
    """How long the lists are by the agreement, which says how many people a crowd has at most."""
    agreement = member.agreement
    if agreement.voters == "teachers":
        return {}
    return {name: terms.voters_of(agreement, name, member.questions) for name in agreement.names}


def _around(meeting: Round, name: str, given: list[bytes], sizes: Mapping[str, int]) -> Lists:
    """All parties' lists, once every party has hidden each."""
    present, blinder = meeting.present, Blinder()
    place = present.index(name)
    lists = _shown(meeting, blinder.raised(given), present)
    _check_sizes(lists, sizes)
    for turn in range(1, len(present)):
        taken = lists[present[place - turn]]
        came = _shown(meeting, blinder.raised(taken), present)
        after = {present[at - turn]: came[one] for at, one in enumerate(present)}
        for one in present:
            if len(after[one]) != len(lists[one]):
                raise PateError(f"the hidden ids of {one} came back in another number: start the vote again")
        lists = after
    return lists


def _check_sizes(lists: Lists, sizes: Mapping[str, int]) -> None:
    """Refuse a list of more than a party's people: whoever guesses ids could try as many as it is long."""
    for name, size in sizes.items():
        if (length := len(lists.get(name, []))) not in (0, size):
            raise PateError(
                f"{name} sends {length:,} hidden ids, and by its card it has {size:,} people: let it "
                "vote with the program and the agreement of all"
            )


def _shown(meeting: Round, own: list[bytes], present: Sequence[str]) -> dict[str, list[bytes]]:
    """What every party shows in one turn."""
    told = meeting.exchange(b"".join(own))
    for name in present:
        if len(told[name]) % SIZE:
            raise PateError(f"{name} sends no list of hidden ids: it runs another version of pate_jax")
    return {name: [told[name][at : at + SIZE] for at in range(0, len(told[name]), SIZE)] for name in present}


KIND = "transcript"


class Transcript(NamedTuple):
    """Who voted under which agreement, with which promises, and what was opened."""

    agreement: str
    vote: int
    promises: Mapping[str, str]
    opened: Table

    @property
    def digest(self) -> str:
        """The SHA-256 of all of it, which every party signs."""
        return hashlib.sha256(json.dumps(self._body(), sort_keys=True).encode()).hexdigest()

    def _body(self) -> dict[str, Any]:
        rows, columns = self.opened.shape
        told = {"agreement": self.agreement, "vote": self.vote, "promises": dict(self.promises)}
        return {**told, "rows": rows, "columns": columns, "opened": pack_table(self.opened)}


def save(path: Path, transcript: Transcript, signatures: Mapping[str, bytes]) -> None:
    """Write a transcript with its signatures."""
    signed = {name: signatures[name].hex() for name in sorted(signatures)}
    storage.write_json(path, KIND, {**transcript._body(), "digest": transcript.digest, "signatures": signed})


def load(path: Path, agreement: Agreement) -> Transcript:
    """Read a transcript; refused where it is of another agreement, or a party that voted did not sign it."""
    body = storage.read_json(path, KIND)
    try:
        signed = {str(name): bytes.fromhex(text) for name, text in body.pop("signatures").items()}
        said = body.pop("digest")
        opened = unpack_table(body["opened"], (body["rows"], body["columns"]))
        found = Transcript(body["agreement"], body["vote"], body["promises"], opened)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PateError(f"{path} is no transcript ({error!r}): copy it again from another party") from error
    if found.agreement != agreement.digest or said != found.digest:
        raise PateError(f"{path} is the transcript of another agreement, or was changed: copy it again")
    check_signatures(agreement, found, signed)
    return found


def check_signatures(agreement: Agreement, transcript: Transcript, signatures: Mapping[str, bytes]) -> None:
    """Refuse a transcript that one of the parties which voted has not signed."""
    for name in transcript.promises:
        certificate = agreement.party(name).certificate
        if not certificates.verify(certificate, transcript.digest.encode(), signatures.get(name, b"")):
            raise PateError(
                f"{name} has not signed this transcript: it saw other numbers than you, or its key was "
                "changed; nobody should use them before that is explained"
            )
