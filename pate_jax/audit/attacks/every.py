"""All attacks that a finished run allows, one after the other, and what is kept of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from pate_jax.audit.attacks import mechanism, members, poisoning
from pate_jax.audit.attacks.mechanism import Audit
from pate_jax.audit.attacks.poisoning import Certified
from pate_jax.audit.attacks.roc import Measured
from pate_jax.errors import PateError
from pate_jax.runs import answers, ledger
from pate_jax.runs.crowds.inputs import is_crowd
from pate_jax.runs.directory import RunDirectory
from pate_jax.system import storage

SENSITIVE = "SENSITIVE, from the votes: keep it in private/ and publish none of it"
OF_RECORDS = "SENSITIVE, from the private records: keep it in private/ and publish none of it"


class Attacked(NamedTuple):
    """What came of the attacks."""

    audits: list[Audit]
    certified: Certified | None
    membership: list[Measured]

    @property
    def holds(self) -> bool:
        """Whether no attack found a mistake."""
        return all([one.holds for one in self.audits] + [one.holds for one in self.membership])

    def to_dict(self) -> dict[str, Any]:
        """As JSON; the parts about votes and records are sensitive."""
        audits = [
            {**audit._asdict(), "holds": audit.holds, "confidence": 1 - mechanism.DOUBT}
            for audit in self.audits
        ]
        found: dict[str, Any] = {"mechanism": audits}
        if self.membership:
            each = [{**one.to_dict(), "sentence": one.sentence()} for one in self.membership]
            found["membership"] = {"warning": OF_RECORDS, "attacks": each}
        if self.certified is not None:
            shares = {str(bad): share for bad, share in self.certified.shares.items()}
            found["poisoning"] = {"warning": SENSITIVE, **self.certified._asdict(), "shares": shares}
        return found

    def text(self) -> str:
        """For a terminal."""
        lines = [f"mechanism: {audit.sentence()}" for audit in self.audits]
        if self.certified is not None:
            lines.append(f"poisoning ({SENSITIVE}): {self.certified.sentence()}.")
        if self.membership:
            shadows = self.membership[0].targets
            lines.append(f"membership, by {shadows} shadow runs on half of the records ({OF_RECORDS}):")
            lines.extend(f"  {one.sentence()}" for one in self.membership)
        return "\n".join(lines)


def attacked(
    run: RunDirectory, only: str | None = None, draws: int | None = None, shadows: int = members.SHADOWS
) -> Attacked:
    """Attack a run and keep what came of it in private/attacks.json."""
    crowd = is_crowd(run)
    if only == "poisoning" and crowd:
        raise PateError(
            f"{run.root} has no teachers, so no agreement of theirs withstands anything: leave out --only"
        )
    if draws is not None and draws < 1:
        raise PateError(f"draws={draws} must be at least 1; a million are few")
    run.existing(run.ledger, "aggregate")
    whole = only is None
    audits = (
        list(_tables(run, draws) if crowd else _answers(run, draws)) if whole or only == "mechanism" else []
    )
    certify = not crowd and (whole or only == "poisoning")
    votes = poisoning.certified(answers.load_asked(run).votes) if certify else None
    guess = only == "membership" or (whole and members.suits(run))
    found = Attacked(audits, votes, members.attacked(run, shadows) if guess else [])
    storage.write_json(run.attacks, "attacks", found.to_dict(), mode=0o600)
    return found


def _answers(run: RunDirectory, draws: int | None) -> Iterator[Audit]:
    """The audit of a mechanism, for as many teachers and classes as the ledger's first line names."""
    line = next(ledger.lines(run.ledger))
    yield mechanism.of_answers(line.mechanism, line.teachers, line.classes, draws=draws)


def _tables(run: RunDirectory, draws: int | None) -> Iterator[Audit]:
    """The audit of every different release of a crowd."""
    for release in dict.fromkeys(line.release for line in ledger.releases(run.ledger)):
        yield mechanism.of_table(release, draws=draws)
