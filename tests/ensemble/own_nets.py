"""Nets as a user of Flax writes them, small: BatchNorm in Linen, dropout in NNX, attention in Linen."""

from functools import partial

import jax.numpy as jnp
from flax import linen, nnx


class BatchNormed(linen.Module):
    """A convolutional net whose statistics are kept in `batch_stats`."""

    classes: int

    @linen.compact
    def __call__(self, inputs, train: bool):
        flowing = linen.Conv(4, (3, 3), strides=2)(inputs / 255)
        flowing = linen.relu(linen.BatchNorm(use_running_average=not train, momentum=0.8)(flowing))
        return linen.Dense(self.classes)(flowing.reshape(len(inputs), -1))


class Dropped(nnx.Module):
    """A dense net with dropout, told by NNX itself whether it learns."""

    def __init__(self, inputs: int, classes: int, *, rngs: nnx.Rngs):
        self.first, self.last = nnx.Linear(inputs, 8, rngs=rngs), nnx.Linear(8, classes, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, inputs):
        return self.last(self.dropout(nnx.relu(self.first(inputs.reshape(len(inputs), -1) / 255))))


class Attentive(linen.Module):
    """A block of attention over patches, with dropout."""

    classes: int

    @linen.compact
    def __call__(self, inputs, deterministic: bool):
        seen = linen.Conv(8, (4, 4), strides=4)(inputs / 255).reshape(len(inputs), -1, 8)
        seen = seen + self.param("places", linen.initializers.normal(0.02), seen.shape[1:])
        attention = linen.MultiHeadDotProductAttention(2, dropout_rate=0.1, deterministic=deterministic)
        seen = seen + attention(linen.LayerNorm()(seen))
        return linen.Dense(self.classes)(jnp.mean(seen, 1))


NETS = {
    "linen_batch_norm": BatchNormed(3),
    "nnx_dropout": partial(Dropped, 64, 3),
    "linen_attention": Attentive(3),
}
