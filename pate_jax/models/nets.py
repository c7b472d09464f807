"""The nets of teachers and students, each as a pair of pure functions.

A net is written as a Flax NNX module, and converted once: `build` gives `Model(init, apply)` over a plain
nested dict of arrays, so that `jax.vmap` and `jax.pmap` see nothing but pure functions. No net keeps running
statistics: normalisation is over one record's channels (GroupNorm), never over records, so one record of a
batch never changes the answer for another one. Nets of your own may keep them (`flax_nets.model_of`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from pate_jax.errors import PateError, at_least, one_of
from pate_jax.models import integers, names
from pate_jax.models import patches as known_patches
from pate_jax.models import photos as known_photos
from pate_jax.models.flax_nets import Model, Preprocessing
from pate_jax.models.layers import (
    Convolution,
    Form,
    Layered,
    ResidualNet,
    StridedNet,
    activation_function,
    dense,
)
from pate_jax.models.table_features import Products, Ramps, nearness


class DenseNet(Layered):
    """Dense layers of the given sizes with an activation between them; inputs of any shape are flattened."""

    def __init__(self, inputs, classes, activation, form, rngs, *, hidden: tuple[int, ...]):
        sizes = (inputs, *hidden, classes)
        self.depth, self.activation = len(sizes) - 1, activation
        for layer in range(self.depth):
            last = layer == self.depth - 1
            made = dense(sizes[layer], sizes[layer + 1], form=form, rngs=rngs, last=last)
            setattr(self, f"dense{layer}", made)

    def hidden(self, inputs):
        """All layers but the last."""
        flowing = inputs.reshape(inputs.shape[0], -1)
        for layer in range(self.depth - 1):
            flowing = self.activation(getattr(self, f"dense{layer}")(flowing))
        return flowing

    def last(self, features):
        """Logits."""
        return getattr(self, f"dense{self.depth - 1}")(features)


class ConvolutionalNet(Layered):
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

    def hidden(self, inputs):
        """The convolutions, and all dense layers but the last."""
        for layer in range(self.depth):
            inputs = getattr(self, f"conv{layer}").pooled(inputs, self.activation)
        return self.head.hidden(inputs)

    def last(self, features):
        """Logits."""
        return self.head.last(features)


class PatchNet(Layered):
    """A linear classifier on how alike an image is to each of some public ones, by their typical patches."""

    def __init__(
        self, inputs, classes, activation, form, rngs, *, kinds: int, size: int, cells: int, examples: int
    ):
        _add_patches(self, inputs[-1], rngs, kinds=kinds, size=size, cells=cells)
        self.examples = nnx.Param(jax.nn.initializers.normal()(rngs.params(), (examples, *inputs)))
        self.dense0 = dense(examples, classes, form=form, rngs=rngs, last=True)

    def hidden(self, images):
        """How much of each typical patch is in each cell; examples are compared by that in the last layer."""
        return known_patches.look(_patches_of(self), images)

    def last(self, features):
        """Logits."""
        return self.dense0(known_patches.likeness(features, self.hidden(self.examples[...])))


class RowsNet(Layered):
    """A linear classifier on how near a table's row is to each of some public ones."""

    def __init__(self, inputs, classes, activation, form, rngs, *, examples: int):
        features = math.prod(inputs)
        self.examples = nnx.Param(jax.nn.initializers.normal()(rngs.params(), (examples, features)))
        self.reach = nnx.Param(jnp.ones(()))
        self.dense0 = nnx.Linear(examples, classes, precision=jax.lax.Precision.HIGHEST, rngs=rngs)

    def hidden(self, inputs):
        """How near each row is to the examples."""
        return nearness(inputs.reshape(inputs.shape[0], -1), self.examples[...], self.reach[...])

    def last(self, features):
        """Logits."""
        return self.dense0(features)


