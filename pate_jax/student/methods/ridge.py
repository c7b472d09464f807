"""The ridge student: a closed form on the typical patches of the public pool; seconds, and nothing to tune.

Least squares on the answers, in terms of how alike an input is to each of the public images that were
answered, with the penalty that predicts each answer best from all others. That says also how sure it may be
of itself, so its probabilities need no answers held back. The student holds those public images.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from pate_jax import models
from pate_jax.models import patches
from pate_jax.student.calibration import temperature
from pate_jax.student.lesson import Learned, Lesson
from pate_jax.student.methods import nets
from pate_jax.student.settings import Ridge

_PENALTIES = np.geomspace(1e-3, 3.0, 15)  # as shares of the typical likeness of an input to itself
_NOTHING = 1e-9  # likeness of equal images, and weight of the others where there are none
_LOUD = 20.0  # scores become logits by it, before the temperature


class Line(NamedTuple):
    """Scores that are linear in the likeness to every answered input, and what they would be unseen."""

    kernel: Float[np.ndarray, "answers classes"]
    bias: Float[np.ndarray, " classes"]
    unseen: Float[np.ndarray, "answers classes"]  # each answer's scores, had it been left out


class Fitted(NamedTuple):
    """The net `patches`, and its logits of each answered input had that been left out."""

    parameters: dict[str, Any]
    unseen: Float[np.ndarray, "answers classes"]


def learn(config: Ridge, keys: Array, lesson: Lesson) -> list[Learned]:
    """One student for each key, which draws the patches."""
    return [_learned(seed, lesson) for seed in nets.seeds(keys)]


def _learned(seed: int, lesson: Lesson) -> Learned:
    images = scaled(lesson)
    known = patches.learn(images, seed=seed)
    fitted = fit(known, images, patches.features(known, images[lesson.rows]), lesson)
    shape, classes = images.shape[1:], lesson.public.classes
    net = models.build("patches", input_shape=shape, classes=classes, examples=len(lesson.rows))
    return Learned(net.description, fitted.parameters, temperature(fitted.unseen, lesson.labels))


def scaled(lesson: Lesson) -> Float[np.ndarray, "image h w c"]:
    """All public images as a net sees them."""
    return np.asarray(lesson.public.preprocessing.apply(lesson.public.inputs))


def fit(
    known: patches.Patches,
    images: Float[np.ndarray, "image h w c"],
    answered: Float[np.ndarray, "answers features"],
    lesson: Lesson,
) -> Fitted:
    """Least squares on the answers, from the features of the answered images."""
    features = jnp.asarray(answered)
    alike = np.asarray(patches.likeness(features, features))
    line = least_squares(alike, lesson.labels, lesson.public.classes)
    head = {"kernel": _LOUD * line.kernel, "bias": _LOUD * line.bias}
    parameters = {
        **known._asdict(),
        "examples": images[lesson.rows].astype(np.float32),
        "dense0": {name: leaf.astype(np.float32) for name, leaf in head.items()},
    }
    return Fitted(parameters, _LOUD * line.unseen)


def logits(
    head: dict[str, np.ndarray],
    features: Float[np.ndarray, "image features"],
    answered: Float[np.ndarray, "answers features"],
) -> Float[np.ndarray, "image classes"]:
    """What the net `patches` says of images, from their features and those of the answered images."""
    alike = patches.likeness(jnp.asarray(features), jnp.asarray(answered))
    return np.asarray(alike) @ head["kernel"] + head["bias"]


def least_squares(
    alike: Float[np.ndarray, "answers answers"], labels: Int[np.ndarray, " answers"], classes: int
) -> Line:
    """The scores of least squares on labels as 0 and 1, penalised as suits answers they have not seen.

    `alike` says how alike the answered inputs are, as inner products of some features do; only what differs
    from their mean is used.

    >>> places = np.array([[1.0], [0.8], [-1.0], [-0.9]])
    >>> line = least_squares(places @ places.T, np.array([0, 0, 1, 1]), 2)
    >>> line.unseen.argmax(1).tolist()
    [0, 0, 1, 1]
    """
    targets = np.eye(classes)[labels]
    shares, usual = targets.mean(0), alike.mean(0, dtype=np.float64)
    centred = alike - usual - usual[:, None] + usual.mean()
    values, directions = np.linalg.eigh(centred)
    turned = directions.T @ (targets - shares)
    tried = []
    for penalty in _PENALTIES * max(np.trace(centred) / len(labels), _NOTHING):
        shrunk = values / (values + penalty)
        hat = (directions**2) @ shrunk
        fitted = directions @ (shrunk[:, None] * turned)
        # What each answer would be without itself: its residual grows by 1 / (1 - its weight on itself),
        # and it has weight on itself through the means of answers and of likeness too.
        others = np.maximum(1 - 1 / len(labels) - hat, _NOTHING)
        left_out = targets - (targets - shares - fitted) / others[:, None]
        tried.append((((left_out - targets) ** 2).mean(), penalty, left_out))
    _, penalty, unseen = min(tried, key=lambda one: one[0])
    weights = directions @ (turned / (values + penalty)[:, None])
    weights -= weights.mean(0)  # as centring the likeness does
    return Line(weights, shares - usual @ weights, unseen)
