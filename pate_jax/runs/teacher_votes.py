"""What linear teachers would say in a rehearsal: they are trained on public inputs, and vote on others.

Few of them stand for all, so their votes vary more than those of all will; the noise is lowered by as much.
An answer is the label of the largest noisy count, or all noisy counts (`whole`): of these more noise is
paid for, and they say more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pate_jax.crowd.roles import Labels
from pate_jax.ensemble import TeacherConfig
from pate_jax.models.clusters import Entries

CONFIG = TeacherConfig(net="linear").resolved()
_STANDING = 3000  # public inputs at most that stand for the public part
_JUDGES = 1000  # and that judge
_LABELLED, _FEW = 150_000, 500  # labels of the former at most, over all labels and classes, but for so many
_DRAWN = 12_000  # records of the teachers that stand for all
_TEACHERS = (25, 150)  # of them, at least and at most
_INDEX, _WHOLE = 1.53, 2.0  # queries times this, over mu squared, is about the variance of the noise

Votes = Float[np.ndarray, "labels public classes"]
Noisy = Float[np.ndarray, "draws labels query classes"]


class Parts(NamedTuple):
    """Who is who in a rehearsal: rows of the pool."""

    public: Int[np.ndarray, " public"]
    judges: Int[np.ndarray, " judged"]
    private: Int[np.ndarray, " private"]


def parts(pool: int, labels: Sequence[Labels], classes: int) -> Parts:
    """Two fifths of the pool at most stand for the public part, one judges, and the others are private.

    >>> made = parts(50, [np.zeros(50, int)], 2)
    >>> [len(each) for each in made], len(np.unique(np.concatenate(made)))
    ([20, 10, 20], 50)
    """
    most = min(_STANDING, max(_FEW, _LABELLED // (len(labels) * classes)), 2 * pool // 5)
    judges = min(_JUDGES, pool // 5)
    return Parts(*np.split(np.random.default_rng(1).permutation(pool), [most, most + judges]))


def cast(
    entries: Entries,
    labels: Sequence[Labels],
    classes: int,
    roles: Parts,
    teachers: int,
    shard: int,
    random: np.random.Generator,
) -> tuple[Votes, int]:
    """Shares of the votes on the public part, and the number of teachers that stood for all.

    All labels share the teachers' records, so that each teacher is solved once.
    """
    number = int(min(teachers, np.clip(_DRAWN // shard, *_TEACHERS)))
    public, several = entries[roles.public], len(labels)
    targets = [np.eye(classes, dtype=np.float32)[each[roles.private]] - 1 / classes for each in labels]
    wide = np.concatenate(targets, 1)
    private = entries[roles.private]
    votes = np.zeros((several, len(public), classes), np.float32)
    every, each = np.arange(several)[:, None], np.arange(len(public))
    for _ in range(number):
        rows = random.choice(len(private), shard)
        scores = public @ ridge(private[rows], wide[rows], CONFIG.weight_decay or 0.0).astype(np.float32)
        votes[every, each, scores.reshape(-1, several, classes).argmax(2).T] += 1
    return votes / number, number


def ridge(
    inputs: Entries, targets: Float[np.ndarray, "row targets"], penalty: float
) -> Float[np.ndarray, "entries targets"]:
    """The matrix of ridge regression, from the smaller of two systems of equations.

    >>> ridge(np.array([[2.0, 0, 0]]), np.array([[5.0]]), 1.0).ravel().tolist()
    [2.0, 0.0, 0.0]
    """
    if len(inputs) < inputs.shape[1]:
        return np.asarray(
            inputs.T @ np.linalg.solve(inputs @ inputs.T + penalty * np.eye(len(inputs)), targets)
        )
    square = inputs.T @ inputs + penalty * np.eye(inputs.shape[1])
    return np.asarray(np.linalg.solve(square, inputs.T @ targets))


def scale(queries: int, mu: float, *, whole: bool) -> float:
    """About the scale of the noise of so many answers that cost mu.

    >>> round(scale(200, 0.5, whole=True)), round(scale(200, 0.5, whole=False))
    (40, 35)
    """
    return float(np.sqrt((_WHOLE if whole else _INDEX) * queries) / mu)


def noisy(
    shares: Votes,
    stood: int,
    teachers: int,
    rows: Int[np.ndarray, " query"],
    scale: float,
    noise: Float[np.ndarray, "draws labels public classes"],
) -> Noisy:
    """Noisy counts of each query."""
    some = shares[:, rows]
    more = teachers**2 * some * (1 - some) * (1 / stood - 1 / teachers)
    added = np.sqrt(np.maximum(scale**2 - more, 0)) * noise[:, :, rows]
    return np.asarray(teachers * some + added)


def told(counts: Noisy, teachers: int, *, whole: bool) -> Noisy:
    """What a student learns of each class: 1 of the largest count's, or noisy shares that add up to 1.

    >>> counts = np.array([[[[60.0, 30.0, -2.0]]]])
    >>> told(counts, 100, whole=False).ravel().tolist(), round(float(told(counts, 100, whole=True).sum()), 6)
    ([1.0, 0.0, 0.0], 1.0)
    """
    classes = counts.shape[-1]
    if whole:
        return np.asarray(1 / classes + (counts - counts.mean(-1, keepdims=True)) / teachers)
    return np.asarray(np.eye(classes, dtype=np.float32)[counts.argmax(-1)])
