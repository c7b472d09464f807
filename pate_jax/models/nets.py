"""The nets of teachers and students, each as a pair of pure functions; the only file that knows Flax.

A net is written as a Flax NNX module, and converted once: `build` gives `Model(init, apply)` over a plain
nested dict of arrays, so that `jax.vmap` and `jax.pmap` see nothing but pure functions. No net keeps running
statistics: normalisation is over one record's channels (GroupNorm), never over records, so one record of a
batch never changes the answer for another one.

A net of your own needs no Flax at all: any `Model(init, apply)` of pure functions will do.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float

from pate_jax.errors import PateError
from pate_jax.models import names
from pate_jax.models import patches as known_patches
from pate_jax.models.convolution import by_products, convolve, max_pool, patches, sum_of_taps
from pate_jax.models.preprocessing import Preprocessing

Activation = Callable[[Array], Array]
Params = Any
CONVOLUTIONS = ("lax", "patches", "products")


class Model(NamedTuple):
    """A net as pure functions: `init(key) -> params`, `apply(params, inputs) -> logits`.

    `description` is JSON and enough to build the net again: `build(**description)`. It is the identity of a
    net of your own too: a checkpoint is refused where it differs.

    A net may have a `front` that is the same for all teachers and never learns: it turns stored inputs into
    what `apply` takes, once before training instead of at every step, in place of the preprocessing.
    """

    init: Callable[[Array], Params]
    apply: Callable[[Params, Float[Array, "batch ..."]], Float[Array, "batch classes"]]
    description: dict[str, Any]
    front: Callable[[np.ndarray], np.ndarray] | None = None


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
    """A convolution with zero padding: `lax.conv`, patches and one product, or `convolution.by_products`."""

    def __init__(self, inputs: int, outputs: int, size: int, *, form: Form, rngs: nnx.Rngs, stride: int = 1):
        shape = (size * size * inputs, outputs)
        self.kernel = nnx.Param(jax.nn.initializers.he_normal()(rngs.params(), shape))
        self.bias = nnx.Param(jnp.zeros(outputs))
        self.size, self.stride, self.form = size, stride, form

    def __call__(self, inputs: Float[Array | np.ndarray, "b h w c"]) -> Float[Array, "b i j f"]:
        """Convolve in the form's compute type."""
        dtype = jnp.dtype(self.form.dtype)
        inputs, kernel, bias = (jnp.asarray(x, dtype) for x in (inputs, self.kernel[...], self.bias[...]))
        if self.form.convolution == "patches":
            return patches(inputs, self.size, self.stride) @ kernel + bias
        kernel = kernel.reshape(self.size, self.size, inputs.shape[-1], -1)
        if self.form.convolution == "products" and self.stride == 1 and self.size % 2:
            return by_products(inputs, kernel) + bias
        if (inputs.shape[-1], self.size, self.stride) == (1, 3, 1):
            return sum_of_taps(inputs, kernel) + bias
        return convolve(inputs, kernel, self.stride) + bias


def _dense(inputs: int, outputs: int, *, form: Form, rngs: nnx.Rngs, last: bool = False) -> nnx.Linear:
    # Half the variance before the softmax: untrained nets start undecided instead of loudly wrong.
    start = jax.nn.initializers.lecun_normal() if last else jax.nn.initializers.he_normal()
    return nnx.Linear(inputs, outputs, dtype=jnp.dtype(form.dtype), kernel_init=start, rngs=rngs)


class DenseNet(nnx.Module):
    """Dense layers of the given sizes with an activation between them; inputs of any shape are flattened."""

    def __init__(self, inputs, classes, activation, form, rngs, *, hidden: tuple[int, ...]):
        sizes = (inputs, *hidden, classes)
        self.depth, self.activation = len(sizes) - 1, activation
        for layer in range(self.depth):
            last = layer == self.depth - 1
            made = _dense(sizes[layer], sizes[layer + 1], form=form, rngs=rngs, last=last)
            setattr(self, f"dense{layer}", made)

    def __call__(self, inputs):
        """Logits of a batch."""
        flowing = inputs.reshape(inputs.shape[0], -1)
        for layer in range(self.depth):
            flowing = getattr(self, f"dense{layer}")(flowing)
            flowing = self.activation(flowing) if layer < self.depth - 1 else flowing
        return flowing


