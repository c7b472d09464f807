"""Who votes: every record by itself, or every user by all of its records together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Int

from pate_jax.data.dataset import Part
from pate_jax.data.partition import units_of
from pate_jax.errors import PateError
from pate_jax.models.spaces.space import BLOCK, Space
from pate_jax.system import devices


class Voters(NamedTuple):
    """Private records, and whose each is where users vote."""

    inputs: np.ndarray  # as stored; may be a memory map, of which only a block is read at a time
    labels: Int[np.ndarray, " record"]
    users: Int[np.ndarray, " record"] | None  # numbered; None where every record votes


def voters(part: Part, classes: int, *, by: str = "record") -> Voters:
    """The voters of a private part, whose labels are checked.

    >>> names, people = np.array(["a", "b", "c"]), np.array(["x", "y", "x"])
    >>> part = Part(np.zeros((3, 2)), np.array([0, 1, 1]), names, people)
    >>> voters(part, 2, by="user").users.tolist(), voters(part, 2).users
    ([0, 1, 0], None)
    """
    if part.labels is None:
        raise PateError("private has no labels; voters vote by their labels")
    labels = np.asarray(part.labels)
    if labels.dtype.kind not in "iu" or labels.shape != (len(part.inputs),):
        raise PateError(f"labels {list(labels.shape)} of {labels.dtype} must be one whole number a record")
    outside = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(outside):
        raise PateError(
            f"label {labels[outside[0]]} at row {outside[0]} is outside 0..{classes - 1}: correct it"
        )
    named = units_of(part, by)
    users = np.unique(named, return_inverse=True)[1].astype(np.int64) if by == "user" else None
    return Voters(part.inputs, labels.astype(np.int32), users)


def each_block(
    space: Space,
    inputs: np.ndarray,
    rows: Int[np.ndarray, " record"] | None,
    work: Callable[[jax.Array, Int[np.ndarray, " row"]], Any],
    *,
    count: int | None = None,
) -> Iterator[Any]:
    """`work(coordinates, rows)` of each block of records, in order, the blocks dealt to `count` devices.

    Every block has the same shape and program, wherever it is worked on; coordinates beyond the rows are of
    no record. `rows` names the records and their order; unset: all, as they lie.
    """
    places, total = devices.local(count), len(inputs) if rows is None else len(rows)

    def one(start: int) -> Any:
        end = min(start + BLOCK, total)
        there = np.arange(start, end) if rows is None else rows[start:end]
        block = inputs[start:end] if rows is None else inputs[there]
        with jax.default_device(places[start // BLOCK % len(places)]):
            return jax.tree.map(np.asarray, work(space.block(np.asarray(block)), there))

    with ThreadPoolExecutor(len(places)) as pool:
        yield from pool.map(one, range(0, total, BLOCK))


def padded(values: np.ndarray, filling: int) -> np.ndarray:
    """The values of a block's records, and `filling` for the rows beyond them.

    >>> padded(np.array([4, 5]), -1)[:3].tolist()
    [4, 5, -1]
    """
    full = np.full(BLOCK, filling, np.int32)
    full[: len(values)] = values
    return full
