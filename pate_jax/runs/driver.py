"""The one loop of releases, for every kind of run: ask, measure, draw, charge, and only then show.

A method asks: each question says what is released and on what public things, which are on disk by then. It
measures: the exact value, from private records. It draws, mostly by adding the noise of the event's law. The
line of the ledger is durable before anything that it shows leaves. What a method asks next follows from the
lines before, so a run that was stopped goes on by the same loop, with the same numbers.

The noise is derived from the run's secret and the line: its number, its event, and the digests of the exact
value and of what was asked. So no noise serves two releases, nor one release twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar, cast

import numpy as np

from pate_jax.aggregate.noise import noisy_table
from pate_jax.errors import PateError
from pate_jax.runs import budget, ledger, publication, registration
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.ledger import CrowdLine, Line, Released
from pate_jax.runs.plans import Plan
from pate_jax.system import storage

E = TypeVar("E", bound=Released)


class Question(NamedTuple, Generic[E]):
    """All that decides one release; public."""

    number: int
    event: E
    public: str  # the digest of what is asked on; empty where it is nothing


class Method(Generic[E]):
    """How one kind of run comes to its releases: what it asks, and what the records say to it.

    A method of its own overrides `plan`, `ask` and `measure`, and the rest where it differs.
    """

    run: RunDirectory

    def plan(self) -> Plan:
        """All that the run may spend, which its register has to show."""
        raise NotImplementedError

    def released(self) -> list[Line[E]]:
        """The lines that the ledger shows already."""
        raise NotImplementedError

    def ask(self, released: Sequence[Line[E]]) -> Question[E] | None:
        """The next question, from public things and earlier releases alone; None at the end."""
        raise NotImplementedError

    def measure(self, question: Question[E]) -> np.ndarray:
        """The exact value; private."""
        raise NotImplementedError

    def draw(self, line: Line[E], exact: np.ndarray, released: Sequence[Line[E]]) -> Line[E]:
        """The line with the noisy value in it, under the run's noise: the same at every call."""
        return line._replace(values=ledger.pack_table(noisy(self.run, cast(CrowdLine, line), exact)))

    def shows(self, released: Sequence[Line[E]]) -> publication.Shows | None:
        """Whether these lines show what a published statement is of; None: nothing may be published yet."""
        return None

    def issue(self, line: Line[E]) -> None:
        """Write what a line shows, again if need be; refused where it was asked on something else."""


class ChargedFirst(Method[E]):
    """A method whose one release is charged before it is made, since no place ever has the exact value.

    It says what names the records in place of that value, and its line holds nothing that could leave.
    """

    def question(self) -> Question[E]:
        """What is released."""
        raise NotImplementedError

    def released(self) -> list[Line[E]]:
        """The line, if the ledger has it."""
        return cast("list[Line[E]]", list(ledger.entries(self.run.ledger)))

    def ask(self, released: Sequence[Line[E]]) -> Question[E] | None:
        """The one question."""
        return None if released else self.question()

    def draw(self, line: Line[E], exact: np.ndarray, released: Sequence[Line[E]]) -> Line[E]:
        """Nothing yet."""
        return line

    def due(self) -> Line[E]:
        """The line that this run is charged by, as settings and records give it."""
        return _charged(self, self.question(), [])

    def issue(self, line: Line[E]) -> None:
        """Refuse to go on where the ledger is charged for something else than is here."""
        if line != self.due():
            raise PateError(
                f"{self.run.ledger} is charged for other records, public things or settings than are here: "
                "restore them from a backup, or choose another --out and add up what both have spent"
            )


def noisy(run: RunDirectory, line: CrowdLine, table: np.ndarray) -> np.ndarray:
    """The noisy form of this table under the run's noise for a line: the same at every call."""
    key = run.secret.key(line._replace(exact=storage.digest(table)).stream)
    return noisy_table(line.event, table, key=key).values


def release(method: Method[E]) -> list[Line[E]]:
    """Ask, measure and draw until nothing is left to ask; every line that there is, in order."""
    run = method.run
    with registration.Ledger(run, method.plan) as book:
        released = method.released()
        for line in released:
            method.issue(line)
        while (question := method.ask(released)) is not None:
            publication.refuse_unshown(run, method.shows(released))
            line = ledger.append(book, _charged(method, question, released))
            released = [*released, line]
            method.issue(line)
    return released


def _charged(method: Method[E], question: Question[E], released: Sequence[Line[E]]) -> Line[E]:
    """The line of a release: what it costs, and the noisy value."""
    run, exact = method.run, method.measure(question)
    fixed = budget.fixed(run)
    paid = budget.cost_of(fixed, question.event, first=not released)
    line: Line[Any] = Line(
        question.number, question.event, storage.digest(exact), question.public, "", fixed, *paid, ""
    )
    return method.draw(line, exact, released)._replace(noise=run.secret.commitment(line.stream))
