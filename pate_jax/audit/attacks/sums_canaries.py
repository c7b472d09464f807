"""Canaries among voters of class sums, each with its whole length on one direction of one class.

A coin decides on which side of zero. The two contents are as far apart as any two that a voter may have, and
no two canaries share an entry of the table, so nothing but the noise hides a coin: no voter is more
vulnerable. Their coordinates are far too large, and the pipeline has to bound them. They are the only voters,
which a guarantee for all data sets must allow. Several runs with other coins each are one data set with all
their canaries, since no canary is in two of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float

from pate_jax import crowd as voting
from pate_jax.accounting.exact import counts
from pate_jax.aggregate import noise
from pate_jax.audit.attacks import canary_bounds, membership
from pate_jax.audit.attacks.canary_bounds import Lower
from pate_jax.audit.attacks.shadows import Pipeline
from pate_jax.audit.attacks.sums_pipeline import Sums
from pate_jax.crowd.classifier import Pool
from pate_jax.crowd.vectors import Scaling
from pate_jax.mechanisms.crowds import ClassSums, HeadCount

RUNS = 16  # at least, in which the canaries play
FAR = 1 << 30  # coordinate of a canary, far beyond what a vector may hold


class Played(NamedTuple):
    """What each run shows of each canary, and its coin."""

    coins: Bool[np.ndarray, "run canary"]
    table: Float[np.ndarray, "run canary"]
    student: Float[np.ndarray, "run canary"]


def voters(scaling: Scaling, pool: Pool, release: ClassSums, number: HeadCount, most: int) -> Sums:
    """The pipeline with both contents of at most so many canaries, and a last record that never votes."""
    directions, height = len(scaling.weights), release.shape[0]
    some = np.arange(min(most, height * directions))
    coordinates = np.zeros((2 * len(some) + 1, directions), np.int32)
    coordinates[some, some // height] = FAR
    coordinates[len(some) + some, some // height] = -FAR
    rows = some % height if height > 1 else np.ones_like(some)
    labels = np.concatenate([rows, rows, [0]])
    return Sums(voting.vectors(scaling, coordinates), labels, pool, release, number, reference=1)


def played(
    pipeline: Pipeline,
    runs: int,
    *,
    coins: np.random.Generator,
    key: Callable[[], jax.Array] = noise.fresh_key,
) -> Played:
    """So many runs, each with coins and noise of its own."""
    half = pipeline.records // 2
    tossed = coins.random((runs, half)) < 0.5
    seen = [pipeline(np.concatenate([one, ~one]), key=key()) for one in tossed]
    table = np.stack([one.table for one in seen if one.table is not None])
    logits = membership.logit(np.stack([one.confidence for one in seen]))
    return Played(tossed, table[:, :half], logits[:, :half] - logits[:, half:])


def bounds(seen: Played, honest: Sums, delta: float) -> list[Lower]:
    """What epsilon is at least, by three scores that are functions of what was published.

    `table`: the product of the canary's own vector with the noisy table. `student`: how much more the student
    believes its label at the one input than at the other, above other runs. `difference`: the first of two
    runs, which cancels noise that both have in common.
    """
    other = np.arange(len(seen.table)) ^ 1
    scores = {
        "table": seen.table,
        "student": seen.student - seen.student.mean(0),
        "difference": seen.table - seen.table[other],
    }
    flat = {name: values.ravel() for name, values in scores.items()}
    gaussian = honest.release.family == "rounded_gaussian"
    return canary_bounds.one_run(flat, seen.coins.ravel(), claim(honest), delta, gaussian)


def claim(honest: Sums) -> canary_bounds.Claim:
    """What the releases claim for a voter whose contents change, at every delta."""
    return lambda delta: counts.epsilon((honest.release, honest.number), delta, change="changed")


def game(canaries: int, records: int) -> int:
    """How many runs make so many canaries if a run has these: an even number.

    >>> game(20_000, 1250), game(1000, 7), game(10, 5000)
    (16, 144, 16)
    """
    return max(RUNS, -(-canaries // records // 2) * 2)
