"""The privacy statement of a vote among parties: one figure for each audience, whatever the records are.

Every figure follows from the agreement alone, so all of it may be published. The headline is the figure of
the audience that learns most, which may be a party; outsiders, who know nobody's noise, learn less.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from pate_jax.accounting import figures
from pate_jax.accounting.figures import Figure
from pate_jax.accounting.inputs import check_delta
from pate_jax.accounting.open_statement import OpenStatement
from pate_jax.accounting.parties import Audience, Unit, audiences, joint
from pate_jax.accounting.statement import RELATIONS
from pate_jax.accounting.trade_off import TradeOff
from pate_jax.errors import PateError
from pate_jax.mechanisms.shared_votes import SharedVote

BASIS = "the noise of the parties that an audience cannot subtract"
NOTE = "holds for all private records, against the audience that learns most"
_FIELDS = frozenset({"warning", "shared", "audiences", "delta", "relation", "private", "charged"}) | {
    *("trial", "figures", "trade_off", "relation_in_words", "model_card_line", "status"),
    *("asked", "answered"),
}


@dataclass(frozen=True)
class PartyStatement(OpenStatement):
    """What one vote among parties costs. `party_statement` makes it, and all of it may be published."""

    vote: SharedVote
    answered: int  # of the queries that were asked
    delta: float
    relation: Unit
    private: bool
    audiences: tuple[Audience, ...]

    declared = False
    smallest = "data_independent"

    @property
    def covers(self) -> str:
        """Whom the guarantee covers, in words."""
        if self.relation == "party":
            return f"all voters of one party changed, whatever its records, against {self.worst.name}"
        return f"{RELATIONS[self.relation]}, against {self.worst.name}, if nobody is with two parties"

    @property
    def worst(self) -> Audience:
        """The audience that learns most."""
        return max(self.audiences, key=lambda one: one.epsilon)

    @property
    def headline(self) -> Figure:
        """The figure to publish."""
        epsilon = self.worst.epsilon
        if math.isfinite(epsilon):
            return Figure(epsilon, None, "publishable", BASIS, f"{NOTE}: {self.worst.name}")
        return Figure(None, None, "publishable", BASIS, figures.NO_FINITE)

    @property
    def figures(self) -> dict[str, Figure]:
        """The only figure, by its name."""
        return {self.smallest: self.headline}

    @property
    def trade_off(self) -> TradeOff:
        """What the best guesser can reach, whoever of the audiences guesses."""
        return joint(self.vote, self.delta, self.relation)

    @property
    def asked(self) -> int:
        """How many queries were asked; sums ask none, and open one table."""
        return self.vote.queries

    @property
    def charged(self) -> str:
        """What the figure covers, in words."""
        vote = self.vote
        what = {
            "counts": f"all noisy counts of {vote.queries} queries",
            "answers": f"the answers to {vote.queries} queries",
        }[vote.opened]
        if vote.voters == "sums":
            what = f"a noisy table of {vote.cells} sums"
        bound = {
            "teachers": "one vote for each query",
            "neighbours": f"{vote.votes} vote{'s' * (vote.votes > 1)} at most",
            "sums": f"a vector of length {vote.length} at most",
        }[vote.voters]
        return (
            f"{what}, opened by {vote.parties} parties together, to which one voter adds {bound}, with "
            f"discrete Gaussian noise in shares, of scale {vote.sigma:.6g} without those of {vote.colluding} "
            f"colluding and {vote.absent} absent parties"
        )

    def publishable(self) -> dict[str, Any]:
        """The statement as JSON."""
        own = {
            "shared": dataclasses.asdict(self.vote)
            | {"voters_of_parties": list(self.vote.voters_of_parties)},
            "asked": self.asked,
            "answered": self.answered,
            "audiences": [one._asdict() for one in self.audiences],
        }
        return self.described(own, self.relation)

    @classmethod
    def from_dict(cls, description: Mapping[str, Any]) -> PartyStatement:
        """The statement that `publishable` described; its figures are taken as they are written."""
        try:
            if unknown := sorted({*description} - _FIELDS):
                raise TypeError(f"the field {unknown[0]!r}")
            settings = dict(description["shared"])
            vote = SharedVote(**{**settings, "voters_of_parties": tuple(settings["voters_of_parties"])})
            seen = tuple(Audience(**one) for one in description["audiences"])
            found = cls(
                vote,
                description["answered"],
                check_delta(description["delta"]),
                cast(Unit, description["relation"]),
                description["private"],
                seen,
            )
            _check(found)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise PateError(f"this is no statement of a vote among parties ({error!r})") from error
        return found

    def model_card_line(self) -> str:
        """One line for a model card."""
        from pate_jax.accounting import figure_table  # imported here, as it imports this module

        return figure_table.card_line(self)

    def text(self, *, publishable_only: bool = True) -> str:
        """The table for a terminal, with a line for each audience."""
        from pate_jax.accounting import figure_table, parties

        table = figure_table.text(self, list(self.figures.items()), publishable_only=True)
        return f"{parties.text(self.audiences, self.delta, self.relation)}\n{table}"

    def html(self, *, publishable_only: bool = True) -> str:
        """The table as a self-contained HTML fragment."""
        from pate_jax.accounting import figure_table

        return figure_table.html(self, list(self.figures.items()))


def party_statement(
    vote: SharedVote,
    delta: float,
    *,
    private: bool,
    unit: Unit = "record",
    answered: int | None = None,
) -> PartyStatement:
    """The statement of one vote among parties; `private` is true only if no party's noise was seeded.

    >>> vote = SharedVote("teachers", "counts", parties=3, colluding=1, sigma=40.0, queries=64, classes=10)
    >>> made = party_statement(vote, 1e-5, private=True)
    >>> made.worst.name, made.headline.epsilon > made.audiences[0].epsilon
    ('one party', True)
    >>> PartyStatement.from_dict(made.publishable()) == made
    True
    """
    given = vote.queries if answered is None else answered
    return PartyStatement(vote, given, delta, unit, private, audiences(vote, delta, unit=unit))


def _check(found: PartyStatement) -> None:
    good = type(found.answered) is int and 0 <= found.answered <= found.vote.queries
    if not good or type(found.private) is not bool or found.relation not in ("record", "user", "party"):
        raise TypeError(
            f"answered={found.answered!r}, private={found.private!r}, relation={found.relation!r}"
        )
    numbers = all(type(one.epsilon) is float and one.epsilon >= 0 for one in found.audiences)
    if not found.audiences or not numbers:
        raise TypeError(f"audiences={found.audiences!r}")
