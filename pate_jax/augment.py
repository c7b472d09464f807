"""Augmentation of raw images inside jit: shifts, crops and flips, one random stream per image and step.

It works on pixels as they are stored (before preprocessing), so that what moves in from outside is the
background's value 0, or the mirror image for crops of colour photographs.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from pate_jax.errors import PateError

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


AUGMENTATIONS: dict[str, tuple[Augmentation, ...]] = {
    "none": (),
    "shift": (shift,),
    "flip": (flip,),
    "crop": (crop,),
    "shift_flip": (shift, flip),
    "crop_flip": (crop, flip),
}


def augmentation(name: str) -> Augmentation:
    """The augmentation of this name, as `(key, image) -> image` for one image.

    >>> augmentation("none")(None, 3)
    3
    """
    if name not in AUGMENTATIONS:
        raise PateError(f"augment={name!r} is unknown; choose one of {', '.join(AUGMENTATIONS)}")

    def run(key, image):
        for place, step in enumerate(AUGMENTATIONS[name]):
            image = step(jax.random.fold_in(key, place), image)
        return image

    return run
