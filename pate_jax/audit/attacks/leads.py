"""How many bad voters cannot change a label that a crowd's noisy table gives.

A label is the class of the highest score, and with its rule held a score is linear in the table. A voter's
own table is bounded, whatever its records hold, so one voter whose contents change moves the difference of
two scores by a known `reach` at most. A lead of more than `k reach` is therefore left by k of them. Derived
in docs/attacks.md, section 4.

Everything here follows from the released table and public inputs. The rule is what the run computed from
that table as well: how much it believes each direction, or each query. It is held, and so is the noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int, Num

from pate_jax.crowd import classifier, shares
from pate_jax.crowd.classifier import Linear, Pool
from pate_jax.crowd.directions import label_noise
from pate_jax.crowd.plan import Plan
from pate_jax.crowd.vectors import vectors
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums, NeighbourCounts

Table = Num[np.ndarray, "line entry"]
Scores = Float[np.ndarray, "query class"]
ANY = 1 << 40  # of a label that no voter can change
_ROUNDING = 1e-9  # of a quotient that is rounded down


class Rule(NamedTuple):
    """How scores follow from a table, and how far one changed voter moves the difference of two of them."""

    scores: Callable[[Table], Scores]
    reach: Float[np.ndarray, " query"]
    functional: Float[np.ndarray, "query entry"] | None = None  # of sums: times a class's sum, over length

    def withstood(self, noisy: Table) -> Int[np.ndarray, " query"]:
        """How many bad voters cannot change each label of this table."""
        return withstood(self.scores(noisy), self.reach)


def withstood(scores: Scores, reach: Float[np.ndarray, " query"]) -> Int[np.ndarray, " query"]:
    """How many bad voters cannot change each highest score; -1 where there is none, but a tie.

    >>> withstood(np.array([[9.0, 1, 0], [5, 4, 1], [5, 5, 0], [8, 4, 1]]), np.full(4, 2.0)).tolist()
    [3, 0, -1, 1]
    """
    ranked = np.sort(scores, axis=1)
    lead = ranked[:, -1] - ranked[:, -2]
    times = np.divide(lead * (1 - _ROUNDING), reach, out=np.full(len(lead), float(ANY)), where=reach > 0)
    found = np.ceil(np.minimum(times, ANY)).astype(np.int64) - 1
    return np.where(lead > 0, found, -1)


def of_plan(
    plan: Plan, noisy: Table, pool: Int[np.ndarray, "pool directions"], voters: int, *, by_user: bool
) -> Rule:
    """The rule of a round: of the pool where voters gave sums, of the queries where they are neighbours.

    `plan` holds the release, `pool` the pool's coordinates and `voters` the public number of voters.
    """
    if isinstance(plan.release, NeighbourCounts):
        return of_counts(noisy, plan.release)
    seen = vectors(plan.scaling, pool[:, : len(plan.space.variances)])
    known = classifier.measured(seen, plan.release.length)
    return of_sums(noisy, plan.release, known, voters, seen, by_user=by_user)


def of_counts(noisy: Table, release: NeighbourCounts) -> Rule:
    """The rule of neighbours' counts: what a query has is mixed with what all have.

    A voter has one vote at a query at most. If it changes, the leader's count may fall by 1 and a rival's
    rise by 1.
    """
    held = shares.held(noisy, release)
    return Rule(held.scores, np.full(release.queries, 2 * held.kept / held.usual))


def of_sums(
    noisy: Table,
    release: ClassSums,
    pool: Pool,
    voters: int,
    seen: Int[np.ndarray, "query entries"],
    *,
    by_user: bool,
) -> Rule:
    """The rule of class sums, whose scores are `h(x)` times the sum of each class.

    A record adds a vector no longer than `length` to one class. If it changes, the difference of two classes
    moves by twice that at most, along `h(x)`. A user's table of that length may have opposite parts in two
    classes, whose difference is `sqrt(2)` times as long.
    """
    model = classifier.of_pool(noisy, release, pool, voters)
    functional = _functional(model, release, pool, voters, seen)

    def scores(table: Table) -> Scores:
        return np.asarray(functional @ classifier.contrasts(table / release.length).T)

    longest = math.sqrt(2) if by_user and release.classes > 2 else 1.0
    return Rule(scores, 2 * longest * np.linalg.norm(functional, axis=1), functional)


def _functional(
    model: Linear, release: ClassSums, pool: Pool, voters: int, seen: Int[np.ndarray, "query entries"]
) -> Float[np.ndarray, "query entries"]:
    """The vector h(x) of each input, whose product with a class's sum over `length` is its score.

    How much each direction and the constant are believed is read from what the known noise does to weights.
    """
    inner, constant = len(pool.middle), pool.constant
    scale = label_noise(release.classes, release.sigma / release.length)
    if scale == 0 or model.noise.shape[1] < inner:
        raise PateError("the classifier does not say how it reads its sums: fit it with crowd.classifier")
    each = (pool.axes * model.noise[:inner, :inner]).sum(0) / scale
    along = (seen[:, :inner] / release.length - pool.middle) @ pool.axes
    found = (along * each) @ pool.axes.T
    if not constant:
        return np.asarray(found)
    trust = model.noise[-1, -1] * voters * constant**2 / scale
    last = trust / constant * (1 / voters - found @ pool.middle)
    return np.concatenate([found, last[:, None]], axis=1)


def gains(
    told: Float[np.ndarray, " voter"], labels: Int[np.ndarray, " voter"], top: int, rival: int
) -> Float[np.ndarray, " voter"]:
    """How far each voter brings the rival nearer to the top class, if it takes the label that does so best.

    `told` is how far a voter's vector moves the score of its own class.

    >>> gains(np.array([0.5, 0.5, 0.5, -0.5]), np.array([0, 1, 2, 1]), top=0, rival=1).tolist()
    [1.0, 0.0, 0.5, 1.0]
    """
    side = (labels == top).astype(np.int64) - (labels == rival)
    return np.asarray(told * side + np.abs(told))


def fewest(lead: float, each: Float[np.ndarray, " voter"]) -> float:
    """How few of these gains reach a lead; infinity where all together do not.

    >>> fewest(3.0, np.array([1.0, 0.5, 2.0])), fewest(9.0, np.ones(3))
    (2.0, inf)
    """
    total = np.cumsum(np.sort(each)[::-1])
    return float(np.searchsorted(total, lead) + 1) if len(total) and total[-1] >= lead else float("inf")
