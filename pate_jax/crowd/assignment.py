"""Means of many classes at a small epsilon: each class is a mixture of clusters of the public pool.

Where a class has few voters beside the noise, its noisy mean says little by itself. But classes are made of
the kinds of inputs that there are: it is enough to tell which cluster of public inputs a class is, and all
classes together fill the pool. The noisy sums give the likelihood that a class of the usual size has its mean
at a cluster's; rows of the assignment add up to 1, and columns to the cluster's share of the pool (Sinkhorn).
The mean of a class is then that of its clusters.

The sums say themselves whether that is better than shrinking each direction: it is taken where they are
likelier by clusters than by normal means. All of it follows from released sums and public inputs alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

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
