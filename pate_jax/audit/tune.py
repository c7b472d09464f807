"""Checks of a choice of settings: what was drawn, charged, released by each candidate, and chosen.

Each candidate is checked as a crowd's run is (`crowds`). Where all pass, one sentence says so, which does not
tell how many they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial

from pate_jax import student
from pate_jax.accounting.costs import BestOf
from pate_jax.audit import accounts
from pate_jax.audit.subject import Subject
from pate_jax.runs import ledger
from pate_jax.runs.crowds import students
from pate_jax.runs.crowds.inputs import Crowd
from pate_jax.runs.directory import RunDirectory  # noqa: F401  # of the fields that a candidate inherits
from pate_jax.runs.release.findings import Ended, Finding, failed, judged, made, passed, unchecked
from pate_jax.runs.tune import candidates
from pate_jax.runs.tune.candidates import Candidates, Choice, Place
from pate_jax.system import storage
from pate_jax.system.tasks import Engine  # noqa: F401  # of the same

Check = Callable[[Subject], Iterable[Finding]]


@dataclass(frozen=True, kw_only=True)
class Candidate(Subject):
    """One candidate of a choice, as the run of a crowd."""

    choice: Choice
    number: int

    @cached_property
    def crowd(self) -> Crowd:
        """The crowd of the candidate, on the data of the choice."""
        if self.choice.dataset is None:
            raise Ended(unchecked("the data of the choice cannot be opened"))
        return self.choice.crowd(self.number)


def charged(subject: Subject) -> Iterator[Finding]:
    """Whether the ledger charges this choice, at what it costs, and no more than was allowed."""
    choice = subject.choice
    run, facts = choice.run, choice.facts
    subject.needs("tune", run.ledger)
    line, allowed = ledger.charge(run.ledger, BestOf), facts["epsilon"]
    yield from accounts.due(line, Candidates(choice))
    yield from accounts.chained(run)
    cost = line.event.tuned.epsilon(facts["delta"])
    yield from judged(
        [] if cost <= allowed else [f"epsilon {allowed:g} was allowed, and the choice costs {cost:g}"],
        f"the choice costs no more than the epsilon {allowed:g} that was allowed",
    )


def drawn(subject: Subject) -> Iterator[Finding]:
    """Whether number, settings and secrets of the candidates follow from the secret of the choice."""
    choice = subject.choice
    names = [f"{number:04d}" for number in choice.numbers]
    there = candidates.candidate_folders(choice.run.root)
    yield from judged(
        [] if there == names else ["the candidates are not as many as the secret says"],
        "the candidates are as many as the secret says",
    )
    wrong = [number for number in choice.numbers if not _as_drawn(choice, number)]
    yield from judged(
        (f"candidate {number} has other settings, or another secret, than was drawn" for number in wrong),
        "settings and secrets of all candidates follow from the secret of the choice",
    )


def _as_drawn(choice: Choice, number: int) -> bool:
    one = Place(choice.run.root, number)
    if not one.keys.exists():
        return False
    keys, said = storage.read_json(one.keys, "keys"), one.record.stages()
    same = all(said.get(stage) == settings for stage, settings in choice.recorded(number).items())
    handed = choice.run.secret.handed(f"candidate {number}")
    return same and {name: keys.get(name) for name in handed} == handed


def of_all(check: Check) -> Check:
    """What a check of a crowd's run finds in each candidate; what passes is not told apart."""

    def checked(subject: Subject) -> Iterator[Finding]:
        choice = subject.choice
        for number in choice.numbers:
            one = Place(choice.run.root, number)
            if not one.keys.exists():
                yield failed(f"candidate {number} is missing: repeat the command that made the choice")
                continue
            for finding in made(partial(check, Candidate(one, choice=choice, number=number))):
                if finding.outcome != "passed":
                    yield finding._replace(text=f"candidate {number}: {finding.text}")
        yield passed("whatever is not named here holds for every candidate")

    return checked


def chosen(subject: Subject) -> Iterator[Finding]:
    """Whether the first candidate with the best score was published, as it was when it was scored."""
    choice = subject.choice
    run = choice.run
    if "chosen" not in run.record.read():
        raise Ended(subject.absent(run.results, "tune"))
    number = run.record.read().of("chosen")["number"]
    best = candidates.best([candidates.score(Place(run.root, one)) for one in choice.numbers])
    yield from judged(
        [] if number == best else [f"candidate {number} was published, and {best} has the best score"],
        "the candidate with the best score was published",
    )
    kept, shown = (
        students.digest(student.Student.load(folder))
        for folder in (Place(run.root, number).scored, run.student)
    )
    yield from judged(
        [] if kept == shown else ["the published student is not the one that was scored"],
        "the published student is the one that was scored",
    )


def of_winner(check: Check) -> Check:
    """A check of the candidate that was published."""

    def checked(subject: Subject) -> Iterable[Finding]:
        settings = subject.settings
        number = settings.of("chosen")["number"] if "chosen" in settings else 1
        place = Place(subject.run.root, number)
        return check(Candidate(place, choice=subject.choice, number=number))

    return checked
