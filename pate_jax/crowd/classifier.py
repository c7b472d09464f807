"""The linear classifier that noisy class sums give, for any number of inputs; public, like the sums.

Least squares reads no more of the labels than the sums M, less what all classes share; the second moment of
the inputs is that of the public pool. Along an eigenvector u of it, of eigenvalue e, n voters say `u M = n e
b` of the weight b, among noise of variance `N = s^2 + n e q (1 - q) / 2`: s is the known scale of the noise
that was added, and the rest is that of records being drawn, q being 1/classes.

How much to believe follows from the noisy sums themselves (empirical Bayes). The weights are taken to be
normal around zero with the variance `A f^k / e`, where f is how much the pool itself varies along u, over the
largest of that, and A and k are those under which the noisy sums are likeliest. With `power = n^2 e A f^k`
the best estimate of `u M` is then `power / (power + N)` of what is seen. The shares of the classes, which a
constant entry tells, are estimated in the same way by themselves. No setting is chosen and no label is looked
at.

Of many classes at a small epsilon, each class is a mixture of clusters of the public pool: where a class has
few voters beside the noise, its noisy mean says little by itself. But classes are made of the kinds of inputs
that there are: it is enough to tell which cluster of public inputs a class is, and all classes together fill
the pool. The noisy sums give the likelihood that a class of the usual size has its mean at a cluster's; rows
of the assignment add up to 1, and columns to the cluster's share of the pool (Sinkhorn). The mean of a class
is then that of its clusters.

The sums say themselves whether that is better than shrinking each direction: it is taken where they are
likelier by clusters than by normal means. All of it follows from released sums and public inputs alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import softmax

from pate_jax.crowd import evidence
from pate_jax.crowd.discriminant import Discriminant, Spread, discriminant
from pate_jax.crowd.evidence import LINEAR, held_out, label_noise, label_variance
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums
from pate_jax.system.eigen import eigensystem
from pate_jax.system.remembering import remembered

_EACH, _MOST = 3, 700  # clusters for each class, and at most
_ROUNDS, _BALANCED = 15, 60  # of k-means, and of Sinkhorn
_TINY = 1e-12
_AHEAD = 10.0  # of the log-likelihood, by which clusters have to lead
LEAST = 20  # classes


class Clusters(NamedTuple):
    """Clusters of the pool's vectors over their length."""

    means: Float[np.ndarray, "cluster directions"]
    shares: Float[np.ndarray, " cluster"]
    spread: float  # mean square of an input's distance from its cluster's mean, along one direction


