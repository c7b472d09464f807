"""From cards and settings to an agreement, and from that to what the accountant and the samplers read.

A party keeps its key, and gives its card to whoever writes the agreement.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

from pate_jax.accounting import parties as accounting
from pate_jax.accounting.exact import counts
from pate_jax.accounting.parties import Audience
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums, NeighbourCounts
from pate_jax.mechanisms.shared_votes import SharedVote
from pate_jax.parties import certificates
from pate_jax.parties.agreement import Agreement, Noise, Party
from pate_jax.runs.parties.questions import Questions, largest_cell
from pate_jax.system import storage

_UP = 1 + 1e-9  # the budget that is written down is not below the figure that it was found with


@dataclass(frozen=True)
class Terms:
    """What the parties may choose, beside who they are and what is asked."""

    voters: Literal["teachers", "neighbours", "sums"] = "teachers"
    """Who votes in each party: teachers, or every record (or user) by itself, as neighbours or sums."""
    opened: Literal["counts", "answers"] = "counts"
    """What everybody gets to see: all noisy counts, or only the answer of each query (slower)."""
    epsilon: float = 1.0
    """What the vote may cost at most for one voter, against the audience that learns most."""
    delta: float = 1e-5
    """The delta of every figure; well below one over the number of private records."""
    unit: Literal["record", "user", "party"] = "record"
    """Whose data are protected: one record, all records of one user, or a whole party with its voters."""
    colluding: int = 1
    """How many parties may put together what they know; fewer than half of them."""
    absent: int = 0
    """How many parties may stay away."""
    threshold: float | None = None
    """Of answers: the votes that the noisy largest count of a query must reach."""
    test_noise: float = 3.75
    """Of a threshold: the scale of its noise, as a multiple of that of the counts."""
    seconds: float = 60.0
    """The longest time to wait, for parties to come and for each message."""
    vote: int = 1
    """The number of this vote among the same parties. A party's key takes each number once, and the costs of
    all votes on the same records add up (`pate party join --register`)."""
    people: Literal["compared", "unchecked"] = "compared"
    """Whether the parties count, before the vote, how many people two of them have in common, and do not vote
    if there are any. They see the number and nobody's id. Of --unit party nothing is compared."""


def mu(terms: Terms) -> float:
    """What a crowd's table may cost, from which the size of its plan follows."""
    return counts.mu_for(terms.epsilon, terms.delta)


def mu_of(agreement: Agreement) -> float:
    """The same of an agreement: all of its audiences have one budget."""
    return counts.mu_for(max(agreement.budget.values()) / _UP, agreement.delta)


def agreed(
    name: str,
    terms: Terms,
    cards: Sequence[Card],
    questions: Questions,
    *,
    classes: int,
    pool: str,
    training: Mapping[str, str | int | float | bool],
) -> Agreement:
    """The agreement with the least noise that keeps every audience within epsilon.

    The digest of the questions is still to come: their file holds the scale of the noise.
    """
    vote = accounting.least_noise(
        _unsettled(terms, cards, questions, classes), terms.epsilon, terms.delta, unit=terms.unit
    )
    rows, columns = questions.shape or (len(questions.rows if questions.rows is not None else ()), classes)
    noise = Noise(
        vote.sigma,
        vote.threshold,
        vote.sigma_threshold,
        float(vote.length if terms.voters == "sums" else vote.votes),
    )
    budget = {
        one.name: terms.epsilon * _UP for one in accounting.audiences(vote, terms.delta, unit=terms.unit)
    }
    return Agreement(
        name,
        pool,
        "0" * 64,
        rows,
        columns,
        terms.voters,
        terms.opened,
        noise,
        terms.delta,
        budget,
        tuple(
            Party(one.name, one.host, one.port, one.certificate, largest_cell(questions, one.voters))
            for one in cards
        ),
        colluders=terms.colluding,
        dropouts=terms.absent,
        unit=terms.unit,
        seconds=terms.seconds,
        vote=terms.vote,
        people=terms.people,
        training=training,
    )


def _unsettled(terms: Terms, cards: Sequence[Card], questions: Questions, classes: int) -> SharedVote:
    """The vote with noise that is only a place to start from."""
    honest = len(cards) - terms.colluding - terms.absent
    start = 4.0 * math.sqrt(max(honest, 1))
    found = SharedVote(
        terms.voters,
        terms.opened,
        parties=len(cards),
        sigma=start,
        classes=classes,
        colluding=terms.colluding,
        absent=terms.absent,
        threshold=terms.threshold,
        sigma_threshold=None if terms.threshold is None else start * terms.test_noise,
        voters_of_parties=tuple(one.voters for one in cards),
        queries=1 if questions.rows is None else len(questions.rows),
    )
    release = None if questions.plan is None else questions.plan.release
    if isinstance(release, NeighbourCounts):
        return replace(found, queries=release.queries, votes=release.votes)
    if isinstance(release, ClassSums):
        return replace(found, directions=release.directions, length=release.length)
    return found


