"""Stable answers: a list of exact pluralities, of which only the unstable ones are paid for.

A query's plurality is *stable* if no change of one vote can change it. Its `distance` says how many votes
more than one may change: `max(0, ceil((n1 - n2) / 2) - 1)` for the two largest counts. One vote that is
changed, added or removed moves the distance by at most 1. A query is answered, with its exact plurality, if
its distance plus noise reaches a threshold, which has noise of its own. The threshold's noise is drawn anew
after each query that is not answered, and the list ends with the query that is the `cutoff`-th of these
(Bassily, Thakkar and Thakurta 2018: sparse vector over distances to instability).

The derivation is in docs/proofs/stable.md, the cost in `pate_jax.accounting.stable`, and the sampler in
`pate_jax.aggregate.stable`. NumPy only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate_jax.errors import PateError
from pate_jax.mechanisms import codec
from pate_jax.mechanisms.codec import settle_numbers
from pate_jax.mechanisms.descriptions import SMALLEST_SCALE, Mechanism, Noise

LARGEST_SCALE = 20_000.0  # in votes; tables of discrete Laplace noise end a little above
LARGEST_THRESHOLD, LARGEST_CUTOFF = 1 << 24, 100_000


@dataclass(frozen=True)
class StableAnswers:
    """Exact pluralities of the stable queries of a list, until `cutoff` queries were not stable.

    >>> StableAnswers(threshold=40, scale=3.0, cutoff=1).noise
    Noise(family='discrete_laplace', scale=3.0)
    """

    threshold: int  # distance that a query must reach, noise included
    scale: float  # of the discrete Laplace noise on the threshold and on each distance
    cutoff: int  # the list ends with this many queries that are not answered

    name: ClassVar[str] = "stable-answers"  # on the command line and in files
    releases_counts: ClassVar[bool] = False

    def __post_init__(self) -> None:
        settle_numbers(self)
        for name, largest in (("threshold", LARGEST_THRESHOLD), ("cutoff", LARGEST_CUTOFF)):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= largest:
                raise PateError(f"{name}={value!r} must be a whole number from 1 to {largest:,}")
        known = isinstance(self.scale, Real) and not isinstance(self.scale, bool)
        if not (known and SMALLEST_SCALE <= self.scale <= LARGEST_SCALE):
            raise PateError(
                f"scale={self.scale!r} must be a number of votes from {SMALLEST_SCALE:g} to "
                f"{LARGEST_SCALE:g}; three times the cutoff over epsilon is usual"
            )

    @property
    def noise(self) -> Noise:
        """The noise on the threshold, and on each distance."""
        return Noise("discrete_laplace", self.scale)


AnyMechanism = Mechanism | StableAnswers  # what may answer the queries of a run


def from_dict(description: Mapping[str, Any]) -> AnyMechanism:
    """The mechanism that `to_dict` described, of single queries or of a list.

    >>> from_dict({"name": "stable-answers", "threshold": 40, "scale": 3.0, "cutoff": 1}).cutoff
    1
    """
    return cast(AnyMechanism, codec.from_dict(AnyMechanism, description, "mechanism"))


def distance(votes: ArrayLike) -> NDArray[np.int64]:
    """The distance to instability of each query's plurality: [query] from counts [query, class].

    >>> distance([[9, 1, 0], [6, 3, 1], [6, 4, 0], [5, 5, 0]]).tolist()
    [3, 1, 0, 0]
    """
    counts = np.asarray(votes)
    if counts.ndim != 2 or counts.shape[1] < 2 or counts.dtype.kind not in "iu":
        raise PateError(
            f"votes of shape {counts.shape} and type {counts.dtype} must be whole numbers [query, class] of "
            "at least two classes"
        )
    if counts.size and counts.min() < 0:
        raise PateError(f"votes hold {counts.min()}; a count of votes is never below 0")
    largest = np.partition(counts.astype(np.int64), -2, axis=1)
    lead = largest[:, -1] - largest[:, -2]
    found: NDArray[np.int64] = np.maximum(0, (lead + 1) // 2 - 1)
    return found