class ConvolutionalNet(nnx.Module):
    """Convolutions, each followed by the activation and 2 x 2 max pooling, then dense layers."""

    def __init__(self, inputs, classes, activation, form, rngs, *, maps, size: int, hidden: tuple[int, ...]):
        height, width, channels = inputs
        if min(height, width) < 2 ** len(maps):
            raise PateError(
                f"input_shape={tuple(inputs)} is too small for this net; use mlp or pad the images"
            )
        self.depth, self.activation = len(maps), activation
        for layer, outputs in enumerate(maps):
            setattr(self, f"conv{layer}", Convolution(channels, outputs, size, form=form, rngs=rngs))
            height, width, channels = height // 2, width // 2, outputs
        flat = height * width * channels
        self.head = DenseNet(flat, classes, activation, form, rngs, hidden=hidden)

    def __call__(self, inputs):
        """Logits of a batch of images."""
        for layer in range(self.depth):
            # Pooling first is the same for every monotone activation, on a quarter of the numbers.
            inputs = self.activation(max_pool(getattr(self, f"conv{layer}")(inputs)))
        return self.head(inputs)


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


class ResidualNet(nnx.Module):
    """A small residual net with GroupNorm for colour images: a stem and one block per entry of `maps`."""

    def __init__(self, inputs, classes, activation, form, rngs, *, maps: tuple[int, ...]):
        self.depth, self.activation = len(maps), activation
        self.stem = Convolution(inputs[-1], maps[0], 3, form=form, rngs=rngs)
        for layer, outputs in enumerate(maps):
            before, stride = (maps[layer - 1], 2) if layer else (maps[0], 1)
            setattr(self, f"block{layer}", ResidualBlock(before, outputs, stride, activation, form, rngs))
        self.norm = nnx.GroupNorm(maps[-1], num_groups=8, rngs=rngs)
        self.head = _dense(maps[-1], classes, form=form, rngs=rngs, last=True)

    def __call__(self, inputs):
        """Logits of a batch of images."""
        flowing = self.stem(inputs)
        for layer in range(self.depth):
            flowing = getattr(self, f"block{layer}")(flowing)
        return self.head(self.activation(self.norm(flowing)).mean(axis=(1, 2)))


class PatchNet(nnx.Module):
    """A linear classifier on how alike an image is to each of some public ones, by their typical patches."""

    def __init__(
        self, inputs, classes, activation, form, rngs, *, kinds: int, size: int, cells: int, examples: int
    ):
        pixels, features = size * size * inputs[-1], cells * cells * kinds
        directions = min(known_patches.SHAKY, features)
        one, normal = jnp.ones(()), jax.nn.initializers.normal()
        self.flat, self.spread = nnx.Param(one), nnx.Param(one)
        self.offset, self.middle = nnx.Param(jnp.zeros(pixels)), nnx.Param(jnp.zeros(features))
        self.whitening = nnx.Param(jnp.eye(pixels))
        self.typical = nnx.Param(normal(rngs.params(), (kinds, pixels)))
        self.shaky = nnx.Param(jnp.zeros((features, directions)))
        self.taken = nnx.Param(jnp.zeros(directions))
        self.examples = nnx.Param(normal(rngs.params(), (examples, *inputs)))
        self.dense0 = _dense(examples, classes, form=form, rngs=rngs, last=True)

    def __call__(self, inputs):
        """Logits of a batch of images."""
        known = known_patches.Patches(*(getattr(self, name)[...] for name in known_patches.Patches._fields))
        seen, examples = (known_patches.look(known, images) for images in (inputs, self.examples[...]))
        return self.dense0(known_patches.likeness(seen, examples))


class TandemNet(nnx.Module):
    """The nets `patches` and `cnn` side by side, their logits added: the product of their probabilities."""

    def __init__(self, inputs, classes, activation, form, rngs, *, maps, hidden: tuple[int, ...], **typical):
        self.patches = PatchNet(inputs, classes, activation, form, rngs, **typical)
        self.cnn = ConvolutionalNet(
            inputs, classes, activation, form, rngs, maps=maps, size=_CNN["size"], hidden=hidden
        )

    def __call__(self, inputs):
        """Logits of a batch of images."""
        return self.patches(inputs) + self.cnn(inputs)


