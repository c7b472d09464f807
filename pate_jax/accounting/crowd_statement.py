"""The privacy statement of crowds: the cost of whole noisy tables, whatever the private records are.

Every figure here follows from the shape of the tables, the bound on what one voter adds and the scale of the
noise (`exact.counts`). So all of it may be published, and there is no smaller sensitive figure.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Self

from pate_jax.accounting import composition, trade_off
from pate_jax.accounting.curves import Epsilon
from pate_jax.accounting.exact import counts
from pate_jax.accounting.figures import Figure, figure
from pate_jax.accounting.inputs import check_delta
from pate_jax.accounting.statement import HEADLINE, Statement, check_relation
from pate_jax.accounting.trade_off import Gaussian, TradeOff
from pate_jax.accounting.tuning import Tuned
from pate_jax.errors import PateError
from pate_jax.mechanisms import codec
from pate_jax.mechanisms.codec import to_dict
from pate_jax.mechanisms.crowds import (
    ClassSums,
    Comparison,
    CrowdRelease,
    HeadCount,
    NeighbourCounts,
    TeacherSums,
    TeacherVotes,
    from_dict,
)

Covered = Literal["record", "user"]
COVERED: tuple[Covered, ...] = ("record", "user")
GAUSSIAN = "exact Gaussian differential privacy of the whole table"
RENYI = "Renyi differential privacy of the whole table"
TUNED = "privacy profiles of the best of several candidates, each Gaussian differentially private"
WHOLE = "holds for all private records; every cell is released, so whatever follows from the table is free"


@dataclass(frozen=True, kw_only=True)
class CrowdStatement(Statement):
    """What the tables of a crowd cost. `crowd_statement` makes it, and all of it may be published."""

    releases: tuple[CrowdRelease, ...]
    voters: int  # as released: with noise, and rounded
    tuned: Tuned | None = None  # the choice of settings whose best candidate made the releases

    mark, relations = "releases", COVERED

    @property
    def trade_off(self) -> TradeOff:
        """What the best guesser can reach."""
        return _trade_off(self.releases, self.delta, self.tuned)

    @property
    def charged(self) -> str:
        """What the figure covers, in words; equal releases that follow one another are named once."""
        every = (_described(release, self.relation, self.voters) for release in self.releases)
        alike = [(said, len(list(some))) for said, some in itertools.groupby(every)]
        made = [said if number == 1 else f"{number} times {said}" for said, number in alike]
        return "; ".join(made if self.tuned is None else [*made, self.tuned.words])

    def own(self) -> dict[str, Any]:
        """The fields of this kind, as JSON."""
        return {
            "releases": [to_dict(release) for release in self.releases],
            **({"tuned": to_dict(self.tuned)} if self.tuned else {}),
            "voters": self.voters,
        }

    @classmethod
    def described(cls, description: Mapping[str, Any]) -> Self:
        """The statement of this kind that these fields give."""
        return cls(
            releases=tuple(from_dict(release) for release in description["releases"]),
            voters=description["voters"],
            figures={name: Figure(**one) for name, one in description["figures"].items()},
            tuned=codec.from_dict(Tuned, description["tuned"], "tuned") if "tuned" in description else None,
            **{name: description[name] for name in ("delta", "relation", "private")},
        )

    def check(self) -> None:
        """Refuse what no crowd releases."""
        super().check()
        if self.voters < 1 or not self.releases:
            raise PateError(f"voters={self.voters}, {len(self.releases)} releases: both must be at least one")
        if [*self.figures] != [HEADLINE]:
            raise TypeError(f"the figures {self.figures!r}")


def crowd_statement(
    releases: Sequence[CrowdRelease],
    delta: float,
    *,
    voters: int,
    private: bool,
    relation: Covered = "record",
    tuned: Tuned | None = None,
) -> CrowdStatement:
    """The statement of the tables that a crowd released, one after another.

    It covers a voter whose contents change, and also one that is added or removed, which moves a table by
    less. `voters` is their number as it was released; `private` is true only if every key that draws the
    noise comes from `fresh_key()`. If the releases are those of the best of several candidates, `tuned` says
    how it was chosen, and the figure is that of the choice.

    >>> release = NeighbourCounts(queries=80, classes=10, votes=1, sigma=10.0)
    >>> made = crowd_statement([release], 1e-5, voters=60_000, private=True)
    >>> round(made.headline.epsilon, 4), made.headline.status
    (0.497, 'publishable')
    """
    if not releases or voters < 1:
        raise PateError(f"releases={list(releases)} and voters={voters} must be at least one each")
    check_relation(relation, COVERED)
    check_delta(delta)
    return CrowdStatement(
        figures={HEADLINE: figure_of(tuple(releases), delta, tuned)},
        delta=delta,
        relation=relation,
        private=private,
        releases=tuple(releases),
        voters=voters,
        tuned=tuned,
    )


def figure_of(
    releases: Sequence[CrowdRelease],
    delta: float,
    tuned: Tuned | None = None,
) -> Figure:
    """The figure of some tables together: the exact one if all noise is rounded Gaussian noise.

    >>> figure_of([NeighbourCounts(queries=80, classes=10, votes=1, sigma=10.0)], 1e-5).basis == GAUSSIAN
    True
    """
    found = counts.worst(releases, delta)
    if tuned is not None:
        return _of_choice(releases, found, delta, tuned)
    exact = all(counts.gaussian_mu(release) is not None for release in releases)
    return figure(Epsilon(found, None), "publishable", GAUSSIAN if exact else RENYI, WHOLE)


@lru_cache(maxsize=256)
def _trade_off(releases: tuple[CrowdRelease, ...], delta: float, tuned: Tuned | None) -> TradeOff:
    """The curve of all releases together, or that of the choice whose winner made them."""
    if tuned is not None:
        return trade_off.of(tuned.epsilon, delta, tuned.gaussian)
    mu, strays = counts.worst_mu(releases), 2 * counts.slack_of(releases)
    gaussian = None if mu is None else Gaussian(mu, strays)
    return trade_off.of(lambda at: counts.worst(releases, at), delta, gaussian)


def _of_choice(releases: Sequence[CrowdRelease], alone: float, delta: float, tuned: Tuned) -> Figure:
    """The figure of a choice of settings; refused where its winner costs more than a candidate may."""
    gaussian = all(counts.gaussian_mu(release) is not None for release in releases)
    if not gaussian or alone > composition.gaussian_epsilon(tuned.mu, delta):
        raise PateError(
            f"the releases cost epsilon {alone:g} by themselves, which is more than a candidate that is "
            f"{tuned.mu:g}-Gaussian-DP may cost: restore the statement, and the ledger, from a backup"
        )
    return figure(Epsilon(tuned.epsilon(delta), None), "publishable", TUNED, WHOLE)


def _described(release: CrowdRelease, whom: str, voters: int) -> str:
    rows, columns = release.shape
    noise = "Gaussian noise, rounded," if release.family == "rounded_gaussian" else "discrete Gaussian noise"
    if isinstance(release, HeadCount):
        return f"the number of voters, about {voters:,}, with {noise} of scale {release.sigma:.6g}"
    if isinstance(release, Comparison):
        return (
            f"how many held-out voters agree with each of {release.students} students, times "
            f"{release.students} and less the sum over all, with {noise} of scale {release.sigma:.6g}"
        )
    if isinstance(release, TeacherSums):
        return (
            f"a table of 1 x {columns} sums, to which each of {release.teachers:,} teachers adds a vector of "
            f"length {release.length} at most and one {whom} is with one of them, with {noise} of scale "
            f"{release.sigma:.6g} in every cell"
        )
    if isinstance(release, TeacherVotes):
        return (
            f"a table of {rows} x {columns} counts, in which each of {release.teachers:,} teachers names at "
            f"most {release.most} of {columns} labels of an input and one {whom} is with one of them, with "
            f"{noise} of scale {release.sigma:.6g} in every cell"
        )
    if not isinstance(release, NeighbourCounts | ClassSums):
        return (
            "the number of held-out voters who agree with a student, to which one of them adds at most 1, "
            f"with {noise} of scale {release.sigma:.6g}"
        )
    if isinstance(release, NeighbourCounts):
        what, bound = "counts", f"at most {release.votes} vote{'s' * (release.votes > 1)} in all"
    else:
        what, bound = "sums", f"one table of length {release.length} at most"
    return (
        f"a table of {rows} x {columns} {what}, to which one {whom} adds {bound}, with {noise} of scale "
        f"{release.sigma:.6g} in every cell"
    )
