"""Broken twins of a pipeline: an attack that does not detect them is worth nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import jax
import numpy as np
from jaxtyping import Bool

from pate_jax import aggregate
from pate_jax.aggregate import noise
from pate_jax.audit.attacks.recovery import Asked, Votes
from pate_jax.audit.attacks.shadows import Seen
from pate_jax.audit.attacks.steps_canaries import InSteps
from pate_jax.audit.attacks.sums_pipeline import Sums, Table
from pate_jax.crowd.classifier import Linear
from pate_jax.data import partition
from pate_jax.data.dataset import Part
from pate_jax.data.partition import Shards
from pate_jax.mechanisms import Mechanism
from pate_jax.mechanisms.crowds import ClassSums, CrowdRelease, HeadCount

Released = TypeVar("Released", ClassSums, HeadCount)
_RIDGE = 1e-3  # of the mean square of an entry


def without_noise(honest: Sums) -> Sums:
    """The same, and the exact sums are published and read as such."""
    return replace(honest, release=replace(honest.release, sigma=1.0), draw=lambda release, table, key: table)


def too_little_noise(honest: Sums, times: float = 10.0) -> Sums:
    """The same with noise that is so many times smaller than the guarantee asks for."""
    return replace(honest, release=_less(honest.release, times), number=_less(honest.number, times))


def _less(release: Released, times: float) -> Released:
    return replace(release, sigma=max(1.0, release.sigma / times))


def drawn_anew(mechanism: Mechanism, votes: Votes, times: int) -> Asked:
    """Answers with new noise each time an input is asked about, charged as one."""
    found = [aggregate.answer(mechanism, votes.astype(np.int32), key=noise.fresh_key()) for _ in range(times)]
    given = [np.where(np.asarray(one.answered), np.asarray(one.labels), -1) for one in found]
    return Asked(np.stack(given, axis=1), charged=len(votes))


def steps_with_too_little_noise(honest: InSteps, times: float = 10.0) -> InSteps:
    """Steps, and the first table, with noise that is so many times smaller than the guarantee asks for."""
    drawn = honest.first.draw

    def draw(release: CrowdRelease, table: Table, key: jax.Array) -> Table:
        return drawn(replace(release, sigma=max(1.0, release.sigma / times)), table, key)

    return replace(honest, first=replace(honest.first, draw=draw))


def one_noise_for_all_steps(honest: InSteps) -> InSteps:
    """The noise of a run's first later step serves all others too."""
    drawn = honest.first.draw
    last: list[Table] = []

    def draw(release: CrowdRelease, table: Table, key: jax.Array) -> Table:
        if release is not honest.made.release:
            last.clear()
            return drawn(release, table, key)
        last.append(drawn(release, table, key) - table)
        noisy: Table = table + last[0]
        return noisy

    return replace(honest, first=replace(honest.first, draw=draw))


def on_private_records(honest: Sums) -> OnPrivate:
    """A student that is fitted to the private records themselves."""
    return OnPrivate(honest)


@dataclass(frozen=True)
class OnPrivate:
    """Least squares on the members' own vectors and labels, in place of noisy sums and the public pool."""

    honest: Sums

    @property
    def records(self) -> int:
        """How many records may be members."""
        return self.honest.records

    def __call__(self, member: Bool[np.ndarray, " record"], *, key: jax.Array) -> Seen:
        """What such a student says."""
        del key
        made, there = self.honest, np.flatnonzero(member)
        rows = made.vectors[there] / made.release.length
        wanted = np.eye(made.release.classes)[made.labels[there]] - 1 / made.release.classes
        square = rows.T @ rows
        square += _RIDGE * np.trace(square) / len(square) * np.eye(len(square))
        weights = np.linalg.solve(square, rows.T @ wanted)
        none = np.zeros_like(rows[:0].T)
        found = made.confidence(Linear(weights, made.release.length, none, 0.0))
        return Seen(found[: made.records], found[made.records :])


def unbounded(honest: Sums, times: int = 3) -> Sums:
    """The same with vectors that nobody bounds: so many times too long."""
    return replace(honest, vectors=honest.vectors * times)


def shared_shards(person: str) -> Callable[..., Shards]:
    """A division of records that gives one person's record to the next teacher too."""

    def divide(part: Part, teachers: int, *, key: bytes, by: str = "record") -> Shards:
        honest = partition.divide(part, teachers, key=key, by=by)
        rows, counts = np.pad(honest.rows, ((0, 0), (0, 1))), honest.counts.copy()
        for row in np.flatnonzero(part.ids == person):
            home = next(teacher for teacher in range(teachers) if row in honest.of(teacher))
            also = (home + 1) % teachers
            rows[also, counts[also]] = row
            counts[also] += 1
        return Shards(rows, counts)

    return divide
