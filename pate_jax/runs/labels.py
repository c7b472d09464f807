"""Several labels of each record under one budget: a run for each label, and one release of all.

Each label has a run of its own, of neighbours or of sums, in a folder of private/, with its own ledger. It
may cost `mu / sqrt(labels)` in Gaussian differential privacy, where `mu` is what all of them may cost
together: squares of mu add up, whatever one record says in each of them. One table of all labels would have
the same noise at the same cost (docs/proofs/labels.md), so nothing is lost by this. The share of each is
recorded, and all runs are entered in the register, before the first release.

Teachers of several labels (`Taught`) have one run and one table, in which the votes on all labels stand.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pate_jax import accounting
from pate_jax.accounting.costs import Tables
from pate_jax.accounting.crowd_statement import CrowdStatement
from pate_jax.accounting.exact import counts
from pate_jax.crowd import plan, vectors
from pate_jax.crowd.classifier import Linear
from pate_jax.crowd.numbers import counted, ridge
from pate_jax.crowd.plan import Plan as CrowdPlan
from pate_jax.data import Part, partition, texts
from pate_jax.data.labels import bits, of_one
from pate_jax.errors import PateError, PateWarning
from pate_jax.mechanisms.crowds import Comparison, CrowdRelease, HeadCount, Score
from pate_jax.models.spaces import Learned
from pate_jax.runs import (
    budget,
    config_file,
    inputs,
    ledger,
    measured,
    methods,
    publication,
    registration,
    results,
)
from pate_jax.runs.crowds import choice, forecast
from pate_jax.runs.crowds import inputs as crowds
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.ledger import CrowdLine
from pate_jax.runs.methods import OwnMethod
from pate_jax.runs.plans import Plan
from pate_jax.runs.record import LABEL, LABELS
from pate_jax.runs.release import labels as bundle
from pate_jax.runs.report import labels_page
from pate_jax.runs.settings import CUSTOMARY_EPSILON, DataChoice, RunConfig
from pate_jax.student import PublicInputs, Student, Students, sums
from pate_jax.student.settings import Auto
from pate_jax.student.several import folder_of
from pate_jax.system import devices, progress, storage

TEACHERS = "teachers of labels"
ASKED = 1000  # public inputs that teachers name the labels of, at most
_SHOWN = 0.99  # of public inputs, which have no more labels than a teacher may name


class Several(NamedTuple):
    """What all runs of several labels share, and the share of each; as it is recorded."""

    labels: tuple[str, ...]
    epsilon: float  # of all together
    delta: float
    by: str
    share: float  # epsilon of one label

    def folder(self, label: str) -> str:
        """The folder of a label's run, and of its student.

        >>> Several(("sick", "in/out"), 1.0, 1e-5, "record", 0.68).folder("in/out")
        '2-in-out'
        """
        return folder_of(self.labels, label)

    def run(self, run: RunDirectory, label: str) -> RunDirectory:
        """The run of a label."""
        return RunDirectory(run.private / self.folder(label))

    def runs(self, run: RunDirectory) -> dict[str, RunDirectory]:
        """The runs of all labels."""
        return {label: self.run(run, label) for label in self.labels}


def named(data: DataChoice) -> tuple[str, ...]:
    """The columns of the labels, if there are several.

    >>> named(DataChoice(label_column="sick,died")), named(DataChoice(label_column="sick"))
    (('sick', 'died'), ())
    """
    found = texts.named(data.label_column, "label_column")
    return found if len(found) > 1 else ()


def of(run: RunDirectory) -> Several:
    """What a run of several labels has recorded."""
    facts = run.record.read().of(LABELS)
    try:
        return Several(tuple(facts.pop("labels")), **facts)
    except (TypeError, KeyError) as error:
        raise PateError(
            f"{run.settings} describes no labels ({error!r}): restore it from a backup"
        ) from error


def run(
    config: RunConfig, labels: Sequence[str], one: Callable[[RunConfig], dict[str, Any]]
) -> dict[str, Any]:
    """Make the run of each label by `one`, and what follows from all; what is finished is not repeated."""
    if config.who == "teachers":
        return by_teachers(config, labels)
    _check(config)
    directory = RunDirectory(config.directory)
    epsilon = CUSTOMARY_EPSILON if config.epsilon is None else config.epsilon
    each = counts.share_of(epsilon, config.delta, len(labels))
    several = Several(tuple(labels), epsilon, config.delta, config.partition.by, each)
    with directory.writing():
        configs = {label: _of_label(config, several, directory, label) for label in several.labels}
        _begin(directory, config, several, configs)
        for number, label in enumerate(several.labels, 1):
            progress.say(f"label {label}, {number} of {len(labels)}, at epsilon {each:g} of {epsilon:g}")
            one(configs[label])
        account(directory)
        teach(directory)
        return tell(directory) | registration.shown(several.run(directory, labels[-1]))


def _check(config: RunConfig) -> None:
    """Refuse what is for one label only."""
    several = f"--label-column {config.data.label_column} names several labels"
    if config.data.most_labels is not None:
        raise PateError(
            f"--most-labels {config.data.most_labels} is of teachers, and --voters {config.who} has none: "
            "leave it out, or give --voters teachers --teachers 100"
        )
    if config.data.private is None:
        raise PateError(f"{several}, as tables of your own have: give --private and --public")
    if devices.processes() > 1:
        raise PateError(f"{several}: run it in one process")


def _of_label(config: RunConfig, several: Several, run: RunDirectory, label: str) -> RunConfig:
    """The settings of a label's run."""
    data = inputs.of_label(config.data, several.labels, label)
    return replace(config, data=data, out=several.run(run, label).root, epsilon=several.share)


