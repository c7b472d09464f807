"""The jitted kernel that counts votes: from labels[teacher, query] to histograms[query, class]."""

from __future__ import annotations

from functools import partial
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int32, Integer

_NARROW = (1 << 15) - 1  # the most teachers that a 16-bit counter can count
_FEW = 64  # the most classes for which a CPU compares faster than it scatters
_INDEXED = 1 << 31  # the most counters that an int32 can index


@partial(jax.jit, static_argnames=("classes", "axis_name", "chunk"))
def count(
    labels: Integer[Array, "teachers queries"], classes: int, axis_name: Any = None, chunk: int = 10
) -> Int32[Array, "queries classes"]:
    """How many teachers chose each class, for each query; labels outside the classes do not count.

    With few classes, each label is compared with every class, `chunk` teachers at a time. With many classes,
    a CPU adds one label at a time, which takes as long for a thousand classes as for two. Labels are read
    once, and the counters are as narrow as the number of teachers allows.
    """
    chex.assert_rank(labels, 2)
    by_comparing = partial(compared, classes=classes, chunk=chunk)
    if classes <= _FEW or labels.shape[1] * classes >= _INDEXED:
        histogram = by_comparing(labels)
    else:
        by_adding = partial(scattered, classes=classes)
        histogram = jax.lax.platform_dependent(labels, cpu=by_adding, default=by_comparing)
    chex.assert_shape(histogram, (labels.shape[1], classes))
    total: Array = histogram if axis_name is None else jax.lax.psum(histogram, axis_name)
    return total


def compared(labels: Array, classes: int, chunk: int) -> Array:
    """The histogram by comparing each label with every class, with whole registers of queries at once."""
    teachers = labels.shape[0]
    kind = labels.dtype if classes - 1 <= np.iinfo(labels.dtype).max else jnp.int32
    names = jnp.arange(classes, dtype=jnp.int32)[:, None].astype(kind)
    chunk = min(chunk, teachers)

    def matches(first: Any, rows: int) -> Any:
        """Votes of `rows` teachers; each row is sliced separately, because a larger slice would be copied."""
        return sum(
            (_row(labels, first + place).astype(kind) == names).astype(_counter(labels))
            for place in range(rows)
        )

    rest = teachers % chunk or chunk
    add = lambda index, total: total + matches(rest + index * chunk, chunk)  # noqa: E731
    total: Array = jax.lax.fori_loop(0, (teachers - rest) // chunk, add, matches(0, rest))
    return total.T.astype(jnp.int32)


def scattered(labels: Array, classes: int) -> Array:
    """The histogram by adding each label to its counter; labels outside the classes go to an unused one."""
    teachers, queries = labels.shape
    firsts = jnp.arange(queries, dtype=jnp.int32) * classes
    one = jnp.ones((), _counter(labels))

    def add(teacher: Array, total: Array) -> Array:
        row = _row(labels, teacher).astype(jnp.int32)
        at = jnp.where((row >= 0) & (row < classes), firsts + row, queries * classes)
        return total.at[at].add(one, mode="promise_in_bounds")

    nothing = jnp.zeros(queries * classes + 1, one.dtype) + (labels[0, :1] * 0).astype(one.dtype)
    total: Array = jax.lax.fori_loop(0, teachers, add, nothing)
    return total[:-1].reshape(queries, classes).astype(jnp.int32)


def _row(labels: Array, teacher: Any) -> Array:
    row: Array = jax.lax.dynamic_index_in_dim(labels, teacher, keepdims=False)
    return row


def _counter(labels: Array) -> Any:
    return jnp.int16 if labels.shape[0] <= _NARROW else jnp.int32
