"""Checks of a choice of settings: what was drawn, charged, released by each candidate, and chosen.

Each candidate is checked as a crowd's run is (`crowds`). Where all pass, one sentence says so, which does not
tell how many they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from pate_jax import student
from pate_jax.audit import crowds, recounts, shards
from pate_jax.audit.subject import Subject
from pate_jax.runs import registration
from pate_jax.runs.crowds import students
from pate_jax.runs.crowds.inputs import Crowd
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.record import TUNE
from pate_jax.runs.release.findings import Finding, failed, judged, passed
from pate_jax.runs.tune import candidates, draws, ledger, pipeline, place
from pate_jax.runs.tune.candidates import Choice
from pate_jax.runs.tune.place import Place
from pate_jax.system import storage

Check = Callable[[RunDirectory, Crowd | Finding], Iterable[Finding]]


def is_tune(run: RunDirectory) -> bool:
    """Whether a run is a choice of settings."""
    return TUNE in run.record.read()


def opened(subject: Subject) -> Choice:
    """The choice that a run records; without data where these cannot be had."""
    found = subject.inputs
    return Choice(subject.run, None if isinstance(found, Finding) else found.dataset)


def charged(choice: Choice) -> Iterator[Finding]:
    """Whether the ledger charges this choice, at what it costs, and no more than was allowed."""
    run, facts = choice.run, choice.facts
    if not run.ledger.exists():
        yield shards.absent(run, run.ledger, "tune")
        return
    line, listed = ledger.read(run.ledger), candidates.digest(facts["settings"])
    wished = ledger.Charge(choice.tuned, listed, facts["records"], facts["epsilon"], facts["delta"])
    yield from judged(
        [] if line == wished else [f"the ledger charges {line}, and the settings say {wished}"],
        "the ledger charges the choice that the settings describe",
    )
    cost = line.tuned.epsilon(line.delta)
    yield from judged(
        []
        if cost <= line.epsilon
        else [f"epsilon {line.epsilon:g} was allowed, and the choice costs {cost:g}"],
        f"the choice costs no more than the epsilon {line.epsilon:g} that was allowed",
    )


def drawn(choice: Choice) -> Iterator[Finding]:
    """Whether number, settings and secrets of the candidates follow from the secret of the choice."""
    names = [f"{number:04d}" for number in choice.numbers]
    there = place.found(choice.run.root)
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


def of_all(choice: Choice, check: Check) -> Iterator[Finding]:
    """What a check of a crowd's run finds in each candidate; what passes is not told apart."""
    for number in choice.numbers:
        one = Place(choice.run.root, number)
        if not one.keys.exists():
            yield failed(f"candidate {number} is missing: repeat the command that made the choice")
            continue
        for finding in check(one, choice.crowd(number)):
            if finding.outcome != "passed":
                yield finding._replace(text=f"candidate {number}: {finding.text}")
    yield passed("whatever is not named here holds for every candidate")


def chosen(choice: Choice) -> Iterator[Finding]:
    """Whether the first candidate with the best score was published, as it was when it was scored."""
    run = choice.run
    if "chosen" not in run.record.read():
        yield shards.absent(run, run.results, "tune")
        return
    number = run.record.read().of("chosen")["number"]
    best = draws.best([pipeline.score(Place(run.root, one)) for one in choice.numbers])
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


def winner(choice: Choice) -> Place:
    """The place of the candidate that was published."""
    settings = choice.run.record.read()
    return Place(choice.run.root, settings.of("chosen")["number"] if "chosen" in settings else 1)


def checks(choice: Choice) -> dict[str, Callable[[], Iterable[Finding]]]:
    """The checks of a choice, but for those of its release."""
    return {
        "charge": partial(charged, choice),
        "drawn": partial(drawn, choice),
        "voters": partial(of_all, choice, crowds.voters),
        "public": partial(of_all, choice, crowds.public),
        "ledger": partial(of_all, choice, lambda one, _: crowds.lines(one)),
        "noise": partial(of_all, choice, lambda one, _: crowds.noise(one)),
        "chosen": partial(chosen, choice),
        "register": lambda: registration.examined(choice.run, candidates.plan(choice)),
        "statement": lambda: crowds.stated(winner(choice)),
    }


def again(choice: Choice) -> dict[str, Callable[[], Iterable[Finding]]]:
    """The deep checks: tables counted and students trained once more."""
    return {
        "table": partial(of_all, choice, recounts.recounted),
        "student": partial(of_all, choice, _student_again),
    }


def _student_again(run: RunDirectory, crowd: Crowd | Finding) -> Iterator[Finding]:
    if isinstance(crowd, Finding):
        yield crowd
    else:
        yield from recounts.between_again(run, crowd)
