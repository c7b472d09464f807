"""The threshold test: the chance that a query is answered, before and after any one vote moves."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pate_jax.accounting.exact.groups import Groups
from pate_jax.accounting.exact.noise_law import log_tail
from pate_jax.mechanisms import ThresholdTest

EPSILON = float(np.finfo(np.float64).eps)


class Passing(NamedTuple):
    """The log-probabilities of an answer and of a refusal, and a bound on the error of both."""

    answered: np.ndarray
    refused: np.ndarray
    error: np.ndarray


def passing(test: ThresholdTest, largest: np.ndarray) -> Passing:
    """The test's law if the largest margin is `largest`.

    >>> from pate_jax.mechanisms import Noise
    >>> passing(ThresholdTest(200, Noise("gaussian", 150.0)), np.array([200.0])).answered.round(4).tolist()
    [-0.6931]
    """
    answered, refused = log_tail(test.noise, test.threshold - largest)
    with np.errstate(invalid="ignore"):
        error = 16 * EPSILON * (2 + np.nan_to_num(np.abs(answered) + np.abs(refused), posinf=0.0))
    return Passing(answered, refused, error)


def largest(groups: Groups) -> np.ndarray:
    """The largest margin of each histogram [R]."""
    result: np.ndarray = groups.margins.max(axis=1)
    return result


def largest_after(groups: Groups) -> np.ndarray:
    """The largest margin after each move of one vote from group a to group b [R, U, U].

    A move touches two classes, so the largest untouched one is in one of the three groups of largest margin.
    """
    order = np.argsort(-groups.margins, axis=1, kind="stable")
    margins = np.take_along_axis(groups.margins, order, axis=1)
    sizes = np.take_along_axis(groups.sizes, order, axis=1)
    rank = np.argsort(order, axis=1)
    untouched = np.full((*groups.counts.shape, groups.counts.shape[1]), -np.inf)
    for place in range(min(3, margins.shape[1]) - 1, -1, -1):
        moved = (rank == place)[:, :, None].astype(int) + (rank == place)[:, None, :]
        left = sizes[:, place, None, None] - moved >= 1
        untouched = np.where(left, margins[:, place, None, None], untouched)
    moved_margins = np.maximum(groups.margins[:, :, None] - 1, groups.margins[:, None, :] + 1)
    result: np.ndarray = np.maximum(untouched, moved_margins)
    return result
