"""The layers that nets are made of, and two nets of them: a small residual one, and one of long strides."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float

from pate_jax.errors import PateError
from pate_jax.models import names
from pate_jax.models.convolution import by_products, convolve, patches, planes, pooled, sum_of_taps

Activation = Callable[[Array], Array]
CONVOLUTIONS = ("lax", "patches", "planes", "products")


def tempered_sigmoid(
    inputs: Float[Array, "*shape"], scale: float = 2.0, temperature: float = 2.0, offset: float = 1.0
) -> Float[Array, "*shape"]:
    """`phi(x) = s / (1 + exp(-T x)) - o` (Papernot et al. 2020, eq. 1); the defaults are tanh.

    >>> import jax.numpy as jnp
    >>> bool(jnp.allclose(tempered_sigmoid(jnp.array(0.3)), jnp.tanh(0.3)))
    True
    """
    return scale * jax.nn.sigmoid(temperature * inputs) - offset


def activation_function(name: names.Activation, **settings: Any) -> Activation:
    """The activation of this name: relu, tanh or tempered_sigmoid (scale, temperature, offset)."""
    if name == "tempered_sigmoid":
        return partial(tempered_sigmoid, **settings)
    if name not in ("relu", "tanh"):
        raise PateError(f"activation={name!r} is unknown; choose relu, tanh or tempered_sigmoid")
    if settings:
        raise PateError(f"activation={name!r} takes no settings such as {sorted(settings)}; drop them")
    return jax.nn.relu if name == "relu" else jnp.tanh


class Form(NamedTuple):
    """How a net is computed, which is no part of what it is: convolution form and compute type."""

    convolution: str = "lax"
    dtype: str = "float32"


class Convolution(nnx.Module):
    """A convolution with zero padding: `lax.conv`, patches or planes and one product, or `by_products`."""

    def __init__(self, inputs: int, outputs: int, size: int, *, form: Form, rngs: nnx.Rngs, stride: int = 1):
        shape = (size * size * inputs, outputs)
        self.kernel = nnx.Param(jax.nn.initializers.he_normal()(rngs.params(), shape))
        self.bias = nnx.Param(jnp.zeros(outputs))
        self.size, self.stride, self.form = size, stride, form

    def __call__(self, inputs: Float[Array | np.ndarray, "b h w c"]) -> Float[Array, "b i j f"]:
        """Convolve in the form's compute type."""
        inputs, kernel, bias = self._typed(inputs)
        return self._convolved(inputs, kernel) + bias

    def pooled(
        self, inputs: Float[Array | np.ndarray, "b h w c"], activation: Activation
    ) -> Float[Array, "b i j f"]:
        """The activation, which is monotone, of the maxima of 2 x 2 blocks of the convolution."""
        inputs, kernel, bias = self._typed(inputs)
        least = 0.0 if activation is jax.nn.relu else -np.inf
        found = pooled(self._convolved(inputs, kernel), bias, least, jax.default_backend() != "cpu")
        return found if activation is jax.nn.relu else activation(found)

    def _typed(self, inputs: Array | np.ndarray) -> list[Array]:
        dtype = jnp.dtype(self.form.dtype)
        return [jnp.asarray(x, dtype) for x in (inputs, self.kernel[...], self.bias[...])]

    def _convolved(self, inputs: Array, kernel: Array) -> Array:
        if self.form.convolution == "planes" and self.stride == 1:
            return planes(inputs, kernel, self.size)
        if self.form.convolution in ("patches", "planes"):
            return patches(inputs, self.size, self.stride) @ kernel
        kernel = kernel.reshape(self.size, self.size, inputs.shape[-1], -1)
        if self.form.convolution == "products" and self.stride == 1 and self.size % 2:
            return by_products(inputs, kernel)
        if (inputs.shape[-1], self.size, self.stride) == (1, 3, 1):
            return sum_of_taps(inputs, kernel)
        return convolve(inputs, kernel, self.stride)


class Layered(nnx.Module):
    """A last layer on features of a batch, which `hidden` makes of it."""

    def __call__(self, inputs):
        """Logits of a batch."""
        return self.last(self.hidden(inputs))

    def hidden(self, inputs):
        """Features."""
        raise NotImplementedError

    def last(self, features):
        """Logits of features."""
        raise NotImplementedError


def dense(inputs: int, outputs: int, *, form: Form, rngs: nnx.Rngs, last: bool = False) -> nnx.Linear:
    """A dense layer.

    >>> dense(3, 2, form=Form(), rngs=nnx.Rngs(0)).kernel.shape
    (3, 2)
    """
    # Half the variance before the softmax: untrained nets start undecided instead of loudly wrong.
    start = jax.nn.initializers.lecun_normal() if last else jax.nn.initializers.he_normal()
    return nnx.Linear(inputs, outputs, dtype=jnp.dtype(form.dtype), kernel_init=start, rngs=rngs)


