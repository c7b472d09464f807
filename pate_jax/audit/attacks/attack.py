"""What an attack on a finished run is: a name, whether it suits the run, and what it finds.

An attack is one file that ends with `ATTACK = Attack(...)`, and one line in the table of `every.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from pate_jax.runs import ledger
from pate_jax.runs.directory import RunDirectory
from pate_jax.system.tasks import HERE, Engine

OF_VOTES = "SENSITIVE, from the votes: keep it in private/ and publish none of it"
OF_RECORDS = "SENSITIVE, from the private records: keep it in private/ and publish none of it"


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


class Attack(NamedTuple):
    """One attack on a finished run."""

    name: str  # as `--only` takes it, and as the results are kept
    unfit: Callable[[RunDirectory], str | None]  # why a run does not suit, with the remedy; none: it does
    attacked: Callable[[RunDirectory, Flags], Finding]


def of_counts(run: RunDirectory) -> str | None:
    """Why attacks that weigh single labels do not suit a run, if its teachers gave whole histograms."""
    line = next(ledger.lines(run.ledger), None)
    if line is None or not line.event.mechanism.releases_counts:
        return None
    return (
        f"{run.root} answered by whole rows of noisy counts, one Gaussian release whose cost depends on no "
        "vote: `--only mechanism` audits its noise, and `pate risk` gives the exact figure of each person"
    )
