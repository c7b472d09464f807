"""The pipeline of a crowd of users or neighbours, or of several steps, in memory, from its voters' tables.

Every voter adds a table of its own to each step's sum. Those are computed once, and a shadow adds up the
tables of who takes part. What the noisy tables say of all records is what a closed-form student says that
learns from the answers. Spaces, queries and noise are those of the run, and so are
the weights of a later step, which follow from what the run has released before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import ClassVar

import jax
import numpy as np
from jaxtyping import Bool, Float, Int
from scipy import sparse

from pate_jax.audit.attacks.roc import Promise
from pate_jax.audit.attacks.shadows import Seen, means
from pate_jax.audit.attacks.sums_pipeline import Draw, drawn, of_releases
from pate_jax.crowd.sums import shortened
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums, CrowdTable, HeadCount, NeighbourCounts
from pate_jax.system import headcount

Table = Int[np.ndarray, "_ _"]  # of steps of different shapes
Student = Callable[[Table, int], Float[np.ndarray, "record class"]]


@dataclass(frozen=True)
class Step:
    """The tables that voters add in a step, row by row as sparse ones, and what the noisy sum says."""

    own: sparse.csr_array  # [voter, cell], whole numbers as float64
    release: ClassSums | NeighbourCounts
    student: Student  # from a noisy table and the number of voters to the probabilities of all records

    @property
    def voters(self) -> int:
        """How many there are."""
        return int(self.own.shape[0])

    def table(self, member: Bool[np.ndarray, " voter"]) -> Table:
        """The exact sum of members' tables."""
        found: Table = np.rint(member @ self.own).astype(np.int64).reshape(self.release.shape)
        return found

    def products(self, table: Table) -> Float[np.ndarray, " voter"]:
        """Of each voter's own table with the given one, in units of the noise's variance."""
        found: np.ndarray = self.own @ table.ravel().astype(np.float64) / self.release.sigma**2
        return found

    def squares(self) -> Float[np.ndarray, " voter"]:
        """Of how far the sum moves without each voter, in standard deviations of the noise."""
        found: np.ndarray = np.asarray(self.own.power(2).sum(1)).ravel() / self.release.sigma**2
        return found


@dataclass(frozen=True)
class Gradients:
    """What records add in a step, each a residual times a vector, and what the noisy sum says."""

    residuals: Int[np.ndarray, "voter row"]
    vectors: Int[np.ndarray, "voter entry"]
    release: ClassSums
    student: Student

    @property
    def voters(self) -> int:
        """How many there are."""
        return len(self.residuals)

    def table(self, member: Bool[np.ndarray, " voter"]) -> Table:
        """The exact sum of members' gradients."""
        return np.asarray(self.residuals[member].T.astype(np.int64) @ self.vectors[member].astype(np.int64))

    def products(self, table: Table) -> Float[np.ndarray, " voter"]:
        """Of each voter's gradient with a table, in units of the noise's variance."""
        along = (self.residuals @ table.astype(np.float64)) * self.vectors
        return np.asarray(along.sum(1) / self.release.sigma**2)

    def squares(self) -> Float[np.ndarray, " voter"]:
        """Of how far the sum moves without each voter, in standard deviations of the noise."""
        lengths = [(one.astype(np.float64) ** 2).sum(1) for one in (self.residuals, self.vectors)]
        return np.asarray(lengths[0] * lengths[1] / self.release.sigma**2)


@dataclass(frozen=True)
class Tables:
    """Voters by the tables that they add in each step; the first may be members and the last never are."""

    steps: tuple[Step | Gradients, ...]
    labels: Int[np.ndarray, " record"]
    voters: Int[np.ndarray, " record"]  # whose each record is, numbered from 0
    number: HeadCount
    reference: int  # of the voters, the last: never members
    draw: Draw = drawn
    released: ClassVar[str] = "table"

    def __post_init__(self) -> None:
        everybody = self.steps[0].voters
        if not 0 < self.reference < everybody:
            raise PateError(f"reference={self.reference} must leave some of {everybody} voters")

    @property
    def records(self) -> int:
        """How many voters may be members."""
        return self.steps[0].voters - self.reference

    def promise(self, delta: float) -> Promise:
        """What the releases promise to a voter who joins or leaves."""
        return of_releases([*(one.release for one in self.steps), self.number], delta)

    def __call__(self, member: Bool[np.ndarray, " voter"], *, key: jax.Array) -> Seen:
        """What is published if these voters take part."""
        there = np.append(member, np.zeros(self.reference, bool))
        first, *keys = jax.random.split(key, 1 + len(self.steps))
        told = int(self.draw(self.number, np.array([[there.sum()]]), first)[0, 0])
        voters = max(1, headcount.coarse(max(1, told)))
        exact = [one.table(there) for one in self.steps]
        pairs = zip(self.steps, exact, keys, strict=True)
        noisy = [self.draw(one.release, table, each) for one, table, each in pairs]
        known = sum(
            one.products(after - before) + (there - 0.5) * one.squares()
            for one, before, after in zip(self.steps, exact, noisy, strict=True)
        )
        seen = sum(one.products(after) for one, after in zip(self.steps, noisy, strict=True))
        right, some = self.confidence(noisy, voters), self.records
        return Seen(right[:some], right[some:], np.asarray(seen)[:some], np.asarray(known)[:some])

    def confidence(self, noisy: list[Table], voters: int) -> Float[np.ndarray, " voter"]:
        """The probability of each record's own label, in the mean over steps and over a voter's records."""
        said = [one.student(table, voters) for one, table in zip(self.steps, noisy, strict=True)]
        mean = reduce(np.add, said) / len(said)
        own = mean[np.arange(len(self.labels)), self.labels]
        return means(own, self.voters, self.records + self.reference)


def of_vectors(
    vectors: Int[np.ndarray, "record entry"],
    labels: Int[np.ndarray, " record"],
    voters: Int[np.ndarray, " record"],
    release: ClassSums,
) -> sparse.csr_array:
    """The table that each voter adds to class sums: of its records together, no longer than one vector."""
    entries = release.directions
    rows, signs = (labels, np.ones_like(labels)) if release.classes > 2 else (0 * labels, 2 * labels - 1)
    cells = rows[:, None] * entries + np.arange(entries)
    values, there = (vectors * signs[:, None]).ravel(), np.repeat(voters, entries)
    found = _added(there, cells.ravel(), values, int(voters.max()) + 1, release)
    of_cell, sums = np.repeat(np.arange(found.shape[0]), np.diff(found.indptr)), found.data.astype(np.int64)
    found.data = shortened(sums[:, None], of_cell, release.length)[:, 0].astype(float)
    return found


def of_cells(
    voters: Int[np.ndarray, " vote"],
    cells: Int[np.ndarray, " vote"],
    everybody: int,
    release: NeighbourCounts,
) -> sparse.csr_array:
    """The table that each voter adds to counts: a vote of 1 in some cells."""
    return _added(voters, cells, np.ones(len(cells)), everybody, release)


def _added(
    voters: np.ndarray, cells: np.ndarray, values: np.ndarray, everybody: int, release: CrowdTable
) -> sparse.csr_array:
    """Values in the same cell of a voter are added up."""
    shape = everybody, int(np.prod(release.shape))
    return sparse.coo_array((values.astype(np.float64), (voters, cells)), shape).tocsr()
