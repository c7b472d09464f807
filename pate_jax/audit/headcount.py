"""Checks of the noisy number of voters that teachers were chosen by: its line, its noise and its limit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pate_jax.accounting import after_count
from pate_jax.audit import accounts
from pate_jax.audit.subject import Subject
from pate_jax.mechanisms.stable import StableAnswers
from pate_jax.runs import budget, ledger
from pate_jax.runs.crowds import release
from pate_jax.runs.crowds.certificate import voters
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.ledger import CrowdLine
from pate_jax.runs.record import PLANNED
from pate_jax.runs.release.findings import Ended, Finding, failed, judged, unchecked
from pate_jax.system import storage


def line(subject: Subject) -> Iterator[Finding]:
    """Whether the ledger begins with the number that the settings name, and with nothing else of a crowd."""
    run, limit = subject.run, subject.settings.limit
    entries = list(ledger.entries(run.ledger))
    numbers = [one for one in entries if isinstance(one, CrowdLine)]
    if limit is None:
        if numbers:
            yield failed("the ledger shows a number of voters, and the settings do not say what it chose")
        return
    if len(numbers) != 1 or entries[0] != numbers[0]:
        yield failed("the ledger does not begin with the one noisy number of voters that chose the teachers")
        return
    yield from judged(
        (f"the number of voters: {fault}" for fault in _faults(run, numbers[0])),
        "the number of voters, its cost and its noise are the recorded ones",
    )


def _faults(run: RunDirectory, number: CrowdLine) -> Iterator[str]:
    """What of the line differs from the settings, the certificate and the noise of the run."""
    limit = run.record.read().limit
    if limit is None or number.release != limit.headcount:
        yield f"{number.release} was released, and {limit and limit.headcount} is planned for"
        return
    yield from accounts.miscounted(number, budget.release_cost(number.budget, number.release))
    yield from accounts.uncommitted(run, number.noise, accounts.stream_of(number))
    if number.public != release.NOTHING:
        yield "it was asked of something, and a number of voters is asked of nothing"
    if not run.certificate.exists():
        return
    exact = np.array([[voters(storage.read_json(run.certificate, "certificate"))]])
    if number.table != storage.digest(exact):
        yield "it is not the noisy form of the certified number"
    again = release.draw(run, number.release, exact, number.public)
    if not np.array_equal(again, ledger.unpack_table(number.values, number.release.shape)):
        yield "it does not follow from the certified number and the noise"


def within(subject: Subject) -> Iterator[Finding]:
    """Whether the answers are within the limit, and of the teachers that were planned after the number."""
    settings, lines = subject.settings, ledger.read(subject.run.ledger)
    if not lines:
        raise Ended(unchecked("nothing was answered yet after the number of voters: run `pate run`"))
    limit, planned, mechanism = settings.limit, settings.of(PLANNED), settings.mechanism
    if limit is None or isinstance(mechanism, StableAnswers):
        yield failed("the settings name no limit of what may follow the number of voters")
        return
    size = {"teachers": lines[0].teachers, "classes": lines[0].classes}
    asked = sum(one.asked for one in lines)
    fits = len(lines) == 1 and after_count.fits(mechanism, limit, **size, queries=asked, rule=settings.rule)
    yield from judged(
        [] if fits else [f"{asked} answers of {mechanism!r} cost more than may follow the number of voters"],
        f"{asked} answers and the number of voters cost at most epsilon {limit.epsilon:g} together",
    )
    if planned.get("teachers") != lines[0].teachers:
        yield failed(f"{planned.get('teachers')} teachers were planned, and {lines[0].teachers} answered")
