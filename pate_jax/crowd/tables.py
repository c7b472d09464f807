"""The exact table that a plan asks of voters, whichever kind they are.

Voters' vectors of steps, which every step looks at again, are made once, by this process for its own part.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Int

from pate_jax.crowd import steps
from pate_jax.crowd.neighbours import counts
from pate_jax.crowd.plan import Plan
from pate_jax.crowd.sums import Constants, squares, sums
from pate_jax.crowd.vectors import Scaling, bounded
from pate_jax.crowd.voters import Voters, check_labels, each_block, own_rows
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums, NeighbourCounts
from pate_jax.models.spaces.space import Space, along
from pate_jax.system import devices


class Seen(NamedTuple):
    """The vectors and labels of the voters that this process reads; records of a user lie together."""

    vectors: Int[np.ndarray, "record entries"]
    labels: Int[np.ndarray, " record"]
    users: Int[np.ndarray, " record"] | None

    def gradients(self, weights: steps.Weights, release: ClassSums) -> Int[np.ndarray, "rows entries"]:
        """The exact sum of all voters' gradients, those of other processes among them. It is private."""
        with devices.failing_together():
            check_labels(self.labels, release.classes)
            table = steps.gradients(*self, weights, release)
        return np.asarray(devices.sum_over_processes(table))

    def squares(self, weights: steps.Weights, release: ClassSums) -> Int[np.ndarray, " voter"]:
        """The square of the length of what each voter adds: by record, or by the number of the user."""
        found = steps.own_squares(*self, weights, release)
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


def table(plan: Plan, people: Voters, seen: Seen | None = None) -> Int[np.ndarray, "rows columns"]:
    """The counts, sums or gradients of these voters, without noise: they are private.

    `seen` are the voters' vectors of a step, where they are known from the step before.

    Where several processes run together, each is given the same voters, reads its own part of them, and
    returns the table of all.
    """
    if plan.weights is not None and isinstance(plan.release, ClassSums):
        seen = seen or look(plan.space, plan.scaling, people)
        return seen.gradients(plan.weights, plan.release)
    if not isinstance(plan.release, NeighbourCounts):
        return sums(plan.space, plan.scaling, people, plan.release)
    if plan.queries is None:
        raise PateError("the plan names no queries for its neighbours: make it again (crowd.plan)")
    return counts(plan.space, plan.queries, people, plan.release)


def own_squares(plan: Plan, people: Voters) -> Int[np.ndarray, " voter"]:
    """How far the table moves without each voter, squared: by record, or by the number of the user.

    A voter's own table is added to those of all others, so without the voter the table is less by just
    that. Every voter of neighbours casts as many votes as it may, each 1 in another cell. These numbers are
    private.
    """
    if plan.weights is not None and isinstance(plan.release, ClassSums):
        return look(plan.space, plan.scaling, people).squares(plan.weights, plan.release)
    if not isinstance(plan.release, NeighbourCounts):
        return squares(plan.space, plan.scaling, people, plan.release)
    voters = np.ones(len(people.labels), np.int64) if people.users is None else np.bincount(people.users)
    return plan.release.votes * (voters > 0)
