"""From public inputs and answers to students: what is refused or warned about, and which method runs."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pate_jax import models
from pate_jax.aggregate import Answers
from pate_jax.data.dataset import IMAGE_RANKS, Preprocessing
from pate_jax.errors import PateError
from pate_jax.models import Form, Model
from pate_jax.student import training
from pate_jax.student.calibration import negative_log_likelihood, temperature
from pate_jax.student.methods import fixmatch, gan, ridge, supervised, tandem, vat
from pate_jax.student.methods.views import views
from pate_jax.student.public_inputs import PublicInputs
from pate_jax.student.serving import Student
from pate_jax.student.settings import StudentConfig
from pate_jax.system import devices as machines

METHODS: dict[str, Callable[..., training.Method]] = {
    "supervised": supervised.method,
    "vat": vat.method,
    "gan": gan.method,
    "fixmatch": fixmatch.method,
}
_OWN_NETS = {"ridge": ridge.NET, "tandem": tandem.NET}  # made of public images, not trained step by step
_LEAST_HELD_OUT = 20  # answers, for a temperature that means something


def fit(
    key: jax.Array, public_inputs: PublicInputs, answers: Answers, config: StudentConfig | None = None
) -> Student:
    """Train a student; row i of the answers belongs to row i of the inputs.

    The inputs may have more rows than there are answers: those, and the refused ones, are public inputs
    without an answer, from which every method but `supervised` learns too.
    """
    return fit_many(key[None], public_inputs, answers, config)[0]


def fit_many(
    keys: jax.Array, public_inputs: PublicInputs, answers: Answers, config: StudentConfig | None = None
) -> list[Student]:
    """Train one student for each key, all in one program, on the same inputs and answers."""
    check_types(public_inputs, answers)
    inputs = public_inputs.inputs
    image = inputs.ndim in IMAGE_RANKS
    config = (config or StudentConfig()).resolved(image=image)
    check_net(config)
    rows, labels = given(public_inputs, answers)
    drawn = streams(keys)
    if config.method in _OWN_NETS:
        seeds = [int(stream.ravel()[0]) for stream in drawn[0]]
        both = zip(keys, seeds, strict=True)
        return [_by_likeness(key, seed, public_inputs, rows, labels, config) for key, seed in both]
    rows, labels, held_rows, held_labels = held_out(drawn[1][0], rows, labels, config.hold_out)
    several = len(keys) > 1
    form = form_of(several)
    model = build(public_inputs, config, form)
    ready = _program(
        json.dumps(model.description),
        form,
        config,
        public_inputs.preprocessing,
        implementation(keys),
        several,
    )
    pool = training.Pool(jnp.asarray(inputs), jnp.asarray(rows), jnp.asarray(labels), spread(public_inputs))
    learn, judge = _logits(model, public_inputs, held_rows), None
    if config.patience:
        judge = lambda weights: negative_log_likelihood(learn(weights), held_labels)  # noqa: E731
    devices = config.devices or device_count(config, image)
    trained = training.run(ready, drawn, pool, config, devices, judge, title=f"student: {config.method}")
    trained = jax.tree.map(np.asarray, trained)
    warm = len(held_rows) >= _LEAST_HELD_OUT
    temperatures = [temperature(each, held_labels) for each in learn(trained)] if warm else [1.0] * len(keys)
    each = [jax.tree.map(lambda leaf, seed=seed: leaf[seed], trained) for seed in range(len(keys))]
    return [_student(model, public_inputs, *learned) for learned in zip(each, temperatures, strict=True)]


def _by_likeness(
    key: jax.Array,
    seed: int,
    public_inputs: PublicInputs,
    rows: np.ndarray,
    labels: np.ndarray,
    config: StudentConfig,
) -> Student:
    about = (seed, public_inputs, rows, labels)
    learned = ridge.fit(*about) if config.method == "ridge" else tandem.fit(key, *about, config, teach=fit)
    model = build(public_inputs, config, examples=len(rows))
    return _student(model, public_inputs, *learned)


def _student(model: Model, public_inputs: PublicInputs, parameters: Any, warmth: float) -> Student:
    return Student(
        jax.tree.map(jnp.asarray, parameters),
        models.build(**model.description).description,
        public_inputs.preprocessing,
        public_inputs.class_names,
        temperature=warmth,
        dtype=str(public_inputs.inputs.dtype),
    )


def check_types(public_inputs: Any, answers: Any) -> None:
    """Refuse everything but public inputs and answers, above all a data set's parts, which may be private."""
    if not isinstance(public_inputs, PublicInputs):
        raise PateError(
            f"public_inputs is a {type(public_inputs).__name__}: pass PublicInputs, which hold public inputs"
        )
    if not isinstance(answers, Answers):
        raise PateError(f"answers is a {type(answers).__name__}: pass the Answers that the mechanism gave")


