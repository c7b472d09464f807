"""Features of images that are learned from public images alone, without a gradient (Coates, Ng, Lee 2011).

Every patch of an image is compared with a few hundred that are typical of the public pool, and how much it is
like each of them is summed over the cells of a coarse grid. Where labels are few, a linear classifier on
these numbers can be right more often than a net that has to find out by itself what images are made of. No
private image is looked at to learn them, and each image's features are its own.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from pate_jax import convolution, devices, progress
from pate_jax.errors import PateError

SIZE, KINDS, CELLS = 7, 300, 4
_SAMPLE, _IMAGES, _ROUNDS = 100_000, 3000, 12  # patches, of how many images, and rounds of k-means on them
_FLAT = 0.1  # added to a patch's variance, as a share of the mean: a featureless patch is like no other
_RIDGE = 0.1  # added to the variance of a direction, as a share of the mean
_TINY = 1e-6  # under a root
_BLOCK = 100  # images looked at together


class Patches(NamedTuple):
    """What is typical of the public pool: its patches, and how much of each an image holds in the mean."""

    flat: Float[Array, ""]
    offset: Float[Array, "pixels"]
    whitening: Float[Array, "pixels pixels"]
    typical: Float[Array, "kinds pixels"]
    middle: Float[Array, "features"]
    spread: Float[Array, ""]  # typical distance of an image's features from the middle


def learn(
    images: Float[np.ndarray, "image h w c"],
    *,
    seed: int = 0,
    kinds: int = KINDS,
    size: int = SIZE,
    cells: int = CELLS,
) -> Patches:
    """The patches that are typical of public images, which are scaled as a net sees them.

    >>> pool = np.random.default_rng(0).random((20, 8, 8, 1)).astype(np.float32)
    >>> known = learn(pool, kinds=5, size=3, cells=2)
    >>> features(known, pool).shape
    (20, 20)
    """
    if np.ndim(images) != 4 or not len(images):
        raise PateError(
            f"typical patches are those of images [n, height, width, channels], and the public inputs are "
            f"{list(np.shape(images))}: choose another net"
        )
    random = np.random.default_rng(seed)
    chosen = images[random.permutation(len(images))[:_IMAGES]]
    raw = _some_patches(chosen, size, random)
    variance = raw.var(1)
    flat = np.float32(_FLAT * variance.mean())
    sharp = np.asarray(_sharpened(raw[variance > flat], flat))
    if len(sharp) <= kinds:
        raise PateError(
            f"{len(sharp)} patches of {len(images)} public images are not flat, and patches of {kinds} kinds "
            "are wanted; give more images, or use another net"
        )
    offset = sharp.mean(0)
    values, directions = np.linalg.eigh(np.cov((sharp - offset).T.astype(np.float64)))
    whitening = (directions / np.sqrt(values + _RIDGE * values.mean())) @ directions.T
    white = ((sharp - offset) @ whitening).astype(np.float32)
    typical = _middles(white, white[random.permutation(len(white))[:kinds]])
    still = np.zeros(cells * cells * kinds, np.float32)
    known = Patches(*map(jnp.float32, (flat, offset, whitening, typical, still, 1.0)))
    found = features(known, chosen)
    middle = found.mean(0)
    spread = np.sqrt(((found - middle) ** 2).sum(1).mean())
    return known._replace(middle=jnp.asarray(middle), spread=jnp.float32(spread))


def features(known: Patches, images: Float[np.ndarray, "image h w c"]) -> Float[np.ndarray, "image features"]:
    """`look` at any number of images, each by itself, so that no image changes another's last bit."""
    found = np.zeros((len(images), len(known.middle)), np.float32)
    starts = range(0, len(images), _BLOCK)
    with devices.kept_memory():
        for start in progress.track(starts, "comparing patches", total=len(starts)):
            block = images[start : start + _BLOCK]
            padded = np.zeros((_BLOCK, *images.shape[1:]), np.float32)
            padded[: len(block)] = block
            found[start : start + _BLOCK] = _looked(known, padded)[: len(block)]
    return found


def look(known: Patches, images: Float[Array, "image h w c"]) -> Float[Array, "image features"]:
    """How much of each typical patch is in each cell of each image: roots of sums, about 1 long in all."""
    size = round((known.offset.shape[0] / images.shape[-1]) ** 0.5)
    cells = round((known.middle.shape[0] / known.typical.shape[0]) ** 0.5)
    seen = convolution.patches(images, size, 1)
    white = (_sharpened(seen, known.flat) - known.offset) @ known.whitening
    squares = (white**2).sum(-1, keepdims=True) - 2 * white @ known.typical.T + (known.typical**2).sum(-1)
    gaps = jnp.sqrt(jnp.maximum(squares, _TINY))
    alike = jax.nn.relu(gaps.mean(-1, keepdims=True) - gaps)
    rows, columns = (_edges(extent, cells) for extent in images.shape[1:3])
    sums = [alike[:, top:bottom, left:right].sum((1, 2)) for top, bottom in rows for left, right in columns]
    return (jnp.sqrt(jnp.concatenate(sums, -1)) - known.middle) / known.spread


@jax.jit
def _looked(known: Patches, images: Array) -> Array:
    return jax.lax.map(lambda image: look(known, image[None])[0], images)


def _edges(extent: int, cells: int) -> list[tuple[int, int]]:
    """Where each cell begins and ends.

    >>> _edges(10, 4)
    [(0, 2), (2, 5), (5, 7), (7, 10)]
    """
    ends = [extent * cell // cells for cell in range(cells + 1)]
    return list(itertools.pairwise(ends))


def _sharpened(seen, flat):
    centred = seen - seen.mean(-1, keepdims=True)
    return centred / (((centred**2).mean(-1, keepdims=True) + flat) ** 0.5)


def _some_patches(images: np.ndarray, size: int, random: np.random.Generator) -> np.ndarray:
    each, drawn = max(1, _SAMPLE // len(images)), []
    for start in range(0, len(images), _BLOCK):
        seen = np.asarray(convolution.patches(jnp.asarray(images[start : start + _BLOCK]), size, 1))
        seen = seen.reshape(len(seen), -1, seen.shape[-1])
        drawn.append(seen[:, random.permutation(seen.shape[1])[:each]].reshape(-1, seen.shape[-1]))
    return np.concatenate(drawn).astype(np.float32)


def _middles(points: np.ndarray, middles: np.ndarray) -> np.ndarray:
    """k-means from these middles; one that loses all its points stays where it is."""
    for _ in range(_ROUNDS):
        nearest = ((middles**2).sum(1) - 2 * points @ middles.T).argmin(1)
        order = np.argsort(nearest, kind="stable")
        kinds, first = np.unique(nearest[order], return_index=True)
        moved = np.add.reduceat(points[order], first) / np.diff([*first, len(order)])[:, None]
        middles = middles.copy()
        middles[kinds] = moved
    return middles
