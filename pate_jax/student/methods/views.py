"""How a method may look at stored inputs: as they are, slightly moved, or strongly distorted, then scaled."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
from jaxtyping import Array

from pate_jax.data import Preprocessing
from pate_jax.models import augment
from pate_jax.student.settings import StudentConfig

View = Callable[[Array, Array], Array]  # (key of each input, inputs as stored) -> inputs for the net


class Views(NamedTuple):
    """The three ways; for tables all are the same."""

    plain: Callable[[Array], Array]
    weak: View
    strong: View


def views(config: StudentConfig, preprocessing: Preprocessing, *, image: bool) -> Views:
    """The views of this student's inputs."""
    plain = preprocessing.apply
    if not image:
        return Views(plain, lambda _, inputs: plain(inputs), lambda _, inputs: plain(inputs))

    def moved(key, picture):
        shift_key, flip_key = jax.random.split(key)
        picture = augment.shift(shift_key, picture, pixels=config.shift) if config.shift else picture
        return augment.flip(flip_key, picture) if config.flip else picture

    def bent(key, picture):
        weak_key, strong_key = jax.random.split(key)
        return augment.distort(strong_key, moved(weak_key, picture), strength=config.strength)

    return Views(plain, partial(_each, moved, plain), partial(_each, bent, plain))


def apart(keys: Array, place: int) -> Array:
    """A stream of its own for each view of the same images."""
    return jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, place)


def _each(function, plain, keys, inputs):
    return plain(jax.vmap(function)(keys, inputs))
