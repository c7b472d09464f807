"""The jitted kernel that counts votes: labels[teacher, query] to histograms[query, class]."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp


@partial(jax.jit, static_argnames=("classes", "axis_name", "chunk"))
def count(labels: Any, classes: int, axis_name: Any = None, chunk: int = 64) -> jax.Array:
    """How many teachers chose each class; a label outside the classes counts for none."""
    teachers, queries = labels.shape
    padding = -teachers % chunk
    parts = jnp.pad(labels, ((0, padding), (0, 0)), constant_values=-1).reshape(-1, chunk, queries)
    names = jnp.arange(classes, dtype=labels.dtype)

    def add(total: Any, part: Any) -> tuple:
        return total + (part[:, None, :] == names[:, None]).sum(0, dtype=jnp.int32), None

    total, _ = jax.lax.scan(add, jnp.zeros((classes, queries), jnp.int32), parts)
    histogram = total.T
    return histogram if axis_name is None else jax.lax.psum(histogram, axis_name)
