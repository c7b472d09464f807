"""How ONE teacher learns: pure functions of its own key, its own shard and nothing else.

The ensemble runs these for many teachers at once. Whatever a teacher does (its first parameters, the order of
its records, the number of its steps, its learning rate, its augmentation, whether it is restarted) follows
from its own key and its own records; the length to which shards are padded enters nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from pate_jax.ensemble.settings import Loss, TeacherConfig
from pate_jax.errors import PateError
from pate_jax.models import Model
from pate_jax.models.augment import augmentation
from pate_jax.models.trees import Tree

CLOCK = 1000.0  # a named rule's schedule runs from 0 to this, whatever the number of a teacher's own steps

LossOf = Callable[[Float[Array, "batch classes"], Array], Float[Array, " batch"]]


class Own(NamedTuple):
    """What a user gives in place of the names of `TeacherConfig`."""

    tx: optax.GradientTransformation | None = None
    """any chain of optax, with its learning rate; schedules count the teacher's own steps"""
    loss: LossOf | None = None
    """(logits, labels) -> the loss of each record of the batch"""
    augment: Callable[[Array, Array], Array] | None = None
    """(key, one input as it is stored) -> one of the same shape"""

    def checked(self, config: TeacherConfig) -> Own:
        """The same, once settings that it replaces are refused."""
        replaced = {
            "tx": ("optimizer", "learning_rate", "weight_decay"),
            "loss": ("loss",),
            "augment": ("augment",),
        }
        for name, value in self._asdict().items():
            for setting in replaced[name] if value is not None else ():
                if config.closed_form or getattr(config, setting) is not None:
                    given = f"{setting}={getattr(config, setting)!r}"
                    raise PateError(f"{given} says what {name} of your own says: leave one out")
        return self


def _squared(logits: Array, labels: Array) -> Array:
    wanted = jax.nn.one_hot(labels, logits.shape[-1]) - 1 / logits.shape[-1]
    return 0.5 * jnp.sum((logits - wanted) ** 2, -1)


_LOSSES: dict[Loss, LossOf] = {
    "cross_entropy": optax.softmax_cross_entropy_with_integer_labels,
    "squared": _squared,
}


def loss_of_records(config: TeacherConfig, own: Own) -> LossOf:
    """The loss of each record of a batch."""
    return own.loss or _LOSSES[config.loss or "cross_entropy"]


class Rule(NamedTuple):
    """How gradients move a teacher."""

    start: Callable[[Tree], Tree]
    """parameters -> moments"""
    move: Callable[[Tree, Tree, Tree, Array, Array], tuple[Tree, Tree]]
    """(gradient, moments, parameters, share of the steps done, live) -> (parameters, moments), the same ones
    where not live"""


def rule_of(config: TeacherConfig, own: Own) -> Rule:
    """The rule of this config, or the user's own."""
    if own.tx is not None:
        return _chain(own.tx)
    return _adam(config) if config.optimizer == "adam" else _momentum(config)


def _chain(tx: optax.GradientTransformation) -> Rule:
    def move(gradient, moments, params, done, live):
        updates, moved = tx.update(gradient, moments, params)
        found = optax.apply_updates(params, updates), moved
        return jax.tree.map(lambda new, old: jnp.where(live, new, old), found, (params, moments))

    return Rule(tx.init, move)


def _momentum(config: TeacherConfig) -> Rule:
    """Gradient descent with weight decay and Nesterov's momentum.

    It is `optax.chain(add_decayed_weights, trace(nesterov=True))`, but parameters are moved by the moments
    that are kept. On a CPU that takes fewer passes over memory: an MLP trains an eighth faster.
    """
    schedule = _schedule(config)

    def move(gradient, moments, params, done, live):
        rate = schedule(done * CLOCK)
        slope = jax.tree.map(lambda g, p: g + config.weight_decay * p, gradient, params)
        moments = jax.tree.map(lambda s, m: jnp.where(live, s + config.momentum * m, m), slope, moments)
        params = jax.tree.map(
            lambda s, m, p: jnp.where(live, p - rate * (s + config.momentum * m), p), slope, moments, params
        )
        return params, moments

    return Rule(partial(jax.tree.map, jnp.zeros_like), move)


