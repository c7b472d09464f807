"""What follows from a noisy table at no further cost: probabilities, and how far noise moves them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int

from pate_jax.crowd import classifier
from pate_jax.crowd.plan import Plan
from pate_jax.crowd.vectors import vectors
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums, NeighbourCounts


class Shares(NamedTuple):
    """Each query's probabilities, and the standard deviation that the known noise has in them."""

    probabilities: Float32[np.ndarray, "queries classes"]
    deviation: Float32[np.ndarray, " queries"]


def of_counts(noisy: Int[np.ndarray, "query class"], release: NeighbourCounts) -> Shares:
    """Shares of votes at the plan's queries, of which each has about as many votes as any other.

    The deviation is that of a share before those below 0 are drawn in to 0.

    >>> found = of_counts(np.array([[90, 10, 2], [-3, 80, 21]]), NeighbourCounts(2, 3, votes=1, sigma=2.0))
    >>> found.probabilities.argmax(1).tolist(), bool(np.allclose(found.deviation, 0.0163, atol=1e-4))
    ([0, 1], True)
    """
    if noisy.shape != release.shape:
        raise PateError(f"counts {list(noisy.shape)} do not fit a release {list(release.shape)}")
    usual = max(float(noisy.sum()) / release.queries, release.sigma)
    apart = noisy - noisy.mean(1, keepdims=True)
    raw = np.maximum(1 / release.classes + apart / usual, 0)
    probabilities = (raw / raw.sum(1, keepdims=True)).astype(np.float32)
    deviation = release.sigma * np.sqrt(1 - 1 / release.classes) / usual
    return Shares(probabilities, np.full(len(noisy), deviation, np.float32))


def of_sums(
    noisy: Int[np.ndarray, "row entry"],
    plan: Plan,
    public: Int[np.ndarray, "pool directions"],
    voters: int,
    others: Int[np.ndarray, "query directions"] | None = None,
) -> Shares:
    """Shares of the classifier that noisy sums give, for the whole pool, or for `others`.

    `public` and `others` are coordinates in the plan's space, and `voters` is their public, rounded number.
    """
    if not isinstance(plan.release, ClassSums):
        raise PateError("noisy sums are wanted, and the plan is one of neighbours: use shares.of_counts")
    width = len(plan.space.variances)
    pool = vectors(plan.scaling, public[:, :width])
    model = classifier.fit(noisy, plan.release, pool, voters)
    seen = pool if others is None else vectors(plan.scaling, others[:, :width])
    return Shares(model.probabilities(seen), model.deviation(seen))
