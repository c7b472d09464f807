"""What follows from a noisy table at no further cost: probabilities, and how far noise moves them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Float32, Int

from pate_jax.crowd import classifier, evidence, steps
from pate_jax.crowd.plan import Plan
from pate_jax.crowd.vectors import vectors
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums, NeighbourCounts

_HARDLY = 0.01  # more right labels than those of the most frequent class


class Shares(NamedTuple):
    """Each query's probabilities, what they were made of, and what the known noise has in that.

    No probability is below 0, so what the noise has left in them is not known. The `linear` shares that they
    were made of have the noise of the table; those of counts are not shrunk and have no bias.
    """

    probabilities: Float32[np.ndarray, "queries classes"]
    linear: Float32[np.ndarray, "queries classes"]
    deviation: Float32[np.ndarray, " queries"]  # standard deviation of the noise in linear shares
    evidence: float  # that the table shows more than how frequent the classes are (`crowd.evidence`)


def doubt(found: Shares) -> str | None:
    """One sentence, if these labels are expected to be hardly better than the most frequent class; else None.

    >>> told, exact = np.array([[0.9, 0.1], [0.3, 0.7]], np.float32), np.zeros(2, np.float32)
    >>> doubt(Shares(told, told, exact, 900.0))
    >>> same = np.array([[0.9, 0.1], [0.7, 0.3]], np.float32)
    >>> doubt(Shares(same, same, exact, 900.0))
    'labels are expected to be right hardly more often than the most frequent class alone would be'
    >>> doubt(Shares(told, told, exact, 1.0))[:40]
    'the noisy table shows no more than how f'
    """
    if found.evidence < evidence.ENOUGH:
        return (
            "the noisy table shows no more than how frequent the classes are: its labels may be no better "
            "than the most frequent class; allow a larger epsilon, or have more voters"
        )
    right, usual = float(found.probabilities.max(1).mean()), float(found.probabilities.mean(0).max())
    if right >= usual + _HARDLY:
        return None
    return "labels are expected to be right hardly more often than the most frequent class alone would be"


class Held(NamedTuple):
    """What all queries of noisy counts are read with."""

    usual: float  # votes of a query
    middle: Float[np.ndarray, " classes"]  # how far the shares of all queries are from even ones
    kept: float  # of what a query says beside these

    def scores(self, noisy: Int[np.ndarray, "query class"]) -> Float[np.ndarray, "query class"]:
        """The shares of each query by this rule; some may be below 0."""
        even = 1 / noisy.shape[1]
        return np.asarray(even + self.middle + self.kept * (self.apart(noisy) - self.middle))

    def apart(self, noisy: Int[np.ndarray, "query class"]) -> Float[np.ndarray, "query class"]:
        """How far the counts of each query are from even ones, over the usual number of votes."""
        return np.asarray((noisy - noisy.mean(1, keepdims=True)) / self.usual)


def held(noisy: Int[np.ndarray, "query class"], release: NeighbourCounts) -> Held:
    """The rule by which noisy counts are read; it follows from them."""
    if noisy.shape != release.shape:
        raise PateError(f"counts {list(noisy.shape)} do not fit a release {list(release.shape)}")
    usual = max(float(noisy.sum()) / release.queries, release.sigma)
    apart = (noisy - noisy.mean(1, keepdims=True)) / usual
    noise = release.sigma / usual * np.sqrt(1 - 1 / release.classes)
    middle = apart.mean(0)
    middle *= classifier.believed(float((middle**2).mean()), noise**2 / release.queries)
    kept = classifier.believed(float(((apart - middle) ** 2).mean()), noise**2)
    return Held(usual, middle, kept)


def of_counts(noisy: Int[np.ndarray, "query class"], release: NeighbourCounts) -> Shares:
    """Shares of votes at the plan's queries, of which each has about as many votes as any other.

    What is seen at a query is its shares and noise of a known variance d^2. Over queries shares vary around
    those of the classes with some variance v. The best linear guess keeps `v / (v + d^2)` of what is seen
    beside the shares of the classes, and v is what the noisy counts vary by, less the noise. So where
    nothing but noise is left, the most frequent class is named. What is seen, before that, are the linear
    shares: students learn from them, and are judged by them, since each query has noise of its own.

    >>> found = of_counts(np.array([[90, 10, 2], [-3, 80, 21]]), NeighbourCounts(2, 3, votes=1, sigma=2.0))
    >>> found.probabilities.argmax(1).tolist(), bool(np.allclose(found.deviation, 0.0163, atol=1e-4))
    ([0, 1], True)
    """
    found = held(noisy, release)
    raw = np.maximum(found.scores(noisy), 0)
    probabilities = (raw / raw.sum(1, keepdims=True)).astype(np.float32)
    noise = release.sigma / found.usual * np.sqrt(1 - 1 / release.classes)
    deviation = np.full(len(noisy), noise, np.float32)
    linear = (1 / release.classes + found.apart(noisy)).astype(np.float32)
    return Shares(probabilities, linear, deviation, evidence.of_counts(noisy, release))


def weight(noisy: Int[np.ndarray, "row entry"], constant: int, users: int) -> int:
    """For how many of their records' means the noisy sums of users stand, where these add a constant entry.

    A user's table is that of its records added up, divided by a number so that it is no longer than one
    vector: some times the mean of its records, once at least. Constants of all classes together add up to
    how often, in all users. Sums of two classes do not tell, and are taken for means.

    >>> weight(np.array([[900, 70], [-900, 50], [0, 80]]), constant=2, users=40)
    100
    >>> weight(np.array([[900, 70]]), constant=2, users=40)
    40
    """
    if len(noisy) < 2 or not constant:
        return users
    return max(users, int(noisy[:, -1].sum()) // constant)


def classifier_of(
    noisy: Int[np.ndarray, "row entry"], plan: Plan, public: Int[np.ndarray, "pool directions"], voters: int
) -> classifier.Linear:
    """The classifier that noisy sums give; `public` and `voters` as for `of_sums`."""
    if not isinstance(plan.release, ClassSums):
        raise PateError("noisy sums are wanted, and the plan is one of neighbours: use shares.of_counts")
    pool = vectors(plan.scaling, public[:, : len(plan.space.variances)])
    return classifier.fit(noisy, plan.release, pool, voters)


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
    model = classifier_of(noisy, plan, public, voters)
    seen = vectors(plan.scaling, (public if others is None else others)[:, : len(plan.space.variances)])
    probabilities = model.probabilities(seen)
    linear = probabilities if model.head is not None else model.linear(seen).astype(np.float32)
    return Shares(probabilities, linear, model.deviation(seen), model.evidence)


def of_steps(
    weights: steps.Weights,
    seen: Int[np.ndarray, "query entries"],
    made: steps.Steps,
    taken: int,
    evidence: float,
) -> Shares:
    """Shares of the classifier at the weights that so many steps have led to; `evidence` is the first one's.

    The noise of a step moves an input's logit by `rate * sigma * |vector|`, and its probabilities by at most
    `p (1 - p)` times that; the noise of all steps but the first adds up.
    """
    probabilities = steps.probabilities(weights, seen)
    length = np.linalg.norm(seen.astype(np.float64), axis=1)
    logit = made.rate * made.release.sigma * length * np.sqrt(taken - 1) / 2**steps.FINE
    unsure = (probabilities * (1 - probabilities)).mean(1)
    return Shares(probabilities, probabilities, (logit * unsure).astype(np.float32), evidence)
