"""Every voter casts one vector: sums of vectors by class, in whole numbers.

A record adds its vector to the row of its class, or, of two classes, the vector or its negative to the only
row. A user adds the sum of its records' tables if that is no longer than one vector may be, and otherwise
that sum at this length, cut to whole numbers towards zero. All of it is counted in whole numbers, so no
rounding makes a table longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from pate_jax.crowd.vectors import Scaling, bounded
from pate_jax.crowd.voters import Rows, Voters, check_labels, each_block, own_rows, padded
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums
from pate_jax.models.spaces.space import BLOCK, Axes, Space, along
from pate_jax.system import devices as system

_LARGE = 1 << 30  # length of sums whose squares are well below 2^63


class Constants(NamedTuple):
    """What is public in the kernel."""

    axes: Axes
    weights: Float[Array | np.ndarray, " directions"]


class _Pieces(NamedTuple):
    """Sums of the vectors of one user's records in one row of the table, by user and then by row."""

    users: Int[np.ndarray, " piece"]
    rows: Int[np.ndarray, " piece"]
    sums: Int[np.ndarray, "piece entries"]

    def take(self, which: np.ndarray | slice) -> _Pieces:
        return _Pieces(*(each[which] for each in self))


def sums(
    space: Space, scaling: Scaling, people: Voters, release: ClassSums, *, devices: int | None = None
) -> Int[np.ndarray, "class direction"]:
    """The exact sums. They are private: `aggregate.noise` adds the noise.

    Where several processes run together, each is given the same voters, reads its own part of them, and
    returns the sums of all.
    """
    entries = len(scaling.weights) + (scaling.constant > 0)
    with system.failing_together():
        if (release.directions, release.length) != (entries, scaling.length):
            raise PateError(
                f"vectors of {entries} entries and length {scaling.length} are given for a release of "
                f"{release.directions} and {release.length}"
            )
        check_labels(people.labels, release.classes)
    rows = own_rows(people)
    with system.failing_together():
        table = _own_sums(space, scaling, people, rows, release, devices)
    return np.asarray(system.sum_over_processes(table))


def squares(space: Space, scaling: Scaling, people: Voters, release: ClassSums) -> Int[np.ndarray, " voter"]:
    """The square of the length of each voter's own table, by record or by the number of the user.

    It says how far the sums move without that voter, and is private.
    """
    if people.users is None:

        def work(public: Constants, seen: np.ndarray, there: np.ndarray) -> np.ndarray:
            found = _squared(public, seen, length=scaling.length, constant=scaling.constant)
            return np.asarray(found)[: len(there)]

        rows, constants = range(len(people.labels)), Constants(space.axes, scaling.weights)
        blocks = each_block(space, people.inputs, rows, work, constants)
        return np.concatenate([np.zeros(0, np.int64), *blocks])
    table = np.zeros(people.users.max(initial=-1) + 1, np.int64)
    for some in _of_whole_users(_pieces(space, scaling, people, own_rows(people), release, None)):
        cut = _cut(some, release.length)
        np.add.at(table, cut.users, (cut.sums**2).sum(1))
    return table


@partial(jax.jit, static_argnames=("length", "constant"))
def _squared(public: Constants, seen: Array, *, length: int, constant: int) -> Int[Array, " row"]:
    """The squares of vectors' lengths, which are at most 8,000: below 2^31."""
    vectors = bounded(along(public.axes, seen), public.weights, length, constant)
    return (vectors * vectors).sum(1)


def _own_sums(
    space: Space, scaling: Scaling, people: Voters, rows: Rows, release: ClassSums, count: int | None
) -> Int[np.ndarray, "class direction"]:
    """The sums of the voters in these rows."""
    pieces = _pieces(space, scaling, people, rows, release, count)
    table = np.zeros(release.shape, np.int64)
    for some in pieces if people.users is None else _of_whole_users(pieces):
        cut = some if people.users is None else _cut(some, release.length)
        for row in np.unique(cut.rows):
            table[row] += cut.sums[cut.rows == row].sum(0)
    return table