def _begin(run: RunDirectory, config: RunConfig, several: Several, configs: Mapping[str, RunConfig]) -> None:
    """Record a run of several labels, and enter all its parts, once every label was found fit."""
    stages = run.record.stages()
    if LABELS not in stages and stages:
        raise PateError(f"{run.root} is a run of another kind: choose another --out")
    if LABELS not in stages:
        publication.refuse_unshown(run)
        for made in configs.values():
            _check_columns(made.data, several)
    run.record.agree(LABELS, {**several._asdict(), "labels": list(several.labels)})
    config_file.write(run.config, config)
    for label, made in configs.items():
        with warnings.catch_warnings():
            if label != several.labels[0]:  # the runs of this command are no others
                warnings.simplefilter("ignore", PateWarning)
            _enter(several.run(run, label), made, several)


def _check_columns(data: DataChoice, several: Several) -> None:
    """Open the data of a label, which refuses what does not fit."""
    try:
        inputs.open_data(data)
    except PateError as error:
        message = str(error)
        for label in several.labels:
            message = message.replace(f"--leave-out {label} is", f"--label-column {label} is")
        raise type(error)(message) from error


def _enter(run: RunDirectory, config: RunConfig, several: Several) -> None:
    """Enter the run of a label with all that it may spend."""
    with run.writing():
        run.secret.draw(config.partition.seed)
        run.record.agree(LABEL, {"of": len(several.labels), "epsilon": several.epsilon})
        voters = choice.FIRST if config.who == "auto" else config.who
        mu = counts.mu_for(several.share, several.delta)
        plan = Plan((Tables(mu, voters),), several.by)
        registration.enter(run, plan, lambda: inputs.open_data(config.data), config.register)


def releases(run: RunDirectory, several: Several) -> list[CrowdRelease]:
    """All that the runs of all labels have released, equal ones side by side."""
    found = [line.event for one in several.runs(run).values() for line in ledger.releases(one.ledger)]
    if any(isinstance(event, Score | Comparison) for event in found):
        raise PateError(f"{run.root} has held-out voters, who may vote elsewhere: their costs do not add up")
    return sorted(found, key=lambda event: (event.name != HeadCount.name, repr(event)))


