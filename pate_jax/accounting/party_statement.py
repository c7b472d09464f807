"""The privacy statement of a vote among parties: one figure for each audience, whatever the records are.

Every figure follows from the agreement alone, so all of it may be published. The headline is the figure of
the audience that learns most, which may be a party; outsiders, who know nobody's noise, learn less.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, get_args

from pate_jax.accounting import parties
from pate_jax.accounting.curves import Epsilon
from pate_jax.accounting.figures import Figure, figure
from pate_jax.accounting.parties import Audience, Unit, audiences, joint
from pate_jax.accounting.statement import HEADLINE, RELATIONS, Statement
from pate_jax.accounting.trade_off import TradeOff
from pate_jax.mechanisms.shared_votes import SharedVote

BASIS = "the noise of the parties that an audience cannot subtract"
NOTE = "holds for all private records, against the audience that learns most"


@dataclass(frozen=True, kw_only=True)
class PartyStatement(Statement):
    """What one vote among parties costs. `party_statement` makes it, and all of it may be published."""

    relation: Unit
    vote: SharedVote
    answered: int  # of the queries that were asked
    audiences: tuple[Audience, ...]

    mark, relations = "shared", get_args(Unit)

    @property
    def covers(self) -> str:
        """Whom the guarantee covers, in words."""
        if self.relation == "party":
            return f"all voters of one party changed, whatever its records, against {self.worst.name}"
        return f"{RELATIONS[self.relation]}, against {self.worst.name}, if nobody is with two parties"

    @property
    def worst(self) -> Audience:
        """The audience that learns most."""
        return max(self.audiences, key=_learned)

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

    def own(self) -> dict[str, Any]:
        """The fields of this kind, as JSON."""
        return {
            "shared": dataclasses.asdict(self.vote)
            | {"voters_of_parties": list(self.vote.voters_of_parties)},
            "asked": self.asked,
            "answered": self.answered,
            "audiences": [one._asdict() for one in self.audiences],
        }

    @classmethod
    def described(cls, description: Mapping[str, Any]) -> Self:
        """The statement of this kind that these fields give; its figure follows from the audiences."""
        settings = dict(description["shared"])
        found = tuple(Audience(**one) for one in description["audiences"])
        return cls(
            vote=SharedVote(**{**settings, "voters_of_parties": tuple(settings["voters_of_parties"])}),
            audiences=found,
            figures=_figures(found),
            **{name: description[name] for name in ("answered", "delta", "relation", "private")},
        )

    def check(self) -> None:
        """Refuse more answers than questions, and audiences that learn no number."""
        super().check()
        known = all(type(one.epsilon) is float and one.epsilon >= 0 for one in self.audiences)
        if self.answered > self.asked or not known:
            raise TypeError(f"answered={self.answered}, audiences={self.audiences!r}")

    def text(self, *, publishable_only: bool = False) -> str:
        """The table for a terminal, with a line for each audience."""
        table = super().text(publishable_only=publishable_only)
        return f"{parties.text(self.audiences, self.delta, self.relation)}\n{table}"


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
    found = audiences(vote, delta, unit=unit)
    return PartyStatement(
        figures=_figures(found),
        delta=delta,
        relation=unit,
        private=private,
        vote=vote,
        answered=vote.queries if answered is None else answered,
        audiences=found,
    )


def _figures(found: tuple[Audience, ...]) -> dict[str, Figure]:
    """The figure of the audience that learns most."""
    worst = max(found, key=_learned)
    return {HEADLINE: figure(Epsilon(worst.epsilon, None), "publishable", BASIS, f"{NOTE}: {worst.name}")}


def _learned(audience: Audience) -> float:
    return audience.epsilon