def vote_of(agreement: Agreement, questions: Questions) -> SharedVote:
    """What the parties open together, as the accountant reads it; refused where the two do not fit."""
    shape = questions.shape or (len(questions.rows) if questions.rows is not None else 0, agreement.classes)
    if shape != (agreement.queries, agreement.classes):
        raise PateError(
            f"the questions are a table of {shape[0]} x {shape[1]} numbers, and the agreement says "
            f"{agreement.queries} x {agreement.classes}: copy both files again from whoever made them"
        )
    classes = max(agreement.classes, 2)  # of sums, two classes have one column
    release = None if questions.plan is None else questions.plan.release
    noise, length = agreement.noise, 1
    if isinstance(release, ClassSums):
        length = release.length
        _check_bound(length, noise.per_voter)
    elif isinstance(release, NeighbourCounts):
        _check_bound(release.votes, noise.per_voter)
    return SharedVote(
        agreement.voters,
        agreement.opened,
        parties=len(agreement.parties),
        sigma=noise.scale,
        classes=classes,
        queries=agreement.queries if agreement.voters != "sums" else 1,
        colluding=agreement.colluders,
        absent=agreement.dropouts,
        threshold=noise.threshold,
        sigma_threshold=noise.test_scale,
        votes=release.votes if isinstance(release, NeighbourCounts) else 1,
        directions=release.directions if isinstance(release, ClassSums) else 1,
        length=length,
        voters_of_parties=tuple(party.votes // length for party in agreement.parties),
    )


def _check_bound(bound: int, agreed: float) -> None:
    if bound != agreed:
        raise PateError(
            f"a voter of these questions adds {bound} at most, and the agreement says {agreed:g}: copy both "
            "files again from whoever made them"
        )


def audiences(agreement: Agreement, questions: Questions) -> tuple[Audience, ...]:
    """The figure of each audience; refused where one is above the agreement's budget for it."""
    found = accounting.audiences(vote_of(agreement, questions), agreement.delta, unit=agreement.unit)
    for one in found:
        most = agreement.budget.get(one.name)
        if most is None or one.epsilon > most:
            limit = "no budget" if most is None else f"a budget of {most:g}"
            raise PateError(
                f"{one.name} may learn epsilon {one.epsilon:.4f} at delta {agreement.delta:g} by this "
                f"agreement, and it has {limit} for them: make it anew with more noise, fewer queries or "
                "another budget"
            )
    return found


def voters_of(agreement: Agreement, name: str, questions: Questions) -> int:
    """How many voters a party may have; of teachers, how many it has."""
    release = None if questions.plan is None else questions.plan.release
    length = release.length if isinstance(release, ClassSums) else 1
    return agreement.party(name).votes // length


KIND = "party"


class Card(NamedTuple):
    """What a party tells all others of itself."""

    name: str
    host: str
    port: int
    voters: int  # teachers: exactly so many; neighbours and sums: no more than so many
    certificate: str


def make(folder: Path, name: str, host: str, port: int, voters: int) -> tuple[Path, Path]:
    """Write a fresh key and the card of its certificate; the paths of the two are returned."""
    key, card = folder / f"{name}.key.pem", folder / f"{name}.card.json"
    for path in (key, card):
        if path.exists():
            raise PateError(f"{path} exists: a party keeps its key; name another --out to make a new one")
    identity = certificates.make(name)
    made = Card(name, host, port, voters, identity.certificate)
    Party(name, host, port, identity.certificate, voters)  # refuses what an agreement would refuse
    storage.write_bytes(key, identity.key.encode(), mode=0o600)
    storage.write_json(card, KIND, made._asdict())
    return key, card


def read(path: Path) -> Card:
    """The card that `make` wrote."""
    body = storage.read_json(path, KIND)
    if set(body) != set(Card._fields):
        raise PateError(f"{path} holds {', '.join(sorted(body))}, and a card holds {', '.join(Card._fields)}")
    return Card(**body)


def own_name(agreement: Agreement, key: str) -> str:
    """The party of an agreement that has this secret key."""
    probe = agreement.digest.encode()
    signed = certificates.sign(key, probe)
    for party in agreement.parties:
        if certificates.verify(party.certificate, probe, signed):
            return party.name
    raise PateError(
        f"the key belongs to none of the parties of {agreement.name!r} ({', '.join(agreement.names)}): give "
        "the key whose card went into the agreement"
    )
