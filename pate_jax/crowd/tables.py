"""The exact table that a plan asks of voters, whichever kind they are."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int

from pate_jax.crowd.neighbours import counts
from pate_jax.crowd.plan import Plan
from pate_jax.crowd.seen import Seen, look
from pate_jax.crowd.sums import squares, sums
from pate_jax.crowd.voters import Voters
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums, NeighbourCounts


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
