"""How a method may look at stored inputs: as they are, slightly moved, or strongly distorted, then scaled."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
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


def beside(*batches: Array) -> Array:
    """Several batches as one: an equal share of each, then the next share of each, and so on.

    One call of the net serves all. A batch is spread over devices along its rows, and this order leaves each
    row on the device that has it. `divided` takes the batches apart again.

    >>> import jax.numpy as jnp
    >>> beside(jnp.array([1, 2]), jnp.array([3, 4, 5, 6])).tolist()
    [1, 3, 4, 2, 5, 6]
    """
    shares = math.gcd(*map(len, batches))
    groups = [each.reshape(shares, -1, *each.shape[1:]) for each in batches]
    return jnp.concatenate(groups, axis=1).reshape(-1, *batches[0].shape[1:])


def divided(rows: Array, *counts: int) -> list[Array]:
    """The batches of so many rows each that `beside` made one of.

    >>> import jax.numpy as jnp
    >>> [each.tolist() for each in divided(jnp.array([1, 3, 4, 2, 5, 6]), 2, 4)]
    [[1, 2], [3, 4, 5, 6]]
    """
    shares = math.gcd(*counts)
    ends = np.cumsum([count // shares for count in counts])[:-1].tolist()
    groups = jnp.split(rows.reshape(shares, -1, *rows.shape[1:]), ends, axis=1)
    return [each.reshape(-1, *rows.shape[1:]) for each in groups]


def _each(function, plain, keys, inputs):
    return plain(jax.vmap(function)(keys, inputs))
