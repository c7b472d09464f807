"""Spaces that training makes, beside those of `models.spaces`: a net taught by contrast, or a student.

Both have seen public inputs and released answers only, so a space of them costs nothing more: voters of the
next round, the choice of queries and the next student may all use it.

What public images look like is learned from them alone, by contrast (Chen et al. 2020): a net learns that two
distorted views of one image belong together and views of different images do not. Kinds of images that pixels
mix up, such as sevens with a bar and twos, come apart, so a question can be spent on each.
"""

from __future__ import annotations

import dataclasses
import json
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from pate_jax import models
from pate_jax.data.dataset import IMAGE_RANKS, Preprocessing
from pate_jax.errors import PateError
from pate_jax.models import Model
from pate_jax.models.nets import CONTRAST
from pate_jax.models.spaces.fronts import Front, Net
from pate_jax.models.spaces.space import Kind, Learned, Space, front_of, over, over_pool
from pate_jax.student import training
from pate_jax.student.lesson import PublicInputs
from pate_jax.student.methods import losses, nets
from pate_jax.student.methods.losses import Views, apart, views
from pate_jax.student.serving import Student, check_inputs
from pate_jax.student.training import Loop, Objective

_IMAGES = 128  # a step
_SHIFT = 2  # pixels that an image is moved by, at most
_SETTINGS = Loop(steps=1500, batch_size=_IMAGES, learning_rate=3e-3, average=0.99)
_DIMENSIONS = CONTRAST
_HEAT = 0.2  # similarities are divided by it


def contrast_space(
    images: np.ndarray,
    preprocessing: Preprocessing,
    *,
    key: jax.Array,
    directions: int = _DIMENSIONS,
    config: Loop | None = None,
) -> Space:
    """The space of public images, as stored, in which images of a kind point the same way."""
    return over(learn_contrast(images, preprocessing, key=key, config=config), images, directions)


def learn_contrast(
    images: np.ndarray, preprocessing: Preprocessing, *, key: jax.Array, config: Loop | None = None
) -> Net:
    """The net, as a front of spaces."""
    if images.ndim not in IMAGE_RANKS:
        raise PateError(
            "a net that learns by contrast (the selection `learned`, the space `contrast`) needs images, and "
            f"inputs have shape {images.shape[1:]}; choose kmeans, or another space"
        )
    count = nets.device_count(_IMAGES, True) if training.own_device() is None else 1
    loop = dataclasses.replace(config or _SETTINGS, batch_size=count, unlabelled=_IMAGES // count)
    net, program = _program(images.shape[1:], preprocessing, loop, nets.implementation(key))
    nobody = np.zeros(1, np.int32)
    pool = training.Pool(jnp.asarray(images), 1, nobody, nobody, np.float32(1))
    streams = nets.streams(key[None])
    weights = training.run(program, streams, pool, loop, count, title="looking at the public images")
    weights = jax.tree.map(lambda leaf: np.asarray(leaf)[0], weights)
    return Net("contrast", json.dumps(net.description), weights, preprocessing)


def objective(model: Model, views: Views) -> Objective:
    """The loss: how badly the other view of an image is recognised among all views of the step."""

    def start(key):
        return {"net": model.init(key)}, ()

    def look(batch):
        seen = [views.strong(apart(batch.other_keys, place), batch.others) for place in range(2)]
        return jnp.concatenate(seen)

    def loss(parameters, memory, batch, key):
        directions = losses.unit(model.apply(parameters["net"], batch.seen))
        lost, found = losses.contrast(directions, _HEAT)
        return lost.mean(), (memory, found.mean())

    return Objective(start, look, loss, "recognised")


@lru_cache(maxsize=4)
def _program(
    shape: tuple[int, ...], preprocessing: Preprocessing, loop: Loop, implementation: str
) -> tuple[Model, training.Program]:
    """Compile once for all keys and images."""
    net = models.build("cnn", input_shape=shape, classes=_DIMENSIONS, form=nets.form_of("cnn", False))
    learned = objective(net, views(preprocessing, image=True, shift=_SHIFT))
    return net, training.program(learned, loop, _DIMENSIONS, implementation, several=False)


def learn(
    kind: Kind, public: PublicInputs, *, key: jax.Array, directions: int = 400, encoder: str = ""
) -> Space:
    """The space of this kind that public inputs teach; `key` is read where a net has to be trained.

    >>> from pate_jax.data import Preprocessing
    >>> pool = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32) * [9, 1, 3]
    >>> public = PublicInputs(pool, Preprocessing((0.0,), (1.0,)), 2, ("no", "yes"))
    >>> learn("identity", public, key=jax.random.key(0)).description().directions
    3
    """
    return over(_front_of(kind, public, key, encoder), public.inputs, directions)


def learned(
    kind: Kind,
    public: PublicInputs,
    *,
    key: jax.Array,
    directions: int = 400,
    encoder: str = "",
    number: int | None = None,
) -> Learned:
    """The same space, and where all public inputs lie in it; so many records will be looked at (`effort`)."""
    return over_pool(_front_of(kind, public, key, encoder, number), public.inputs, directions)


def front(student: Student) -> Net:
    """What the last layer of a student reads, each input by itself."""
    return Net("student", json.dumps(student.description), student.parameters, student.preprocessing)


def space(student: Student, public: np.ndarray, *, directions: int = 400) -> Space:
    """The space of what a student's last layer reads: the next round's, once the student is public.

    `public` are the inputs that its middle and its directions are learned from.
    """
    return over(front(student), check_inputs(student, public), directions)


def labels(student: Student, inputs: np.ndarray) -> Int[np.ndarray, " record"]:
    """The label that a student gives each input, bit for bit a function of that input alone.

    `Student.__call__` is faster: it looks at many inputs in one product, where the last bit of one may
    depend on its place.
    """
    return front(student).labels(check_inputs(student, inputs))


def _front_of(
    kind: Kind, public: PublicInputs, key: jax.Array, encoder: str, number: int | None = None
) -> Front:
    if kind == "contrast":
        return learn_contrast(public.inputs, public.preprocessing, key=key)
    return front_of(kind, public.inputs, public.preprocessing, encoder=encoder, number=number)
