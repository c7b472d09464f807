"""What a run of DP-SGD has to do, and all that follows from it: noise, cost, and the name of its noise."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from pate_jax.accounting.costs import Trained
from pate_jax.accounting.sampled_noise import Training
from pate_jax.accounting.training_statement import RELATION, TrainingStatement, training_statement
from pate_jax.baselines.dpsgd import calibration
from pate_jax.baselines.dpsgd.settings import LINEAR, Settings
from pate_jax.crowd import Scaling, scaling, space_kind, vectors
from pate_jax.data import Dataset
from pate_jax.errors import PateError
from pate_jax.models import Model, names
from pate_jax.models.spaces.space import Space, arrays_of, space_of
from pate_jax.runs.directory import RunDirectory
from pate_jax.runs.driver import ChargedFirst, Question
from pate_jax.runs.inputs import open_data
from pate_jax.runs.plans import Plan
from pate_jax.runs.record import BASELINE
from pate_jax.runs.settings import from_settings
from pate_jax.student import PublicInputs, Student, sums
from pate_jax.student import spaces as trained
from pate_jax.system import storage

DIRECTIONS = 400
LENGTH, POWER = 1000, 0.5  # of a vector, and of whitening
FULL, SHARE = 0.95, 0.2  # of the pool has full length; of the length that the constant takes
_KIND, _KEY = "head", 0  # of the file; and of a net that learns from public inputs alone, so no secret


class Head(NamedTuple):
    """What a linear head reads of an input."""

    space: Space
    scaling: Scaling

    def front(self, inputs: np.ndarray) -> Float[np.ndarray, "record entries"]:
        """Each input's vector, which is at most 1 long, as a function of that input alone."""
        found = vectors(self.scaling, self.space.coordinates(inputs))
        return np.asarray(found, np.float32) / np.float32(self.scaling.length)

    def model(self, input_shape: tuple[int, ...], classes: int) -> Model:
        """The head as a net; all of its parameters are zero at first."""
        entries = len(self.scaling.weights) + 1

        def init(key: Array) -> Any:
            return {"kernel": jnp.zeros((entries, classes))}

        def apply(params: Any, seen: Float[Array, "batch entries"]) -> Float[Array, "batch classes"]:
            return jnp.matmul(seen, params["kernel"], precision=jax.lax.Precision.HIGHEST)

        described = {"name": LINEAR, "input_shape": list(input_shape), "classes": classes}
        return Model(init, apply, {**described, "head": self.digest}, self.front)

    def student(self, dataset: Dataset, kernel: np.ndarray) -> Student:
        """A trained head as any student is served."""
        made = sums.of_head(PublicInputs.of(dataset), self.space, self.scaling, kernel)
        return made._replace(columns=dataset.columns)

    @property
    def digest(self) -> str:
        """Of all numbers that it consists of."""
        made = arrays(self)
        return storage.digest(np.array(sorted(made)), *(made[name] for name in sorted(made)))


def learned(dataset: Dataset, settings: Settings) -> Head:
    """The head's space and vectors, from the public part alone."""
    kind = cast(names.Space, settings.space or space_kind(dataset))
    if kind not in get_args(names.Space) or kind == "encoder":
        raise PateError(
            f"space={kind!r} cannot be released with a head: choose patches, columns, identity or contrast"
        )
    public, key = PublicInputs.of(dataset), jax.random.key(_KEY)
    space, pool = trained.learned(kind, public, key=key, directions=DIRECTIONS)
    made = scaling(space, pool, length=LENGTH, power=POWER, full=FULL, constant=SHARE)
    return Head(space, made)


def made(run: RunDirectory, dataset: Dataset, settings: Settings) -> Head | None:
    """The head that a run has kept, or the one that it would keep; None where it trains another net."""
    if settings.net != LINEAR:
        return None
    return read(run.public_side, dataset) if run.public_side.exists() else learned(dataset, settings)


def keep(run: RunDirectory, head: Head | None) -> None:
    """Keep a run's head, so that a later version of this program goes on with the same one."""
    if head is not None and not run.public_side.exists():
        storage.write_arrays(run.public_side, _KIND, arrays(head), compressed=False)


def read(path: Path, dataset: Dataset) -> Head:
    """The head that `keep` has written."""
    stored = storage.read_arrays(path, _KIND)
    try:
        length, constant = stored.pop("bounds").tolist()
        weights = stored.pop("weights")
    except (KeyError, ValueError) as error:
        raise PateError(f"{path} holds no head ({error!r}): restore it from a backup") from error
    return Head(space_of(stored, dataset.preprocessing), Scaling(weights, length, constant))


def arrays(head: Head) -> dict[str, np.ndarray]:
    """All that a head consists of."""
    bounds = np.array([head.scaling.length, head.scaling.constant])
    return {**arrays_of(head.space), "weights": head.scaling.weights, "bounds": bounds}


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
    return Task(found, settings, made(run, found, settings))


def planned(task: Task) -> calibration.Plan:
    """What the training does to the records, and what that costs."""
    settings = task.settings
    return calibration.plan(settings.epsilon, settings.delta, len(task.dataset.private.ids), settings)


def parameters(task: Task) -> int:
    """How many the net has; what cannot be trained is refused."""
    from pate_jax.baselines.dpsgd import training  # which needs the extra

    shape, classes = task.dataset.input_shape, task.dataset.classes
    return training.check(shape, classes, task.settings, planned(task), task.model)


def spending(task: Task) -> Plan:
    """All that a run may ever spend."""
    return Plan((event(task),), RELATION)


def event(task: Task) -> Trained:
    """The training as an event, with all numbers of noise that it draws."""
    plan = planned(task)
    return Trained(training_of(plan), plan.steps * parameters(task))


def training_of(plan: calibration.Plan) -> Training:
    """What a plan does to the records, as the statement says it."""
    return Training(plan.rate, plan.steps, plan.noise_multiplier)


def charged(made: Training, delta: float, private: bool) -> TrainingStatement:
    """What a training costs that a ledger shows, whatever the settings say by now."""
    added = calibration.cost(made.noise_multiplier, made.rate, made.steps, delta)
    changed = calibration.cost(made.noise_multiplier, made.rate, made.steps, delta, calibration.REPLACE)
    return training_statement(made, max(added, changed), added, delta, private=private)


@dataclass(frozen=True)
class Steps(ChargedFirst[Trained]):
    """All steps of a training, which are one release."""

    run: RunDirectory
    task: Task

    def plan(self) -> Plan:
        """All that the run may ever spend."""
        return spending(self.task)

    def question(self) -> Question[Trained]:
        """The training that is charged."""
        return Question(1, event(self.task), asked_on(self.task))

    def measure(self, question: Question[Trained]) -> np.ndarray:
        """What names the records: nobody ever has a sum of their gradients."""
        return np.array(records(self.task.dataset))


def records(dataset: Dataset) -> str:
    """A digest of everything that a training reads of the private records."""
    return storage.digest(dataset.private.inputs, np.asarray(dataset.private.labels))


def asked_on(task: Task) -> str:
    """A digest of all that gradients follow from beside the records, after which the noise is named.

    Scales of columns and spaces come from the public part: if that changed and the noise did not, the
    difference of two nets would be that of their exact sums.
    """
    dataset, settings = task.dataset, task.settings
    seen = {"classes": dataset.classes, "preprocessing": asdict(dataset.preprocessing)}
    seen |= {} if task.head is None else {"head": task.head.digest}
    return storage.digest(np.array(json.dumps({**asdict(settings), **seen}, sort_keys=True)))
