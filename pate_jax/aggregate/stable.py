"""Stable answers drawn exactly: a list that can be stopped, continued with the same noise, and that halts.

The noise of a query is named by its place in the list, and the noise of a threshold by the number of queries
that were not answered before it. So a list gets the same answers however it is divided into parts. One key
serves one list of votes, or each part has its own and names the key under which its first threshold was
drawn. `pate_jax.mechanisms.stable` describes the mechanism.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int32, Integer

from pate_jax.aggregate import noise
from pate_jax.errors import PateError
from pate_jax.mechanisms.stable import StableAnswers, distance

UNANSWERED = -1
_LEAST_DRAWN = 1024


class Progress(NamedTuple):
    """How far a list has come. Both numbers are public, because the answers show them."""

    asked: int = 0
    unstable: int = 0

    def is_over(self, mechanism: StableAnswers) -> bool:
        """Whether the list has ended: no further query may be asked of these votes under this budget.

        >>> Progress(asked=9, unstable=2).is_over(StableAnswers(threshold=40, scale=6.0, cutoff=2))
        True
        """
        return self.unstable >= mechanism.cutoff


class Answered(NamedTuple):
    """The answers of the queries that were asked, which are the first ones of those given."""

    labels: Int32[np.ndarray, " asked"]
    answered: Bool[np.ndarray, " asked"]


def answer(
    mechanism: StableAnswers,
    votes: Integer[Any, "queries classes"],
    *,
    key: jax.Array,
    before: Progress = Progress(),  # noqa: B008, which is frozen
    opened: jax.Array | None = None,
) -> tuple[Progress, Answered]:
    """Answer the next queries of a list, until it ends or `cutoff` queries were not answered.

    An unanswered query has the label -1. The rows of `votes` after the one with which the list halted are
    not asked, and have no answer. `before` is what the last call returned. A list that goes on needs
    `opened`, the key of the call in which the present threshold was drawn: the one with the last unanswered
    query so far, or else the first. Where one key serves the whole list, `opened` is that key.

    >>> from pate_jax.aggregate import seeded_key
    >>> mechanism = StableAnswers(threshold=40, scale=3.0, cutoff=1)
    >>> votes = [[250, 0, 0], [3, 240, 7], [120, 130, 0], [0, 0, 250]]
    >>> progress, found = answer(mechanism, np.array(votes), key=seeded_key(1))
    >>> found.labels.tolist(), progress
    ([0, 1, -1], Progress(asked=3, unstable=1))
    """
    counts = np.asarray(votes)
    readings = distance(counts)
    _check(before)
    if before.asked and opened is None:
        raise PateError(
            f"before={before!r} needs opened=, the key of the call with the last unanswered query so far, or "
            "else of the first call: the threshold in use would be drawn again, which is not charged"
        )
    of_thresholds, of_queries = jax.random.split(noise.check_key(key))
    if before.is_over(mechanism) or not len(counts):
        return before, Answered(np.zeros(0, np.int32), np.zeros(0, bool))
    noisy = readings + _drawn(mechanism, of_queries, before.asked, len(readings))
    thresholds = _thresholds(mechanism, of_thresholds, before)
    if opened is not None and opened is not key:
        thresholds[0] = _thresholds(mechanism, jax.random.split(noise.check_key(opened))[0], before)[0]
    answered = _pattern(noisy, thresholds)
    labels = np.where(answered, counts[: len(answered)].argmax(axis=1), UNANSWERED).astype(np.int32)
    unstable = before.unstable + int((~answered).sum())
    return Progress(before.asked + len(answered), unstable), Answered(labels, answered)


def _pattern(noisy: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Which of the queries asked are answered: one threshold serves until a query stays below it."""
    answered: list[bool] = []
    unstable = 0
    for reading in noisy.tolist():
        if unstable == len(thresholds):
            break
        answered.append(reading >= thresholds[unstable])
        unstable += not answered[-1]
    return np.array(answered, bool)


def _thresholds(mechanism: StableAnswers, key: jax.Array, before: Progress) -> np.ndarray:
    """The noisy thresholds of the epochs that are left, the present one first."""
    left = mechanism.cutoff - before.unstable
    return mechanism.threshold + _drawn(mechanism, key, before.unstable, left)


def _drawn(mechanism: StableAnswers, key: jax.Array, first: int, count: int) -> np.ndarray:
    """The values of the noise in the places from `first` on: the same in every call with this key.

    More places are drawn than are used, so that few programs are compiled.
    """
    padded = max(_LEAST_DRAWN, 1 << (count - 1).bit_length())
    places = np.arange(first, first + padded, dtype=np.uint64).astype(np.uint32)
    drawn = _at_places(noise.source(mechanism.noise), key, jnp.asarray(places))
    return np.asarray(drawn)[:count].astype(np.int64)


@jax.jit
def _at_places(source: noise.Source, key: jax.Array, places: jax.Array) -> jax.Array:
    def draw(place: jax.Array) -> jax.Array:
        return noise.draw(source, jax.random.fold_in(key, place), ())

    found: jax.Array = jax.vmap(draw)(places)
    return found


def _check(before: Progress) -> None:
    if not (isinstance(before, Progress) and 0 <= before.unstable <= before.asked < 1 << 32):
        raise PateError(f"before={before!r} must be the progress that an earlier call returned")