def check_net(config: StudentConfig) -> None:
    """Refuse another net for a method that has its own, and such a net for another method."""
    own = _OWN_NETS.get(config.method)
    if own is not None and (config.net != own or config.hold_out):
        raise PateError(
            f"student net={config.net!r}, hold_out={config.hold_out}: {config.method} has a net of its own "
            "and holds each answer out in turn; leave both out"
        )
    whose = [method for method, net in _OWN_NETS.items() if net == config.net != own]
    if whose:
        raise PateError(
            f"student net={config.net!r} is made of public images, not trained step by step: choose "
            f"method={whose[0]!r}, or leave the net out"
        )


def given(public_inputs: PublicInputs, answers: Answers) -> tuple[np.ndarray, np.ndarray]:
    """The rows that were answered and their labels."""
    queries = len(answers.labels)
    if queries > len(public_inputs.inputs):
        raise PateError(
            f"{queries} answers for {len(public_inputs.inputs)} public inputs: pass the inputs asked about"
        )
    rows = np.flatnonzero(np.asarray(answers.answered))
    if not len(rows):
        raise PateError(
            f"none of the {queries} queries was answered, so there is nothing to learn from: "
            "lower the threshold or ask about more inputs"
        )
    labels = np.asarray(answers.labels)[rows]
    if labels.min() < 0 or labels.max() >= public_inputs.classes:
        raise PateError(
            f"an answer is {labels.min() if labels.min() < 0 else labels.max()}, but labels run from 0 to "
            f"{public_inputs.classes - 1}; pass the number of classes that the teachers voted on"
        )
    missing = np.setdiff1d(np.arange(public_inputs.classes), labels)
    if len(missing):
        names = ", ".join(str(public_inputs.class_names[label]) for label in missing[:5])
        warnings.warn(
            f"no answer names class {names}{' ...' if len(missing) > 5 else ''}: the student cannot learn "
            f"{'it' if len(missing) == 1 else 'them'}; ask about more inputs or lower the threshold",
            stacklevel=4,
        )
    return rows.astype(np.int32), labels.astype(np.int32)


def held_out(stream: np.ndarray, rows: np.ndarray, labels: np.ndarray, share: float):
    """Rows and labels to train on, then those kept back, at random by the key data of a student's steps."""
    count = int(share * len(rows))
    if not count:
        return rows, labels, rows[:0], labels[:0]
    order = np.random.default_rng(stream.ravel().tolist()).permutation(len(rows))
    kept, used = order[:count], order[count:]
    return rows[used], labels[used], rows[kept], labels[kept]


def build(
    public_inputs: PublicInputs, config: StudentConfig, form: Form | None = None, **settings: Any
) -> Model:
    """The student's net."""
    settings = settings if config.maps is None else {**settings, "maps": config.maps}
    shape = public_inputs.inputs.shape[1:]
    return models.build(
        config.net or "mlp", input_shape=shape, classes=public_inputs.classes, form=form, **settings
    )


def form_of(several: bool) -> Form:
    """How convolutions are computed: the fastest in a loop on this backend, of one net or of several."""
    if jax.default_backend() != "cpu":
        return Form("patches" if several else "lax")
    return Form("patches" if several else "products")


def spread(public_inputs: PublicInputs) -> Any:
    """Typical distance of a preprocessed input from the mean of all: the root of their mean square."""
    inputs = public_inputs.inputs[:: max(1, len(public_inputs.inputs) // 2000)]
    scaled = public_inputs.preprocessing.apply(inputs).reshape(len(inputs), -1)
    return jnp.float32(np.sqrt(((scaled - scaled.mean(0)) ** 2).sum(1).mean()))


def device_count(config: StudentConfig, image: bool) -> int:
    """All devices of this process that the batch divides by; one for tables, whose steps are too short."""
    most = len(machines.local()) if image else 1
    return max(count for count in range(1, most + 1) if (config.batch_size or 1) % count == 0)


def streams(keys: jax.Array) -> tuple[np.ndarray, np.ndarray]:
    """Key data of each seed for its first weights and for its steps."""
    pairs = jax.vmap(lambda key: jax.random.key_data(jax.random.split(key)))(keys)
    return np.asarray(pairs[:, 0]), np.asarray(pairs[:, 1])


def implementation(keys: jax.Array) -> str:
    """The name of the generator of these keys."""
    return str(jax.random.key_impl(keys))


def _logits(model: Model, public_inputs: PublicInputs, rows: np.ndarray) -> Callable[[Any], np.ndarray]:
    """`weights of all seeds -> logits [seed, row, class]` of the public inputs at these rows."""
    seen = public_inputs.preprocessing.apply(public_inputs.inputs[rows])
    found = jax.jit(lambda weights: jax.lax.map(lambda each: model.apply(each, seen), weights))
    return lambda weights: np.asarray(found(weights))


@lru_cache(maxsize=8)
def _program(
    net: str,
    form: Form,
    config: StudentConfig,
    preprocessing: Preprocessing,
    implementation: str,
    several: bool,
):
    """Compile once for all students that differ in keys, inputs and answers only."""
    model = models.build(**json.loads(net), form=form)
    image = len(model.description["input_shape"]) == 3
    method = METHODS[config.method](model, views(config, preprocessing, image=image), config)
    return training.program(method, config, model.description["classes"], implementation, several)
