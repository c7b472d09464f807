"""Canaries among voters of sums in several steps, each far out on one side of one direction.

A coin decides on which. No two canaries share a direction, so that of a step's table each moves a column
of its own, but for what the constant entry says of all. Every step is asked for at the weights that the noisy
tables before it give, by the functions of a run: a canary knows these weights, since they are public, and so
what it adds to each step on either side.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from pate_jax import crowd as voting
from pate_jax.accounting.exact import counts
from pate_jax.aggregate import noise
from pate_jax.audit.attacks import canary_bounds, membership
from pate_jax.audit.attacks.canary_bounds import Lower
from pate_jax.audit.attacks.sums_pipeline import Sums
from pate_jax.crowd import classifier, steps
from pate_jax.crowd.plan import Plan
from pate_jax.crowd.vectors import Scaling
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums, CrowdRelease, HeadCount
from pate_jax.system.tasks import HERE, Engine

_FAR = 1 << 30  # coordinate of a canary, far beyond what a vector may hold
_CELLS = 1 << 25  # of all canaries' own tables together, at most

Tables = Float[np.ndarray, "record cell"]
Scores = Float[np.ndarray, " canary"]


class Shown(NamedTuple):
    """What one run shows of each canary, the larger the more its first content than its second."""

    table: Scores  # by all noisy tables
    again: Scores  # by the difference of each step's table and the one before it
    student: Scores


@dataclass(frozen=True)
class InSteps:
    """A run's pipeline: the first table and its voters, their vectors of later steps, and the pool's."""

    first: Sums
    vectors: Int[np.ndarray, "record entry"]
    made: steps.Steps
    pool: Int[np.ndarray, "pool others"]
    seen: Int[np.ndarray, "pool entry"]
    voters: int  # as the run has told it
    by_user: bool = False

    @property
    def records(self) -> int:
        """How many contents there are: two of each canary."""
        return self.first.records

    def __call__(self, member: Bool[np.ndarray, " record"], *, key: jax.Array) -> Shown:
        """What is published if these records vote, as their canaries read it."""
        first, made, some = self.first, self.made, self.records
        keys = jax.random.split(key, made.number)
        noisy = first.draw(first.release, first.table(member), keys[0])
        told = (first.products(noisy) - first.squares / 2) / first.release.sigma**2
        asked: list[tuple[Tables, Float[np.ndarray, " cell"]]] = []

        def ask(step: int, weights: steps.Weights) -> Int[np.ndarray, "rows entries"]:
            table = first.draw(made.release, self.exact(member, weights), keys[step - 1])
            asked.append((self.own(weights), table.ravel().astype(float)))
            return table

        model = classifier.of_pool(noisy, first.release, first.pool, self.voters)
        weights = steps.taken(made, model, self.pool, self.seen, ask)
        for own, table in asked:
            told = told + (own @ table - (own**2).sum(1) / 2) / made.release.sigma**2
        right = steps.probabilities(weights, self.vectors)[np.arange(some), first.labels[:some]]
        logits = membership.logit(np.asarray(right, np.float64)[None])[0]
        return Shown(_first_less_second(told), _again(asked), _first_less_second(logits))

    def exact(
        self, member: Bool[np.ndarray, " record"], weights: steps.Weights
    ) -> Int[np.ndarray, "rows entries"]:
        """The exact sum of members' gradients at these weights, as a run adds it up."""
        there = np.flatnonzero(member)
        users = np.arange(len(there)) if self.by_user else None
        return steps.gradients(
            self.vectors[there], self.first.labels[there], users, weights, self.made.release
        )

    def own(self, weights: steps.Weights) -> Tables:
        """What each record adds at these weights, by itself."""
        seen, labels, release = self.vectors, self.first.labels[: self.records], self.made.release
        if self.by_user:
            found = steps.own_tables(seen, labels, np.arange(len(seen)), weights, release)
            return found.reshape(len(seen), -1).astype(float)
        mine = steps.clipped(steps.residuals(seen, labels, weights), seen, release.length)
        return (mine[:, :, None] * seen[:, None].astype(np.int64)).reshape(len(seen), -1).astype(float)


def _first_less_second(scores: Float[np.ndarray, " record"]) -> Scores:
    half = len(scores) // 2
    return np.asarray(scores[:half] - scores[half:])