class SumsNet(Layered):
    """The classifier that class sums give: linear in an input's vector, as voters have it (`crowd.vectors`).

    `front` says what a space's directions measure: patches, photos, a table's columns, the numbers themselves
    (identity), or where a net taught by contrast points. Features and vectors are whole numbers where those
    of voters are.
    """

    def __init__(
        self,
        inputs,
        classes,
        activation,
        form,
        rngs,
        *,
        front: str,
        directions: int,
        length: int,
        ramps: int,
        products: int,
        sides: int,
        **patches,
    ):
        self.kind, self.length, features = front, length, math.prod(inputs) + ramps + products
        if front not in ("columns", "identity") and len(inputs) != 3:
            raise PateError(f"front={front!r} takes images and input_shape={inputs} is none; use columns")
        if front == "patches":
            features = patches["cells"] ** 2 * patches["kinds"]
            _add_patches(self, inputs[-1], rngs, **patches)
        elif front == "photos":
            known = known_photos.empty(inputs, sides=sides, **patches)
            features = known.features
            for name, leaf in known._asdict().items():
                setattr(self, name, nnx.Param(jnp.asarray(leaf)))
        elif front == "contrast":
            features = CONTRAST
            self.front = ConvolutionalNet(inputs, features, jax.nn.relu, form, rngs, **_CNN)
        elif front == "columns":
            columns = math.prod(inputs)
            self.low, self.high = nnx.Param(-jnp.ones(columns)), nnx.Param(jnp.ones(columns))
        self.bends = ((Ramps, ramps), (Products, products))
        for bend, count in self.bends:
            for name in bend._fields if count else ():
                setattr(self, name, nnx.Param(jnp.zeros(count)))
        self.origin, self.steps = nnx.Param(jnp.zeros(features)), nnx.Param(jnp.ones(()))
        normal = jax.nn.initializers.normal(1.0)
        self.directions = nnx.Param(normal(rngs.params(), (features, directions)))
        self.weights = nnx.Param(jnp.ones(directions))
        self.dense0 = nnx.Linear(directions, classes, precision=jax.lax.Precision.HIGHEST, rngs=rngs)

    def hidden(self, inputs):
        """The vector over its length, but for the constant that counts voters."""
        grid = (self._seen(inputs) - self.origin) * self.steps
        along = integers.measured(grid, self.directions[...]).astype(jnp.float32)
        vectors = integers.shortened(integers.rounded(along * self.weights), self.length)
        return vectors.astype(jnp.float32) / self.length

    def last(self, features):
        """Logarithms of the classes' shares, of which none is below 0."""
        return jnp.log(jnp.maximum(self.dense0(features), _NO_SHARE))

    def _seen(self, inputs):
        if self.kind == "patches":
            return known_patches.looked(_patches_of(self), inputs)
        if self.kind == "photos":
            names_of = known_photos.Photos._fields
            return known_photos.looked(
                known_photos.Photos(*(getattr(self, n)[...] for n in names_of)), inputs
            )
        if self.kind in ("columns", "identity"):
            rows = inputs.reshape(inputs.shape[0], -1)
            return rows if self.kind == "identity" else self._bent(rows)
        found = self.front(inputs)
        return found / (jnp.linalg.norm(found, axis=1, keepdims=True) + _TINY)

    def _bent(self, rows):
        """Columns drawn in to what is usual, and what bends along them."""
        rows = jnp.clip(rows, self.low[...], self.high[...])
        held = [bend(*(getattr(self, n)[...] for n in bend._fields)) for bend, count in self.bends if count]
        return jnp.concatenate([rows, *(each.of(rows) for each in held)], 1)


class HeadNet(SumsNet):
    """A linear head trained on such vectors: what it says are logits."""

    def last(self, features):
        """Logits, a matrix on the vector and a bias."""
        return self.dense0(features)


class TandemNet(Layered):
    """The nets `patches` and `cnn` side by side, their logits added: the product of their probabilities."""

    def __init__(self, inputs, classes, activation, form, rngs, *, maps, hidden: tuple[int, ...], **typical):
        self.patches = PatchNet(inputs, classes, activation, form, rngs, **typical)
        self.cnn = ConvolutionalNet(
            inputs, classes, activation, form, rngs, maps=maps, size=_CNN["size"], hidden=hidden
        )

    def __call__(self, inputs):
        """Logits of a batch of images."""
        return self.patches(inputs) + self.cnn(inputs)

    def hidden(self, inputs):
        """What the net `cnn` has learned; the other's features are those of the public pool's patches."""
        return self.cnn.hidden(inputs)