_CNN: dict[str, Any] = {"maps": (16, 32), "size": 3, "hidden": (64,)}
_PATCHES: dict[str, Any] = {
    "kinds": known_patches.KINDS,
    "size": known_patches.SIZE,
    "cells": known_patches.CELLS,
    "examples": 1000,
}
NETS: Mapping[names.Net, tuple[type[nnx.Module], dict[str, Any]]] = {
    "mlp": (DenseNet, {"hidden": (128, 64)}),
    "table": (DenseNet, {"hidden": (64, 32)}),
    "cnn": (ConvolutionalNet, _CNN),
    "pate2017": (ConvolutionalNet, {"maps": (64, 128), "size": 5, "hidden": (384, 192)}),
    "tutorial": (ConvolutionalNet, {"maps": (10, 20), "size": 5, "hidden": (50,)}),
    "resnet": (ResidualNet, {"maps": (16, 32, 64)}),
    "patches": (PatchNet, _PATCHES),
    "tandem": (TandemNet, {**_PATCHES, "maps": _CNN["maps"], "hidden": _CNN["hidden"]}),
}


def build(
    name: names.Net,
    *,
    input_shape: tuple[int, ...],
    classes: int,
    activation: names.Activation = "relu",
    form: Form | None = None,
    **settings: Any,
) -> Model:
    """The net of this name: mlp, table, cnn (16 and 32 3x3 maps), pate2017 (64 and 128 5x5 maps), tutorial
    (10 and 20 5x5 maps), resnet, patches, or tandem (patches and cnn together).

    `settings` are the activation's (scale, temperature, offset of tempered_sigmoid) and the net's own sizes
    (hidden, maps, size). `form` says how it is computed; the ensemble chooses that by itself.

    >>> import jax, jax.numpy as jnp
    >>> model = build("cnn", input_shape=(28, 28, 1), classes=10)
    >>> params = model.init(jax.random.key(0))
    >>> model.apply(params, jnp.zeros((5, 28, 28, 1))).shape
    (5, 10)
    """
    frozen = {key: tuple(v) if isinstance(v, list) else v for key, v in settings.items()}
    made = _build(name, tuple(input_shape), classes, activation, form or Form(), tuple(frozen.items()))
    return made._replace(description=copy.deepcopy(made.description))


@lru_cache(maxsize=64)
def _build(name: names.Net, input_shape, classes, activation, form, settings) -> Model:
    """Build once: a net asked for again is the same two functions, so nothing is compiled again for it."""
    if name not in NETS:
        raise PateError(f"net={name!r} is unknown; choose one of {', '.join(NETS)}")
    kind, defaults = NETS[name]
    if kind is not DenseNet and len(input_shape) != 3:
        raise PateError(f"net={name!r} takes images and input_shape={input_shape} is none; use mlp or table")
    if classes < 2:
        raise PateError(f"classes={classes} must be at least 2")
    given = dict(settings)
    own = {key: given.pop(key) for key in defaults if key in given}
    function = activation_function(activation, **given)
    shape = math.prod(input_shape) if kind is DenseNet else input_shape
    factory: Callable[..., nnx.Module] = kind
    make = partial(factory, shape, classes, function, form, **{**defaults, **own})
    description = {
        "name": name,
        "input_shape": list(input_shape),
        "classes": classes,
        "activation": activation,
    }
    listed = {key: list(v) if isinstance(v, tuple) else v for key, v in own.items()}
    return _convert(make, {**description, **given, **listed})


def on_patches(
    known: known_patches.Patches,
    preprocessing: Preprocessing,
    *,
    input_shape: tuple[int, ...],
    classes: int,
) -> Model:
    """The net `patches` as teachers learn it: a linear one, behind typical patches of the public pool."""
    linear = build("mlp", input_shape=known.middle.shape, classes=classes, hidden=())

    def front(images: np.ndarray) -> np.ndarray:
        return known_patches.features(known, preprocessing.apply(images))

    size = {"input_shape": list(input_shape), "classes": classes, "features": len(known.middle)}
    return Model(linear.init, linear.apply, {"name": "patches", **size}, front)


def in_form(model: Model, form: Form) -> Model:
    """The same net computed in another form; a net of your own is returned as it is."""
    if model.description.get("name") not in NETS or model.front is not None:
        return model
    return build(**model.description, form=form)


def _convert(make: Callable[..., nnx.Module], description: dict[str, Any]) -> Model:
    graph, _ = nnx.split(nnx.eval_shape(lambda: make(rngs=nnx.Rngs(0))))

    def init(key):
        return nnx.to_pure_dict(nnx.state(make(rngs=nnx.Rngs(params=key))))

    def apply(params, inputs):
        return nnx.merge(graph, nnx.State(params))(inputs).astype(jnp.float32)

    return Model(init, apply, description)
