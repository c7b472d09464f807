"""Vote histograms as groups of classes with equal counts.

Classes with equal counts are interchangeable, so a histogram is described by its distinct counts and the
number of classes that share each. Queries whose sorted histograms are equal cost the same, and are computed
once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate_jax.accounting.inputs import check_votes

_ROWS = 1 << 16  # queries in one block


class Groups(NamedTuple):
    """Histograms with the same number of distinct counts, largest count first.

    The threshold test reads the largest of the `margins`: the counts themselves, or other numbers in which a
    vote moves the number of its own class by one. Classes are one group only if both numbers are equal.
    """

    rows: np.ndarray  # int [R], the indices of these histograms among the merged ones
    counts: np.ndarray  # float [R, U]
    sizes: np.ndarray  # float [R, U], classes in each group
    margins: np.ndarray  # float [R, U]

    def moves(self) -> np.ndarray:
        """Whether a vote can move from a class of group a to a class of group b: bool [R, U, U]."""
        leaves = np.broadcast_to(
            self.counts[:, :, None] >= 1, self.counts.shape + self.counts.shape[1:]
        ).copy()
        diagonal = np.arange(self.counts.shape[1])
        leaves[:, diagonal, diagonal] &= self.sizes >= 2
        return leaves

    def split(self, rows: int) -> Iterator[Groups]:
        """The histograms in pieces of at most `rows` rows."""
        for start in range(0, len(self.rows), rows):
            yield Groups(*(array[start : start + rows] for array in self))


class Distinct(NamedTuple):
    """Histograms that differ when sorted, and how many queries have each, in all and in each part."""

    votes: NDArray[np.int64]  # [R, C], largest count first
    asked: NDArray[np.int64]  # [R]
    among: NDArray[np.int64]  # [part, R]


class Merged(NamedTuple):
    """All queries: groups by number of distinct counts, and the merged histogram of each query."""

    buckets: list[Groups]
    row_of: np.ndarray  # int [Q]
    rows: int  # merged histograms
    classes: int


def merge(votes: ArrayLike, margins: NDArray[np.float64] | None = None) -> Merged:
    """Group equal counts in each histogram, and merge the histograms that are equal when sorted.

    `margins` [query, class] are the numbers that a test reads, if they are not the counts.

    >>> merged = merge([[7, 3, 0], [0, 7, 3], [5, 5, 0]])
    >>> merged.row_of.tolist(), merged.buckets[0].counts.tolist(), merged.buckets[0].sizes.tolist()
    ([1, 1, 0], [[5.0, 0.0]], [[2.0, 1.0]])
    """
    counts = check_votes(votes).astype(np.float64)
    read = counts if margins is None else margins
    order = np.lexsort((-read, -counts), axis=-1)
    counts, read = (np.take_along_axis(array, order, axis=1) for array in (counts, read))
    both = counts if margins is None else np.concatenate([counts, read], axis=1)
    _, first, row_of = np.unique(both, axis=0, return_index=True, return_inverse=True)
    counts, read = counts[first], read[first]
    return Merged(_buckets(counts, read), row_of.reshape(-1), len(counts), counts.shape[1])


def distinct(votes: NDArray[np.int64], *parts: NDArray[np.bool_]) -> Distinct:
    """The distinct sorted histograms, merged block by block, so that a million queries need little memory.

    Each part says which of the queries belong to it.

    >>> found = distinct(np.array([[7, 3], [3, 7], [5, 5]]), np.array([True, False, True]))
    >>> found.votes.tolist(), found.asked.tolist(), found.among.tolist()
    ([[5, 5], [7, 3]], [1, 2], [[1, 1]])
    """
    blocks = []
    for start in range(0, len(votes), _ROWS):
        block = -np.sort(-votes[start : start + _ROWS], axis=1)
        times = [np.ones(len(block), np.int64), *(part[start : start + _ROWS] for part in parts)]
        blocks.append(_added(block, np.array(times, np.int64)))
    if not blocks:
        return Distinct(votes, np.zeros(0, np.int64), np.zeros((len(parts), 0), np.int64))
    merged, number = _added(
        np.concatenate([block for block, _ in blocks]), np.concatenate([times for _, times in blocks], axis=1)
    )
    return Distinct(merged, number[0], number[1:])


def _added(votes: NDArray[np.int64], times: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The distinct rows, with the sums of their numbers [part, row]."""
    order = np.lexsort(votes.T[::-1])
    votes, times = votes[order], times[:, order]
    starts = np.flatnonzero(np.concatenate([[True], (votes[1:] != votes[:-1]).any(axis=1)]))
    return votes[starts], np.add.reduceat(times, starts, axis=1)


def _buckets(counts: np.ndarray, margins: np.ndarray) -> list[Groups]:
    """The rows, grouped by their number of distinct (count, margin) pairs."""
    if not len(counts):
        return []
    starts = np.ones(counts.shape, bool)
    starts[:, 1:] = (np.diff(counts, axis=1) != 0) | (np.diff(margins, axis=1) != 0)
    distinct = starts.sum(axis=1)
    buckets = []
    for groups in np.unique(distinct):
        rows = np.flatnonzero(distinct == groups)
        rows = rows[np.argsort(counts[rows, 0] - counts[rows, -1], kind="stable")]  # equal widths together
        first = np.nonzero(starts[rows])[1].reshape(len(rows), groups)
        sizes = np.diff(first, axis=1, append=counts.shape[1]).astype(np.float64)
        take = (np.take_along_axis(array[rows], first, axis=1) for array in (counts, margins))
        picked, picked_margins = take
        buckets.append(Groups(rows, picked, sizes, picked_margins))
    return buckets
