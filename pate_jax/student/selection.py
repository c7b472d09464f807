"""Which public inputs the teachers are asked about; free of privacy cost, since it reads public data only.

Five ways to fix the list before the first answer: the `first` inputs, `random` ones, or one input for each of
as many clusters as there are questions, so that the list covers the pool: `kmeans` compares pixels or
columns, `learned` compares images in a space learned from the pool itself, and `space` compares what linear
teachers see. All accounting applies to such a list. A list that goes on where a student of the answers so far
is `least_sure` depends on earlier answers, so no data-dependent figure of it is a guarantee: publish the
data-independent one over all inputs asked (`accounting.statement(..., adaptive=True)`) or a filter's budget.
"""

from __future__ import annotations

import hashlib
from typing import get_args

import jax
import numpy as np
from jaxtyping import Float, Int

from pate_jax.data.dataset import AS_STORED, Preprocessing
from pate_jax.errors import PateError, one_of, within
from pate_jax.models.clusters import cover
from pate_jax.models.spaces.space import Space
from pate_jax.student import spaces
from pate_jax.student.settings import Selection
from pate_jax.system import eigen

_DIRECTIONS = 32  # of the space that inputs are compared in
_CHOICE = 6  # the least sure inputs that a round chooses from, times those it asks


def select(
    selection: Selection,
    inputs: np.ndarray,
    wanted: int,
    *,
    key: bytes,
    preprocessing: Preprocessing = AS_STORED,
    space: Space | None = None,
) -> Int[np.ndarray, " wanted"]:
    """Rows of the inputs to ask about, each once; the same for the same inputs and key.

    `inputs` are as stored, images with pixels from 0 to 255; `preprocessing` turns them into what the net
    sees. With a `space`, inputs are compared there. The key is no secret: whoever knows the rows learns
    nothing of private data.

    >>> two_heaps = np.array([[0.0, 0], [9, 9], [0, 0.1], [9, 9.1], [0.1, 0]])
    >>> sorted(row % 2 for row in select("kmeans", two_heaps, 2, key=b"demo").tolist())  # one of each heap
    [0, 1]
    """
    one_of(get_args(Selection), selection=selection)
    if selection == "space" and space is None:
        raise PateError(
            "selection='space' compares inputs in the space of linear teachers: have such (--net linear), or "
            "choose kmeans"
        )
    within(1, len(inputs), ", the number of different public inputs", queries=wanted)
    random = _random(key)
    if selection == "first":
        return np.arange(wanted)
    if selection == "random":
        return random.permutation(len(inputs))[:wanted]
    if selection == "learned" and space is None:
        seed = jax.random.key(int(random.integers(2**31)))
        space = spaces.contrast_space(inputs, preprocessing, key=seed)
    if space is not None:
        return cover(space.coordinates(inputs).astype(np.float32), wanted, random)
    return cover(_points(preprocessing.apply(inputs)), wanted, random)


def least_sure(
    probabilities: Float[np.ndarray, "pool classes"],
    inputs: Float[np.ndarray, "pool ..."],
    wanted: int,
    *,
    taken: Int[np.ndarray, " taken"],
    key: bytes,
) -> Int[np.ndarray, " wanted"]:
    """Rows whose two most probable classes are closest, spread over what they look like, none taken."""
    free = np.setdiff1d(np.arange(len(inputs)), taken)
    if len(free) < wanted:
        raise PateError(
            f"{wanted} more queries are wanted and {len(free)} public inputs are left: ask for fewer"
        )
    best = np.sort(probabilities[free], axis=1)
    unsure = free[np.argsort(best[:, -1] - best[:, -2], kind="stable")][: wanted * _CHOICE]
    return unsure[cover(_points(inputs[unsure]), wanted, _random(key))]


def _random(key: bytes) -> np.random.Generator:
    return np.random.default_rng(int.from_bytes(hashlib.blake2b(key, digest_size=16).digest(), "little"))


def _points(inputs: np.ndarray) -> np.ndarray:
    """The inputs in the few directions along which they spread most (principal components, not scaled)."""
    flat = np.ascontiguousarray(inputs, np.float32).reshape(len(inputs), -1)
    flat = flat - flat.mean(0, dtype=np.float64).astype(np.float32)
    if flat.shape[1] <= _DIRECTIONS:
        return flat
    start = np.random.default_rng(0).standard_normal((flat.shape[1], _DIRECTIONS)).astype(np.float32)
    return flat @ eigen.leading(flat, start, 4)  # turns enough to order the directions that matter
