"""All teachers as pure functions of arrays: for somebody else's `jit`, mesh and training loop.

`fit` is a loop on the host, with checkpoints, plans and progress. Here the same teachers, by the same
functions and with the same streams, are one function of their shards, and their votes another. Both may be
traced inside a caller's program, and neither keeps anything.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Int

from pate_jax.ensemble import feeding
from pate_jax.ensemble.programs import OnMesh, places
from pate_jax.ensemble.settings import TeacherConfig
from pate_jax.ensemble.teacher import LossOf, News, Own, Shard, State, Teacher, steps_per_epoch, teacher
from pate_jax.errors import PateError
from pate_jax.models import Model, Net
from pate_jax.models.augment import Augmentation
from pate_jax.models.flax_nets import Preprocessing, seen_by_nets
from pate_jax.models.trees import Tree


class Functions(NamedTuple):
    """The teachers of an ensemble, pure and traceable; every array has the axis of teachers first."""

    train: Callable[[Shard], tuple[Tree, News]]
    """shards -> parameters, and how each teacher fared, which is private"""
    votes: Callable[[Tree, Any], Int[Array, "queries classes"]]
    """(parameters, inputs as stored) -> how many teachers chose each class"""


def shards_of(inputs: Any, labels: Any, shards: Any, *, key: Array, config: TeacherConfig) -> Shard:
    """What each teacher is fed, and its own key, as `fit` cuts them: the argument of `Functions.train`.

    >>> from pate_jax.data.partition import Shards
    >>> shards = Shards(np.array([[0, 1, 2], [3, 4, 0]], np.int32), np.array([3, 2], np.int32))
    >>> config = TeacherConfig(net="mlp", batch_size=3)
    >>> given = np.eye(6, dtype="f4"), [0, 1, 0, 1, 1, 0], shards
    >>> made = shards_of(*given, key=jax.random.key(0), config=config)
    >>> made.inputs.shape, made.count.tolist(), made.labels[1].tolist()
    ((2, 3, 6), [3, 2], [1, 1, 0])
    """
    config = config.resolved()
    data = feeding.records(inputs, labels, shards, key, config)
    return feeding.take(data, np.arange(len(data.counts)), config)


def functions(
    net: Net,
    preprocessing: Preprocessing,
    feed: Shard,
    config: TeacherConfig,
    *,
    tx: optax.GradientTransformation | None = None,
    loss: LossOf | None = None,
    augment: Augmentation | None = None,
    public_constants: bool = False,
    mesh: Mesh | None = None,
    axis: str | None = None,
    width: int = 1,
) -> Functions:
    """The functions of these teachers; `feed` (`shards_of`) gives shapes alone here.

    On a `mesh` teachers are divided along its `axis`, so their number must be a multiple of its size. A
    device goes through its teachers one after the other, `width` at a time.

    >>> from pate_jax import models
    >>> from pate_jax.data.dataset import AS_STORED
    >>> from pate_jax.data.partition import Shards
    >>> inputs, labels = np.eye(6, dtype=np.float32), np.array([0, 1, 0, 1, 1, 0])
    >>> shards = Shards(np.array([[0, 1, 2], [3, 4, 0]], np.int32), np.array([3, 2], np.int32))
    >>> config = TeacherConfig(net="table", epochs=1, min_steps=20, batch_size=3)
    >>> feed = shards_of(inputs, labels, shards, key=jax.random.key(0), config=config)
    >>> train, votes = functions(models.build("table", input_shape=(6,), classes=2), AS_STORED, feed, config)
    >>> jax.jit(lambda feed, asked: votes(train(feed)[0], asked))(feed, inputs).sum(1).tolist()
    [2, 2, 2, 2, 2, 2]
    """
    own, config = Own(tx, loss, augment).checked(config), config.resolved()
    if config.closed_form:
        raise PateError("net='linear' is solved by ensemble.fit alone: give a net that learns step by step")
    model = feeding.model_for(net, preprocessing, feed.inputs[0])
    if model.front is not None:
        raise PateError("this net looks through a front of the host: pass what it gives as inputs")
    one = feeding.Records(feed.inputs[0], feed.labels[0], feed.labels, feed.count, feed.key, 0, 0)
    feeding.check_net(model, preprocessing, one._replace(labels=np.ravel(feed.labels)))
    feeding.own_program(model, preprocessing, one, config, own, public_constants)
    made = teacher(model, preprocessing.apply, config, own)
    place = None if mesh is None and axis is None else places(None, mesh, axis)
    each = partial(_each, width=width, place=place if isinstance(place, OnMesh) else None)
    labels = partial(_labels, model, preprocessing)

    def votes(params: Tree, inputs: Any) -> Int[Array, "queries classes"]:
        given = each(lambda one: labels(one, inputs), params)
        classes = model.logits_of(seen_by_nets(preprocessing, inputs.shape[1:], 1)).shape[1]
        return jnp.sum(jax.nn.one_hot(given, classes, dtype=jnp.int32), axis=0)

    return Functions(partial(each, partial(_trained, made, config)), votes)


def _each(function: Callable[[Tree], Tree], tree: Tree, *, width: int, place: OnMesh | None) -> Tree:
    """A function of one teacher, for all of them."""

    def mine(tree: Tree) -> Tree:
        return jax.lax.map(function, tree, batch_size=width if width > 1 else None)

    if place is None:
        return mine(tree)
    teachers = len(jax.tree.leaves(tree)[0])
    if teachers % len(place):
        raise PateError(
            f"{teachers} teachers cannot be divided over {len(place)} devices of the axis {place.axis!r}: "
            "give a multiple, or a smaller mesh"
        )
    return place.over(mine)(tree)


def _trained(made: Teacher, config: TeacherConfig, shard: Shard) -> tuple[Tree, News]:
    """One teacher from its start to its end, begun again where it fails, as `waves` does it."""
    steps = jnp.maximum(steps_per_epoch(shard.count, config), 1)

    def step(_: Array, state: State) -> State:
        """Apart from what is around it, which would change how it is compiled and its last bits."""
        return jax.lax.optimization_barrier(made.step(*jax.lax.optimization_barrier((state, shard))))

    def epoch(now: tuple[State, News]) -> tuple[State, News]:
        state = jax.lax.fori_loop(0, steps, step, now[0])
        state, news = made.turn(state, shard)
        again = news.failed & (news.attempt + 1 < config.attempts)
        state = jax.lax.cond(again, lambda: made.start(shard, news.attempt + 1), lambda: state)
        return state, news._replace(
            epoch=jnp.where(again, 0, news.epoch), attempt=news.attempt + again.astype(jnp.int32)
        )

    state = made.start(shard, jnp.zeros((), jnp.int32))
    _, shape = jax.eval_shape(made.turn, state, shard)
    news = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shape)
    state, news = jax.lax.while_loop(lambda now: now[1].epoch < shard.epochs, epoch, (state, news))
    return state.params, news


def _labels(model: Model, preprocessing: Preprocessing, params: Tree, inputs: Any) -> Int[Array, " queries"]:
    return jnp.argmax(model.apply(params, preprocessing.apply(jnp.asarray(inputs, jnp.float32))), axis=-1)
