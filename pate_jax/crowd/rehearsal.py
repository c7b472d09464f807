"""How right a crowd is expected to be: a rehearsal on public inputs with made-up labels, free of cost.

What labels depend on is not known beforehand, so several made-up ones stand for them: clusters of the pool,
one for each class, or three or ten of them joined to one class at random, and random linear functions of the
coordinates, with noise and without. As many voters as there are records are drawn from the pool, with
replacement; noise is drawn as a release has it; and what follows is judged on the pool. Where true labels of
the public inputs may be used, they take the place of the made-up ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pate_jax.crowd import classifier, shares
from pate_jax.crowd.plan import Plan
from pate_jax.crowd.queries import Queries
from pate_jax.crowd.vectors import vectors
from pate_jax.mechanisms.crowds import ClassSums, NeighbourCounts
from pate_jax.models.spaces.space import Space

Labels = Int[np.ndarray, " pool"]
Guess = Callable[[Labels], Float[np.ndarray, "judged classes"]]
Places = Int[np.ndarray, "pool directions"]
_CLUSTERS = (1, 3, 10)  # of each class
_UNSURE = (0.0, 0.7)  # noise in the scores of linear functions
_TURNS = 15  # of averaging clusters
_SHARED = 0.1  # of what a query says that its neighbours do not share
_JUDGED = 3000  # public inputs, at most


class Expected(NamedTuple):
    """The share of public inputs that is labelled right: the mean over made-up labels, and the ends."""

    accuracy: float
    low: float
    high: float
    majority: float  # share of the most frequent class

    def text(self) -> str:
        """In words.

        >>> Expected(0.871, 0.402, 1.0, 0.5).text()
        '87% right (40% to 100%)'
        """
        return f"{self.accuracy:.0%} right ({self.low:.0%} to {self.high:.0%})"


def labellings(space: Space, public: Places, classes: int) -> list[Labels]:
    """Made-up labels of a pool, from its coordinates in a space; the same for the same pool.

    >>> from pate_jax.models import spaces
    >>> pool = np.random.default_rng(0).normal(size=(90, 3)) * [9, 1, 3]
    >>> space = spaces.learn("identity", pool)
    >>> [len(np.unique(one)) for one in labellings(space, space.coordinates(pool), 4)]
    [4, 4, 4, 4, 4]
    """
    random = np.random.default_rng(0)
    seen = _evened(space, public)
    made = [_clustered(seen, classes, each, random) for each in _CLUSTERS]
    scores = (public - public.mean(0)) @ random.normal(size=(public.shape[1], classes))
    scores = (scores - scores.mean(0)) / np.maximum(scores.std(0), 1e-9)
    return [*made, *((scores + noise * random.gumbel(size=scores.shape)).argmax(1) for noise in _UNSURE)]


def rehearse(made: Plan, public: Places, labels: Sequence[Labels], voters: int) -> Expected:
    """What a plan is expected to bring, its `public` inputs' coordinates having each of these labels.

    `voters` is their public, rounded number. The same call says the same.
    """
    random = np.random.default_rng(1)
    times = random.multinomial(voters, np.full(len(public), 1 / len(public)))
    judged = random.permutation(len(public))[:_JUDGED]
    begun = _by_sums if isinstance(made.release, ClassSums) else _by_counts
    guess = begun(made, public, times, judged, random)
    right = [float((guess(each).argmax(1) == each[judged]).mean()) for each in labels]
    usual = [float(np.bincount(each[judged]).max()) / len(judged) for each in labels]
    return Expected(float(np.mean(right)), min(right), max(right), float(np.mean(usual)))


def _by_sums(
    made: Plan,
    public: Places,
    times: Int[np.ndarray, " pool"],
    judged: Int[np.ndarray, " judged"],
    random: np.random.Generator,
) -> Guess:
    """The probabilities that noisy sums give."""
    release, width = made.release, len(made.space.variances)
    assert isinstance(release, ClassSums)
    cast = vectors(made.scaling, public[:, :width])
    pool = classifier.measured(cast, release.length)

    def guessed(labels: Labels) -> Float[np.ndarray, "judged classes"]:
        table = np.eye(release.classes)[labels].T @ (times[:, None] * cast)
        table = table[1:] - table[:1] if release.classes == 2 else table
        noisy = _noisy(table, release.sigma, random)
        return classifier.of_pool(noisy, release, pool, int(times.sum())).probabilities(cast[judged])

    return guessed


def _by_counts(
    made: Plan,
    public: Places,
    times: Int[np.ndarray, " pool"],
    judged: Int[np.ndarray, " judged"],
    random: np.random.Generator,
) -> Guess:
    """The probabilities that neighbours' noisy counts give, carried on to other inputs by nearness."""
    release, queries = made.release, made.queries
    assert queries is not None and isinstance(release, NeighbourCounts)
    gaps = _gaps(made, queries, public) + (queries.offsets - _squares(queries))
    nearest = np.argpartition(gaps, release.votes - 1, axis=1)[:, : release.votes]
    carry = _carrier(queries, _gaps(made, queries, public[judged]))

    def guessed(labels: Labels) -> Float[np.ndarray, "judged classes"]:
        table = np.zeros(release.shape)
        np.add.at(table, (nearest, labels[:, None]), times[:, None])
        found = shares.of_counts(_noisy(table, release.sigma, random), release).probabilities
        middle = found.mean(0)
        return carry @ (found - middle) + middle

    return guessed


