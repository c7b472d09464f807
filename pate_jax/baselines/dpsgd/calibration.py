"""How much noise a training needs, and what it costs: by composed privacy losses (PLD), rounded to more.

A step is a Gaussian mechanism on a Poisson sample of the records. All steps are composed by `dp_accounting`,
whose privacy losses are rounded towards more loss. docs/proofs/dpsgd.md derives what is charged under each
relation.

In a step each record takes part by a coin of its own (Poisson sampling), however many they are. A batch is
never cut short: it is handed on in microbatches of one shape, and the last is filled with rows that count for
nothing. So what is charged is what is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import dp_accounting
import jax
import numpy as np
from jaxtyping import Bool, Int

from pate_jax.accounting.inputs import check_delta
from pate_jax.accounting.sampled_noise import Training
from pate_jax.accounting.training_losses import ADD_OR_REMOVE, COARSE, REPLACE, RESERVED, composed
from pate_jax.baselines.dpsgd.settings import LEAST_MULTIPLIER, Settings
from pate_jax.errors import PateError

__all__ = ["ADD_OR_REMOVE", "REPLACE", "RESERVED", "Plan", "composed", "cost", "plan", "rate_of"]
CHANCES = 1 << 32  # a record's chance of taking part in a step is a multiple of 1 / CHANCES
_FINE = 1e-3  # relative: how much more noise than needed is taken at most
_MOST = 2.0**13  # the largest multiplier that is tried


class Plan(NamedTuple):
    """What a training does to the records, and what that costs."""

    rate: float  # chance of each record to take part in each step
    steps: int
    noise_multiplier: float  # standard deviation of the noise, in units of the longest gradient
    epsilon: float  # one record added or removed
    replaced: float  # epsilon where one record's contents are changed instead
    delta: float


def plan(epsilon: float, delta: float, records: int, settings: Settings) -> Plan:
    """The least noise with which the steps of `settings` cost at most `epsilon` at `delta`, rounded up.

    The settings say under which relation. A multiplier that they name is taken as it is; it is refused where
    it costs more than `epsilon`.

    >>> made = plan(3.0, 1e-5, records=60_000, settings=Settings(steps=10, batch=600, noise_multiplier=1.0))
    >>> made.rate >= 0.01, made.epsilon < 3 < made.replaced
    (True, False)
    """
    check_delta(delta)
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise PateError(f"epsilon={epsilon} must be a finite number above 0")
    rate = rate_of(settings.batch, records)
    relation = REPLACE if settings.neighbours == "changed" else ADD_OR_REMOVE
    multiplier = settings.noise_multiplier or _least(epsilon, delta, rate, settings.steps, relation)
    added = cost(multiplier, rate, settings.steps, delta)
    replaced = max(added, cost(multiplier, rate, settings.steps, delta, REPLACE))
    spent = added if relation == ADD_OR_REMOVE else replaced
    if spent > epsilon:
        raise PateError(
            f"noise_multiplier={multiplier:g} costs epsilon {spent:.4g} in {settings.steps} steps, more than "
            f"epsilon={epsilon:g}: leave it out, or ask for fewer steps"
        )
    return Plan(rate, settings.steps, multiplier, added, replaced, delta)


def rate_of(batch: int, records: int) -> float:
    """The chance of taking part for an expected batch, rounded up to what 32 random bits can decide.

    >>> rate_of(1, 3) * CHANCES == (CHANCES + 2) // 3
    True
    """
    if not 1 <= batch <= records:
        raise PateError(f"batch={batch} must be at least 1 and at most the {records} records")
    return -(-batch * CHANCES // records) / CHANCES


def cost(
    multiplier: float,
    rate: float,
    steps: int,
    delta: float,
    relation: dp_accounting.NeighboringRelation = ADD_OR_REMOVE,
    grid: float | None = None,
) -> float:
    """Epsilon of all steps together at `delta`; never below the truth.

    >>> 4.37 < cost(1.0, 1.0, 1, 1e-5) < 4.39  # without sampling, Gaussian-DP gives 4.377
    True
    """
    return composed((Training(rate, steps, multiplier),), delta * (1 - RESERVED), relation, grid)


def _least(
    epsilon: float, delta: float, rate: float, steps: int, relation: dp_accounting.NeighboringRelation
) -> float:
    """The least multiplier, but for a thousandth, that costs at most epsilon on the fine grid."""

    def fits(multiplier: float, grid: float | None = None) -> bool:
        return cost(multiplier, rate, steps, delta, relation, grid) <= epsilon

    low, high = _bracket(epsilon, delta, lambda multiplier: fits(multiplier, COARSE))
    while high > low * (1 + _FINE):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if fits(middle, COARSE) else (middle, high)
    found = math.ceil(low * 1e4) / 1e4
    while not fits(found):
        found = math.ceil(found * (1 + _FINE) * 1e4) / 1e4
    return found


def _bracket(epsilon: float, delta: float, fits: Callable[[float], bool]) -> tuple[float, float]:
    """A multiplier that costs more than epsilon, and twice as much; from above, where losses are small."""
    high = _MOST
    if not fits(high):
        raise PateError(
            f"epsilon={epsilon:g} at delta={delta:g} needs more than {_MOST:g} times the longest gradient as "
            "noise: raise epsilon, or ask for fewer steps"
        )
    while high > 2 * LEAST_MULTIPLIER and fits(high / 2):
        high /= 2
    return high / 2, high


class Microbatch(NamedTuple):
    """Rows of records, and which of them only fill the shape."""

    rows: Int[np.ndarray, " slot"]
    is_padding: Bool[np.ndarray, " slot"]


def draw(key: jax.Array, records: int, rate: float) -> Int[np.ndarray, " row"]:
    """The rows of the records that take part: each with chance `rate`, a multiple of 2^-32, by its own bits.

    >>> draw(jax.random.key(0), 5, 1.0).tolist()
    [0, 1, 2, 3, 4]
    """
    chances = rate * CHANCES
    if chances != int(chances) or not 0 < chances <= CHANCES:
        raise PateError(f"rate={rate} must be a multiple of 2^-32 above 0, and at most 1")
    words = np.asarray(_words(key, records)).astype(np.uint64)
    return np.flatnonzero(words < np.uint64(chances))


def microbatches(rows: Int[np.ndarray, " row"], size: int) -> Iterator[Microbatch]:
    """All rows in order, `size` at a time; the last microbatch is filled up.

    >>> [(part.rows.tolist(), part.is_padding.tolist()) for part in microbatches(np.array([7, 8, 9]), 2)]
    [([7, 8], [False, False]), ([9, 0], [False, True])]
    """
    for start in range(0, len(rows), size):
        taken = rows[start : start + size]
        padded = np.zeros(size, np.int32)
        padded[: len(taken)] = taken
        yield Microbatch(padded, np.arange(size) >= len(taken))


@partial(jax.jit, static_argnums=1)
def _words(key: jax.Array, records: int) -> jax.Array:
    words: jax.Array = jax.random.bits(key, (records,), np.uint32)
    return words
