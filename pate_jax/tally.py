"""The jitted kernel that counts votes: labels[teacher, query] to histograms[query, class]."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Int32

_NARROW = (1 << 15) - 1  # teachers that a 16-bit counter can hold


@partial(jax.jit, static_argnames=("classes", "axis_name", "chunk"))
def count(
    labels: Int[Array, "teachers queries"], classes: int, axis_name: Any = None, chunk: int = 50
) -> Int32[Array, "queries classes"]:
    """How many teachers chose each class, for each query; a label outside the classes counts for none.

    Each step compares `chunk` teachers with every class at once and adds the sum to the counters, which are
    as narrow as the number of teachers allows: labels are read once and the counters stay in the cache.
    """
    teachers = labels.shape[0]
    counter = jnp.int16 if teachers <= _NARROW else jnp.int32
    kind = labels.dtype if classes - 1 <= jnp.iinfo(labels.dtype).max else jnp.int32
    names = jnp.arange(classes, dtype=jnp.int32)[:, None].astype(kind)
    chunk = min(chunk, teachers)
    first = teachers % chunk or chunk

    def add(index: Any, total: Any) -> Any:
        rows = jax.lax.dynamic_slice_in_dim(labels, first + index * chunk, chunk)
        return total + _sum_of_matches(rows.astype(kind), names, counter)

    start = _sum_of_matches(labels[:first].astype(kind), names, counter)
    total = jax.lax.fori_loop(0, (teachers - first) // chunk, add, start)
    histogram = total.T.astype(jnp.int32)
    return histogram if axis_name is None else jax.lax.psum(histogram, axis_name)


def _sum_of_matches(rows: Any, names: Any, counter: Any) -> Any:
    total = (rows[0] == names).astype(counter)
    for row in rows[1:]:
        total = total + (row == names).astype(counter)
    return total
