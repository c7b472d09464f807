"""What a run of DP-SGD has to do, and all that follows from it: noise, cost, and the name of its noise."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import NamedTuple

import numpy as np

from pate_jax.accounting.training_statement import RELATION, Training, TrainingStatement
from pate_jax.baselines.dpsgd import calibration
from pate_jax.baselines.dpsgd.settings import Settings
from pate_jax.data import Dataset
from pate_jax.models import Model
from pate_jax.runs.baselines import heads
from pate_jax.runs.baselines.heads import Head
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.inputs import open_data
from pate_jax.runs.plans import TrainingPlan
from pate_jax.runs.record import BASELINE
from pate_jax.runs.settings import from_settings
from pate_jax.system import storage


class Task(NamedTuple):
    """The records, how a net is trained on them, and what a linear head reads of them."""

    dataset: Dataset
    settings: Settings
    head: Head | None = None

    @property
    def model(self) -> Model | None:
        """The head as a net; None where the settings name the net."""
        return None if self.head is None else self.head.model(self.dataset.input_shape, self.dataset.classes)


def opened(run: RunDirectory, dataset: Dataset | None = None) -> Task:
    """The task that a run has recorded; `dataset` where it is open already."""
    stages = run.record.read()
    found = open_data(stages.data) if dataset is None else dataset
    settings = from_settings(Settings, stages.of(BASELINE))
    return Task(found, settings, heads.made(run, found, settings))


def planned(task: Task) -> calibration.Plan:
    """What the training does to the records, and what that costs."""
    settings = task.settings
    return calibration.plan(settings.epsilon, settings.delta, len(task.dataset.private.ids), settings)


def parameters(task: Task) -> int:
    """How many the net has; what cannot be trained is refused."""
    from pate_jax.baselines.dpsgd import training  # which needs the extra

    shape, classes = task.dataset.input_shape, task.dataset.classes
    return training.check(shape, classes, task.settings, planned(task), task.model)


def spending(task: Task) -> TrainingPlan:
    """All that a run may ever spend."""
    plan = planned(task)
    return TrainingPlan(training_of(plan), plan.steps * parameters(task), RELATION)


def training_of(plan: calibration.Plan) -> Training:
    """What a plan does to the records, as the statement says it."""
    return Training(plan.rate, plan.steps, plan.noise_multiplier)


def charged(made: Training, delta: float, private: bool) -> TrainingStatement:
    """What a training costs that a ledger shows, whatever the settings say by now."""
    added = calibration.cost(made.noise_multiplier, made.rate, made.steps, delta)
    changed = calibration.cost(made.noise_multiplier, made.rate, made.steps, delta, calibration.REPLACE)
    return TrainingStatement(made, max(added, changed), added, delta, private)


def records(dataset: Dataset) -> str:
    """A digest of everything that a training reads of the private records."""
    return storage.digest(dataset.private.inputs, np.asarray(dataset.private.labels))


def stream(task: Task) -> str:
    """The name of the noise that serves this training and no other.

    It contains all that gradients follow from. Scales of columns and spaces come from the public part: if
    that changed and the noise did not, the difference of two nets would be that of their exact sums.
    """
    dataset, settings = task.dataset, task.settings
    seen = {"classes": dataset.classes, "preprocessing": asdict(dataset.preprocessing)}
    seen |= {} if task.head is None else {"head": task.head.digest}
    facts = json.dumps({**asdict(settings), **seen}, sort_keys=True)
    return f"noise of dpsgd by {facts} on {records(dataset)}"
