"""Voters' vectors of steps, which every step looks at again: made once, by this process for its own part."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Int

from pate_jax.crowd import slope
from pate_jax.crowd.sums import Constants
from pate_jax.crowd.vectors import Scaling, bounded
from pate_jax.crowd.voters import Voters, check_labels, each_block, own_rows
from pate_jax.mechanisms.crowds import ClassSums
from pate_jax.models.spaces.space import Space, along
from pate_jax.system import devices


class Seen(NamedTuple):
    """The vectors and labels of the voters that this process reads; records of a user lie together."""

    vectors: Int[np.ndarray, "record entries"]
    labels: Int[np.ndarray, " record"]
    users: Int[np.ndarray, " record"] | None

    def gradients(self, weights: slope.Weights, release: ClassSums) -> Int[np.ndarray, "rows entries"]:
        """The exact sum of all voters' gradients, those of other processes among them. It is private."""
        with devices.failing_together():
            check_labels(self.labels, release.classes)
            table = slope.gradients(*self, weights, release)
        return np.asarray(devices.sum_over_processes(table))

    def squares(self, weights: slope.Weights, release: ClassSums) -> Int[np.ndarray, " voter"]:
        """The square of the length of what each voter adds: by record, or by the number of the user."""
        found = slope.own_squares(*self, weights, release)
        if self.users is None:
            return found
        table = np.zeros(self.users.max(initial=-1) + 1, np.int64)
        table[np.unique(self.users)] = found
        return table


def look(space: Space, scaling: Scaling, people: Voters) -> Seen:
    """The vectors of these voters, as whole numbers of 16 bits; they are private."""
    rows = own_rows(people)

    def work(public: Constants, seen: np.ndarray, there: np.ndarray) -> np.ndarray:
        made = _vectors(public, seen, length=scaling.length, constant=scaling.constant)
        return np.asarray(made, np.int16)[: len(there)]

    with devices.failing_together():
        constants = Constants(space.axes, scaling.weights)
        blocks = each_block(space, people.inputs, rows, work, constants)
        entries = len(scaling.weights) + (scaling.constant > 0)
        vectors = np.concatenate([np.zeros((0, entries), np.int16), *blocks])
    own = np.arange(rows.start, rows.stop) if isinstance(rows, range) else rows
    users = None if people.users is None else people.users[own]
    return Seen(vectors, people.labels[own], users)


@partial(jax.jit, static_argnames=("length", "constant"))
def _vectors(public: Constants, seen: Array, *, length: int, constant: int) -> Int[Array, "row entries"]:
    """The vectors of one block; no entry is above the length, which is below 2^15."""
    return bounded(along(public.axes, seen), public.weights, length, constant)
