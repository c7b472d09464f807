"""The small net of "Tempered sigmoid activations for deep learning with differential privacy".

Papernot, Thakurta, Song, Chien and Erlingsson 2021, table 1: 16 filters of 8 x 8 with stride 2, pooling, 32
filters of 4 x 4 with stride 2, pooling, 32 dense units. Few parameters are few numbers that need noise. Both
convolutions are products of matrices, so the gradients of single records are batches of products.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from pate_jax.errors import PateError
from pate_jax.models.layers import Layered, dense

SIZES, STRIDE = (8, 4), 2  # of the two convolutions
LEAST = 14  # pixels along a side that leave something after both


def windows(
    inputs: Float[Array, "b h w c"], size: int, stride: int = STRIDE, *, same: bool
) -> Float[Array, "b i j k"]:
    """The windows at every `stride` pixels, of a size that it divides, as one long channel axis.

    Pixels are first put into blocks of `stride` x `stride`, so few slices are joined: the axis goes by the
    block's row and column, then the pixel's row and column within it, then the channel. With `same`, zeros
    are added outside until there is a window for every block of the image.

    >>> windows(jnp.ones((2, 28, 28, 1)), 8, same=True).shape
    (2, 14, 14, 64)
    >>> windows(jnp.ones((2, 13, 13, 16)), 4, same=False).shape
    (2, 5, 5, 256)
    """
    batch, height, width, channels = inputs.shape
    pads = [_padding(extent, size, stride, same) for extent in (height, width)]
    rows, columns = (
        1 + (side + sum(pad) - size) // stride for side, pad in zip((height, width), pads, strict=True)
    )
    inputs = jnp.pad(inputs, ((0, 0), *pads, (0, 0)))
    count = size // stride
    high, wide = (rows + count - 1) * stride, (columns + count - 1) * stride
    blocks = inputs[:, :high, :wide].reshape(batch, high // stride, stride, wide // stride, stride, channels)
    blocks = blocks.swapaxes(2, 3).reshape(batch, high // stride, wide // stride, -1)
    return jnp.concatenate(
        [blocks[:, i : i + rows, j : j + columns] for i in range(count) for j in range(count)], axis=-1
    )


def _padding(extent: int, size: int, stride: int, same: bool) -> tuple[int, int]:
    """Zeros before and after, as TensorFlow's "same" has them."""
    whole = max((-(-extent // stride) - 1) * stride + size - extent, 0) if same else 0
    return whole // 2, whole - whole // 2


def pool(inputs: Float[Array, "b h w c"]) -> Float[Array, "b i j c"]:
    """Maxima of 2 x 2 pixels at every pixel.

    >>> pool(jnp.ones((1, 5, 5, 2))).shape
    (1, 4, 4, 2)
    """
    rows = jnp.maximum(inputs[:, :-1], inputs[:, 1:])
    return jnp.maximum(rows[:, :, :-1], rows[:, :, 1:])


class StridedNet(Layered):
    """Two strided convolutions with pooling, a dense layer, and the logits."""

    def __init__(self, inputs, classes, activation, form, rngs, *, maps: tuple[int, int], hidden: int):
        height, width, channels = inputs
        if min(height, width) < LEAST:
            raise PateError(
                f"input_shape={tuple(inputs)} is too small for this net, which needs {LEAST} pixels a side: "
                "use cnn or mlp"
            )
        start, self.activation = jax.nn.initializers.glorot_uniform(), activation
        self.kernel0 = nnx.Param(start(rngs.params(), (SIZES[0] ** 2 * channels, maps[0])))
        self.bias0 = nnx.Param(jnp.zeros(maps[0]))
        self.kernel1 = nnx.Param(start(rngs.params(), (SIZES[1] ** 2 * maps[0], maps[1])))
        self.bias1 = nnx.Param(jnp.zeros(maps[1]))
        rows, columns = (_left(extent) for extent in (height, width))
        self.dense0 = dense(rows * columns * maps[1], hidden, form=form, rngs=rngs, last=True)
        self.dense1 = dense(hidden, classes, form=form, rngs=rngs, last=True)

    def hidden(self, inputs):
        """Both convolutions and the dense layer."""
        for kernel, bias, size in (
            (self.kernel0, self.bias0, SIZES[0]),
            (self.kernel1, self.bias1, SIZES[1]),
        ):
            seen = windows(inputs, size, same=size == SIZES[0])
            inputs = self.activation(pool(seen @ kernel[...] + bias[...]))
        return self.activation(self.dense0(inputs.reshape(inputs.shape[0], -1)))

    def last(self, features):
        """Logits."""
        return self.dense1(features)


def _left(extent: int) -> int:
    """What is left of a side of the image after both convolutions.

    >>> _left(28), _left(32), _left(14)
    (4, 5, 1)
    """
    pooled = -(-extent // STRIDE) - 1
    return (pooled - SIZES[1]) // STRIDE
