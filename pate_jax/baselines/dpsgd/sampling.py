"""Who takes part in a step: each record by a coin of its own (Poisson sampling), however many they are.

A batch is never cut short: it is handed on in microbatches of one shape, and the last is filled with rows
that count for nothing. So what is charged is what is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Int

from pate_jax.baselines.dpsgd.calibration import CHANCES
from pate_jax.errors import PateError


class Microbatch(NamedTuple):
    """Rows of records, and which of them only fill the shape."""

    rows: Int[np.ndarray, " slot"]
    is_padding: Bool[np.ndarray, " slot"]


def draw(key: jax.Array, records: int, rate: float) -> Int[np.ndarray, " row"]:
    """The rows of the records that take part: each with chance `rate`, a multiple of 2^-32, by its own bits.

    >>> draw(jax.random.key(0), 5, 1.0).tolist()
    [0, 1, 2, 3, 4]
    """
    chances = rate * CHANCES
    if chances != int(chances) or not 0 < chances <= CHANCES:
        raise PateError(f"rate={rate} must be a multiple of 2^-32 above 0, and at most 1")
    words = np.asarray(_words(key, records)).astype(np.uint64)
    return np.flatnonzero(words < np.uint64(chances))


def microbatches(rows: Int[np.ndarray, " row"], size: int) -> Iterator[Microbatch]:
    """All rows in order, `size` at a time; the last microbatch is filled up.

    >>> [(part.rows.tolist(), part.is_padding.tolist()) for part in microbatches(np.array([7, 8, 9]), 2)]
    [([7, 8], [False, False]), ([9, 0], [False, True])]
    """
    for start in range(0, len(rows), size):
        taken = rows[start : start + size]
        padded = np.zeros(size, np.int32)
        padded[: len(taken)] = taken
        yield Microbatch(padded, np.arange(size) >= len(taken))


@partial(jax.jit, static_argnums=1)
def _words(key: jax.Array, records: int) -> jax.Array:
    words: jax.Array = jax.random.bits(key, (records,), np.uint32)
    return words