class ResidualBlock(nnx.Module):
    """GroupNorm, activation, 3 x 3 convolution, twice, beside a shortcut (pre-activation)."""

    def __init__(self, inputs, outputs, stride, activation, form, rngs):
        conv = partial(Convolution, form=form, rngs=rngs)
        norm = partial(nnx.GroupNorm, num_groups=8, rngs=rngs)
        self.norm0, self.norm1, self.activation = norm(inputs), norm(outputs), activation
        self.conv0, self.conv1 = conv(inputs, outputs, 3, stride=stride), conv(outputs, outputs, 3)
        self.projects = stride > 1 or inputs != outputs
        if self.projects:
            self.shortcut = conv(inputs, outputs, 1, stride=stride)

    def __call__(self, inputs):
        """The block's output, smaller by its stride."""
        flowing = self.activation(self.norm0(inputs))
        kept = self.shortcut(flowing) if self.projects else inputs
        flowing = self.conv0(flowing)
        return kept + self.conv1(self.activation(self.norm1(flowing)))


class ResidualNet(Layered):
    """A small residual net with GroupNorm for colour images: a stem and one block per entry of `maps`."""

    def __init__(self, inputs, classes, activation, form, rngs, *, maps: tuple[int, ...]):
        self.depth, self.activation = len(maps), activation
        self.stem = Convolution(inputs[-1], maps[0], 3, form=form, rngs=rngs)
        for layer, outputs in enumerate(maps):
            before, stride = (maps[layer - 1], 2) if layer else (maps[0], 1)
            setattr(self, f"block{layer}", ResidualBlock(before, outputs, stride, activation, form, rngs))
        self.norm = nnx.GroupNorm(maps[-1], num_groups=8, rngs=rngs)
        self.head = dense(maps[-1], classes, form=form, rngs=rngs, last=True)

    def hidden(self, inputs):
        """The mean over each map."""
        flowing = self.stem(inputs)
        for layer in range(self.depth):
            flowing = getattr(self, f"block{layer}")(flowing)
        return self.activation(self.norm(flowing)).mean(axis=(1, 2))

    def last(self, features):
        """Logits."""
        return self.head(features)


_SIZES, _STRIDE = (8, 4), 2  # of the two convolutions of `StridedNet`
_LEAST = 14  # pixels along a side that leave something after both of them


def windows(
    inputs: Float[Array, "b h w c"], size: int, stride: int = _STRIDE, *, same: bool
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
    """The small net of "Tempered sigmoid activations for deep learning with differential privacy".

    Papernot, Thakurta, Song, Chien and Erlingsson 2021, table 1: 16 filters of 8 x 8 with stride 2, pooling,
    32 filters of 4 x 4 with stride 2, pooling, 32 dense units. Few parameters are few numbers that need
    noise. Both convolutions are products of matrices, so the gradients of single records are batches of
    products.
    """

    def __init__(self, inputs, classes, activation, form, rngs, *, maps: tuple[int, int], hidden: int):
        height, width, channels = inputs
        if min(height, width) < _LEAST:
            raise PateError(
                f"input_shape={tuple(inputs)} is too small for this net, which needs {_LEAST} pixels a side: "
                "use cnn or mlp"
            )
        start, self.activation = jax.nn.initializers.glorot_uniform(), activation
        self.kernel0 = nnx.Param(start(rngs.params(), (_SIZES[0] ** 2 * channels, maps[0])))
        self.bias0 = nnx.Param(jnp.zeros(maps[0]))
        self.kernel1 = nnx.Param(start(rngs.params(), (_SIZES[1] ** 2 * maps[0], maps[1])))
        self.bias1 = nnx.Param(jnp.zeros(maps[1]))
        rows, columns = (_left(extent) for extent in (height, width))
        self.dense0 = dense(rows * columns * maps[1], hidden, form=form, rngs=rngs, last=True)
        self.dense1 = dense(hidden, classes, form=form, rngs=rngs, last=True)

    def hidden(self, inputs):
        """Both convolutions and the dense layer."""
        for kernel, bias, size in (
            (self.kernel0, self.bias0, _SIZES[0]),
            (self.kernel1, self.bias1, _SIZES[1]),
        ):
            seen = windows(inputs, size, same=size == _SIZES[0])
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
    pooled = -(-extent // _STRIDE) - 1
    return (pooled - _SIZES[1]) // _STRIDE
