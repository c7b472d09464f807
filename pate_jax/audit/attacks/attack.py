"""What an attack on a finished run is: a name, whether it suits the run, and what it finds.

An attack is one file that ends with `ATTACK = Attack(...)`, with a way for each kind of run that it
suits, and one line in the table of `every.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from pate_jax.errors import PateError
from pate_jax.mechanisms import Mechanism
from pate_jax.mechanisms.events import Answers
from pate_jax.mechanisms.stable import StableAnswers
from pate_jax.runs import ledger
from pate_jax.runs.directory import Kind, RunDirectory, kind_of
from pate_jax.system.tasks import HERE, Engine

OF_VOTES = "SENSITIVE, from the votes: keep it in private/ and publish none of it"
OF_RECORDS = "SENSITIVE, from the private records: keep it in private/ and publish none of it"
_CALLED: dict[Kind, str] = {
    "teachers": "a run of teachers",
    "crowd": "the run of a crowd",
    "party": "one party's part of a vote",
    "training": "a net trained by DP-SGD",
    "choice": "a choice of settings",
    "method": "the run of a method in one file",
    "labels": "a run of several labels, each of which has a run of its own in private/",
}


class Finding(Protocol):
    """What came of one attack."""

    @property
    def holds(self) -> bool:
        """Whether the attack found no mistake."""

    def to_dict(self) -> dict[str, Any] | list[dict[str, Any]]:
        """As JSON, with a warning where it is sensitive."""

    def text(self) -> str:
        """For a terminal: whole sentences, with a warning where they are sensitive."""


class Flags(NamedTuple):
    """What the flags of `pate attack` ask for; each attack reads its own and leaves the others alone."""

    draws: int | None = None  # of the mechanism, on each side; unset: as many as it takes
    shadows: int = 128  # runs of the whole pipeline for membership inference
    canaries: int = 20_000  # in all, of the audit of the whole pipeline
    engine: Engine = HERE  # who repeats the run


def _never(run: RunDirectory) -> None:
    """Every run suits."""
    del run


class Way(NamedTuple):
    """How an attack is made on runs of one kind."""

    attacked: Callable[[RunDirectory, Flags], Finding]
    unfit: Callable[[RunDirectory], str | None] = _never  # why a run does not suit, with the remedy


class Attack(NamedTuple):
    """One attack on a finished run."""

    name: str  # as `--only` takes it, and as the results are kept
    ways: Mapping[Kind, Way]

    def unfit(self, run: RunDirectory) -> str | None:
        """Why a run does not suit, with the remedy; None: it does."""
        kind = kind_of(run)
        return self.ways[kind].unfit(run) if kind in self.ways else no_way(run, f"attack {self.name}")

    def attacked(self, run: RunDirectory, flags: Flags) -> Finding:
        """What the attack finds on a run that suits."""
        return self.ways[kind_of(run)].attacked(run, flags)


def no_way(run: RunDirectory, what: str) -> str:
    """The sentence that there is no such thing for runs of this kind."""
    return f"{run.root} is {_CALLED[kind_of(run)]}, for which there is no {what}: `pate verify` checks it"


def of_list(run: RunDirectory) -> str | None:
    """Why attacks on answers one by one do not suit a run, if it gave a list of stable answers."""
    line = next(ledger.lines(run.ledger), None)
    if line is None or not isinstance(line.event.mechanism, StableAnswers):
        return None
    return (
        f"{run.root} gave a list of stable answers, whose law depends on the list as a whole: there is no "
        "attack by draws and no exact risk of single persons. Its published figure holds for everybody, and "
        "`pate verify` draws its answers again"
    )


def answering(run: RunDirectory) -> tuple[Mechanism, Answers]:
    """What answers each query of a run by itself, and the event of its first line; refused of a list."""
    event = next(ledger.lines(run.ledger)).event
    if isinstance(event.mechanism, StableAnswers):
        raise PateError(of_list(run) or "")
    return event.mechanism, event


def of_counts(run: RunDirectory) -> str | None:
    """Why attacks that weigh single labels do not suit a run, if its teachers gave whole histograms."""
    line = next(ledger.lines(run.ledger), None)
    if line is None or not line.event.mechanism.releases_counts:
        return None
    return (
        f"{run.root} answered by whole rows of noisy counts, one Gaussian release whose cost depends on no "
        "vote: `--only mechanism` audits its noise, and `pate risk` gives the exact figure of each person"
    )