def state(run: RunDirectory) -> CrowdStatement:
    """What all labels cost together: every record is in the tables of all of them."""
    several = of(run)
    runs = [*several.runs(run).values()]
    found = accounting.crowd_statement(
        releases(run, several),
        several.delta,
        voters=min(crowds.told(one) for one in runs),
        relation=several.by,  # type: ignore[arg-type]  # which the runs have checked
        private=all(one.secret.seed is None for one in runs),
    )
    if (found.headline.epsilon or 0) > several.epsilon:
        raise PateError(
            f"the ledgers of {run.root} show releases that cost {found.headline.epsilon:g}, where "
            f"{several.epsilon:g} was to be kept: restore them from a backup"
        )
    return found


def account(run: RunDirectory) -> CrowdStatement:
    """Write the statement of all labels together."""
    for one in of(run).runs(run).values():
        publication.record_trial(run, bool(publication.trial(one)))
    statement = state(run)
    results.state(run, statement)
    return statement


def teach(run: RunDirectory) -> dict[str, Any]:
    """Put the students of all labels into one release, and what is measured of them into the results."""
    made = {**_facts(run), **measures(run)}
    release(run, made)
    storage.write_json(run.results, "results", made)
    return made


def release(run: RunDirectory, made: Mapping[str, Any], folder: Path | None = None) -> None:
    """Write the release of all labels, or the same into another folder."""
    several = of(run)
    students = {several.folder(label): one.student for label, one in several.runs(run).items()}
    called = {label: several.folder(label) for label in several.labels}
    statement = storage.read_json(run.existing(run.public_statement, "run"), "statement")
    bundle.write(folder or run.release, called, students, statement, made)


def _facts(run: RunDirectory) -> dict[str, Any]:
    """What all labels' runs say alike, and what the register says of all of them."""
    several = of(run)
    first = results.kept(several.run(run, several.labels[0]))
    shared = ("dataset", "data", "synthetic", "private", "voters", "by", "told")
    return {
        **{name: first[name] for name in shared},
        **publication.trial(run),
        "run_dir": str(run.root),
        "others": registration.published(several.run(run, several.labels[-1])),
        "method": "; ".join(sorted({results.kept(one)["method"] for one in several.runs(run).values()})),
    }


def measures(run: RunDirectory) -> dict[str, Any]:
    """Every metric of each label's student on the test part, and their means, each with its interval."""
    students, data = {}, {}
    for label, one in of(run).runs(run).items():
        choice = one.record.read().data
        students[label] = Student.load(one.root)
        data[label] = choice, inputs.open_data(choice), results.kept(one)["voters"]
    return measured.of_labels(students, data)


def tell(run: RunDirectory) -> dict[str, Any]:
    """Write both pages, and return the results with the statement among them."""
    several, found = of(run), results.kept(run, "run")
    whole = storage.read_json(run.existing(run.statement, "run"), "statement")
    statement = accounting.Statement.from_dict(whole)
    own = {label: str(one.report) for label, one in several.runs(run).items()}
    storage.write_bytes(run.report, labels_page.private_page(found, statement, own).encode())
    return results.tell(run, {**found, "statement": whole})


def summary(run: RunDirectory) -> dict[str, Any]:
    """What `pate budget` shows: what each label has released, and what all cost together."""
    several = of(run)
    lines = [line for one in several.runs(run).values() for line in ledger.releases(one.ledger)]
    return budget.of_releases(run, lines, several.delta, lambda run, _: state(run))


