"""The one line of a choice's ledger: what the whole choice costs, durable before its first candidate.

It says nothing of how many candidates there are. Each candidate's own ledger lies with it, and counts for
nothing more.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pate_jax.accounting.tuning import Tuned
from pate_jax.errors import PateError
from pate_jax.runs import chain
from pate_jax.runs.ledger import TUNE


class Charge(NamedTuple):
    """What a choice costs, of which list, and on which records."""

    tuned: Tuned
    settings: str  # a digest of the list
    records: str  # of the private and public ones: a copy of the choice on others does not fit its register
    epsilon: float  # what was allowed
    delta: float

    def to_dict(self) -> dict[str, Any]:
        """As JSON, with the figure that is charged."""
        cost = {"epsilon": self.tuned.epsilon(self.delta)}
        return {"schema": TUNE, **self._asdict(), "tuned": self.tuned.to_dict(), "cost": cost}


def charge(book: chain.Writer, wanted: Charge) -> None:
    """Write the line once; refused where another one is there."""
    path = book.path
    with book:
        if not chain.read(path):
            book.append(wanted.to_dict())
    if read(path) != wanted:
        raise PateError(
            f"{path} charges another choice of settings: repeat the first command, or choose another --out"
        )


def read(path: Path) -> Charge:
    """The line of a choice's ledger."""
    lines = chain.read(path)
    if len(lines) != 1 or lines[0].get("schema") != TUNE:
        raise PateError(f"{path} is not the ledger of a choice of settings: restore it from a backup")
    return _parsed(lines[0], path)


def _parsed(line: Mapping[str, Any], path: Path) -> Charge:
    try:
        tuned = Tuned.from_dict(line["tuned"])
        found = Charge(tuned, *(line[name] for name in ("settings", "records", "epsilon", "delta")))
        if line["cost"] != found.to_dict()["cost"]:
            raise ValueError(f"cost={line['cost']}")
    except (KeyError, TypeError, ValueError) as error:
        raise PateError(
            f"{path} charges no choice of settings ({error}): restore it from a backup"
        ) from error
    return found
