"""The tandem student: `ridge`, and a small net that learns what it says of every public input.

The net sees each image moved, and flipped if so wished, and what it makes of nine thousand guesses differs
from what made them: the product of both probabilities is right more often than either. Of an answered input
the net is taught what ridge would say without that answer, so the answers tell how sure both may be.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Array, Float
from scipy.special import softmax

from pate_jax import models
from pate_jax.models import patches
from pate_jax.student.calibration import temperature
from pate_jax.student.lesson import Learned, Lesson, check_shown
from pate_jax.student.methods import losses, nets, ridge
from pate_jax.student.settings import Supervised, Tandem, names
from pate_jax.student.smoothing import Soft

_ROUNDS = 2000  # of pulling towards equally frequent classes, at most; each gets closer
_CLOSE = 1e-3  # how much more or less frequent than all others a class may stay
_SMALLEST = 1e-6  # share of the pool that a class has at least, when it is compared
_small_net = nets.trainer(losses.supervised)


def learn(config: Tandem, keys: Array, lesson: Lesson) -> list[Learned]:
    """One student for each key: both nets, their logits added."""
    check_shown(config, image=True, shown=lesson.public.shown)
    return [_learned(config, key, seed, lesson) for key, seed in zip(keys, nets.seeds(keys), strict=True)]


def _learned(config: Tandem, key: Array, seed: int, lesson: Lesson) -> Learned:
    public, rows, held = lesson.public, lesson.rows, ridge.examples(lesson)
    images = ridge.scaled(lesson)
    known = patches.learn(images, seed=seed)
    features = patches.features(known, images)
    first = ridge.fit(known, images, features[rows], lesson)
    warmth = temperature(first.unseen, *lesson.taught)
    unseen = first.unseen / warmth
    head = {name: (leaf / warmth).astype(np.float32) for name, leaf in first.parameters["dense0"].items()}
    pool = ridge.logits(head, features, features[held])
    second = _taught(config, key, guesses(pool, unseen, lesson, config.alignment))
    logs = np.log(np.maximum(second.student(public)(public.inputs), np.finfo(np.float32).tiny))
    pulled = pull(pool + logs, config.alignment)
    head["bias"] = (head["bias"] + pulled).astype(np.float32)
    parameters = {"patches": {**first.parameters, "dense0": head}, "cnn": second.parameters}
    sizes: dict[str, Any] = {"examples": len(held), **({} if config.maps is None else {"maps": config.maps})}
    net = models.build("tandem", input_shape=images.shape[1:], classes=public.classes, **sizes)
    return Learned(net.description, parameters, temperature(unseen + logs[rows] + pulled, *lesson.taught))


def guesses(
    pool: Float[np.ndarray, "inputs classes"],
    unseen: Float[np.ndarray, "answers classes"],
    lesson: Lesson,
    alignment: float,
) -> Lesson:
    """What ridge says of every public input, and of an answered one what it would say without that answer.

    These are labels, and probabilities where the answers are soft.
    """
    told = np.array(pool, np.float64)
    told[lesson.rows] = unseen
    told = told + pull(pool, alignment)
    everything = np.arange(len(told), dtype=np.int32)
    labels = told.argmax(1).astype(np.int32)
    if lesson.soft is None:
        return Lesson(lesson.public, everything, labels)
    sure = softmax(told, axis=1).astype(np.float32)
    return Lesson(lesson.public, everything, labels, Soft(sure, np.ones(len(sure), np.float32)))


def _taught(config: Tandem, key: Array, lesson: Lesson) -> Learned:
    """The small net, trained on a guess for every public input."""
    shared = names(Supervised) & names(Tandem)
    settings = Supervised(net="cnn", **{name: getattr(config, name) for name in shared})
    return _small_net(settings, key[None], lesson)[0]


def pull(logits: Float[np.ndarray, "inputs classes"], strength: float) -> Float[np.ndarray, " classes"]:
    """What to add to logits to make all classes equally frequent in the mean probability, or part of the way.

    >>> logits = np.log([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4]])
    >>> moved = np.exp(logits + pull(logits, 1.0))
    >>> (moved / moved.sum(1, keepdims=True)).mean(0).round(3).tolist()
    [0.5, 0.5]
    >>> pull(logits, 0.0).tolist()
    [0.0, 0.0]
    """
    added = np.zeros(logits.shape[1])
    for _ in range(_ROUNDS if strength else 0):
        moved = logits + added
        raised = np.exp(moved - moved.max(1, keepdims=True))
        shares = (raised / raised.sum(1, keepdims=True)).mean(0) * len(added)
        if abs(shares - 1).max() < _CLOSE:
            break
        added -= np.log(np.maximum(shares, _SMALLEST))
    return strength * added
