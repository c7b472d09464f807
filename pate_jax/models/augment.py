"""Augmentation of raw images inside jit: shifts, crops, flips and strong distortions, a stream per image.

It works on pixels as they are stored (before preprocessing), so that what moves in from outside is the
background's value 0, or the mirror image for crops of colour photographs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from pate_jax.models import names

Augmentation = Callable[[Array, Array], Array]


def shift(key: Array, image: Array, *, pixels: int = 2) -> Array:
    """Move one image by up to `pixels` in each direction; zeros come in from outside.

    >>> import jax, jax.numpy as jnp
    >>> shift(jax.random.key(0), jnp.ones((5, 4, 1))).shape
    (5, 4, 1)
    """
    return _window(key, jnp.pad(image, ((pixels, pixels), (pixels, pixels), (0, 0))), image.shape)


def crop(key: Array, image: Array, *, pixels: int = 4) -> Array:
    """A window at a random place of the image continued by `pixels` mirrored at each edge."""
    margin = min(pixels, min(image.shape[:2]) - 1)
    widths = ((margin, margin), (margin, margin), (0, 0))
    return _window(key, jnp.pad(image, widths, mode="reflect"), image.shape)


def flip(key: Array, image: Array) -> Array:
    """Left and right exchanged, in half of the cases."""
    return jnp.where(jax.random.bernoulli(key), image[:, ::-1], image)


def _window(key: Array, padded: Array, shape: tuple[int, ...]) -> Array:
    room = jnp.array([padded.shape[0] - shape[0] + 1, padded.shape[1] - shape[1] + 1])
    top, left = jax.random.randint(key, (2,), 0, room)
    return lax.dynamic_slice(padded, (top, left, jnp.zeros_like(top)), shape)


class Distortion(NamedTuple):
    """What may be done to an image in `distort`, each by up to this much at strength 1."""

    turn: float = 30.0  # degrees
    shear: float = 0.3  # along each axis
    stretch: float = 0.3  # of the logarithm of each side
    move: float = 0.12  # of each side
    contrast: float = 0.5
    brightness: float = 0.25  # of the whole range
    chosen: int = 4  # of the nine, at random
    hole: float = 0.4  # of a side: the largest square that is cut out


def distort(key: Array, image: Array, *, strength: float = 1.0, kind: Distortion | None = None) -> Array:
    """Turn, shear, stretch, move, change contrast and brightness, and cut a square out; pixels 0 to 255.

    As in RandAugment (Cubuk et al. 2020), a few operations are drawn for each image, each with a magnitude
    of its own; those that move pixels are one affine map here, so that pixels are read only once. What comes
    in from outside is 0 in grey images and the nearest edge in others. The result is float32.

    >>> import jax, jax.numpy as jnp
    >>> distort(jax.random.key(0), jnp.ones((8, 6, 1), jnp.uint8)).shape
    (8, 6, 1)
    """
    kind = kind or Distortion()
    numbers = jax.random.uniform(key, (21,))  # in one call, since each one takes long to compile
    order, size, hole = numbers[:9], numbers[9:18], numbers[18:]
    chosen = (order[:, None] > order).sum(1) < kind.chosen
    drawn = (2 * size - 1) * strength * chosen
    angle = drawn[0] * math.pi / 180 * kind.turn
    rotation = jnp.array([[jnp.cos(angle), jnp.sin(angle)], [-jnp.sin(angle), jnp.cos(angle)]])
    shear = jnp.eye(2) + kind.shear * jnp.array([[0.0, drawn[1]], [drawn[2], 0.0]])
    scales = jnp.exp(kind.stretch * drawn[3:5])
    extent = jnp.array(image.shape[:2], jnp.float32)
    moved = affine(image, (rotation @ shear) * scales, kind.move * drawn[5:7] * extent)
    level = moved.mean()
    coloured = level + (moved - level) * jnp.exp(kind.contrast * drawn[7]) + 255 * kind.brightness * drawn[8]
    return _cut_out(hole, jnp.clip(coloured, 0, 255), kind.hole * min(strength, 1.0))


def affine(image: Array, matrix: Array, offset: Array) -> Array:
    """The image whose pixel p is read, between pixels, at `matrix @ (p - c) + c + offset`, c its centre.

    >>> import jax.numpy as jnp
    >>> affine(jnp.arange(6.0).reshape(2, 3, 1), jnp.eye(2), jnp.array([0.0, 1.0]))[..., 0].tolist()
    [[1.0, 2.0, 0.0], [4.0, 5.0, 0.0]]
    """
    height, width, channels = image.shape
    centre = jnp.array([(height - 1) / 2, (width - 1) / 2])
    places = jnp.stack(jnp.meshgrid(jnp.arange(height), jnp.arange(width), indexing="ij"), -1) - centre
    read = places @ matrix.T + centre + offset
    low = jnp.floor(read)
    part, low = read - low, low.astype(jnp.int32)
    flat = image.reshape(-1, channels).astype(jnp.float32)
    total = jnp.zeros(image.shape)
    for down in (0, 1):
        for right in (0, 1):
            row, column = low[..., 0] + down, low[..., 1] + right
            share = jnp.abs(1 - down - part[..., 0]) * jnp.abs(1 - right - part[..., 1])
            if channels == 1:
                share = share * ((row >= 0) & (row < height) & (column >= 0) & (column < width))
            row, column = jnp.clip(row, 0, height - 1), jnp.clip(column, 0, width - 1)
            total = total + share[..., None] * flat[row * width + column]
    return total


def _cut_out(numbers: Array, image: Array, largest: float) -> Array:
    """A square of up to `largest` of a side, anywhere, filled with the image's mean."""
    extent = jnp.array(image.shape[:2], jnp.float32)
    half = numbers[0] * largest * extent / 2
    centre = numbers[1:] * extent
    rows = jnp.abs(jnp.arange(image.shape[0]) + 0.5 - centre[0]) < half[0]
    columns = jnp.abs(jnp.arange(image.shape[1]) + 0.5 - centre[1]) < half[1]
    hole = rows[:, None, None] & columns[None, :, None]
    return jnp.where(hole, image.mean(), image)


AUGMENTATIONS: dict[names.Augmentation, tuple[Augmentation, ...]] = {
    "none": (),
    "shift": (shift,),
    "flip": (flip,),
    "crop": (crop,),
    "shift_flip": (shift, flip),
    "crop_flip": (crop, flip),
}


def augmentation(name: names.Augmentation) -> Augmentation:
    """The augmentation of this name, as `(key, image) -> image` for one image.

    >>> augmentation("none")(None, 3)
    3
    """

    def run(key, image):
        for place, step in enumerate(AUGMENTATIONS[name]):
            image = step(jax.random.fold_in(key, place), image)
        return image

    return run