@remembered
def clusters(public: Float[np.ndarray, "pool directions"], classes: int) -> Clusters:
    """Clusters by k-means, the same each time.

    >>> two = np.repeat([[0.0, 1.0], [1.0, 0.0]], 30, axis=0)
    >>> found = clusters(two, 2)
    >>> bool(abs(found.shares.sum() - 1) < 1e-9), found.means.shape[1]
    (True, 2)
    """
    number = min(_EACH * classes, _MOST, max(2, len(public) // 5))
    means = public[np.random.default_rng(0).choice(len(public), number, replace=False)].copy()
    for _ in range(_ROUNDS):
        nearest = ((means**2).sum(1)[None] - 2 * public @ means.T).argmin(1)
        counts = np.bincount(nearest, minlength=number)
        sums = np.zeros_like(means)
        np.add.at(sums, nearest, public)
        means[counts > 0] = sums[counts > 0] / counts[counts > 0, None]
    spread = float(((public - means[nearest]) ** 2).mean())
    return Clusters(means, counts / len(public), spread)


def assigned(
    sums: Float[np.ndarray, "classes directions"], noise: float, found: Clusters, voters: int
) -> tuple[Float[np.ndarray, "classes directions"], float, float]:
    """The means of classes, the log-likelihood of sums of one cluster each, and what is unsure of a mean.

    `noise` is the scale of the noise in each of the sums, which are of about `voters` together.

    >>> found = Clusters(np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([0.5, 0.5]), 0.0)
    >>> assigned(np.array([[40.0, 2.0], [3.0, 45.0]]), 5.0, found, 90)[0].round(2).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    each = voters / len(sums)
    around = noise**2 + each * found.spread
    scores = (each * sums @ found.means.T - each**2 * (found.means**2).sum(1) / 2) / around
    shares = balanced(scores, found.shares * len(sums))
    whole = scores + np.log(found.shares + _TINY) - (sums**2).sum(1, keepdims=True) / 2 / around
    top = whole.max(1, keepdims=True)
    likely = top[:, 0] + np.log(np.exp(whole - top).sum(1)) - sums.shape[1] / 2 * np.log(around)
    means = shares @ found.means
    wide = float((shares @ (found.means**2) - means**2).mean())
    return means, float(likely.sum()), wide


def head(
    sums: Float[np.ndarray, "classes directions"],
    noise: float,
    public: Float[np.ndarray, "pool directions"],
    voters: int,
    rival: float,
    constant: float,
) -> Float[np.ndarray, "entries classes"] | None:
    """The logits of vectors over their length, by how near they are to the mean of each class.

    The last entry of vectors is `constant`. None where the log-likelihood `rival` of normal means leads.
    """
    found = clusters(public, len(sums))
    means, likely, wide = assigned(sums, noise, found, voters)
    if likely < rival + _AHEAD:
        return None
    around = found.spread + wide
    return np.concatenate([means.T, -(means**2).sum(1)[None] / 2 / constant]) / around


def balanced(
    scores: Float[np.ndarray, "classes cluster"], wanted: Float[np.ndarray, " cluster"]
) -> Float[np.ndarray, "classes cluster"]:
    """Shares by exponentials of scores whose rows add up to 1, and whose columns to what is wanted.

    >>> balanced(np.array([[9.0, 0.0], [1.0, 0.0]]), np.array([1.0, 1.0])).round(2).tolist()
    [[0.98, 0.02], [0.02, 0.98]]
    """
    logs, target = scores - scores.max(1, keepdims=True), np.log(wanted + _TINY)
    columns = np.zeros(len(wanted))
    for _ in range(_BALANCED):
        rows = -_summed(logs + columns, 1)
        columns = target - _summed(logs + rows[:, None], 0)
    return np.asarray(np.exp(logs + columns - _summed(logs + columns, 1)[:, None]))


def _summed(logs: np.ndarray, axis: int) -> np.ndarray:
    top = logs.max(axis, keepdims=True)
    return np.asarray((np.log(np.exp(logs - top).sum(axis, keepdims=True)) + top).squeeze(axis))


_HALF = 0.5  # of the pool's inputs: more directions than that are counted as so many
_FAINT = 1e-9  # of the largest eigenvalue: the least that is divided by
_AMPLITUDES = np.exp(np.linspace(-24, 2, 105))  # values of A that are tried
_FALLS = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0)  # values of k that are tried


class Linear(NamedTuple):
    """A linear classifier of vectors (`crowd.vectors`)."""

    weights: Float[np.ndarray, "entries classes"]
    length: int
    noise: Float[np.ndarray, "entries directions"]  # that the known noise has in a class's weights
    evidence: float  # that there is more in the sums than the shares of the classes (`crowd.evidence`)
    spread: Spread | None = None  # of the fitted shares
    head: Float[np.ndarray, "entries classes"] | None = None  # logits by clusters (`informed`)

    def probabilities(self, vectors: Int[np.ndarray, "n entries"]) -> Float[np.ndarray, "n classes"]:
        """Of each class, for each vector: fitted shares, none below 0, that add up to 1; or by the head."""
        if self.head is not None:
            return softmax(vectors / self.length @ self.head, axis=1).astype(np.float32)
        shares = np.maximum(self.linear(vectors), 0)
        return (shares / shares.sum(1, keepdims=True)).astype(np.float32)

    def judged(self, vectors: Int[np.ndarray, "n entries"]) -> Float[np.ndarray, "n classes"]:
        """What a student that is this classifier says: by the discriminant, where there is one."""
        made = None if self.head is not None else self.discriminant
        return self.probabilities(vectors) if made is None else made.probabilities(self.linear(vectors))

    @property
    def discriminant(self) -> Discriminant | None:
        """That of the fitted shares, where there are three or more classes."""
        spread = self.spread
        return (
            None if spread is None or len(spread.usual) < 3 else discriminant(spread.covariance, spread.usual)
        )

    def linear(self, vectors: Int[np.ndarray, "n entries"]) -> Float[np.ndarray, "n classes"]:
        """The fitted shares, some of which may be below 0."""
        return np.asarray(1 / self.weights.shape[1] + vectors / self.length @ self.weights)

    def deviation(self, vectors: Int[np.ndarray, "n entries"]) -> Float[np.ndarray, " n"]:
        """Of each vector's fitted shares: the standard deviation that the known noise gives them."""
        return np.linalg.norm(vectors / self.length @ self.noise, axis=1).astype(np.float32)


class Pool(NamedTuple):
    """Second moments of public vectors over their length."""

    constant: float  # the last entry of every vector; 0: there is none
    middle: Float[np.ndarray, " directions"]
    axes: Float[np.ndarray, "directions directions"]
    values: Float[np.ndarray, " directions"]  # mean squares of held-out vectors along the axes
    inside: Float[np.ndarray, " directions"]  # and of the pool itself
    inner: Float[np.ndarray, "pool directions"]  # the vectors, without the constant

    @property
    def number(self) -> int:
        """Of public inputs."""
        return len(self.inner)


def fit(
    noisy: Int[np.ndarray, "rows entries"],
    release: ClassSums,
    public: Int[np.ndarray, "pool entries"],
    voters: int,
) -> Linear:
    """The classifier of noisy sums; `voters` is their public, rounded number.

    >>> release = ClassSums(classes=3, directions=2, length=10, sigma=20.0)
    >>> public = np.array([[9, 1], [-8, 3], [1, -7], [0, 6]])
    >>> model = fit(np.array([[9000, 0], [-9000, 100], [0, -90]]), release, public, voters=3000)
    >>> model.probabilities(public).argmax(1)[:2].tolist()
    [0, 1]
    """
    if noisy.shape != release.shape or public.shape[1] != release.directions or voters < 1:
        raise PateError(
            f"sums {list(noisy.shape)} and public vectors {list(public.shape)} do not fit a release "
            f"{list(release.shape)} of {voters} voters"
        )
    return of_pool(noisy, release, measured(public, release.length), voters)


def _likely(noisy: np.ndarray, release: ClassSums, pool: Pool, voters: int) -> float:
    """The log-likelihood of sums whose means are normal along each direction, of the likeliest A and k."""
    each = voters / release.classes
    along = (noisy[:, :-1] / release.length - each * pool.middle) @ pool.axes
    around = (release.sigma / release.length) ** 2 + each * pool.values
    spread = _power((along**2).mean(0), around, pool, voters) + around
    return float(-0.5 * (along**2 / spread + np.log(spread)).sum())


def of_pool(noisy: Int[np.ndarray, "rows entries"], release: ClassSums, pool: Pool, voters: int) -> Linear:
    """The same from what is known of the pool, for many tables on one pool."""
    scale = label_noise(release.classes, release.sigma / release.length)
    sums = contrasts(noisy / release.length)
    made = _shrunk(sums, scale, pool, voters, release.length)
    if release.classes < LEAST or not pool.constant:
        return made
    noise, rival = release.sigma / release.length, _likely(noisy, release, pool, voters)
    means = noisy[:, :-1] / release.length
    return made._replace(head=head(means, noise, pool.inner, voters, rival, pool.constant))


def _shrunk(sums: np.ndarray, scale: float, pool: Pool, voters: int, length: int) -> Linear:
    """The classifier of sums [classes, entries], each direction and the constant by what it is believed."""
    inner = len(pool.middle)
    shares, trust = np.zeros(len(sums)), 0.0
    if pool.constant:
        counted = sums[:, -1]
        trust = believed(float((counted**2).mean()), scale**2)
        shares = trust * counted / (voters * pool.constant)
    along = pool.axes.T @ (sums[:, :inner] - voters * np.outer(shares, pool.middle)).T
    usual = np.maximum(shares + 1 / len(shares), 0)
    usual /= usual.sum()
    around = scale**2 + voters * pool.values * _drawn(usual, pool, voters)
    seen = (along**2).mean(1)
    power = _power(seen, around, pool, voters)
    each = power / (power + around) / pool.values / voters
    weights, noise = pool.axes @ (each[:, None] * along), pool.axes * each * scale
    if pool.constant:
        told = np.append(-pool.middle @ noise, trust * scale / (voters * pool.constant)) / pool.constant
        noise = np.concatenate([np.pad(noise, ((0, 0), (0, 1))), told[None]])
        weights = np.concatenate([weights, (shares - pool.middle @ weights)[None] / pool.constant])
    shown = _shown(seen, usual, scale, pool, voters)
    spread = _spread(shares + 1 / len(shares), each[:, None] * along, scale, pool, voters)
    spread = spread._replace(wider=_wider(float((power / (power + around)).sum()), pool))
    return Linear(weights, length, noise, shown, spread)


def _spread(usual: np.ndarray, fitted: np.ndarray, scale: float, pool: Pool, voters: int) -> Spread:
    """Of classes whose fitted weights along the pool's axes these are.

    No class is taken for rarer than one voter, or than what noise alone makes of its share.
    """
    classes = len(usual)
    least = max(1 / voters, scale / (voters * pool.constant) if pool.constant else 0.0)
    usual = np.maximum(usual, min(least, 1 / classes))
    return Spread(fitted.T @ (pool.values[:, None] * fitted), usual / usual.sum())


def _wider(directions: float, pool: Pool) -> float:
    """How much more fitted shares vary over new inputs than over the pool, of which they know the moments.

    Least squares in d directions with the moments of N inputs vary `1 - d/N` as much over these as over
    others; a direction counts by how much of it is believed.
    """
    return 1 / max(1 - directions / pool.number, _HALF)


def measured(public: Int[np.ndarray, "pool entries"], length: int) -> Pool:
    """What a classifier has to know of the pool's vectors."""
    return _measured(public / length)


@remembered
def _measured(public: Float[np.ndarray, "pool entries"]) -> Pool:
    constant = float(public[0, -1]) if np.ptp(public[:, -1]) == 0 else 0.0
    inner = public[:, :-1] if constant else public
    middle = inner.mean(0) if constant else np.zeros(inner.shape[1])
    inside, axes = eigensystem((inner - middle).T @ (inner - middle) / len(inner))
    outside = held_out(inner - middle)
    values, inside = (np.maximum(one, max(_FAINT * one[-1], 1e-30)) for one in (outside, inside))
    return Pool(constant, middle, axes, values, inside, inner)


def contrasts(sums: Float[np.ndarray, "rows entries"]) -> Float[np.ndarray, "classes entries"]:
    """The sums of each class without what all classes share."""
    return np.concatenate([-sums, sums]) / 2 if len(sums) == 1 else sums - sums.mean(0)


def believed(seen: float, around: float) -> float:
    """The share of a signal with noise that is signal, by what its mean square exceeds the noise's."""
    return max(1 - around / seen, 0.0) if seen > 0 else 0.0


def _power(seen: np.ndarray, around: np.ndarray, pool: Pool, voters: int) -> np.ndarray:
    """The expected squares of the sums along each direction, less noise, under the likeliest A and k."""
    powers = (_AMPLITUDES[:, None, None] * _shapes(pool, voters)).reshape(-1, len(seen))
    misfit = np.log(powers + around) + seen / (powers + around)
    return powers[misfit.sum(-1).argmin()]


def _shapes(pool: Pool, voters: int) -> Float[np.ndarray, "falls directions"]:
    """These squares if A is 1, under each k."""
    return voters**2 * pool.values * _fallen(pool)


def _fallen(pool: Pool) -> Float[np.ndarray, "falls directions"]:
    return (pool.inside / pool.inside[-1]) ** np.array(_FALLS)[:, None]


def _apart(usual: np.ndarray, pool: Pool, voters: int) -> float:
    """Over `voters * values`: the variance in all classes' sums of how far voters' mean is from the pool's.

    That distance, of variance `values (1/voters + 1/number)`, is in each class's sum as often as the class
    has voters, and what is left of it beside what all classes share goes with how unequal they are.
    """
    return float(((usual - 1 / len(usual)) ** 2).sum()) * (1 + voters / pool.number)


def _drawn(usual: np.ndarray, pool: Pool, voters: int) -> float:
    """Over `voters * values`: the variance that records being drawn give a class's sum, in the mean of these.

    Of labels that is what a linear function does not tell of them.
    """
    labels = float((usual * (1 - usual)).mean()) * (1 - LINEAR)
    return labels + _apart(usual, pool, voters) / len(usual)


def _shown(seen: np.ndarray, usual: np.ndarray, scale: float, pool: Pool, voters: int) -> float:
    """The evidence of signals of each k, against sums that hold noise and the chance of the draw alone.

    A signal that tells the share t of a label's variance has the A with which `A f^k` adds up to it. The
    chance is the largest that any difference of classes has.
    """
    classes = len(usual)
    chance = (1 - 1 / classes) * (evidence.chance_of(usual) + _apart(usual, pool, voters))
    dull = scale**2 + voters * pool.values * chance
    amplitudes = label_variance(classes) / _fallen(pool).sum(1, keepdims=True) * evidence.TOLD[:, None, None]
    signals = (amplitudes * _shapes(pool, voters)).reshape(-1, len(seen))
    return evidence.mean_ratio(seen, dull, signals, classes - 1)