def _carrier(queries: Queries, gaps: np.ndarray) -> Float[np.ndarray, "judged query"]:
    """How what queries say is carried on to other inputs: least squares on a Gaussian kernel."""
    chosen = queries.vectors.astype(np.float64)
    apart = _squares(queries)[:, None] + _squares(queries) - 2 * chosen.T @ chosen
    usual = max(float(np.median(apart)), 1.0)
    alike = np.exp(-apart / usual) + _SHARED * np.eye(len(apart))
    return np.asarray(np.linalg.solve(alike, np.exp(-gaps / usual).T).T)


def _gaps(made: Plan, queries: Queries, places: Places) -> Float[np.ndarray, "input query"]:
    """Squared distances of inputs and queries."""
    seen = vectors(queries.scaling, places[:, : len(made.space.variances)]).astype(np.float64)
    return (seen**2).sum(1)[:, None] + _squares(queries) - 2 * seen @ queries.vectors


def _squares(queries: Queries) -> Float[np.ndarray, " query"]:
    return np.asarray((queries.vectors.astype(np.float64) ** 2).sum(0))


def _noisy(table: np.ndarray, sigma: float, random: np.random.Generator) -> Int[np.ndarray, "rows columns"]:
    return np.rint(table + sigma * random.normal(size=table.shape)).astype(np.int64)


def _evened(space: Space, public: Places) -> Float[np.ndarray, "pool directions"]:
    """Coordinates in which faint directions count for less than strong ones, but for more than they vary."""
    variances = np.maximum(space.variances[: public.shape[1]], 1e-9)
    return (public - public.mean(0)) * variances**-0.5 * (variances / variances[0]) ** 0.25


def _clustered(seen: np.ndarray, classes: int, each: int, random: np.random.Generator) -> Labels:
    """The class of the cluster that each input falls into, `each` clusters for a class."""
    wanted = min(classes * each, len(seen))
    centres = seen[random.choice(len(seen), wanted, replace=False)]
    for _ in range(_TURNS):
        nearest = ((centres**2).sum(1) - 2 * seen @ centres.T).argmin(1)
        sums = np.stack([np.bincount(nearest, column, wanted) for column in seen.T], 1)
        counts = np.bincount(nearest, minlength=wanted)[:, None]
        centres = np.where(counts > 0, sums / np.maximum(counts, 1), centres)
    names = np.concatenate([random.permutation(classes) for _ in range(each)])[:wanted]
    return np.asarray(names[nearest])
