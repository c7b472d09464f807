"""All teachers as one program: `vmap` inside a device, `pmap` over devices; the only file that names pmap.

A round trains devices x width teachers in step; rounds make a wave, and waves make the ensemble. No teacher's
numbers ever meet another's: the compiled program holds no collective, and a test reads it to make sure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from pate_jax import devices as machines
from pate_jax import progress, training
from pate_jax.errors import PateError
from pate_jax.models import Form, Model, in_form
from pate_jax.training import Shard, State, TeacherConfig

__all__ = ["TeacherConfig", "Teachers", "fit", "predict", "vote"]


class Teachers(NamedTuple):
    """Trained teachers: parameters stacked along a first axis, their ids, and a report (JSON)."""

    params: Any
    ids: np.ndarray
    report: dict[str, Any]


def across(function: Callable, width: int, devices: list, donate: tuple[int, ...] = ()) -> Callable:
    """Run a function of one teacher for devices x width teachers; every argument has those two axes first."""
    if width > 1:
        return jax.pmap(jax.vmap(function), devices=devices, donate_argnums=donate)

    def alone(*arguments):
        return jax.tree.map(lambda leaf: leaf[None], function(*jax.tree.map(lambda leaf: leaf[0], arguments)))

    return jax.pmap(alone, devices=devices, donate_argnums=donate)


def fit(
    model: Model,
    preprocessing: Any,
    inputs: np.ndarray,
    labels: np.ndarray,
    shards: Any,
    *,
    key: Array,
    config: TeacherConfig,
    directory: Any = None,
) -> Teachers:
    """Train one teacher per shard."""
    config = config.resolved()
    chosen = machines.local(config.devices)
    width = config.width or 1
    model = in_form(model, Form("lax" if width == 1 else "patches"))
    one = training.teacher(model, preprocessing.apply, config)
    start, step, turn, again = (
        across(one.start, width, chosen),
        across(one.step, width, chosen, (0,)),
        across(one.turn, width, chosen, (0,)),
        across(lambda fresh, old, which: jax.tree.map(partial(jnp.where, which), fresh, old), width, chosen),
    )
    data = teacher_data(inputs, labels, shards, key, config)
    count, parts = len(shards.counts), []
    began = time.monotonic()
    total = float((data.count * data.epochs).sum())
    with progress.bar("teachers", total) as bar:
        for ids in rounds(count, width, len(chosen)):
            shard = place(jax.tree.map(lambda leaf: leaf[ids], data), chosen, width)
            state = start(shard, jnp.zeros((len(chosen), width), jnp.int32))
            epochs = data.epochs[ids]
            steps = training.steps_per_epoch(data.count[ids], config)
            done = np.zeros_like(epochs)
            while (done < epochs).any():
                for _ in range(int(steps[done < epochs].max())):
                    state = step(state, shard)
                state, news = turn(state, shard)
                news = jax.tree.map(lambda leaf: np.asarray(leaf).reshape(-1), news)
                images = data.count[ids][done < epochs].sum()
                done = news.epoch
                bar.advance(float(images), f"loss {news.loss.mean():.3f}")
            parts.append(
                jax.tree.map(lambda leaf: np.asarray(leaf).reshape(-1, *leaf.shape[2:]), state.params)
            )
    params = jax.tree.map(lambda *leaves: np.concatenate(leaves)[:count], *parts)
    return Teachers(params, np.arange(count), {"seconds": time.monotonic() - began})


def rounds(count: int, width: int, devices: int) -> Iterator[np.ndarray]:
    """Teachers in groups of devices x width; -1 marks a place without a teacher."""
    size = width * devices
    for first in range(0, count, size):
        ids = np.arange(first, first + size)
        yield np.where(ids < count, ids, -1)


def teacher_data(inputs, labels, shards, key, config) -> Shard:
    """Every teacher's shard, padded to one length, with an empty one at the end for places without a teacher."""
    counts = np.append(np.asarray(shards.counts, np.int32), np.int32(0))
    length = max(1, -(-int(counts.max()) // config.batch_size)) * config.batch_size
    rows = np.zeros((len(counts), length), np.int64)
    rows[:-1, : min(length, shards.rows.shape[1])] = shards.rows[:, :length]
    own = np.asarray(labels, np.int32)[rows]
    keys = jax.vmap(lambda i: jax.random.key_data(jax.random.fold_in(key, i)))(jnp.arange(len(counts)))
    majority, entropy = np.zeros(len(counts), np.int32), np.zeros(len(counts), np.float32)
    for i, n in enumerate(counts):
        if n:
            _, many = np.unique(own[i, :n], return_counts=True)
            majority[i], entropy[i] = many.max(), -(many / n * np.log(many / n)).sum()
    return Shard(
        inputs[rows], own, counts, training.epochs_of(counts, config), np.asarray(keys), majority, entropy
    )


def place(tree, devices, width):
    """Put a tree of [devices * width, ...] host arrays on the devices, one part on each."""
    tree = jax.tree.map(lambda leaf: np.asarray(leaf).reshape(len(devices), width, *leaf.shape[1:]), tree)
    return jax.pmap(lambda leaf: leaf, devices=devices)(tree)


def predict(
    model: Model, preprocessing: Any, teachers: Teachers, inputs: np.ndarray
) -> Int[np.ndarray, "t q"]:
    """Labels of every teacher for every input."""
    chosen = machines.local()
    label = across(
        lambda p, x: jnp.argmax(model.apply(p, preprocessing.apply(x.astype(jnp.float32))), -1).astype(
            jnp.int16
        ),
        1,
        chosen,
    )
    queries = [
        place(np.broadcast_to(inputs[i : i + 500], (len(chosen), *inputs[i : i + 500].shape)), chosen, 1)
        for i in range(0, len(inputs), 500)
    ]
    count, answers = len(teachers.ids), []
    for ids in rounds(count, 1, len(chosen)):
        params = place(jax.tree.map(lambda leaf: leaf[np.maximum(ids, 0)], teachers.params), chosen, 1)
        found = [label(params, batch) for batch in queries]
        answers.append(np.concatenate([np.asarray(part)[:, 0] for part in found], 1)[ids >= 0])
    return np.concatenate(answers)


def vote(model: Model, preprocessing: Any, teachers: Teachers, inputs: np.ndarray) -> Int[np.ndarray, "q c"]:
    """How many teachers chose each class, for every input."""
    labels = predict(model, preprocessing, teachers, inputs)
    classes = int(labels.max()) + 1 if "classes" not in model.description else model.description["classes"]
    return (labels[:, :, None] == np.arange(classes)).sum(0).astype(np.int32)
