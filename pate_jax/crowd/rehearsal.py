"""How right a crowd is expected to be: a rehearsal on public inputs with made-up labels, free of cost.

What labels depend on is not known beforehand, so several made-up ones stand for them: clusters of the pool,
one for each class, or three or ten of them joined to one class at random, and random linear functions of the
coordinates, with noise and without. As many voters as there are records are drawn from one part of the pool,
with replacement; noise is drawn as a release has it, several times; and what follows is judged on the rest,
by accuracy or another metric. Where the public inputs have labels of their own, these take the place of the
made-up ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import cho_factor, cho_solve

from pate_jax.crowd import classifier, shares, steps
from pate_jax.crowd.metric import Metric
from pate_jax.crowd.neighbours import Queries
from pate_jax.crowd.plan import Plan
from pate_jax.crowd.roles import Labels, Roles, Rows, assigned
from pate_jax.crowd.step_choice import FIRST
from pate_jax.crowd.steps import Steps
from pate_jax.crowd.vectors import vectors
from pate_jax.mechanisms.crowds import ClassSums, NeighbourCounts
from pate_jax.models import clusters
from pate_jax.models.names import Metric as Name
from pate_jax.models.spaces.space import Space

Shares = Float[np.ndarray, "row classes"]
Guess = Callable[[Labels], Shares]
Places = Int[np.ndarray, "pool directions"]
_CLUSTERS = (1, 3, 10)  # of each class
_UNSURE = (0.0, 0.7)  # noise in the scores of linear functions
_MADE = (
    "of one cluster",
    "of three clusters",
    "of ten clusters",
    "by a weighted sum",
    "by a noisy weighted sum",
)
_TURNS = 15  # of averaging clusters
_SHARED = 0.1  # of what a query says that its neighbours do not share
_BLOCK = 2048  # inputs compared with all queries at a time
_DRAWS = 10  # of the noise, where it matters
FEW_DRAWS = 3  # where it does not, or where something is trained after each


class Expected(NamedTuple):
    """The share of judged inputs that is labelled right (or another metric), with several labels or with the
    pool's own.

    Of several labels, `low` and `high` are what the least and the most kind of them bring, in the mean over
    the draws of the noise, which is no forecast; of one, where the share lies that one draw brings of all
    inputs like these.
    """

    accuracy: float  # the mean
    low: float
    high: float
    majority: float  # share of the most frequent class, or what any constant answer reaches
    judged: int = 0  # how many inputs, or how many tell as much as these of another metric
    labels: int = 1
    noise: float = 0.0  # how far the share goes up and down with the noise: its standard deviation
    draws: int = 1  # of the noise
    hard: int = 0  # which of several labels bring least
    easy: int = 0  # and which most
    metric: Name = "accuracy"

    def text(self) -> str:
        """In words.

        >>> Expected(0.871, 0.402, 1.0, 0.5, 900, labels=5, hard=2, easy=0).text()
        '40% right (classes of ten clusters) to 100% (of one cluster)'
        >>> Expected(0.871, 0.85, 0.89, 0.5, 900).text()
        '87% right (85% to 89%)'
        >>> Expected(0.871, 0.85, 0.89, 0.5, 900, metric="auroc").text()
        'AUROC 0.871 (0.850 to 0.890)'
        """
        by = Metric(self.metric)
        mean, low, high = (by.text(one) for one in (self.accuracy, self.low, self.high))
        before, after = ("", " right") if self.metric == "accuracy" else (f"{by.head} ", "")
        if self.labels > 1:
            return f"{before}{low}{after} (classes {_MADE[self.hard]}) to {high} ({_MADE[self.easy]})"
        return f"{before}{mean}{after} ({low} to {high})"

    @property
    def usual(self) -> str:
        """What the most frequent class alone reaches, in words.

        >>> Expected(0.9, 0.8, 1.0, 0.5).usual, Expected(0.9, 0.8, 1.0, 0.5, metric="auroc").usual
        ('the most frequent class alone 50%', 'the most frequent class alone 0.500')
        """
        return f"the most frequent class alone {Metric(self.metric).text(self.majority)}"

    @property
    def least(self) -> float:
        """The share with the labels that suit least, by which voters are compared.

        Two right and two wrong ones are added, since a share of 0 or 1 of few inputs says little.
        """
        share = self.low if self.labels > 1 else self.accuracy
        return (share * self.judged + 2) / (self.judged + 4)

    @property
    def deviation(self) -> float:
        """The standard deviation of that share, by how few inputs are judged and how often noise is drawn."""
        return math.sqrt(self._varies + self.noise**2 / self.draws)

    @property
    def noisy(self) -> bool:
        """Whether more draws of the noise would tell more: they are a tenth of what is not known, or more."""
        return self.noise**2 / self.draws > 0.1 * self._varies

    @property
    def _varies(self) -> float:
        return self.least * (1 - self.least) / (self.judged + 4)


def labellings(space: Space, public: Places, classes: int) -> list[Labels]:
    """Made-up labels of a pool, from its coordinates in a space; the same for the same pool.

    >>> from pate_jax.models import spaces
    >>> pool = np.random.default_rng(0).normal(size=(90, 3)) * [9, 1, 3]
    >>> space = spaces.learn("identity", pool)
    >>> [len(np.unique(one)) for one in labellings(space, space.coordinates(pool), 4)]
    [4, 4, 4, 4, 4]
    """
    random, public = np.random.default_rng(0), public[:, :FIRST]
    seen = _evened(space, public).astype(np.float32)
    made = [_clustered(seen, classes, each, random) for each in _CLUSTERS]
    scores = (public - public.mean(0)) @ random.normal(size=(public.shape[1], classes))
    scores = (scores - scores.mean(0)) / np.maximum(scores.std(0), 1e-9)
    return [*made, *((scores + noise * random.gumbel(size=scores.shape)).argmax(1) for noise in _UNSURE)]


def rehearse(
    made: Plan,
    public: Places,
    labels: Sequence[Labels],
    voters: int,
    users: Labels | None = None,
    metric: Metric = Metric(),  # noqa: B008 (it is frozen)
) -> Expected:
    """What a plan is expected to bring, its `public` inputs' coordinates having each of these labels.

    `voters` is their public, rounded number, and `users` are those of public inputs, where users vote. The
    same call says the same.
    """
    roles = assigned(len(public), voters, users)
    guess = guesser(made, public, roles, roles.judged, drawing())

    def drawn(times: int) -> list[list[Shares]]:
        return [[guess(each) for _ in range(times)] for each in labels]

    few = drawn(FEW_DRAWS)
    found = judged(few, labels, roles, metric)
    if not found.noisy:
        return found
    more = drawn(_DRAWS - FEW_DRAWS)
    return judged([first + then for first, then in zip(few, more, strict=True)], labels, roles, metric)


def judged(
    guesses: Sequence[Sequence[Shares]], labels: Sequence[Labels], roles: Roles, metric: Metric
) -> Expected:
    """How right the guesses of judged inputs are: for each of several labels, from each draw of the noise."""
    truth = [each[roles.judged] for each in labels]
    right = np.array(
        [[metric.of(one, each) for one in some] for some, each in zip(guesses, truth, strict=True)]
    )
    draws = right.shape[1]
    noise = math.sqrt(right.var(1, ddof=1).mean()) if draws > 1 else 0.0
    return of_labels(right.mean(1), truth, roles.judges, noise, draws, _around, metric)


def of_labels(
    each: Float[np.ndarray, " labels"],
    truth: Sequence[Labels],
    judged: int,
    noise: float,
    draws: int,
    around: Callable[[float, int, float], tuple[float, float]],
    metric: Metric,
) -> Expected:
    """What is expected by the share that is right (or another metric) with each of several labels, or one.

    `truth` are the labels that judge, and `judged` is of how many inputs or users. `around` says where the
    share of one lies, given how many judge and how far it goes up and down with the noise.
    """
    usual = [metric.of_constant(labels) for labels in truth]
    judged = max(1, round(judged * min(metric.rows(labels) / len(labels) for labels in truth)))
    several = len(truth)
    ends = (each.min(), each.max()) if several > 1 else around(float(each[0]), judged, noise)
    low, high = map(float, ends)
    which = int(each.argmin()), int(each.argmax())
    mean, most = float(each.mean()), float(np.mean(usual))
    return Expected(mean, low, high, most, judged, several, noise, draws, *which, metric.name)


def _around(share: float, number: int, noise: float) -> tuple[float, float]:
    """Where a share lies of which so many draws are known: two deviations to each side (Wilson's interval).

    With noise of its own it is as little known as from fewer draws.

    >>> [tuple(round(end, 3) for end in _around(*one, 0.0)) for one in ((1.0, 1), (0.0, 100), (0.9, 200))]
    [(0.2, 1.0), (0.0, 0.038), (0.849, 0.935)]
    >>> tuple(round(end, 3) for end in _around(0.9, 200, 0.03))
    (0.802, 0.952)
    """
    varies = share * (1 - share)
    known = number / (1 + number * noise**2 / varies) if varies else number
    middle, more = (share + 2 / known) / (1 + 4 / known), 1 / known**2
    around = 2 * math.sqrt(varies / known + more) / (1 + 4 / known)
    return max(0.0, middle - around), min(1.0, middle + around)


def drawing() -> np.random.Generator:
    """What draws the noise of a rehearsal; it keeps no secret, and the same rehearsal says the same."""
    return np.random.default_rng(2)


def guesser(made: Plan, public: Places, roles: Roles, rows: Rows, random: np.random.Generator) -> Guess:
    """A function from labels of the pool to the shares that a noisy table gives at some of its rows.

    Each call draws the noise anew.
    """
    begun = _by_sums if isinstance(made.release, ClassSums) else _by_counts
    return begun(made, public, roles, rows, random)


def _by_sums(made: Plan, public: Places, roles: Roles, rows: Rows, random: np.random.Generator) -> Guess:
    """The probabilities that noisy sums give, as their classifier judges as a student."""
    release, width = made.release, len(made.space.variances)
    assert isinstance(release, ClassSums)
    seen = vectors(made.scaling, public[:, :width])
    pool, voters = classifier.measured(seen, release.length), roles.voters
    voting = seen[roles.voting]

    after = None if made.steps is None else _Stepping(made.steps, public, roles, random)

    def guessed(labels: Labels) -> Shares:
        noisy = _noisy(roles.sums(voting, labels, release), release.sigma, random)
        users = voters if roles.users is None else shares.weight(noisy, made.scaling.constant, voters)
        model = classifier.of_pool(noisy, release, pool, users)
        return model.judged(seen[rows]) if after is None else after.guess(model, seen, labels, rows)

    return guessed


class _Stepping:
    """The steps of a rehearsal: the pool's vectors of them, and who votes."""

    def __init__(self, made: Steps, public: Places, roles: Roles, random: np.random.Generator) -> None:
        self.made, self.random = made, random
        self.seen = vectors(made.scaling, public[:, : len(made.scaling.weights)])
        of, voting = roles.users, roles.voting
        self.voting = voting if of is None else voting[np.argsort(of[voting], kind="stable")]
        self.times, self.users = roles.times[self.voting], None if of is None else of[self.voting]

    def guess(self, model: classifier.Linear, first: np.ndarray, labels: Labels, rows: Rows) -> Shares:
        """The probabilities that follow from all steps behind the classifier of the first table."""
        release, own, told = self.made.release, self.seen[self.voting], labels[self.voting]

        def ask(_: int, weights: steps.Weights) -> Int[np.ndarray, "rows entries"]:
            exact = steps.gradients(own, told, self.users, weights, release, self.times)
            return _noisy(exact, release.sigma, self.random)

        weights = steps.taken(self.made, model, first, self.seen, ask)
        return steps.probabilities(weights, self.seen[rows])


def _by_counts(made: Plan, public: Places, roles: Roles, rows: Rows, random: np.random.Generator) -> Guess:
    """The probabilities that neighbours' noisy counts give, carried on to other inputs by nearness."""
    release, queries = made.release, made.queries
    assert queries is not None and isinstance(release, NeighbourCounts)
    asked, casting = roles.votes(*_nearest(made, queries, public[roles.voting], release.votes), release)
    carry = _carrier(queries, _gaps(made, queries, public[rows]))

    def guessed(labels: Labels) -> Shares:
        cells = asked * release.classes + labels[casting]
        table = np.bincount(cells, roles.times[casting], math.prod(release.shape)).reshape(release.shape)
        found = shares.of_counts(_noisy(table, release.sigma, random), release).probabilities
        middle = found.mean(0)
        return carry(found - middle) + middle

    return guessed


def _nearest(
    made: Plan, queries: Queries, places: Places, votes: int
) -> tuple[Int[np.ndarray, "input vote"], Int[np.ndarray, "input vote"]]:
    """The queries that inputs at some places vote at, and how far these are, with their handicaps."""
    handicaps = queries.offsets - _squares(queries)
    found, far = np.empty((2, len(places), votes), np.int64)
    for start in range(0, len(places), _BLOCK):
        block = slice(start, start + _BLOCK)
        gaps = _gaps(made, queries, places[block]) + handicaps
        found[block] = np.argpartition(gaps, votes - 1, axis=1)[:, :votes]
        far[block] = np.take_along_axis(gaps, found[block], 1)
    return found, far


def _carrier(queries: Queries, gaps: np.ndarray) -> Callable[[Shares], Shares]:
    """How what queries say is carried on to other inputs: least squares on a Gaussian kernel."""
    chosen = queries.vectors.astype(np.float64)
    apart = _squares(queries)[:, None] + _squares(queries) - 2 * chosen.T @ chosen
    usual = max(float(np.median(apart)), 1.0)
    alike = cho_factor(np.exp(-apart / usual) + _SHARED * np.eye(len(apart)), overwrite_a=True)
    near = np.exp(-gaps / usual)
    return lambda said: np.asarray(near @ cho_solve(alike, said))


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
        nearest = clusters.nearest(seen, centres)
        centres = clusters.middles(seen, nearest, centres)
    names = np.concatenate([random.permutation(classes) for _ in range(each)])[:wanted]
    return np.asarray(names[nearest])
