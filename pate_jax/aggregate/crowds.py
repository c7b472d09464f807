"""Noise on the whole table of a crowd: what `mechanisms.crowds` describes, drawn."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Int, Int32
from numpy.typing import ArrayLike

from pate_jax.aggregate import noise
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import CrowdRelease


class NoisyTable(NamedTuple):
    """What is released, and what is known of it: all that follows from the two is free of cost."""

    values: Int[np.ndarray, "rows columns"]
    release: CrowdRelease


def noisy_table(release: CrowdRelease, table: ArrayLike, *, key: jax.Array) -> NoisyTable:
    """The table with independent whole noise in every cell; a key serves one table only.

    >>> from pate_jax.mechanisms.crowds import NeighbourCounts
    >>> release = NeighbourCounts(queries=2, classes=3, votes=1, sigma=1.5)
    >>> made = noisy_table(release, np.array([[9, 0, 0], [0, 5, 2]]), key=noise.seeded_key(7))
    >>> made.values.shape, made.values.dtype
    ((2, 3), dtype('int64'))
    """
    noise.check_key(key)
    counts = np.asarray(table)
    if counts.shape != release.shape or counts.dtype.kind not in "iu":
        raise PateError(
            f"a table {list(counts.shape)} of {counts.dtype} is given for a release of whole numbers "
            f"{list(release.shape)}: give the sums that were made for it"
        )
    drawn = noise_on(release, key=key)
    return NoisyTable(counts.astype(np.int64) + np.asarray(drawn, np.int64), release)


def noise_on(release: CrowdRelease, *, key: jax.Array) -> Int32[jax.Array, "rows columns"]:
    """The noise alone, for a program of your own: add it once to the table of all voters, in whole numbers.

    It runs under jit, and on every device of a mesh that is given the same key it is the same noise.

    >>> from pate_jax.mechanisms.crowds import ClassSums
    >>> release = ClassSums(classes=3, directions=2, length=10, sigma=90.0)
    >>> noise_on(release, key=noise.seeded_key(7)).shape
    (3, 2)
    """
    noise.check_key(key)
    drawn: jax.Array = _draw(noise.source(release.noise), key, release.shape)
    return drawn


@partial(jax.jit, static_argnames="shape")
def _draw(source: noise.Source, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """One program for all tables of a shape: outside jit every draw would trace and compile its search."""
    return noise.draw(source, key, shape)