CONTRAST = 64  # numbers that a net taught by contrast says of an image
_NO_SHARE, _TINY = 1e-30, 1e-12  # the least share of a class; a length is above
_CNN: dict[str, Any] = {"maps": (16, 32), "size": 3, "hidden": (64,)}
_SEEN = {"kinds": known_patches.KINDS, "size": known_patches.SIZE, "cells": known_patches.CELLS}
_PATCHES: dict[str, Any] = {**_SEEN, "examples": 1000}
_SUMS: dict[str, Any] = {
    "front": "columns",
    "directions": 1,
    "length": 1000,
    "ramps": 0,
    "products": 0,
    "sides": 1,
    **_SEEN,
}
NETS: Mapping[str, tuple[type[Layered], dict[str, Any]]] = {
    "mlp": (DenseNet, {"hidden": (128, 64)}),
    "table": (DenseNet, {"hidden": (64, 32)}),
    "cnn": (ConvolutionalNet, _CNN),
    "pate2017": (ConvolutionalNet, {"maps": (64, 128), "size": 5, "hidden": (384, 192)}),
    "papernot2021": (StridedNet, {"maps": (16, 32), "hidden": 32}),
    "tutorial": (ConvolutionalNet, {"maps": (10, 20), "size": 5, "hidden": (50,)}),
    "resnet": (ResidualNet, {"maps": (16, 32, 64)}),
    "patches": (PatchNet, _PATCHES),
    "tandem": (TandemNet, {**_PATCHES, "maps": _CNN["maps"], "hidden": _CNN["hidden"]}),
    "sums": (SumsNet, _SUMS),
    "head": (HeadNet, _SUMS),
    "rows": (RowsNet, {"examples": 1000}),
}


def build(
    name: str,
    *,
    input_shape: tuple[int, ...],
    classes: int,
    activation: names.Activation = "relu",
    form: Form | None = None,
    **settings: Any,
) -> Model:
    """The net of this name: mlp, table, cnn (16 and 32 3x3 maps), pate2017 (64 and 128 5x5 maps), tutorial
    (10 and 20 5x5 maps), papernot2021 (`strided`), resnet, patches, tandem (patches and cnn together),
    sums (a crowd's classifier), head (a linear head on the same vectors) or rows (nearness to some rows).

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
def _build(name: str, input_shape, classes, activation, form, settings) -> Model:
    """Build once: a net asked for again is the same two functions, so nothing is compiled again for it."""
    one_of(NETS, net=name)
    kind, defaults = NETS[name]
    if not issubclass(kind, DenseNet | RowsNet | SumsNet) and len(input_shape) != 3:
        raise PateError(f"net={name!r} takes images and input_shape={input_shape} is none; use mlp or table")
    at_least(2, classes=classes)
    given = dict(settings)
    own = {key: given.pop(key) for key in defaults if key in given}
    function = activation_function(activation, **given)
    shape = math.prod(input_shape) if kind is DenseNet else input_shape
    factory: Callable[..., Layered] = kind
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
    known: known_patches.Patches, preprocessing: Preprocessing, *, input_shape: tuple[int, ...], classes: int
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


def _add_patches(
    net: nnx.Module, channels: int, rngs: nnx.Rngs, *, kinds: int, size: int, cells: int
) -> None:
    """Give a net the parameters of `models.patches`."""
    pixels, features = size * size * channels, cells * cells * kinds
    directions = min(known_patches.SHAKY, features)
    one, normal = jnp.ones(()), jax.nn.initializers.normal()
    made = {
        "flat": one,
        "offset": jnp.zeros(pixels),
        "whitening": jnp.eye(pixels),
        "typical": normal(rngs.params(), (kinds, pixels)),
        "middle": jnp.zeros(features),
        "shaky": jnp.zeros((features, directions)),
        "taken": jnp.zeros(directions),
        "spread": one,
    }
    for name in known_patches.Patches._fields:
        setattr(net, name, nnx.Param(made[name]))


def _patches_of(net: nnx.Module) -> known_patches.Patches:
    return known_patches.Patches(*(getattr(net, name)[...] for name in known_patches.Patches._fields))


def _convert(make: Callable[..., Layered], description: dict[str, Any]) -> Model:
    graph, _ = nnx.split(nnx.eval_shape(lambda: make(rngs=nnx.Rngs(0))))

    def init(key):
        return nnx.to_pure_dict(nnx.state(make(rngs=nnx.Rngs(params=key))))

    def apply(params, inputs):
        return nnx.merge(graph, nnx.State(params))(inputs).astype(jnp.float32)

    def hidden(params, inputs):
        return nnx.merge(graph, nnx.State(params)).hidden(inputs).astype(jnp.float32)

    return Model(init, apply, description, hidden=hidden)
