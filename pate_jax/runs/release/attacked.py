"""What attacks found goes into the owner's page, and that of the public twin into the release."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pate_jax.runs import stages
from pate_jax.runs.crowds import stages as crowd_stages
from pate_jax.runs.crowds.inputs import is_crowd
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.parties.join import is_party
from pate_jax.runs.release import write
from pate_jax.runs.report import attacks
from pate_jax.student import Student
from pate_jax.system import storage


def tell(run: RunDirectory, twin: Mapping[str, Any] | None) -> None:
    """Write the owner's page of a finished run again, and with a twin the whole release."""
    if is_party(run) or not (run.results.exists() and run.statement.exists()):
        return
    kind = crowd_stages if is_crowd(run) else stages
    if twin is None:
        kind.tell_owner(run)
        return
    results = storage.read_json(run.results, "results") | {"attacked": attacks.paragraph(twin)}
    statement = storage.read_json(run.public_statement, "statement")
    write.write(run.release, Student.load(run.student), statement, results)
    storage.write_json(run.results, "results", results)
    kind.tell(run)
