"""The layers that nets are made of, and how they are computed: convolutions, dense layers, activations."""

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