def _adam(config: TeacherConfig) -> Rule:
    chain = optax.chain(optax.scale_by_adam(), optax.add_decayed_weights(config.weight_decay))
    schedule = _schedule(config)

    def move(gradient, moments, params, done, live):
        rate = schedule(done * CLOCK)
        updates, moved = chain.update(gradient, moments, params)
        found = jax.tree.map(lambda p, u: p - rate * u, params, updates), moved
        return jax.tree.map(lambda new, old: jnp.where(live, new, old), found, (params, moments))

    return Rule(chain.init, move)


def _schedule(config: TeacherConfig) -> optax.Schedule:
    if not config.warmup:
        return optax.cosine_decay_schedule(config.learning_rate, CLOCK)
    return optax.warmup_cosine_decay_schedule(0.0, config.learning_rate, config.warmup * CLOCK, CLOCK)


def steps_per_epoch(count, config: TeacherConfig):
    """Steps of one pass over `count` records (an int or an array): no batch exceeds the batch size.

    >>> steps_per_epoch(25, TeacherConfig(batch_size=24))
    2
    """
    if config.closed_form:
        return np.minimum(count, 1)
    return -(-count // config.batch_size)


def epochs_of(count: np.ndarray, config: TeacherConfig) -> np.ndarray:
    """Epochs of a teacher with `count` records: its config's, or more where those make too few steps."""
    if config.closed_form:
        return np.minimum(count, 1).astype(np.int32)
    least = -(-config.min_steps // np.maximum(steps_per_epoch(count, config), 1))
    return np.where(np.asarray(count) > 0, np.maximum(least, config.epochs or 1), 0).astype(np.int32)


class Shard(NamedTuple):
    """One teacher's own records, padded, and what follows from their number and labels alone."""

    inputs: Any
    labels: Any
    count: Any
    """how many records are real; the others are padding"""
    epochs: Any
    key: Any
    """the teacher's own key, as key data"""
    majority: Any
    """how many records carry the commonest label"""
    entropy: Any
    """the loss of the best constant answer"""


class State(NamedTuple):
    """One teacher on its way: everything that a checkpoint has to hold."""

    params: Any
    moments: Any
    order: Any
    epoch: Any
    position: Any
    attempt: Any
    loss: Any
    hits: Any


class News(NamedTuple):
    """What the epoch just ended came to, for one teacher."""

    loss: Any
    accuracy: Any
    epoch: Any
    """epochs done"""
    attempt: Any
    failed: Any
    """diverged, or no better than a constant answer on the own shard"""


class Teacher(NamedTuple):
    """The pure functions that train one teacher."""

    start: Callable[[Shard, Array], State]
    """(shard, attempt) -> the state before the first step"""
    step: Callable[[State, Shard], State]
    """one step; a teacher whose epoch or whole training is over stays as it is"""
    turn: Callable[[State, Shard], tuple[State, News]]
    """close the epoch and order the records for the next one"""


def order_of(key: Array, epoch: Array, count: Array, length: int) -> Array:
    """A random order of `count` records in an array of `length`: padding comes last, whatever the length.

    The random bits of record i are a function of (key, epoch, i), so a longer array changes no order.
    """
    stream = jax.random.fold_in(key, epoch)
    places = jnp.arange(length, dtype=jnp.uint32)
    bits = jax.vmap(lambda i: jax.random.bits(jax.random.fold_in(stream, i), (), jnp.uint32))(places)
    return jnp.argsort(jnp.where(places < count, bits >> 1, jnp.uint32(0xFFFFFFFF)), stable=True).astype(
        jnp.int32
    )


def turn(state: State, shard: Shard, stop_below: float | None = None) -> tuple[State, News]:
    """Close the epoch, the last one where its loss is small enough, and order the records for the next."""
    active = state.epoch < shard.epochs
    epoch = state.epoch + active
    loss = state.loss / jnp.maximum(shard.count, 1)
    chance = (state.hits <= shard.majority) & (loss >= 0.95 * shard.entropy) & (shard.entropy > 0)
    failed = active & (~jnp.isfinite(loss) | (chance & (2 * epoch >= shard.epochs)))
    if stop_below is not None:
        epoch = jnp.where(active & ~failed & (loss < stop_below), shard.epochs, epoch)
    news = News(loss, state.hits / jnp.maximum(shard.count, 1), epoch, state.attempt, failed)
    order = order_of(_stream(shard, state.attempt, 1), epoch, shard.count, shard.labels.shape[0])
    zero = jnp.zeros((), jnp.int32)
    return state._replace(order=order, epoch=epoch, position=zero, loss=jnp.zeros(()), hits=zero), news


def teacher(
    model: Model, preprocess: Callable[[Array], Array], config: TeacherConfig, own: Own | None = None
) -> Teacher:
    """The functions that train one teacher of this model; `config` must be resolved."""
    own = own or Own()
    rule, lost = rule_of(config, own), loss_of_records(config, own)
    image = len(model.description.get("input_shape", (0, 0, 0))) == 3
    moves = own.augment is not None or (config.augment != "none" and image)
    augmenting = own.augment or augmentation((config.augment or "none") if moves else "none")

    def start(shard: Shard, attempt: Array) -> State:
        variables = model.init(_stream(shard, attempt, 0))
        moments = rule.start(model.parted(variables)[0])
        zero = jnp.zeros((), jnp.int32)
        order = order_of(_stream(shard, attempt, 1), zero, shard.count, shard.labels.shape[0])
        return State(variables, moments, order, zero, zero, attempt, jnp.zeros(()), zero)

    def batch(state: State, shard: Shard, steps: Array):
        base, extra, k = shard.count // steps, shard.count % steps, state.position
        slots = jnp.arange(config.batch_size, dtype=jnp.int32)
        # Slots that are left over, whose loss does not count, hold the batch's records again: what a net
        # keeps of a whole batch (BatchNorm) reads neither padding nor another batch.
        places = slots % jnp.maximum(base + (k < extra), 1)
        rows = jnp.take(state.order, k * base + jnp.minimum(k, extra) + places, mode="clip")
        inputs = jnp.take(shard.inputs, rows, axis=0, mode="clip")
        if moves:
            stream = jax.random.fold_in(_stream(shard, state.attempt, 2), state.epoch * steps + k)
            keys = jax.vmap(lambda slot: jax.random.fold_in(stream, slot))(slots)
            inputs = jax.vmap(augmenting)(keys, inputs)
        labels = jnp.take(shard.labels, rows, mode="clip")
        return preprocess(inputs.astype(jnp.float32)), labels, slots < base + (k < extra)

    def loss_of(params, kept, inputs, labels, mask, key):
        logits, kept = model.learning(params, kept, inputs, key)
        losses = lost(logits, labels)
        total = jnp.sum(jnp.where(mask, losses, 0.0))
        hits = jnp.sum(mask & (jnp.argmax(logits, -1) == labels), dtype=jnp.int32)
        return total / jnp.maximum(jnp.sum(mask), 1), (total, hits, kept)

    def step(state: State, shard: Shard) -> State:
        steps = jnp.maximum(steps_per_epoch(shard.count, config), 1)
        live = (state.position < steps) & (state.epoch < shard.epochs)
        inputs, labels, mask = batch(state, shard, steps)
        number = state.epoch * steps + state.position
        key = jax.random.fold_in(_stream(shard, state.attempt, 3), number)
        params, kept = model.parted(state.params)
        slope = jax.grad(loss_of, has_aux=True)
        gradient, (total, hits, latest) = slope(params, kept, inputs, labels, mask & live, key)
        done = (number + 0.5) / jnp.maximum(steps * shard.epochs, 1)
        params, moments = rule.move(gradient, state.moments, params, done, live)
        kept = jax.tree.map(lambda new, old: jnp.where(live, new, old), latest, kept)
        return state._replace(
            params=model.joined(params, kept),
            moments=moments,
            position=state.position + live,
            loss=jnp.where(live, state.loss + total, state.loss),
            hits=jnp.where(live, state.hits + hits, state.hits),
        )

    return Teacher(start, step, partial(turn, stop_below=config.stop_below))


def _stream(shard: Shard, attempt: Array, purpose: int) -> Array:
    key = jax.random.wrap_key_data(shard.key, impl="threefry2x32")
    return jax.random.fold_in(jax.random.fold_in(key, attempt), purpose)
