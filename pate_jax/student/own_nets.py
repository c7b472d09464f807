"""Students of any net of Flax, by any chain of optax: trained on public inputs and released answers alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from pate_jax.aggregate import Answers
from pate_jax.errors import PateError, at_least
from pate_jax.models import Model, Net, model_of
from pate_jax.models.augment import Augmentation
from pate_jax.models.flax_nets import seen_by_nets
from pate_jax.student.calibration import temperature
from pate_jax.student.lesson import Lesson, PublicInputs, lesson
from pate_jax.student.methods.losses import cross_entropy
from pate_jax.student.methods.nets import calibrating, held_out
from pate_jax.student.serving import Student
from pate_jax.system import progress

TICK = 100  # steps in one call of the device
_PEAK, _DECAY = 1e-3, 1e-3  # of AdamW where no rule is given
_BLOCK = 1000  # inputs whose logits are asked for at once
LossOf = Callable[[Float[Array, "batch classes"], Array], Float[Array, " batch"]]


def fit_net(
    net: Net,
    public_inputs: PublicInputs,
    answers: Answers,
    *,
    key: Array,
    tx: optax.GradientTransformation | None = None,
    loss: LossOf | None = None,
    augment: Augmentation | None = None,
    steps: int = 2000,
    batch_size: int = 64,
    hold_out: float = 0.0,
) -> Student:
    """Train a net of your own on the answered inputs; row i of the answers belongs to row i of the inputs.

    `net` is whatever `models.model_of` takes. `tx` is any chain of optax with its learning rate (unset: AdamW
    up to 0.001 and down a cosine), `loss` is (logits, labels) -> one number an input, `augment` is (key, one
    input as stored) -> one like it. A share `hold_out` of the answers sets the temperature. All of it is free
    of privacy cost, since nothing private is read.

    >>> from flax import linen
    >>> from pate_jax.data.dataset import AS_STORED
    >>> inputs = np.eye(4, dtype=np.float32)
    >>> answers = Answers(np.array([0, 1, 0, 1]), np.ones(4, bool))
    >>> public = PublicInputs(inputs, AS_STORED, 2, ("no", "yes"))
    >>> made = fit_net(linen.Dense(2), public, answers, key=jax.random.key(0), tx=optax.sgd(1.0), steps=100)
    >>> made.predict(inputs).tolist()
    ['no', 'yes', 'no', 'yes']
    """
    at_least(1, steps=steps, batch_size=batch_size)
    given = lesson(public_inputs, answers)
    model = _model(net, public_inputs)
    first, stream = jax.random.split(key)
    used, held = held_out(np.asarray(jax.random.key_data(stream)), given, hold_out)
    rule = tx or optax.adamw(
        optax.warmup_cosine_decay_schedule(0.0, _PEAK, -(-steps // 10), steps), weight_decay=_DECAY
    )
    variables = model.init(first)
    params, state = model.parted(variables)
    way = _Way(params, state, rule.init(params), jnp.float32(0))
    advance = _program(model, public_inputs, rule, loss, augment, batch_size)
    pool = _pool(used, soft=loss is None)
    for done in progress.track(range(0, steps, TICK), "student: own net", total=-(-steps // TICK)):
        way = advance(way, pool, stream, jnp.arange(done, min(done + TICK, steps)))
    if not np.isfinite(way.loss):
        raise PateError(f"the student's loss is {float(way.loss)} after {steps} steps: lower the rate of tx")
    made = Student(
        jax.tree.map(np.asarray, model.joined(way.params, way.state)),
        {**model.description, "input_shape": list(public_inputs.inputs.shape[1:])},
        public_inputs.preprocessing,
        public_inputs.class_names,
        dtype=str(public_inputs.inputs.dtype),
        net=net if not isinstance(net, Model) else model,
    )
    return made._replace(temperature=_warmth(made, model, calibrating(used, held)))


class _Way(NamedTuple):
    """A student on its way."""

    params: Any
    state: Any
    moments: Any
    loss: Array


class _Pool(NamedTuple):
    """The answered inputs as stored, what is learned of them, and how much each counts."""

    inputs: Any
    wanted: Any
    weights: Any


def _model(net: Net, public: PublicInputs) -> Model:
    """The net in the one form, refused where its logits are not those of the classes."""
    seen = seen_by_nets(public.preprocessing, public.inputs.shape[1:], 2)
    model = model_of(net, seen.shape[1:])
    logits = model.logits_of(seen)
    if logits.shape != (2, public.classes):
        raise PateError(
            f"the net gives an array {list(logits.shape)} for 2 inputs; logits [2, {public.classes}] are "
            "wanted"
        )
    return model


def _pool(given: Lesson, *, soft: bool) -> _Pool:
    """What a loss of one's own reads are labels; ours reads soft answers too."""
    inputs, (targets, weights) = given.public.inputs[given.rows], given.taught
    if given.soft is None or not soft:
        wanted: Any = np.eye(given.public.classes, dtype=np.float32)[given.labels] if soft else given.labels
        return _Pool(jnp.asarray(inputs), jnp.asarray(wanted), jnp.ones(len(inputs)))
    return _Pool(jnp.asarray(inputs), jnp.asarray(targets), jnp.asarray(weights))


def _program(
    model: Model,
    public: PublicInputs,
    rule: optax.GradientTransformation,
    loss: LossOf | None,
    augment: Augmentation | None,
    batch_size: int,
) -> Callable[[_Way, _Pool, Array, Array], _Way]:
    """Hundreds of steps as one loop on the device; each draws its batch from its own number alone."""

    def batch(pool: _Pool, key: Array) -> _Pool:
        which, moved = jax.random.split(key)
        rows = jax.random.randint(which, (batch_size,), 0, pool.inputs.shape[0])
        chosen = jax.tree.map(lambda leaf: leaf[rows], pool)
        if augment is None:
            return chosen
        return chosen._replace(inputs=jax.vmap(augment)(jax.random.split(moved, batch_size), chosen.inputs))

    def lost(params, state, chosen: _Pool, key: Array):
        seen = public.preprocessing.apply(chosen.inputs.astype(jnp.float32))
        logits, latest = model.learning(params, state, seen, key)
        each = (loss or cross_entropy)(logits, chosen.wanted)
        return jnp.mean(chosen.weights * each), latest

    def step(pool: _Pool, stream: Array, way: _Way, number: Array) -> tuple[_Way, None]:
        drawn, inner = jax.random.split(jax.random.fold_in(stream, number))
        slope = jax.value_and_grad(lost, has_aux=True)
        (found, state), gradient = slope(way.params, way.state, batch(pool, drawn), inner)
        updates, moments = rule.update(gradient, way.moments, way.params)
        return _Way(optax.apply_updates(way.params, updates), state, moments, found), None

    return jax.jit(
        lambda way, pool, stream, numbers: jax.lax.scan(partial(step, pool, stream), way, numbers)[0]
    )


def _warmth(student: Student, model: Model, judges: Lesson) -> float:
    """The temperature by answers that the net has not learned, where there are enough."""
    if not len(judges.rows):
        return 1.0
    inputs, apply = judges.public.inputs[judges.rows], jax.jit(model.apply)
    blocks = (inputs[first : first + _BLOCK] for first in range(0, len(inputs), _BLOCK))
    seen = (judges.public.preprocessing.apply(np.asarray(block, np.float32)) for block in blocks)
    logits = np.concatenate([np.asarray(apply(student.parameters, block)) for block in seen])
    return temperature(logits, *judges.taught)