def _again(asked: list[tuple[Tables, Float[np.ndarray, " cell"]]]) -> Scores:
    """How much more two steps differ as the first content lets them than as the second does.

    Noise that serves two steps is not in their difference: then this is a half, or its negative.
    """
    told, size = np.zeros((2, len(asked[0][0]) // 2))
    for (before, first), (after, second) in itertools.pairwise(asked):
        mine = after - before
        apart = mine[: len(mine) // 2] - mine[len(mine) // 2 :]
        told += apart @ (second - first) - _first_less_second((mine**2).sum(1)) / 2
        size += (apart**2).sum(1)
    return np.divide(told, size, out=np.zeros_like(told), where=size > 0)


def planted(
    plan: Plan,
    pool: Int[np.ndarray, "pool directions"],
    wide: Int[np.ndarray, "pool others"],
    number: HeadCount,
    *,
    voters: int,
    most: int,
    by_user: bool = False,
) -> InSteps:
    """The pipeline of a plan with at most so many canaries; pool and wide: where the pool lies for each.

    One has `plan`'s directions and the other those of its steps.
    """
    made, release = plan.steps, plan.release
    if made is None or not isinstance(release, ClassSums):
        raise PateError(f"{release} is followed by no steps: plant canaries by canaries.voters")
    both = len(plan.scaling.weights), len(made.scaling.weights)
    some = max(1, min(most, *both, _CELLS // (2 * release.classes * (both[1] + 1))))
    coordinates = np.zeros((2 * some + 1, max(both)), np.int32)
    rows = np.arange(some)
    coordinates[rows, rows], coordinates[some + rows, rows] = _FAR, -_FAR
    labels = np.concatenate([rows, rows, [0]]) % release.classes

    def seen(scaling: Scaling, places: np.ndarray) -> np.ndarray:
        return voting.vectors(scaling, places[:, : len(scaling.weights)])

    first = seen(plan.scaling, pool)
    known = classifier.measured(first, release.length)
    one = Sums(seen(plan.scaling, coordinates), labels, known, release, number, reference=1)
    return InSteps(
        one, seen(made.scaling, coordinates[:-1]), made, first, seen(made.scaling, wide), voters, by_user
    )


class Played(NamedTuple):
    """What each run shows of each canary, and its coin."""

    coins: Bool[np.ndarray, "run canary"]
    shown: list[Shown]


def played(
    pipeline: InSteps,
    runs: int,
    *,
    coins: np.random.Generator,
    key: Callable[[], jax.Array] = noise.fresh_key,
    engine: Engine = HERE,
) -> Played:
    """So many runs, each with coins and noise of its own."""
    tossed = coins.random((runs, pipeline.records // 2)) < 0.5
    return Played(tossed, games(pipeline, tossed, key, engine))


class Game(NamedTuple):
    """A run of a pipeline with some of its canaries, all of which is public or made up."""

    pipeline: Callable[..., Any]
    member: Bool[np.ndarray, " record"]
    key: Callable[[], jax.Array]


def games(
    pipeline: Callable[..., Any],
    tossed: Bool[np.ndarray, "run canary"],
    key: Callable[[], jax.Array],
    engine: Engine,
) -> list[Any]:
    """What each run shows: of each canary, one of two contents takes part."""
    items = [Game(pipeline, np.concatenate([one, ~one]), key) for one in tossed]
    found = dict(engine.each(one_game, items))
    return [found[place] for place in range(len(items))]


def one_game(one: Game) -> Any:
    """What a run shows, with noise of its own."""
    return one.pipeline(one.member, key=one.key())


def bounds(seen: Played, honest: InSteps, delta: float) -> list[Lower]:
    """What epsilon is at least, by the scores of each run, and by the difference of two runs' tables."""
    each = [np.stack(one) for one in zip(*seen.shown, strict=True)]
    scores = dict(zip(Shown._fields, each, strict=True))
    scores["student"] = scores["student"] - scores["student"].mean(0)
    scores["difference"] = scores["table"] - scores["table"][np.arange(len(seen.shown)) ^ 1]
    flat = {name: values.ravel() for name, values in scores.items()}
    gaussian = honest.made.release.family == "rounded_gaussian"
    return canary_bounds.one_run(flat, seen.coins.ravel(), claim(honest), delta, gaussian)


def claim(honest: InSteps) -> canary_bounds.Claim:
    """What all tables claim for a voter whose contents change, at every delta."""
    first, made = honest.first, honest.made
    released: list[CrowdRelease] = [first.release, *made.later, first.number]
    return lambda delta: counts.epsilon(released, delta, change="changed")
