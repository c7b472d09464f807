"""How a method may look at stored inputs: as they are, slightly moved, or strongly distorted, then scaled."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
from jaxtyping import Array

from pate_jax.data import Preprocessing
from pate_jax.models import augment

View = Callable[[Array, Array], Array]  # (key of each input, inputs as stored) -> inputs for the net


class Views(NamedTuple):
    """The three ways; for tables all are the same."""

    plain: Callable[[Array], Array]
    weak: View
    strong: View


def views(
    preprocessing: Preprocessing, *, image: bool, shift: int, flip: bool = False, strength: float = 1.0
) -> Views:
    """Images move by up to `shift` pixels, `flip` exchanges left and right, `strength` is of distortions."""
    plain = preprocessing.apply
    if not image:
        return Views(plain, lambda _, inputs: plain(inputs), lambda _, inputs: plain(inputs))

    def moved(key, picture):
        shift_key, flip_key = jax.random.split(key)
        picture = augment.shift(shift_key, picture, pixels=shift) if shift else picture
        return augment.flip(flip_key, picture) if flip else picture

    def bent(key, picture):
        weak_key, strong_key = jax.random.split(key)
        return augment.distort(strong_key, moved(weak_key, picture), strength=strength)

    return Views(plain, partial(_each, moved, plain), partial(_each, bent, plain))


def apart(keys: Array, place: int) -> Array:
    """A stream of its own for each view of the same images."""
    return jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, place)


def _each(function, plain, keys, inputs):
    return plain(jax.vmap(function)(keys, inputs))
