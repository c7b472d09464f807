"""The pipeline of a crowd that adds up vectors, in memory: count, draw the noise, fit, and look at records.

Space, weights and noise are those of the run that is attacked; about half of its voters take part in a
shadow, so one of them has more influence than in the run itself. The published classifier is what black box
attacks see. White box attacks see the noisy table, from which all else follows at no further cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from pate_jax.accounting.exact import counts
from pate_jax.aggregate.noise import noisy_table
from pate_jax.audit.attacks.roc import Promise
from pate_jax.audit.attacks.shadows import Seen
from pate_jax.crowd import classifier
from pate_jax.crowd.classifier import Linear, Pool
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums, CrowdRelease, HeadCount
from pate_jax.system import headcount

Table = Int[np.ndarray, "row entry"]
Draw = Callable[[CrowdRelease, Table, jax.Array], Table]


def drawn(release: CrowdRelease, table: Table, key: jax.Array) -> Table:
    """The noisy table, as a run draws it."""
    return noisy_table(release, table, key=key).values


def of_releases(shown: Sequence[CrowdRelease], delta: float) -> Promise:
    """What some releases together promise to a voter who joins or leaves.

    >>> round(of_releases([HeadCount(sigma=10.0)], 1e-5).mu, 6)
    0.1
    """
    mus = [counts.gaussian_mu(one, change="joined") for one in shown]
    squares = [mu**2 for mu in mus if mu is not None]
    mu = float(np.sqrt(sum(squares))) if len(squares) == len(mus) else None
    return Promise(counts.epsilon(shown, delta, change="joined"), delta, mu)


@dataclass(frozen=True)
class Sums:
    """Records as vectors, of which the first may be members and the last never are."""

    vectors: Int[np.ndarray, "record entry"]
    labels: Int[np.ndarray, " record"]
    pool: Pool
    release: ClassSums
    number: HeadCount
    reference: int  # of the records, the last: never members
    draw: Draw = drawn
    released: ClassVar[str] = "table"

    def __post_init__(self) -> None:
        if not 0 < self.reference < len(self.labels):
            raise PateError(f"reference={self.reference} must leave some of {len(self.labels)} records")

    @property
    def records(self) -> int:
        """How many records may be members."""
        return len(self.labels) - self.reference

    def promise(self, delta: float) -> Promise:
        """What the releases promise to whoever joins or leaves."""
        return of_releases([self.release, self.number], delta)

    def __call__(self, member: Bool[np.ndarray, " record"], *, key: jax.Array) -> Seen:
        """What is published if these records take part."""
        first, second = jax.random.split(key)
        exact = self.table(member)
        noisy = self.draw(self.release, exact, second)
        told = int(self.draw(self.number, np.array([[member.sum()]]), first)[0, 0])
        model = classifier.of_pool(noisy, self.release, self.pool, max(1, headcount.coarse(max(1, told))))
        right = self.confidence(model)
        known = self._known(self.products(noisy - exact), member)
        return Seen(right[: self.records], right[self.records :], self.products(noisy), known)

    def table(self, member: Bool[np.ndarray, " record"]) -> Table:
        """The exact sums of members."""
        there = np.flatnonzero(member)
        rows, labels = self.vectors[there], self.labels[there]
        each = [rows[labels == kind].sum(0, dtype=np.int64) for kind in range(self.release.classes)]
        return np.stack(each) if self.release.classes > 2 else np.stack([each[1] - each[0]])

    def confidence(self, model: Linear) -> Float[np.ndarray, " record"]:
        """The fitted share of each record's own label, which tells more of it than the discriminant does."""
        found = model.probabilities(self.vectors)[np.arange(len(self.labels)), self.labels]
        return np.asarray(found, np.float64)

    def products(self, table: Table) -> Float[np.ndarray, " record"]:
        """Of the table that each possible member adds with the given one."""
        rows, labels = self._floats[: self.records], self.labels[: self.records]
        if len(table) == 1:
            return np.asarray((2.0 * labels - 1) * (rows @ table[0].astype(np.float64)))
        every = rows @ table.T.astype(np.float64)
        return np.asarray(every[np.arange(len(labels)), labels])

    def _known(self, noise: Float[np.ndarray, " record"], member: np.ndarray) -> Float[np.ndarray, " record"]:
        """The log-likelihood ratio of the table for whoever knows all other members."""
        squares = self.squares
        found: np.ndarray = (noise + member * squares - squares / 2) / self.release.sigma**2
        return found

    @cached_property
    def squares(self) -> Float[np.ndarray, " record"]:
        """Of the length of each possible member's own table: how far it moves the sums."""
        return np.asarray((self._floats[: self.records] ** 2).sum(1))

    @cached_property
    def _floats(self) -> Float[np.ndarray, "record entry"]:
        return self.vectors.astype(np.float64)