class Taught(OwnMethod):
    """Teachers, one for each shard, name the labels of public inputs; students follow from noisy counts."""

    name, covers = TEACHERS, ("record", "user")
    words = (
        "Every teacher learned all labels from its own share of the records, by a ridge regression for each "
        "label, on vectors that a rule made which public inputs alone had taught. It named the labels of "
        "public inputs, of each no more than a number that was fixed before. Random noise was added to the "
        "number of teachers that named a label of an input, and a linear student of each label learned from "
        "these numbers."
    )

    @property
    def _teachers(self) -> int:
        return self._inputs.cut.number

    @property
    def _labels(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.dataset.several)

    @cached_property
    def _most(self) -> int:
        """The most labels that a teacher names of an input: as told, or as public labels show.

        A limit of half of all labels, or more, makes no table move less, so then there is none.
        """
        number, most, public = len(self._labels), self._inputs.choice.most_labels, self.dataset.public.labels
        if most is None and public is not None:
            most = math.ceil(np.quantile(bits(public, number).sum(1), _SHOWN))
        return number if most is None or 2 * most >= number else max(most, 1)

    @cached_property
    def _made(self) -> CrowdPlan:
        """Directions and scaling, as of so many records as there are teachers."""
        mu = self._mu / math.sqrt(min(len(self._labels), 2 * self._most))
        return plan("sums", *self._wide, voters=self._teachers, classes=2, mu=mu)

    @property
    def _mu(self) -> float:
        return counts.mu_for(*self.promise[:2])

    @cached_property
    def _wide(self) -> Learned:
        return forecast.learned(self.dataset)

    @cached_property
    def _asked(self) -> np.ndarray:
        """The vectors of the public inputs that teachers are asked about."""
        return vectors(self._made.scaling, self._wide.pool[:ASKED, : len(self._made.space.variances)])

    def question(self, public: PublicInputs, released: Sequence[CrowdLine]) -> CrowdRelease | None:
        """One table of how many teachers name each label."""
        sizes = self._teachers, len(self._asked), len(self._labels)
        return None if released else counts.teacher_votes_for(self._mu, *sizes, self._most)

    def count(self, private: Part, event: CrowdRelease, released: Sequence[CrowdLine]) -> np.ndarray:
        """How many teachers name each label."""
        made, by = self._made, self.promise.by
        shards = partition.divide(private, self._teachers, key=self._inputs.partition_key, by=by)
        rows = (shards.of(teacher) for teacher in range(self._teachers))
        seen = vectors(made.scaling, made.space.coordinates(private.inputs))
        held = bits(np.asarray(private.labels), len(self._labels))
        return counted(seen, held, rows, self._asked, self._most)

    def lesson(self, public: PublicInputs, released: Sequence[CrowdLine]) -> Students:
        """A student of each label, by ridge regression on the noisy numbers."""
        made, said = self._made, methods.values(released[0]) / self._teachers - 1 / 2
        students = {}
        for place, label in enumerate(self._labels):
            weights, _ = ridge(self._asked[:, :-1], said[:, place])
            weights = np.append(weights[:-1], weights[-1] / made.scaling.constant) * made.scaling.length
            model = Linear(
                np.stack([-weights, weights], 1), made.scaling.length, np.zeros((len(weights), 2)), 1.0
            )
            one = PublicInputs.of(of_one(self.dataset, place))
            student = sums.of_sums(one, made.space, made.scaling, model)
            students[label] = student._replace(columns=self.dataset.columns)
        return Students(students)


def by_teachers(config: RunConfig, labels: Sequence[str]) -> dict[str, Any]:
    """Make the run of teachers of several labels; what is finished is not repeated."""
    data, teachers = config.data, config.partition.teachers
    several = f"--label-column {data.label_column} names several labels"
    given = [flag for flag in config._of_teachers() if flag != "--teachers"]
    if given or config.queries is not None or config.learn_from_public_labels:
        flag = given[0] if given else "--queries" if config.queries else "--learn-from-public-labels"
        raise PateError(f"{several}, whose teachers are linear and answer by rule: leave out {flag}")
    if teachers is None:
        raise PateError(
            f"{several}: say how many teachers name them, such as --teachers 100 (of 20 records each or "
            "more), or give --voters sums, neighbours or auto"
        )
    if data.private is None:
        raise PateError(f"{several}, as tables of your own have: give --private and --public")
    if not isinstance(config.student, Auto):
        raise PateError(
            f"{several}, and the students of their teachers are linear: leave out --student.method"
        )
    if data.most_labels is not None and data.most_labels < 1:
        raise PateError(f"--most-labels {data.most_labels} must be at least 1")
    return methods.by_command(TEACHERS, config)
