"""Ensembles small enough to train in a second: records with a plain rule, and teachers of unequal shards."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pate_jax import models
from pate_jax.ensemble import TeacherConfig


class Shards(NamedTuple):
    rows: np.ndarray
    counts: np.ndarray


class Same(NamedTuple):
    """Preprocessing that leaves everything as it is."""

    scale: float = 1.0

    def apply(self, inputs):
        return inputs / self.scale


COUNTS = (9, 4, 0, 12, 1, 7, 5, 3, 8, 6, 2)  # eleven teachers, one without records; the longest has twelve
CLASSES = 3


def shards(counts=COUNTS) -> Shards:
    rows = np.zeros((len(counts), max(counts)), np.int32)
    first = np.cumsum((0, *counts))
    for teacher, count in enumerate(counts):
        rows[teacher, :count] = first[teacher] + np.arange(count)
    return Shards(rows, np.array(counts, np.int32))


def table(records=80, features=5, seed=0):
    """Records whose label is the place of the largest of three features."""
    inputs = np.random.default_rng(seed).normal(size=(records, features)).astype(np.float32)
    return inputs, inputs[:, :CLASSES].argmax(axis=1).astype(np.int32)


def images(records=80, seed=0):
    """8 x 8 images with a bright row; the label says which third of the image it is in."""
    rng = np.random.default_rng(seed)
    inputs = rng.integers(0, 60, (records, 8, 8, 1)).astype(np.uint8)
    labels = rng.integers(0, CLASSES, records)
    for image, label in zip(inputs, labels, strict=True):
        image[1 + 2 * label : 3 + 2 * label] += 150
    return inputs, labels.astype(np.int32)


def _init(key):
    first, second = jax.random.split(key)
    return {
        "hidden": {"kernel": jax.random.uniform(first, (5, 6), minval=-1), "bias": jnp.zeros(6)},
        "logits": {"kernel": jax.random.uniform(second, (6, CLASSES), minval=-1)},
    }


def _apply(params, inputs):
    hidden = jax.nn.relu(inputs @ params["hidden"]["kernel"] + params["hidden"]["bias"])
    return hidden @ params["logits"]["kernel"]


def table_net() -> models.Model:
    """A net of a user's own, quick to compile; its zero biases are made inside the program."""
    return models.Model(_init, _apply, {"about": "five features, six hidden units", "input_shape": [5]})


def image_net():
    return models.build("cnn", input_shape=(8, 8, 1), classes=CLASSES, maps=(2, 3), hidden=(4,))


def config(net="table", **changes) -> TeacherConfig:
    """A few steps only; teachers are not restarted, unless a test wants that."""
    quick = {"epochs": 2, "min_steps": 4, "batch_size": 4, "attempts": 1, "learning_rate": 0.1}
    return TeacherConfig(net=net, **{**quick, **changes})


def leaves(params, teacher=None):
    """All numbers of all teachers [teachers, numbers], or of one of them."""
    flat = [np.asarray(leaf).reshape(len(leaf), -1) for leaf in jax.tree.leaves(params)]
    joined = np.concatenate(flat, axis=1)
    return joined if teacher is None else joined[teacher]


def weights(net: models.Model, seed=0):
    """Drawn parameters, without compiling the net's own: matrices of both signs, all others above 0."""
    random = np.random.default_rng(seed)

    def drawn(leaf):
        low = -0.5 if leaf.ndim > 1 else 0.1
        return random.uniform(low, 0.5, leaf.shape).astype(leaf.dtype)

    return jax.tree.map(drawn, jax.eval_shape(net.init, jax.random.key(0)))


COLLECTIVES = (
    *("all-reduce", "all-gather", "all-to-all"),
    *("collective-permute", "reduce-scatter", "collective-broadcast"),
)


def collectives(text):
    """The collectives that a compiled program's text names: there must be none."""
    return [name for name in COLLECTIVES if name in text]
