"""A run of DP-SGD: from private records to a net that may be published, with the files of any other run.

    settings.json   the data, and `baseline`: how the net is trained
    keys.json       the secret that samples, noise and first parameters follow from
    ledger.jsonl    one line with what the training costs, durable before the first step
    results.json    what came of it; release/ as after any run

The key is derived from the run's secret, the settings and a digest of the records. So a run that is killed
and repeated makes the same steps with the same noise, and records that were changed since are refused.
Its pages, and what `pate budget` shows of it, are here too.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from tyro.conf import OmitArgPrefixes

from pate_jax import models
from pate_jax.accounting.costs import Trained
from pate_jax.accounting.inputs import check_delta
from pate_jax.accounting.training_statement import RELATION, TrainingStatement, training_statement
from pate_jax.baselines.dpsgd import calibration
from pate_jax.baselines.dpsgd.settings import LINEAR, Settings, choose
from pate_jax.data import Dataset, relation
from pate_jax.errors import PateError
from pate_jax.models import names
from pate_jax.runs import budget, driver, ledger, public_part, registration, results
from pate_jax.runs.baselines import tasks
from pate_jax.runs.baselines.tasks import Steps, Task, parameters, planned, spending, training_of
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.inputs import open_classes, record
from pate_jax.runs.ledger import Line
from pate_jax.runs.record import BASELINE
from pate_jax.runs.report.run_pages import last_lines
from pate_jax.runs.settings import STROKES, DataChoice
from pate_jax.student import Student
from pate_jax.system import storage


@dataclass(frozen=True)
class BaselineConfig:
    """A net trained by DP-SGD on the private records, in place of teachers and a student."""

    data: Annotated[DataChoice, OmitArgPrefixes] = field(default_factory=DataChoice)
    out: Path | None = None
    """The run directory; unset: runs/dpsgd- and the data set's name."""
    epsilon: float = 1.0
    """The figure to publish: what the net may cost one record that is added, removed or changed."""
    delta: float = 1e-5
    """The delta of the privacy statement; well below one over the number of private records."""
    seed: int | None = None
    """Make the run reproducible and therefore NOT private. Unset: fresh entropy."""
    net: names.Net | None = None
    """Unset: papernot2021 for images, table for columns. linear: one matrix on a public space."""
    space: names.Space | None = None
    """Of net linear, which public inputs alone teach; unset: patches for images, else columns or identity."""
    activation: names.Activation = "tanh"
    """relu, tanh or tempered_sigmoid."""
    scale: float = 2.0
    """Of tempered_sigmoid, as are the next two. Never learned: that would cost privacy."""
    temperature: float = 2.0
    offset: float = 1.0
    steps: int | None = None
    """Unset, as are the next three: by rules that read public numbers alone (docs/proofs/dpsgd.md)."""
    batch: int | None = None
    clip: float | None = None
    learning_rate: float | None = None
    register: Path | None = None
    """The file in which all runs on these records are entered before their first step; unset: this user's
    own; none: somebody else counts (`pate budget`)."""

    def __post_init__(self) -> None:
        check_delta(self.delta)
        if not 0 < self.epsilon < float("inf"):
            raise PateError(f"epsilon={self.epsilon} must be a finite number above 0; 1 is an example")

    @property
    def directory(self) -> Path:
        """The folder of the run."""
        name = "own" if self.data.private else self.data.dataset.replace("/", "-").replace(":", "-")
        return self.out or Path("runs") / f"dpsgd-{name}"

    def settings(self, dataset: Dataset) -> Settings:
        """How the net is trained: what is set, and rules for the rest."""
        chosen = ("net", "space", "steps", "batch", "clip", "learning_rate")
        shaped = ("activation", "scale", "temperature", "offset")
        wanted = {name: getattr(self, name) for name in (*chosen, *shaped)}
        return choose(
            len(dataset.private.ids),
            dataset.classes,
            image=dataset.kind == "image",
            epsilon=self.epsilon,
            delta=self.delta,
            parameters=self._parameters(dataset),
            neighbours="changed",
            **{name: value for name, value in wanted.items() if value is not None},
        )

    def _parameters(self, dataset: Dataset) -> int | None:
        """How many the rules should reckon with: of a table's net or a head; None for a net of images."""
        if self.net == LINEAR:
            return dataset.classes * (tasks.DIRECTIONS + 1)
        if dataset.kind == "image":
            return None
        from pate_jax.baselines.dpsgd import training  # which needs the extra

        shape, net = dataset.input_shape, self.net or "table"
        return training.size(models.build(net, input_shape=shape, classes=dataset.classes))


def run(config: BaselineConfig) -> dict[str, Any]:
    """Charge, train, release and measure; what is finished is not repeated."""
    needs_the_extra()
    run = RunDirectory(config.directory)
    with run.writing():
        task = begin(run, config)
        registration.enter(run, spending(task), lambda: task.dataset, config.register)
        (line,) = driver.release(Steps(run, task))
        if not run.results.exists():
            learned = _released(run) or train(run, task, line)
            statement = stated(run, planned(task), task.settings.delta)
            dataset = task.dataset
            own = results.facts(run, dataset, relation.without_warning(dataset.description))
            own |= {"method": "dpsgd", "steps": task.settings.steps}
            results.finish(run, learned, dataset, results.state(run, statement), own)
        return tell(run) | registration.shown(run)


