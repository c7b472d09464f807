"""A run that is a trial: some of its data are parts of one private file, which `pate split` has marked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pate_jax.data.trial_mark import SENTENCE
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.record import TRIAL


def record(run: RunDirectory, trial: bool) -> None:
    """Record that a run is a trial; it stays one, whatever its files hold later."""
    if trial:
        run.record.agree(TRIAL, {"trial": True})


def said(run: RunDirectory) -> dict[str, str]:
    """What results and statements of a trial say of it, by the name of the field; nothing of other runs."""
    return {"trial": SENTENCE} if TRIAL in run.record.read() else {}


def stated(run: RunDirectory, statement: Mapping[str, Any]) -> dict[str, Any]:
    """A statement as release/ holds it: that of a trial says so first."""
    return {**said(run), **statement}
