"""Several labels of each record under one budget: a run for each label, and one release of all.

Each label has a run of its own, of neighbours or of sums, in a folder of private/, with its own ledger. It
may cost `mu / sqrt(labels)` in Gaussian differential privacy, where `mu` is what all of them may cost
together: squares of mu add up, whatever one record says in each of them. One table of all labels would have
the same noise at the same cost (docs/proofs/labels.md), so nothing is lost by this. The share of each is
recorded, and all runs are entered in the register, before the first release.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pate_jax import accounting
from pate_jax.accounting.costs import Tables
from pate_jax.accounting.crowd_statement import CrowdStatement
from pate_jax.accounting.exact import counts
from pate_jax.data import texts
from pate_jax.errors import PateError, PateWarning
from pate_jax.mechanisms.crowds import Comparison, CrowdRelease, HeadCount, Score
from pate_jax.runs import budget, config_file, inputs, ledger, measured, publication, registration, results
from pate_jax.runs.crowds import choice
from pate_jax.runs.crowds import inputs as crowds
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.plans import Plan
from pate_jax.runs.record import LABEL, LABELS
from pate_jax.runs.release import write
from pate_jax.runs.report import labels_page
from pate_jax.runs.settings import CUSTOMARY_EPSILON, DataChoice, RunConfig
from pate_jax.student import Student, exported
from pate_jax.student import several as bundle
from pate_jax.system import devices, progress, storage

_FILES = ("student.json", "parameters.npz", exported.TENSORS, exported.PROGRAM)  # of each student


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
        plain = re.sub(r"[^A-Za-z0-9]+", "-", label).strip("-")[:40]
        return f"{self.labels.index(label) + 1}-{plain}".rstrip("-")

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
    if config.who == "teachers":
        raise PateError(
            f"{several}, which share a budget as tables do: give --voters sums, neighbours or auto"
        )
    if config.data.private is None:
        raise PateError(f"{several}, as tables of your own have: give --private and --public")
    if devices.processes() > 1:
        raise PateError(f"{several}: run it in one process")


def _of_label(config: RunConfig, several: Several, run: RunDirectory, label: str) -> RunConfig:
    """The settings of a label's run, to which the other labels are no inputs."""
    data = config.data
    others = [*texts.named(data.leave_out, "leave_out"), *(one for one in several.labels if one != label)]
    data = replace(data, label_column=label, leave_out=",".join(others))
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
    """Write the students of all labels with one statement, card and program; or into another folder."""
    several, folder, facts = of(run), folder or run.release, measured.published(made)
    home, students = folder / "student", {label: one.student for label, one in several.runs(run).items()}
    statement = storage.read_json(run.existing(run.public_statement, "run"), "statement")
    for label, student in students.items():
        for name in (name for name in _FILES if (student / name).exists()):
            storage.write_bytes(home / several.folder(label) / name, storage.read_bytes(student / name))
    called = {label: several.folder(label) for label in several.labels}
    storage.write_json(home / bundle.LABELS, "labels", {"folders": called})
    storage.write_json(folder / "statement.json", "statement", statement)
    storage.write_json(home / "statement.json", "statement", statement)
    first = Student.load(home / several.folder(next(iter(students))))
    write.write_programs(folder, first)
    storage.write_bytes(home / "MODEL_CARD.md", model_card(first, statement, facts).encode())


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
    """Every metric of each label's student on the test part, and their means, each with its interval.

    The mean's interval draws the same rows (or users) for all labels, as labels of one row go together.
    """
    several, judged = of(run), []
    each: dict[str, dict[str, Any]] = {}
    for label, one in several.runs(run).items():
        data, voters = one.record.read().data, results.kept(one)["voters"]
        dataset = inputs.open_data(data)
        test, metric = dataset.test, measured.metric(data, dataset)
        names = list(dataset.class_names)
        each[label] = {"classes": names, "voters": voters, "usual": None, "figures": None}
        if test is None or test.labels is None:
            continue
        said, truth = Student.load(one.root)(test.inputs), np.asarray(test.labels)
        judged.append((metric, said, test))
        usual = float(np.bincount(truth).max() / len(truth))
        each[label] |= {"usual": usual, "figures": measured.compared(said, test, metric)}
    private = any(one.record.read().data.test_is_private for one in several.runs(run).values())
    macro = measured.macro(judged) if len(judged) == len(each) else None
    rows = len(judged[0][2].ids) if judged else 0
    return {"labels": each, "macro": macro, "rows": rows, **({"test_is_private": True} if private else {})}


def tell(run: RunDirectory) -> dict[str, Any]:
    """Write both pages, and return the results with the statement among them."""
    several, found = of(run), results.kept(run, "run")
    whole = storage.read_json(run.existing(run.statement, "run"), "statement")
    statement = accounting.Statement.from_dict(whole)
    own = {label: str(one.report) for label, one in several.runs(run).items()}
    storage.write_bytes(run.report, labels_page.private_page(found, statement, own).encode())
    return results.tell(run, {**found, "statement": whole}, labels_page.public_page)


def summary(run: RunDirectory) -> dict[str, Any]:
    """What `pate budget` shows: what each label has released, and what all cost together."""
    several = of(run)
    lines = [line for one in several.runs(run).values() for line in ledger.releases(one.ledger)]
    return budget.of_releases(run, lines, several.delta, lambda run, _: state(run))


def model_card(student: Student, statement: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    """The card of all labels; `student` is one of them, which takes the same inputs as all others."""
    sections = {
        "What it says, and of what": [
            f"Task: {len(facts['labels'])} labels of each input, each by a student of its own.",
            *(
                f"{write.plain(label)}: {len(one['classes'])} classes: {_classes(one['classes'])}."
                for label, one in facts["labels"].items()
            ),
            *write.reads(student),
        ],
        "Privacy": write.promised(statement, facts),
        "How it was made": [
            f"Data: {facts['data']}.",
            f"Trained on: {write.learned_from(statement, facts)}.",
        ],
        "How good it is": [
            *(f"{write.plain(label)}: {labels_page.told(one)}." for label, one in facts["labels"].items()),
            f"All labels: {labels_page.macro(facts)}.",
        ],
    }
    said = write.card(sections, statement, facts, student)
    return said.replace("pate_jax.Student.load", "pate_jax.student.Students.load")


def _classes(names: list[str]) -> str:
    return ", ".join(map(write.plain, names[:20])) + (" ..." if len(names) > 20 else "")
