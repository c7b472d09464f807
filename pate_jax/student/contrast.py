"""What public images look like, learned from them alone: the space in which `learned` queries cover the pool.

A net learns by contrast (Chen et al. 2020) that two distorted views of one image belong together and views of
different images do not. Kinds of images that pixels mix up, a seven with a bar and a two, come apart, so a
question can be spent on each.
"""

from __future__ import annotations

import dataclasses
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from pate_jax import models
from pate_jax.data.dataset import IMAGE_RANKS, Preprocessing
from pate_jax.errors import PateError
from pate_jax.models import Model
from pate_jax.student import fitting, training
from pate_jax.student.methods import losses
from pate_jax.student.methods.views import Views, apart, views
from pate_jax.student.settings import StudentConfig

_IMAGES = 128  # a step
_SETTINGS = StudentConfig(steps=1500, learning_rate=3e-3, shift=2, average=0.99)  # of the loop and the views
_DIMENSIONS = 64
_HEAT = 0.2  # similarities are divided by it
_BLOCK = 500  # images looked at together in the end


def features(
    images: Array | np.ndarray,
    preprocessing: Preprocessing,
    *,
    key: jax.Array,
    config: StudentConfig | None = None,
) -> Float[np.ndarray, "image dimensions"]:
    """One direction (of length 1) for each image, as stored; images of a kind point the same way."""
    if images.ndim not in IMAGE_RANKS:
        raise PateError(
            f"selection='learned' needs images, and inputs have shape {images.shape[1:]}; choose kmeans"
        )
    config = dataclasses.replace(config or _SETTINGS, batch_size=_IMAGES)
    count = fitting.device_count(config, True) if training.own_device() is None else 1
    config = dataclasses.replace(config, batch_size=count, unlabelled=_IMAGES // count)
    net, ready = _program(images.shape[1:], preprocessing, config, fitting.implementation(key))
    nobody = np.zeros(1, np.int32)
    pool = training.Pool(jnp.asarray(images), nobody, nobody, np.float32(1))
    streams = fitting.streams(key[None])
    weights = training.run(ready, streams, pool, config, count, title="looking at the public images")
    net_weights = jax.tree.map(lambda leaf: np.asarray(leaf)[0], weights)
    look = jax.jit(lambda block: losses.unit(net.apply(net_weights, preprocessing.apply(block))))
    blocks = [look(images[start : start + _BLOCK]) for start in range(0, len(images), _BLOCK)]
    return np.concatenate([np.asarray(block) for block in blocks])


def method(model: Model, views: Views) -> training.Method:
    """The loss: how badly the other view of an image is recognised among all views of the step."""

    def start(key):
        return {"net": model.init(key)}, ()

    def loss(parameters, memory, batch, key):
        seen = [views.strong(apart(batch.other_keys, place), batch.others) for place in range(2)]
        directions = losses.unit(model.apply(parameters["net"], jnp.concatenate(seen)))
        lost, found = losses.contrast(directions, _HEAT)
        return lost.mean(), (memory, found.mean())

    return training.Method(start, loss, "recognised")


@lru_cache(maxsize=4)
def _program(
    shape: tuple[int, ...], preprocessing: Preprocessing, config: StudentConfig, implementation: str
) -> tuple[Model, training.Program]:
    """Compile once for all keys and images."""
    net = models.build("cnn", input_shape=shape, classes=_DIMENSIONS, form=fitting.form_of(False))
    how = method(net, views(config, preprocessing, image=True))
    return net, training.program(how, config, _DIMENSIONS, implementation, several=False)
