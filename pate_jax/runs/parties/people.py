"""Whether somebody is with two parties, counted before a vote without showing who.

Every party hides its ids (`parties.hidden_ids`), and the lists go around until each has passed all parties,
which hide and sort them once more. Then equal ids are equal points. All see how many people two parties
have in common, and nobody, not even these two, sees who they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Protocol

from pate_jax.data import relation
from pate_jax.data.partition import units_of
from pate_jax.errors import PateError
from pate_jax.parties.connections import Refusal
from pate_jax.parties.hidden_ids import SIZE, Blinder, padded, points
from pate_jax.runs.parties import ballot, terms
from pate_jax.runs.parties.ballot import Member
from pate_jax.system import progress

Lists = Mapping[str, list[bytes]]


class Round(Protocol):
    """What a comparison needs of a meeting: who is there, and to show one another bytes."""

    @property
    def present(self) -> tuple[str, ...]:
        """The parties that are there."""

    def exchange(self, content: bytes) -> Mapping[str, bytes]:
        """Show these bytes to all, and return what each party has shown, by its name."""


def compare(meeting: Round, member: Member) -> None:
    """Refuse a vote where one person is with two parties: whoever is moves the votes of both."""
    agreement = member.agreement
    if agreement.unit == "party" or agreement.people == "unchecked":
        return
    lists = _around(meeting, member.name, own(member), _sizes(member))
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


def own(member: Member) -> list[bytes]:
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
