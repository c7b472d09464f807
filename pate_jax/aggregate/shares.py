"""One party's share of the noise that several parties make together."""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
from jaxtyping import Int

from pate_jax.aggregate import noise
from pate_jax.errors import PateError
from pate_jax.mechanisms import Noise


def share(of: Noise, shape: tuple[int, ...], *, key: jax.Array) -> Int[np.ndarray, "*shape"]:
    """Independent whole noise for every number of a table; a key serves one table only.

    >>> share(Noise("discrete_gaussian", 28.3), (2, 3), key=noise.seeded_key(7)).shape
    (2, 3)
    """
    noise.check_key(key)
    if not of.is_discrete:
        raise PateError(f"noise of {of.family!r} is not whole: shares are added up as whole numbers")
    return np.asarray(_drawn(noise.source(of), key, shape), np.int64)


@partial(jax.jit, static_argnames="shape")
def _drawn(source: noise.Source, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return noise.draw(source, key, shape)
