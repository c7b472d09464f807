"""A method of your own, in one file: what it asks, what the records answer, what a student makes of that.

All else is the same for every method, and done for it: the secret, the ledger and resuming (`driver`), the
register, the statement, the release, both pages, and `pate verify`, which asks and counts everything again.
`add` makes a method known to a program, and the entry point `pate_jax.methods` of an installed package to all
commands; `run` makes a run of it, `over` a grid of runs, and `compared` a method beside
those of `pate compare`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from pate_jax import accounting
from pate_jax.accounting.costs import Tables
from pate_jax.accounting.crowd_statement import COVERED, CrowdStatement
from pate_jax.accounting.exact import counts
from pate_jax.accounting.inputs import CUSTOMARY_DELTA, check_delta
from pate_jax.data import Dataset, Part, partition, relation
from pate_jax.ensemble import TeacherConfig
from pate_jax.errors import PateError
from pate_jax.mechanisms.codec import from_dict, to_dict
from pate_jax.mechanisms.crowds import ClassSums, CrowdRelease, HeadCount, NeighbourCounts, OfTeachers
from pate_jax.runs import budget, config_file, driver, ledger, registration, results
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.driver import Method, Question
from pate_jax.runs.inputs import Inputs, record, same_records
from pate_jax.runs.ledger import CrowdLine
from pate_jax.runs.plans import Plan
from pate_jax.runs.record import METHOD, RECORDS
from pate_jax.runs.settings import CUSTOMARY_EPSILON, STROKES, DataChoice, PartitionChoice, RunConfig
from pate_jax.student import PublicInputs, Student, Students
from pate_jax.system import devices, headcount, storage

_KNOWN: dict[str, str] = {}  # by name: module:Class
_BUILT = {  # that commands have flags of their own for
    "numbers": "pate_jax.runs.numbers:Numbers",
    "teachers of numbers": "pate_jax.runs.numbers:Taught",
    "teachers of labels": "pate_jax.runs.labels:Taught",
}
_POINTS = "pate_jax.methods"  # the group of entry points by which installed packages bring methods
Table = np.ndarray


class Promise(NamedTuple):
    """What a run may cost, and whom."""

    epsilon: float = CUSTOMARY_EPSILON
    delta: float = CUSTOMARY_DELTA
    by: str = "record"


class OwnMethod(Method[CrowdRelease]):
    """The base of a method in one file: `question`, `count` and `lesson` are its own, and `words`.

    A question reads public things and earlier releases alone, and a count the private records. A lesson reads
    public inputs and releases. `dataset` holds no private records, so neither can reach for them by accident.
    All three are called again when a run goes on and when it is verified, and must give the same bits: no
    clock, no random numbers without a fixed seed.
    """

    name: ClassVar[str]
    words: ClassVar[str]  # how a run went, in a sentence or two for its pages
    covers: ClassVar[tuple[str, ...]] = ("record",)  # whom its bounds hold for; "user" where it counts users

    def __init__(self, inputs: Inputs, promise: Promise) -> None:
        self._inputs, self.promise, self.run = inputs, promise, inputs.run

    def question(self, public: PublicInputs, released: Sequence[CrowdLine]) -> CrowdRelease | None:
        """What is released next; None at the end."""
        raise NotImplementedError

    def count(self, private: Part, event: CrowdRelease, released: Sequence[CrowdLine]) -> Table:
        """The exact table of an event: whole numbers, in its shape, that one voter moves by its bound."""
        raise NotImplementedError

    def lesson(self, public: PublicInputs, released: Sequence[CrowdLine]) -> Student | Students:
        """The student of what was released, or those of several labels."""
        raise NotImplementedError

    @cached_property
    def dataset(self) -> Dataset:
        """The public and test parts; whoever reads the private one of it is refused."""
        return self._inputs.dataset.without_records

    def plan(self) -> Plan:
        """All that the run may spend: what it has promised."""
        epsilon, delta, by = self.promise
        return Plan((Tables(counts.mu_for(epsilon, delta), self.name),), by)

    def released(self) -> list[CrowdLine]:
        """The lines of the ledger."""
        return list(ledger.releases(self.run.ledger))

    def ask(self, released: Sequence[CrowdLine]) -> Question[CrowdRelease] | None:
        """The next question, refused where the run would cost more than it has promised."""
        public = PublicInputs.of(self.dataset)
        event = self.question(public, released)
        if event is None:
            return None
        self._check([*(line.event for line in released), event])
        before = [line.values for line in released]
        asked = {"method": self.name, "classes": list(public.class_names), "before": before}
        named = np.array(json.dumps(asked, sort_keys=True))
        return Question(len(released) + 1, event, storage.digest(named, np.asarray(public.inputs)))

    def _check(self, events: Sequence[CrowdRelease]) -> None:
        """Refuse events that cost more than was promised, or whose figure takes voters apart.

        Scores and comparisons are charged as of voters that no table counts, which nobody knows of here. The
        register adds up what runs promise in Gaussian differential privacy, so the bound is one of that.
        """
        epsilon, delta, _ = self.promise
        for event in events:
            if not isinstance(event, HeadCount | NeighbourCounts | ClassSums | OfTeachers):
                raise PateError(
                    f"method {self.name} asks for {event}: a method in one file may ask for a HeadCount, "
                    "NeighbourCounts, ClassSums, TeacherSums and TeacherVotes"
                )
        mu, cost = counts.worst_mu(events), counts.worst(events, delta)
        if mu is None or mu > counts.mu_for(epsilon, delta) or cost > epsilon:
            raise PateError(
                f"method {self.name} asks for {events[-1]}, and would cost epsilon {cost:.6g} in all, where "
                f"{epsilon:g} was promised: it was not counted. Give it more noise"
            )

    def measure(self, question: Question[CrowdRelease]) -> Table:
        """The exact table, of the shape and kind that its event says."""
        before = self.released()[: question.number - 1]
        table = np.asarray(self.count(self._inputs.dataset.private, question.event, before))
        if table.shape != question.event.shape or table.dtype.kind not in "iu":
            raise PateError(
                f"method {self.name} counts a table of shape {table.shape} and type {table.dtype}, where "
                f"{question.event} wants whole numbers of shape {question.event.shape}: nothing was released"
            )
        return table.astype(np.int64)


def values(line: CrowdLine) -> Table:
    """The noisy table of a line."""
    return ledger.unpack_table(line.values, line.event.shape)


def add(name: str, place: str) -> None:
    """Make a method known by its name; `place` is module:Class.

    >>> add("majority", "my_package.majority:Majority")
    >>> _KNOWN.pop("majority")
    'my_package.majority:Majority'
    """
    _KNOWN[name] = place


def _places() -> dict[str, str]:
    """Where each known method is: those of installed packages, and those that were added."""
    brought = {one.name: one.value for one in importlib.metadata.entry_points(group=_POINTS)}
    return {**brought, **_KNOWN}


def _place(name: str) -> str | None:
    """Where the method of a name is; those that are built in come first."""
    return _BUILT.get(name) or _places().get(name)


def _class(name: str) -> type[OwnMethod]:
    place = _place(name)
    if place is None:
        raise PateError(
            f"method {name!r} is not known here: install the package that brings it by the entry point "
            f"{_POINTS}, or call pate_jax.runs.methods.add before; known are {', '.join(_places()) or 'none'}"
        )
    module, _, attribute = place.partition(":")
    found: type[OwnMethod] = getattr(importlib.import_module(module), attribute)
    return found


def opened(run: RunDirectory, *, tolerant: bool = False) -> OwnMethod:
    """The method of a run, as its settings name it."""
    settings = run.record.read()
    facts = settings.of(METHOD)
    promise = from_dict(Promise, facts["promise"], f"{run.settings}: method")
    cut = PartitionChoice(teachers=facts.get("teachers"), by=promise.by)  # type: ignore[arg-type]
    return _class(facts["name"])(Inputs(run, settings.data, cut, TeacherConfig(), tolerant), promise)


def run(
    name: str,
    data: DataChoice,
    promise: Promise,
    out: Path,
    *,
    seed: int | None = None,
    register: Path | None = None,
    dataset: Dataset | None = None,  # what the choice names, where it is open already
    teachers: int | None = None,  # shards, of a method that divides the records among teachers
) -> dict[str, Any]:
    """Ask, release, account, teach and report; what is finished already is not repeated."""
    directory = RunDirectory(out)
    with directory.writing():
        cut = PartitionChoice(teachers, promise.by, seed)  # type: ignore[arg-type]  # `_begin` checks it
        method = _begin(directory, name, data, promise, cut, dataset)
        registration.enter(directory, method.plan(), lambda: method._inputs.dataset, register)
        driver.release(method)
        account(directory)
        if not directory.results.exists():
            teach(directory, method)
        return results.tell_plain(directory) | registration.shown(directory)


def by_command(name: str, config: RunConfig) -> dict[str, Any]:
    """Make the run that `pate run` wishes of a method, and keep its settings to be repeated."""
    cut, register = config.partition, config.register
    epsilon = CUSTOMARY_EPSILON if config.epsilon is None else config.epsilon
    promise, out = Promise(epsilon, config.delta, cut.by), config.directory
    found = run(name, config.data, promise, out, seed=cut.seed, register=register, teachers=cut.teachers)
    config_file.write(RunDirectory(config.directory).config, config)
    return found


def _begin(
    run: RunDirectory,
    name: str,
    data: DataChoice,
    promise: Promise,
    cut: PartitionChoice,
    dataset: Dataset | None,
) -> OwnMethod:
    """Open the data, and record what a run is made from; nothing is recorded before all is found fit."""
    before = run.record.read()
    if METHOD not in before and before.stages:
        raise PateError(f"{run.root} is a run of another kind: choose another --out")
    if devices.processes() > 1:
        raise PateError(
            f"method {name} counts in one process, and this is one of {devices.processes()}: run it in one"
        )
    check_delta(promise.delta)
    allowed = [one for one in COVERED if one in _class(name).covers]
    if promise.by not in allowed:
        raise PateError(f"by={promise.by!r} of method {name} must be one of {', '.join(allowed)}")
    choice = data.drawn(STROKES)
    inputs = Inputs(run, choice, cut, TeacherConfig(), opened=dataset)
    method, records = _class(name)(inputs, promise), same_records(run, inputs.dataset)
    people = budget.people(inputs.dataset, promise.by)
    if cut.teachers is not None:
        _check_divided(inputs.dataset, promise.by, cut.teachers)
    divided = {} if cut.teachers is None else {"teachers": cut.teachers}
    run.secret.draw(cut.seed)
    facts = {"name": name, "promise": to_dict(promise), **divided}
    run.record.agree(METHOD, facts)  # first: by it a run is recognised
    record(run, inputs.dataset, choice)
    run.record.agree(RECORDS, records)
    run.record.agree("relation", {"relation": promise.by})
    budget.warn_of_delta(promise.delta, people, promise.by)
    return method


def _check_divided(dataset: Dataset, by: str, teachers: int) -> None:
    """Refuse teachers among whom removing one record, or user, would move others."""
    if relation.renumbers(dataset, by):
        raise PateError(
            f"the {by}s are named by row numbers, so that removing one would move others to other teachers: "
            f"give --{'id' if by == 'record' else 'user'}-column, or pass --ids-are-stable if each keeps its "
            "number"
        )
    partition.check_enough(partition.units_of(dataset.private, by), teachers)


def state(run: RunDirectory, delta: float) -> CrowdStatement:
    """What the releases of a run cost together."""
    lines, settings = list(ledger.releases(run.ledger)), run.record.read()
    return accounting.crowd_statement(
        [line.event for line in lines],
        delta,
        voters=_told(lines),
        relation=settings.relation,  # type: ignore[arg-type]  # which `_begin` has checked
        private=run.secret.seed is None,
    )


def _told(lines: Sequence[CrowdLine]) -> int:
    """The number of voters, if one was released, or of teachers."""
    numbers = [int(values(line)[0, 0]) for line in lines if isinstance(line.event, HeadCount)]
    if numbers:
        return max(1, headcount.coarse(max(1, numbers[0])))
    return max([1, *(line.event.teachers for line in lines if isinstance(line.event, OfTeachers))])


def account(run: RunDirectory, delta: float | None = None) -> CrowdStatement:
    """Write the statement, at the delta that was promised."""
    promised = from_dict(Promise, run.record.read().of(METHOD)["promise"], "promise").delta
    if delta not in (None, promised):
        raise PateError(f"delta={delta} is not that of the run, {promised}: leave it out")
    run.record.agree("account", {"delta": promised})
    statement = state(run, promised)
    results.state(run, statement)
    return statement


def teach(run: RunDirectory, method: OwnMethod) -> dict[str, Any]:
    """Make the student and write release/."""
    dataset, lines = method._inputs.dataset, method.released()
    statement = storage.read_json(run.existing(run.public_statement, "account"), "statement")
    made = {
        **results.facts(run, dataset, relation.without_warning(dataset.description)),
        "method": method.name,
        "explained": method.words,
        "voters": method.name,
        "by": method.promise.by,
        "told": _told(lines),
    }
    learned = method.lesson(PublicInputs.of(dataset), lines)
    if isinstance(learned, Students):
        return results.finish_labels(run, learned, dataset, statement, made)
    return results.finish(run, learned, dataset, statement, made)


def summary(run: RunDirectory) -> dict[str, Any]:
    """What `pate budget` shows: what was released, and what that cost."""
    lines = list(ledger.releases(run.ledger))
    delta = from_dict(Promise, run.record.read().of(METHOD)["promise"], "promise").delta
    return budget.of_releases(run, lines, delta, state)


def over(
    name: str, data: DataChoice, promises: Iterable[Promise], folder: Path, **settings: Any
) -> Iterator[dict[str, Any]]:
    """A run for each promise, in a folder of its own; repeated, it goes on where it was stopped."""
    for promise in promises:
        place = folder / f"{name}-{promise.epsilon:g}-{promise.delta:g}-{promise.by}"
        yield run(name, data, promise, place, **settings)


def known() -> tuple[str, ...]:
    """The names of all known methods."""
    return tuple(_places())


def trial(
    name: str, dataset: Dataset, promise: Promise, teachers: int | None = None
) -> tuple[Student, float | None]:
    """The student of a run whose folder is removed, and the figure that it could publish."""
    nowhere = Path(registration.NONE)
    with tempfile.TemporaryDirectory(prefix="pate-") as folder:
        out = Path(folder)
        found = run(name, DataChoice(), promise, out, register=nowhere, dataset=dataset, teachers=teachers)
        statement = accounting.Statement.from_dict(found["statement"])
        return Student.load(RunDirectory(folder).student), statement.headline.epsilon
