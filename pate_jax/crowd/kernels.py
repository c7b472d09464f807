"""A crowd's tables as pure functions of arrays, for programs of your own.

`crowd.counts` and `crowd.sums` look at records on disk, block by block, in a space that public inputs have
taught. The functions here take vectors that lie on a device, one row for each voter, and run under jit, vmap,
shard_map and scan. They bound every row themselves, so one voter moves a table as far as its release says,
whatever its row holds. The tables are private until `aggregate.noise.noise_on` is added, once.

Sums of whole numbers do not depend on their order: the tables of parts of the voters add up to the table of
all, on any number of devices, bit for bit.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int32, Integer, Num
from numpy.typing import ArrayLike

from pate_jax.crowd.neighbours import LENGTH, ranked
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums, NeighbourCounts
from pate_jax.models import integers

_LARGEST = (1 << 31) - (1 << 22)  # of a table's numbers, so that the widest noise still fits into 32 bits


def neighbour_counts(
    release: NeighbourCounts,
    vectors: ArrayLike,
    labels: ArrayLike,
    queries: ArrayLike,
    *,
    axis_name: Any = None,
) -> Int32[Array, "query class"]:
    """Votes for each class at each query: every voter votes for its label at its nearest queries.

    `vectors` [voter, direction] and `queries` [query, direction] are rounded to whole numbers, and rows that
    are longer than 4000 are shortened. Of equally near queries the first one counts. A voter whose label is
    outside the classes has no vote. With voters spread over devices, `axis_name` sums over all devices.

    >>> release = NeighbourCounts(queries=2, classes=3, votes=1, sigma=1.5)
    >>> neighbour_counts(release, [[1, 0], [0, 9], [2, 1]], [0, 2, 0], [[0, 0], [0, 8]]).tolist()
    [[2, 0, 0], [0, 0, 1]]
    """
    rows, classes = _checked(vectors, labels)
    asked = _numbers("queries", queries)
    if asked.shape != (release.queries, rows.shape[1]):
        raise PateError(
            f"queries {list(asked.shape)} do not fit a release of {release.queries} queries and vectors of "
            f"{rows.shape[1]} directions"
        )
    _check_room(len(rows), 1, axis_name)
    counts: Array = _counts(rows, classes, asked, release.classes, release.votes, axis_name)
    return counts


def class_sums(
    release: ClassSums, vectors: ArrayLike, labels: ArrayLike, *, axis_name: Any = None
) -> Int32[Array, "row direction"]:
    """The sums of voters' vectors by class; of two classes, vectors of class 1 less those of class 0.

    `vectors` [voter, direction] are rounded to whole numbers, and a row longer than the release's `length`,
    46340 at most, is shortened to it. A voter whose label is outside the classes adds nothing. With voters
    spread over devices, `axis_name` sums over all devices.

    >>> release = ClassSums(classes=3, directions=2, length=10, sigma=9.0)
    >>> class_sums(release, [[1, 2], [30, 40], [3, -1]], [0, 2, 0]).tolist()
    [[4, 1], [0, 0], [6, 8]]
    """
    rows, classes = _checked(vectors, labels)
    if rows.shape[1] != release.directions:
        raise PateError(f"vectors {list(rows.shape)} do not fit a release of {release.directions} directions")
    _check_room(len(rows), release.length, axis_name)
    sums: Array = _sums(rows, classes, release.classes, release.length, axis_name)
    return sums


@partial(jax.jit, static_argnames=("classes", "votes", "axis_name"))
def _counts(rows: Array, labels: Array, asked: Array, classes: int, votes: int, axis_name: Any) -> Array:
    there = _bounded(asked, LENGTH)
    places, _ = ranked(_bounded(rows, LENGTH), there.T, (there * there).sum(1), votes)
    cells = places * classes + jnp.clip(labels, 0, classes - 1)[:, None]
    given = jnp.broadcast_to(_inside(labels, classes)[:, None], cells.shape)
    counted = jax.ops.segment_sum(given.ravel(), cells.ravel(), len(asked) * classes)
    return _over(counted.reshape(-1, classes), axis_name)


@partial(jax.jit, static_argnames=("classes", "length", "axis_name"))
def _sums(rows: Array, labels: Array, classes: int, length: int, axis_name: Any) -> Array:
    inside = _inside(labels, classes)
    found = _bounded(rows, length) * inside[:, None]
    if classes == 2:
        return _over((found * (2 * labels - 1)[:, None]).sum(0, jnp.int32, keepdims=True), axis_name)
    return _over(jax.ops.segment_sum(found, jnp.clip(labels, 0, classes - 1), classes), axis_name)


def _bounded(rows: Num[Array, "row column"], length: int) -> Int32[Array, "row column"]:
    """Whole rows no longer than this; what is not a number becomes 0."""
    numbers = rows.astype(jnp.float32)
    return integers.shortened(integers.rounded(numbers), length)


def _inside(labels: Integer[Array, " voter"], classes: int) -> Int32[Array, " voter"]:
    """1 for the voters whose label is one of the classes, and 0 for the others."""
    return ((labels >= 0) & (labels < classes)).astype(jnp.int32)


def _over(table: Array, axis_name: Any) -> Array:
    total: Array = table if axis_name is None else jax.lax.psum(table, axis_name)
    return total


def _checked(vectors: ArrayLike, labels: ArrayLike) -> tuple[Any, Any]:
    """Vectors and labels that go together, by shape and type; their values are bounded in the kernels."""
    rows, classes = _numbers("vectors", vectors), jnp.asarray(labels)
    if classes.shape != rows.shape[:1] or not jnp.issubdtype(classes.dtype, jnp.integer):
        raise PateError(
            f"labels {list(classes.shape)} of {classes.dtype} do not fit vectors {list(rows.shape)}: give "
            "one whole number for each voter"
        )
    return rows, classes.astype(jnp.int32)


def _numbers(name: str, values: ArrayLike) -> Any:
    rows = jnp.asarray(values)
    if rows.ndim != 2 or not rows.shape[1] or not jnp.issubdtype(rows.dtype, jnp.number):
        raise PateError(f"{name} {list(rows.shape)} of {rows.dtype} must be numbers [row, direction]")
    return rows


def _check_room(voters: int, length: int, axis_name: Any) -> None:
    """Refuse so many voters that a sum of all might exceed 32 bits."""
    everywhere = voters if axis_name is None else voters * int(jax.lax.psum(1, axis_name))
    if everywhere * length > _LARGEST:
        raise PateError(
            f"voters={everywhere} with vectors of length {length} may exceed 32 bits: count parts of them, "
            "and add their tables as NumPy int64"
        )