def _pieces(
    space: Space, scaling: Scaling, people: Voters, order: Rows, release: ClassSums, count: int | None
) -> Iterator[_Pieces]:
    """Those of each block of records, as if all records were one user's where no users are told apart."""
    height = release.shape[0]
    most = height if people.users is None else BLOCK

    def work(public: Constants, seen: np.ndarray, there: np.ndarray) -> _Pieces:
        labels = people.labels[there].astype(np.int64)
        rows, signs = (labels, np.ones_like(labels)) if height > 1 else (0 * labels, 2 * labels - 1)
        users = 0 if people.users is None else people.users[there]
        names, piece = np.unique(users * height + rows, return_inverse=True)
        found = _summed(
            public,
            seen,
            padded(piece, most),
            padded(signs, 0),
            length=scaling.length,
            constant=scaling.constant,
            most=most,
        )
        return _Pieces(names // height, names % height, np.asarray(found)[: len(names)].astype(np.int64))

    constants = Constants(space.axes, scaling.weights)
    return each_block(space, people.inputs, order, work, constants, count=count)


@partial(jax.jit, static_argnames=("length", "constant", "most"))
def _summed(
    public: Constants, seen: Array, piece: Array, signs: Array, *, length: int, constant: int, most: int
) -> Int[Array, "piece entries"]:
    """The sums of one block, of 2,000 vectors of length 8,000 at most: far below 2^31."""
    vectors = bounded(along(public.axes, seen), public.weights, length, constant)
    return jax.ops.segment_sum(vectors * signs[:, None], piece, most + 1)[:most]


def _of_whole_users(blocks: Iterator[_Pieces]) -> Iterator[_Pieces]:
    """The pieces of users, whose records come one after another, once all records of a user were read."""
    held: _Pieces | None = None
    for block in blocks:
        if held is not None:
            same = block.users == held.users[0]
            held, block = _joined(held, block.take(same)), block.take(~same)
        if len(block.users):
            last = block.users == block.users[-1]
            if held is not None:
                yield held
            yield block.take(~last)
            held = block.take(last)
    if held is not None:
        yield held


def _joined(some: _Pieces, others: _Pieces) -> _Pieces:
    """The pieces of one user from two blocks."""
    rows, place = np.unique(np.concatenate([some.rows, others.rows]), return_inverse=True)
    sums = np.zeros((len(rows), some.sums.shape[1]), np.int64)
    np.add.at(sums, place, np.concatenate([some.sums, others.sums]))
    return _Pieces(np.full(len(rows), some.users[0]), rows, sums)


def _cut(pieces: _Pieces, length: int) -> _Pieces:
    """The pieces of users, each user's table no longer than one vector."""
    return pieces._replace(sums=shortened(pieces.sums, pieces.users, length))


def shortened(
    sums: Int[np.ndarray, "piece entries"],
    users: Int[np.ndarray, " piece"],
    length: int,
    times: Int[np.ndarray, " piece"] | int = 1,
) -> Int[np.ndarray, "piece entries"]:
    """The sums of users, of which each has some pieces: over `times`, and no longer than `length`.

    A sum of length r is multiplied by `length / r`, with r rounded up and each entry towards zero, so it is
    no longer than that. Before this, sums longer than 2^30 are divided, so that squares are below 2^63.

    >>> given, of = np.array([[3, 4], [30, -40], [120, 0]]), np.array([0, 1, 1])
    >>> shortened(given, of, length=26).tolist()
    [[3, 4], [6, -8], [24, 0]]
    """
    _, of = np.unique(users, return_inverse=True)
    about = np.sqrt(np.bincount(of, (sums.astype(np.float64) ** 2).sum(1)))
    divided = (about.astype(np.int64) // _LARGE + 1)[of]
    sums = _towards_zero(sums, divided)
    squares = np.zeros(len(about), np.int64)
    np.add.at(squares, of, (sums**2).sum(1))
    size = np.ceil(np.sqrt(squares)).astype(np.int64)
    size += size**2 < squares
    size = np.maximum(size[of], -(-length * times // divided))
    return np.where(size[:, None] > length, _towards_zero(sums * length, size), sums)


def _towards_zero(values: Int[np.ndarray, "piece entries"], by: Int[np.ndarray, " piece"]) -> np.ndarray:
    """The quotients, without what is behind the point."""
    return np.asarray(np.sign(values) * (np.abs(values) // by[:, None]))
