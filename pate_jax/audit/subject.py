"""A run under examination, and its inputs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pate_jax.ensemble import TeacherConfig
from pate_jax.errors import PateError
from pate_jax.runs import inputs
from pate_jax.runs.crowds import inputs as crowd_inputs
from pate_jax.runs.crowds.inputs import is_crowd
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.inputs import Inputs
from pate_jax.runs.parties import ballot, join
from pate_jax.runs.record import BASELINE, TUNE
from pate_jax.runs.release.findings import Finding, unchecked
from pate_jax.runs.settings import PartitionChoice

ELSEWHERE = "the votes were made elsewhere, so nothing is known of their teachers"


@dataclass(frozen=True)
class Subject:
    """The run under examination; its data are opened once for all checks."""

    run: RunDirectory

    @cached_property
    def inputs(self) -> Inputs | Finding:
        """The inputs of the run, or why they are not available."""
        if "data" not in self.run.record.read():
            return unchecked(ELSEWHERE)
        if TUNE in self.run.record.read():
            settings = self.run.record.read()
            cut = PartitionChoice(by=settings.of(TUNE)["by"])
            opened = Inputs(self.run, settings.data, cut, TeacherConfig(), tolerant=True)
        elif BASELINE in self.run.record.read():
            named = self.run.record.read().data
            opened = Inputs(self.run, named, PartitionChoice(), TeacherConfig(), tolerant=True)
        elif join.is_party(self.run):
            opened = ballot.inputs(join.opened(self.run), tolerant=True)
        elif is_crowd(self.run):
            opened = crowd_inputs.opened(self.run, tolerant=True).inputs
        else:
            opened = inputs.open(self.run, tolerant=True)
        try:
            opened.dataset  # noqa: B018  # opens the files
        except PateError as error:
            return unchecked(f"the data cannot be opened: {error}")
        return opened
