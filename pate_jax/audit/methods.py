"""Checks of a run by a method in one file: everything is asked, counted and drawn once more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from pate_jax.audit import accounts, labels
from pate_jax.audit.retraining import compared
from pate_jax.audit.subject import Subject
from pate_jax.data import Part, partition
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import Change, OfTeachers
from pate_jax.runs import budget, ledger, methods, results
from pate_jax.runs.crowds.release import beyond
from pate_jax.runs.ledger import CrowdLine
from pate_jax.runs.methods import OwnMethod
from pate_jax.runs.release.findings import Ended, Finding, failed, judged, unchecked
from pate_jax.student import PublicInputs, Student, Students
from pate_jax.system import storage

_SAMPLED = 20  # voters that are moved, one at a time
_AMONG_ALL = 3  # of these, moved among all voters, with whoever moves a table furthest
_FEW = 200  # voters whose table stands for that of all, where it is a part of their sum


def lines(subject: Subject) -> Iterator[Finding]:
    """Whether the ledger is whole, and each line is what the method asks and the records answer."""
    run, method = subject.run, _method(subject)
    subject.needs("run", run.ledger)
    entries, found = list(ledger.entries(run.ledger)), method.released()
    if len(entries) != len(found):
        yield failed(f"the ledger shows {[line.event.name for line in entries]}, of which not all are tables")
    for place, line in enumerate(found):
        yield from judged(
            (f"release {line.batch}: {fault}" for fault in _faults(method, line, found[:place])),
            f"release {line.batch}: the question, the table and its cost are those of the method",
        )
    yield from accounts.chained(run)
    if method.ask(found) is not None:
        yield unchecked("the method asks for more, and the run can go on")


def _faults(method: OwnMethod, line: CrowdLine, before: list[CrowdLine]) -> Iterator[str]:
    try:
        question = method.ask(before)
    except PateError as error:
        yield str(error)
        return
    if question is None or (question.number, question.event) != (line.batch, line.event):
        yield f"{line.event} was released, and the method asks {question and question.event} there"
        return
    if question.public != line.public:
        yield "it was asked on other public things than are here"
    exact = method.measure(question)
    if storage.digest(exact) != line.exact:
        yield "the records give another table"
    yield from _uncast(method, line, exact)
    yield from accounts.miscounted(line, budget.cost_of(line.budget, line.event))


def _uncast(method: OwnMethod, line: CrowdLine, exact: np.ndarray) -> Iterator[str]:
    """What of a table so many voters cannot have cast."""
    if exact.shape[0] * exact.shape[1] > 1:
        units, event = partition.units_of(method._inputs.dataset.private, method.promise.by), line.event
        voters = event.teachers if isinstance(event, OfTeachers) else len(np.unique(units))
        yield from beyond(event, exact, voters)  # type: ignore[arg-type]


def moved(subject: Subject) -> Iterator[Finding]:
    """Whether some voters, left out or with the contents of others, move a table no further than is charged.

    It finds mistakes and proves no bound: other voters, or other contents, might move it further.
    """
    method, run = _method(subject), subject.run
    subject.needs("run", run.ledger)
    private, found = method._inputs.dataset.private, method.released()
    units = partition.units_of(private, method.promise.by)
    names = np.unique(units)
    names = np.random.default_rng(len(names)).permutation(names)
    for place, line in enumerate(found):
        for change, (most, whom) in _furthest(method, line, found[:place], units, names).items():
            bound, how = line.event.squared_shift(change), "left out" if change == "joined" else "changed"
            fault = f"release {line.batch}: a voter moves it by the square {most:g}, and {bound:g} is charged"
            yield from judged(
                [fault] if most > bound else [],
                f"release {line.batch}: {whom}, each {how}, move it no further than is charged",
            )


def _furthest(
    method: OwnMethod, line: CrowdLine, before: list[CrowdLine], units: np.ndarray, names: np.ndarray
) -> dict[Change, tuple[float, str]]:
    """The square by which the first of these voters move a table at most, and who they are, by the change.

    Where the table is that of few voters plus that of all others, each is moved among the few, and a few of
    them, with whoever goes furthest, among all too. Else each is moved among all.
    """
    private, few, found = method._inputs.dataset.private, np.isin(units, names[:_FEW]), {}

    def count(part: Part) -> np.ndarray:
        return method.count(part, line.event, before)

    def shift(rows: np.ndarray, table: np.ndarray, name: object, other: Callable[..., Part]) -> float:
        moved = count(other(private.take(rows), units[rows] == name))
        return float(((table - moved) ** 2).sum())

    whole, everybody = count(private), np.ones(len(units), bool)
    parts = [] if isinstance(line.event, OfTeachers) or few.all() else [few, ~few]
    try:
        tables = [count(private.take(rows)) for rows in parts]
    except (PateError, ValueError, ArithmeticError, LookupError):  # so few records: then among all
        tables = []
    summed = bool(tables) and np.array_equal(sum(tables), whole)
    rows, table = (few, tables[0]) if summed else (everybody, whole)
    for change, other in _MOVES.items():
        far = [shift(rows, table, name, other) for name in names[:_SAMPLED]]
        whom = f"{len(far)} voters"
        if summed:
            among_all = sorted({int(np.argmax(far)), *range(_AMONG_ALL)})
            whom += f" among {_FEW}, and {len(among_all)} of them among all"
            far += [shift(everybody, whole, names[place], other) for place in among_all]
        found[change] = max(far, default=0.0), whom
    return found


def _without(private: Part, whose: np.ndarray) -> Part:
    return private.take(~whose)


def _changed(private: Part, whose: np.ndarray) -> Part:
    """The records where those of one voter have the contents of others, whose labels differ if any do."""
    rows, mine = np.arange(len(whose)), np.flatnonzero(whose)
    labels = np.asarray(private.labels)
    others = np.flatnonzero(~whose & (labels != labels[mine[0]]))
    others = others if len(others) else np.flatnonzero(~whose)
    if len(others):
        rows[mine] = np.resize(others, len(mine))
    return private.take(rows)._replace(ids=private.ids, users=private.users)


_MOVES: dict[Change, Callable[[Part, np.ndarray], Part]] = {"joined": _without, "changed": _changed}


def noise(subject: Subject) -> Iterator[Finding]:
    """Whether the noisy tables follow from the exact ones and the noise that the ledger committed to."""
    run, method = subject.run, _method(subject)
    subject.needs("run", run.ledger)
    found = method.released()
    yield from accounts.committed(run, found, "release", "releases")
    for place, line in enumerate(found):
        question = method.ask(found[:place])
        if question is None or question.event != line.event:
            continue  # as the ledger's check says
        again = method.draw(line, method.measure(question), found[:place])
        yield from judged(
            [] if again.values == line.values else [f"release {line.batch} does not follow from the noise"],
            f"release {line.batch}: the noisy table follows from the table and the noise",
        )


def stated(subject: Subject) -> Iterator[Finding]:
    """Whether both statements are what the ledger gives."""
    subject.needs("account", subject.run.statement)
    again = methods.state(subject.run, budget.agreed_delta(subject.run, None)).publishable()
    yield from accounts.stated(subject, "account", again, again, "the ledger gives")


def released(subject: Subject) -> Iterator[Finding]:
    """Whether the release of several labels is what their students, statement and figures give."""
    run = subject.run
    made = storage.read_json(run.results, "results") if run.results.exists() else {}
    if "labels" in made:
        statement = storage.read_json(run.existing(run.public_statement, "run"), "statement")
        write = partial(results.release_labels, run, statement, made)
        yield from labels.written_again(run, write, "students of the labels")


def student_again(subject: Subject) -> Iterator[Finding]:
    """Whether the student, and what was measured of it, come out of public inputs and releases once more."""
    run, method = subject.run, _method(subject)
    if not run.results.exists():
        raise Ended(unchecked("there is no student yet: repeat the command of the run"))
    again = method.lesson(PublicInputs.of(method.dataset), method.released())
    what = "public inputs and noisy tables"
    if isinstance(again, Student):
        yield compared(Student.load(run.student).parameters, again.parameters, "the student", what)
        return
    published = Students.load(run.release).by_label
    if published.keys() != again.by_label.keys():
        yield failed(
            f"the release has students of {', '.join(published)}, and not of {', '.join(again.by_label)}"
        )
        return
    for label, one in again.by_label.items():
        yield compared(published[label].parameters, one.parameters, f"the student of {label}", what)
    made = storage.read_json(run.results, "results")
    figures = results.measured_labels(run, Students(published), method.dataset, made["voters"])
    yield from labels.same_figures(made, figures)


def _method(subject: Subject) -> OwnMethod:
    if isinstance(subject.opened, Finding):
        raise Ended(subject.opened)
    return methods.opened(subject.run, tolerant=True)
