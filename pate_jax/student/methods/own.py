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
from pate_jax.models import Model, Net, identity, model_of
from pate_jax.models.augment import Augmentation
from pate_jax.models.flax_nets import seen_by_nets
from pate_jax.student import exported
from pate_jax.student.calibration import temperature
from pate_jax.student.lesson import Learned, Lesson, PublicInputs, lesson
from pate_jax.student.methods.losses import cross_entropy
from pate_jax.student.methods.nets import calibrating, held_out
from pate_jax.student.serving import Student
from pate_jax.student.settings import Own
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
    way = _Training(tx or _adamw(steps, _PEAK, _DECAY), steps, batch_size, hold_out, loss, augment)
    return _learned(net, key, given, way).student(public_inputs)


def learn(config: Any, keys: Array, lesson: Lesson) -> list[Learned]:
    """The method of runs: the net that the settings name, once for each key."""
    rule = _adamw(config.steps, config.learning_rate, config.weight_decay)
    way = _Training(rule, config.steps, config.batch_size, config.hold_out)
    net = _named(config, lesson.public)
    return [_learned(net, key, lesson, way) for key in keys]


def check(config: Own, public: PublicInputs) -> None:
    """Refuse a net that does not fit these inputs, or that could not be released."""
    model = _model(_named(config, public), public)
    exported.program(model.apply, jax.eval_shape(model.init, jax.random.key(0)), public.inputs.shape[1:])


def _named(config: Own, public: PublicInputs) -> Net:
    """The net that settings name, with what the data say of it."""
    return identity.net_named(str(config.net), config.net_args, public.inputs.shape[1:], public.classes)


class _Training(NamedTuple):
    """How a net learns."""

    rule: optax.GradientTransformation
    steps: int
    batch_size: int
    hold_out: float
    loss: LossOf | None = None
    augment: Augmentation | None = None


def _adamw(steps: int, peak: float, decay: float) -> optax.GradientTransformation:
    """AdamW, whose rate rises in a tenth of the steps and falls down a cosine."""
    rate = optax.warmup_cosine_decay_schedule(0.0, peak, -(-steps // 10), steps)
    return optax.adamw(rate, weight_decay=decay)


def _learned(net: Net, key: Array, given: Lesson, way: _Training) -> Learned:
    """The net, from its first weights to its last step."""
    public, steps = given.public, way.steps
    model = _model(net, public)
    first, stream = jax.random.split(key)
    used, held = held_out(np.asarray(jax.random.key_data(stream)), given, way.hold_out)
    params, state = model.parted(model.init(first))
    now = _State(params, state, way.rule.init(params), jnp.float32(0))
    advance, pool = _program(model, public, way), _pool(used, soft=way.loss is None)
    for done in progress.track(range(0, steps, TICK), "student: own net", total=-(-steps // TICK)):
        now = advance(now, pool, stream, jnp.arange(done, min(done + TICK, steps)))
    if not np.isfinite(now.loss):
        raise PateError(
            f"the student's loss is {float(now.loss)} after {steps} steps: lower its learning rate"
        )
    trained = jax.tree.map(np.asarray, model.joined(now.params, now.state))
    about = {**model.description, "input_shape": list(public.inputs.shape[1:])}
    return Learned(about, trained, _warmth(trained, model, calibrating(used, held)), net)


class _State(NamedTuple):
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
    model: Model, public: PublicInputs, way: _Training
) -> Callable[[_State, _Pool, Array, Array], _State]:
    """Hundreds of steps as one loop on the device; each draws its batch from its own number alone."""
    size, augment, loss = way.batch_size, way.augment, way.loss or cross_entropy

    def batch(pool: _Pool, key: Array) -> _Pool:
        which, moved = jax.random.split(key)
        rows = jax.random.randint(which, (size,), 0, pool.inputs.shape[0])
        chosen = jax.tree.map(lambda leaf: leaf[rows], pool)
        if augment is None:
            return chosen
        return chosen._replace(inputs=jax.vmap(augment)(jax.random.split(moved, size), chosen.inputs))

    def lost(params, state, chosen: _Pool, key: Array):
        seen = public.preprocessing.apply(chosen.inputs.astype(jnp.float32))
        logits, latest = model.learning(params, state, seen, key)
        each = loss(logits, chosen.wanted)
        return jnp.mean(chosen.weights * each), latest

    def step(pool: _Pool, stream: Array, now: _State, number: Array) -> tuple[_State, None]:
        drawn, inner = jax.random.split(jax.random.fold_in(stream, number))
        slope = jax.value_and_grad(lost, has_aux=True)
        (found, state), gradient = slope(now.params, now.state, batch(pool, drawn), inner)
        updates, moments = way.rule.update(gradient, now.moments, now.params)
        return _State(optax.apply_updates(now.params, updates), state, moments, found), None

    return jax.jit(
        lambda now, pool, stream, numbers: jax.lax.scan(partial(step, pool, stream), now, numbers)[0]
    )


def _warmth(trained: Any, model: Model, judges: Lesson) -> float:
    """The temperature by answers that the net has not learned, where there are enough."""
    if not len(judges.rows):
        return 1.0
    inputs, apply = judges.public.inputs[judges.rows], jax.jit(model.apply)
    blocks = (inputs[first : first + _BLOCK] for first in range(0, len(inputs), _BLOCK))
    seen = (judges.public.preprocessing.apply(np.asarray(block, np.float32)) for block in blocks)
    logits = np.concatenate([np.asarray(apply(trained, block)) for block in seen])
    return temperature(logits, *judges.taught)