def needs_the_extra(otherwise: str = "") -> None:
    """Say in one sentence which part of the installation is missing, and what else may be done."""
    if importlib.util.find_spec("jax_privacy") is None:
        raise PateError(f"DP-SGD needs jax_privacy: pip install 'pate-jax[baselines]'{otherwise}")


def begin(run: RunDirectory, config: BaselineConfig) -> Task:
    """Open the data and record what the run is made from; another kind of run in the folder is refused."""
    before = run.record.read()
    if BASELINE not in before and any(one in before for one in ("data", "votes", "mechanism")):
        raise PateError(f"{run.root} is a run of another kind: choose another --out")
    choice = config.data.drawn(STROKES)
    dataset = open_classes(choice, "pate baseline", run.encoded)
    public_part.refuse_others(run, dataset)
    _check_users(dataset)
    settings = config.settings(dataset)
    task = Task(dataset, settings, tasks.made(run, dataset, settings))
    parameters(task)  # what cannot be trained is refused before anything is recorded
    run.secret.draw(config.seed)
    run.record.agree(BASELINE, asdict(settings))  # first: by it a run that was stopped here is recognised
    record(run, dataset, choice)
    run.record.agree("relation", {"relation": RELATION})
    tasks.keep(run, task.head)
    budget.warn_of_delta(settings.delta, len(dataset.private.ids))
    return task


def _check_users(dataset: Dataset) -> None:
    """Refuse records of users: each record's gradient is clipped by itself, so a user of many moves more."""
    if dataset.private.users is not None:
        raise PateError(
            "the private records name users, and DP-SGD covers one record, not all records of a user: use "
            "`pate run --by user`, or leave the users out where each has one record only"
        )


def _released(run: RunDirectory) -> Student | None:
    """The net that is in release/ as a whole: another machine would make another one of the same noise."""
    paths = run.student / "statement.json", run.public_statement
    if not all(path.exists() for path in paths):
        return None
    last, whole = (storage.read_json(path, "statement") for path in paths)
    return Student.load(run.student) if last == whole else None


def train(run: RunDirectory, task: Task, line: Line[Trained]) -> Student:
    """The net, as any student is served, with the noise of its line: the same at every call."""
    from pate_jax.baselines.dpsgd.training import fit  # which needs the extra

    needs_the_extra()
    dataset = task.dataset
    fitted = fit(
        dataset.private.inputs,
        np.asarray(dataset.private.labels),
        dataset.classes,
        task.settings,
        key=run.secret.key(line.stream),
        preprocessing=dataset.preprocessing,
        model=task.model,
    )
    if task.head is not None:
        return task.head.student(dataset, fitted.params["kernel"])
    return Student(
        fitted.params,
        fitted.net.description,
        dataset.preprocessing,
        dataset.class_names,
        dtype=str(dataset.private.inputs.dtype) if dataset.kind == "image" else "",
        columns=dataset.columns,
    )


def stated(run: RunDirectory, plan: calibration.Plan, delta: float) -> TrainingStatement:
    """The statement of a plan."""
    private = run.secret.seed is None
    return training_statement(training_of(plan), plan.replaced, plan.epsilon, delta, private=private)


def told(found: Mapping[str, Any]) -> str:
    """What the command prints."""
    statement = TrainingStatement.from_dict(found["statement"])
    right = found["student_accuracy"]
    measured = "not measured, no public test part" if right is None else f"{right:.2%}"
    lines = [found["trial"]] if "trial" in found else []
    lines += [statement.warning] if statement.warning else []
    lines += [
        f"Privacy: {statement.model_card_line()}",
        *([f"All steps together: {statement.trade_off.words}."] if statement.private else []),
        f"Accuracy on public test data: {measured}.",
        *last_lines(found),
    ]
    return "\n".join(lines)


def tell(run: RunDirectory) -> dict[str, Any]:
    """Write both report pages and return the results, with the statement among them."""
    return results.tell(run, tell_owner(run))


def tell_owner(run: RunDirectory) -> dict[str, Any]:
    """Write the owner's page alone, and return the results, with the statement among them."""
    return results.tell_owner(run, "baseline dpsgd", "baseline dpsgd")


def summary(run: RunDirectory) -> dict[str, Any]:
    """What the one line of the ledger costs, as `pate budget` shows it; all of it is spent at once."""
    line, delta = ledger.charge(run.ledger, Trained), run.record.read().of(BASELINE)["delta"]
    statement = tasks.charged(line.event.training, delta, run.secret.seed is None)
    return {
        "run_dir": str(run.root),
        "training": statement.training._asdict(),
        "charged": statement.charged,
        "budget": None,
        "spent": {"epsilon": statement.headline.epsilon, "delta": statement.delta},
        "left": None,
    }
