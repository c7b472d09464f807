"""All attacks that a finished run allows, one after the other, and what is kept of them."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pate_jax.audit.attacks import (
    canaries,
    mechanism,
    membership,
    poisoned,
    public_twin,
    reconstruction,
    recovery,
)
from pate_jax.audit.attacks.attack import Attack, Finding, Flags
from pate_jax.audit.attacks.public_twin import Twin
from pate_jax.errors import PateError
from pate_jax.runs import kinds, results
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.report import attacks
from pate_jax.student import Student
from pate_jax.system import storage

# In the order in which they are made and told.
_ALL = (
    mechanism.ATTACK,
    canaries.ATTACK,
    recovery.ATTACK,
    poisoned.ATTACK,
    membership.ATTACK,
    reconstruction.ATTACK,
    public_twin.ATTACK,
)
ATTACKS: dict[str, Attack] = {one.name: one for one in _ALL}
_USUAL = Flags()


class Attacked(NamedTuple):
    """What came of the attacks, by name."""

    findings: dict[str, Finding]
    left_out: tuple[str, ...] = ()  # names of attacks that do not suit the run or this installation

    @property
    def holds(self) -> bool:
        """Whether no attack found a mistake."""
        return all(one.holds for one in self.findings.values())

    def to_dict(self) -> dict[str, Any]:
        """As JSON; the parts about votes and records are sensitive."""
        found = {name: one.to_dict() for name, one in self.findings.items()}
        return {"mechanism": [], **found, "told": self.text().splitlines()}

    def text(self) -> str:
        """For a terminal."""
        return "\n".join([*(one.text() for one in self.findings.values()), *self._not_made()])

    def brief(self) -> str:
        """The same in 25 lines at most: what each attack found first and last, or all where it fails."""
        lines, more = [], 0
        for one in self.findings.values():
            told = one.text().splitlines()
            kept = [_cut(line) for line in _ends(told)] if one.holds else told
            lines += kept
            more += len(told) - len(kept)
        verdict = "All hold." if self.holds else "SOME DO NOT HOLD: publish nothing, and report this."
        end = f"{len(self.findings)} attacks were made. {verdict} `--all` shows {more:,} more lines."
        return "\n".join([*lines, *self._not_made(), end])

    def _not_made(self) -> list[str]:
        names = ", ".join(self.left_out)
        return [f"not made here: {names} (`--only NAME` tells the reason)"] if self.left_out else []


def _ends(lines: Sequence[str]) -> list[str]:
    """The first line, the one after it where it is a heading, and the last.

    >>> _ends(["recovery:", "  first", "  second", "  third"])
    ['recovery:', '  first', '  third']
    """
    first = 2 if lines and lines[0].endswith(":") else 1
    return [*lines[:first], *lines[first:][-1:]]


def _cut(line: str) -> str:
    """A line that ends after a sentence or so: 170 characters at most.

    >>> len(_cut("word " * 100)) <= 170
    True
    """
    margin = line[: len(line) - len(line.lstrip())]
    return (
        line if len(line) <= 170 else margin + textwrap.shorten(line, 170 - len(margin), placeholder=" ...")
    )


def attacked(run: RunDirectory, only: str | None = None, flags: Flags = _USUAL) -> Attacked:
    """Attack a run and keep what came of it in private/attacks.json."""
    chosen = list(ATTACKS.values()) if only is None else [_named(only)]
    if flags.draws is not None and flags.draws < 1:
        raise PateError(f"draws={flags.draws} must be at least 1; a million are few")
    unfit = {one.name: reason for one in chosen if (reason := one.unfit(run)) is not None}
    if len(unfit) == len(chosen):
        raise PateError(next(iter(unfit.values())))
    run.existing(run.ledger, "aggregate")
    left_out = tuple(unfit)
    made = {one.name: one.attacked(run, flags) for one in chosen if one.name not in left_out}
    found = Attacked(made, left_out)
    storage.write_json(run.attacks, results.ATTACKS, found.to_dict(), mode=0o600)
    twin = found.findings.get(public_twin.ATTACK.name)
    told = twin.to_dict() if isinstance(twin, Twin) and twin.holds else None
    tell(run, told)
    return found


def _named(name: str) -> Attack:
    if name not in ATTACKS:
        raise PateError(f"{name!r} is not an attack; choose one of {', '.join(ATTACKS)}")
    return ATTACKS[name]


def tell(run: RunDirectory, twin: Mapping[str, Any] | None) -> None:
    """Write the owner's page of a finished run again, and with a twin the whole release."""
    if not (run.results.exists() and run.statement.exists()):
        return
    if twin is None:
        kinds.of(run).tell_owner(run)
        return
    found = results.kept(run) | {"attacked": attacks.paragraph(twin)}
    statement = storage.read_json(run.public_statement, "statement")
    results.keep(run, Student.load(run.student), statement, found)
    kinds.of(run).tell(run)
