"""A run under examination, and what its checks read of it: each is opened once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pate_jax.ensemble import TeacherConfig
from pate_jax.errors import PateError
from pate_jax.runs import inputs, ledger
from pate_jax.runs.crowds import inputs as crowd_inputs
from pate_jax.runs.crowds.inputs import Crowd
from pate_jax.runs.directory import Kind, RunDirectory, kind_of
from pate_jax.runs.inputs import Inputs
from pate_jax.runs.parties import ballot, join
from pate_jax.runs.parties.ballot import Member
from pate_jax.runs.record import HEADCOUNT, Settings
from pate_jax.runs.release.findings import Ended, Finding, failed, unchecked
from pate_jax.runs.settings import PartitionChoice
from pate_jax.runs.tune.candidates import Choice
from pate_jax.system.tasks import HERE, Engine

ELSEWHERE = "the votes were made elsewhere, so nothing is known of their teachers"

RETRAINED = 3  # teachers


@dataclass(frozen=True)
class Subject:
    """The run under examination. What cannot be had ends the check that asks for it."""

    run: RunDirectory
    retrained: int = RETRAINED
    deep: bool = False
    engine: Engine = HERE

    @property
    def settings(self) -> Settings:
        """What the run has recorded."""
        return self.run.record.read()

    @property
    def inputs(self) -> Inputs:
        """The inputs of the run."""
        if isinstance(self.opened, Finding):
            raise Ended(self.opened)
        return self.opened

    @cached_property
    def opened(self) -> Inputs | Finding:
        """The inputs of the run, or why they are not available."""
        settings = self.settings
        if "data" not in settings:
            return unchecked(ELSEWHERE)
        opened = _OPENING.get(kind_of(self.run), _without_voters)(self)
        try:
            opened.dataset  # noqa: B018  # opens the files
        except PateError as error:
            return unchecked(f"the data cannot be opened: {error}")
        return opened

    @cached_property
    def crowd(self) -> Crowd:
        """The crowd of the run."""
        return Crowd(self.inputs, self.settings.crowd)

    @cached_property
    def member(self) -> Member:
        """The party whose part of a vote the run is."""
        return join.opened(self.run)

    @cached_property
    def choice(self) -> Choice:
        """The choice of settings that the run is; without data where these cannot be had."""
        return Choice(self.run, None if isinstance(self.opened, Finding) else self.opened.dataset)

    def needs(self, stage: str, *paths: Path) -> None:
        """End a check where a file is missing: not made yet or, if files of later stages exist, lost."""
        for path in paths:
            if not path.exists():
                raise Ended(self.absent(path, stage))

    def absent(self, path: Path, stage: str) -> Finding:
        """The finding for a missing file."""
        run = self.run
        order = [run.public_side, run.table, run.certificate, run.teacher_report, run.votes]
        order += [run.ledger, run.answers]
        order += [run.statement, run.public_statement, run.results]
        later = order[order.index(path) + 1 :] if path in order else order[3:]
        if HEADCOUNT in self.settings and not ledger.read(run.ledger):  # it holds a number of voters alone
            later = [one for one in later if one != run.ledger]
        if any(one.exists() for one in later):
            return failed(f"{path} is missing, and what was made after it is there")
        return unchecked(f"{path.name} does not exist yet: run `pate {stage}`")


def _without_voters(subject: Subject) -> Inputs:
    """The inputs of a run that divides and counts nobody by its settings."""
    run, settings = subject.run, subject.settings
    cut = PartitionChoice(by="user" if settings.relation == "user" else "record")
    return Inputs(run, settings.data, cut, TeacherConfig(), tolerant=True)


_OPENING: dict[Kind, Callable[[Subject], Inputs]] = {
    "teachers": lambda subject: inputs.open(subject.run, tolerant=True),
    "crowd": lambda subject: crowd_inputs.opened(subject.run, tolerant=True).inputs,
    "party": lambda subject: ballot.inputs(subject.member, tolerant=True),
}
