"""Labels for the whole pool: what answers to some public images say of all others that are near.

Ridge learns from answered images alone. Where classes lie in heaps, a graph of images that are near to each
other by their typical patches (`models.graph`) tells more: answers are carried along it to the pool, and
least squares learn every image's carried label. A tenth of the answers is left out in turn to say how right
the carried labels are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pate_jax.models import patches
from pate_jax.models.graph import Graph, graph, spread
from pate_jax.student.lesson import Lesson, evenly
from pate_jax.system.eigen import leading

_POOL = 4000  # images of the graph at most
_DIRECTIONS, _TURNS = 100, 4  # in which they are compared, and of finding these
_PARTS = 10  # of the answers, each left out once
_FEW = 20  # answers, below which nothing is carried
_NOTHING = 1e-12


class Carried(NamedTuple):
    """What was carried to which images of the pool; answered ones come first."""

    rows: Int[np.ndarray, " image"]
    features: Float[np.ndarray, "image features"]
    labels: Int[np.ndarray, " image"]
    unseen: Float[np.ndarray, "answers classes"]  # of each answered image had its answer been left out


def carried(
    known: patches.Patches,
    images: Float[np.ndarray, "image h w c"],
    lesson: Lesson,
    targets: Float[np.ndarray, "answers classes"],
) -> Carried | None:
    """Labels for the pool; None where answers are few, or there are hardly more images than answers."""
    number = len(lesson.rows)
    if number < _FEW or len(images) < 2 * number:
        return None
    others = np.setdiff1d(np.arange(len(images)), lesson.rows)
    rows = np.concatenate([lesson.rows, others[evenly(max(0, _POOL - number), len(others))]])
    features = np.asarray(patches.features(known, images[rows]))
    near, asked, every = graph(_places(features)), np.arange(number), np.arange(len(rows))
    labels = spread(near, asked, targets[:, None, :], every)[:, 0].argmax(1)
    return Carried(rows, features, labels, _unseen(near, targets))


def _unseen(
    near: Graph, targets: Float[np.ndarray, "answers classes"]
) -> Float[np.ndarray, "answers classes"]:
    """What other parts of the answers tell of each answered image, as shares: what is carried, stretched."""
    found, parts = np.zeros(targets.shape), np.arange(len(targets)) % _PARTS
    for part in range(_PARTS):
        held, seen = np.flatnonzero(parts == part), np.flatnonzero(parts != part)
        found[held] = spread(near, seen, targets[seen][:, None, :], held)[:, 0]
    found -= found.mean(0)
    middle = targets.mean(0)
    stretch = (found * (targets - middle)).sum() / max((found**2).sum(), _NOTHING)
    return np.asarray(middle + max(stretch, _NOTHING) * found)


def _places(features: Float[np.ndarray, "image features"]) -> Float[np.ndarray, "image directions"]:
    """The features along the directions in which they vary most."""
    centred = features - features.mean(0)
    begin = np.random.default_rng(0).standard_normal((features.shape[1], min(_DIRECTIONS, *features.shape)))
    return np.asarray(centred @ leading(centred, begin.astype(np.float32), _TURNS))
