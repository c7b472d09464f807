"""Models of votes: how teachers with shards of a given size would vote, without any private vote.

A model is a law of the share of teachers that are right on a query, fitted to public votes, and a learning
curve that says how the mean accuracy changes with the size of the shards. docs/guide/sweeps.md says how good
the models are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from pate_jax.errors import PateError

_MODELLED = 400  # queries that a model draws
_USUAL = 0.4  # exponent of a learning curve that was not measured


@dataclass(frozen=True)
class VoteModel:
    """How teachers with shards of `at` records vote: fitted to a file of votes (docs/guide/sweeps.md).

    The share of teachers that are right on a query is drawn from a beta law of mean `accuracy` and of
    `evenness` (the sum of its two parameters, which is small if queries are either clear or hopeless). The
    other teachers spread over the wrong classes by a Dirichlet law of `spread` (small if they agree on one
    wrong class).
    """

    name: str
    accuracy: float
    at: int
    evenness: float
    spread: float
    exponent: float

    def accuracy_for(self, shard: float, classes: int) -> float:
        """Mean accuracy of teachers with shards of this size, by a power law; always above chance.

        >>> model = VoteModel("mnist", 0.934, 240, 1.65, 0.1, 0.7)
        >>> round(model.accuracy_for(240, 10), 3), round(model.accuracy_for(60, 10), 3)
        (0.934, 0.826)
        """
        return _learned(1 - self.accuracy, self.at, shard, self.exponent, classes)

    def shares(self, shard: float, classes: int) -> NDArray[np.float64]:
        """The probability [query, class] that a teacher votes for a class; class 0 is the right one."""
        random = np.random.default_rng(20_181)
        mean = self.accuracy_for(shard, classes)
        uniform = (random.permutation(_MODELLED) + 0.5) / _MODELLED
        right = special.betaincinv(mean * self.evenness, (1 - mean) * self.evenness, uniform)
        wrong = random.gamma(self.spread, size=(_MODELLED, classes - 1)) + 1e-12
        wrong /= wrong.sum(axis=1, keepdims=True)
        return np.concatenate([right[:, None], (1 - right)[:, None] * wrong], axis=1)


MODELS = (
    VoteModel("mnist", 0.934, 240, 1.65, 0.1, 0.7),
    VoteModel("fashion_mnist", 0.760, 240, 1.13, 0.1, 0.3),
    VoteModel("published_mnist", 0.703, 240, 6.62, 0.3, 0.4),
    VoteModel("adult", 0.821, 130, 0.82, 0.1, 0.1),
)


@dataclass(frozen=True)
class VotesOf:
    """A model from a file of public or synthetic votes, whose teachers had shards of `at` records."""

    name: str
    votes: NDArray[np.int64]
    labels: NDArray[np.int64] | None
    at: int

    def shares(self, shard: float, classes: int) -> NDArray[np.float64]:
        """The file's shares, sharpened or flattened until their mean accuracy is on the learning curve."""
        if self.votes.shape[1] != classes:
            raise PateError(
                f"classes={classes} but the votes file has {self.votes.shape[1]}; leave --classes out"
            )
        first = self.votes.argmax(axis=1) if self.labels is None else self.labels
        rows = np.linspace(0, len(self.votes) - 1, min(_MODELLED, len(self.votes))).astype(int)
        counts, first, every = self.votes[rows].astype(np.float64), first[rows], np.arange(len(rows))
        counts[every, first], counts[:, 0] = counts[:, 0].copy(), counts[every, first].copy()
        base = np.log((counts + 0.01) / (counts + 0.01).sum(axis=1, keepdims=True))
        wanted = _learned(1 - float(np.exp(base[:, 0]).mean()), self.at, shard, _USUAL, classes)
        low, high = 1e-3, 1e3
        for _ in range(60):
            power = math.sqrt(low * high)
            short = special.softmax(power * base, axis=1)[:, 0].mean() < wanted
            low, high = (power, high) if short else (low, power)
        result: NDArray[np.float64] = special.softmax(high * base, axis=1)
        return result


Votes = VoteModel | VotesOf


def _learned(error: float, at: int, shard: float, exponent: float, classes: int) -> float:
    """The accuracy at shards of size `shard`, by a learning curve through `error` at size `at`."""
    result: float = 1 - min(error * (at / shard) ** exponent, 1 - 1.05 / classes)
    return result
