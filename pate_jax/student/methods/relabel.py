"""The relabel student: answers are corrected by nets that have not seen them, and a net learns the result.

The answers of a crowd for a whole pool are wrong in a regular way, for instance where a linear classifier is
too simple. A net of half of the answers learns what they have in common, and says what it expects of the
other half. The label of an input is the most probable class by this net and by the answer together. Whether
nets see images distorted or only moved is decided by the answers of the other half: distortions that belong
to another kind of images make them much less likely.
"""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
from jaxtyping import Array, Float, Int32

from pate_jax.errors import PateError
from pate_jax.student.calibration import negative_log_likelihood, temperature
from pate_jax.student.lesson import Learned, Lesson
from pate_jax.student.methods import nets, supervised
from pate_jax.student.settings import Relabel

_JUDGED = 1000  # answers at most that set the temperature
_LEAST = 2  # answers, one for each half
_moving = nets.trainer(supervised.objective, title="student: relabel, moved images")
_distorting = nets.trainer(supervised.distorted, title="student: relabel, distorted images")


def learn(config: Relabel, keys: Array, lesson: Lesson) -> list[Learned]:
    """One student for each key, one after the other."""
    if len(lesson.rows) < _LEAST:
        raise PateError(
            f"relabel halves the answers, and there are {len(lesson.rows)}: choose the method supervised"
        )
    return [_learned(config, key, lesson) for key in keys]


def _learned(config: Relabel, key: Array, lesson: Lesson) -> Learned:
    first_key, second_key, last_key = jax.random.split(key, 3)
    first, second = (lesson.part(np.arange(start, len(lesson.rows), 2)) for start in range(2))
    shorter = dataclasses.replace(config, steps=max(1, (config.steps or 0) // 2))
    tried = [dataclasses.replace(shorter, strength=each) for each in sorted({0.0, config.strength})]
    halves = [train(each, first_key, first) for each in tried]
    best = int(np.argmin([surprise(each, second) for each in halves]))
    other = train(tried[best], second_key, second)
    labels = np.empty_like(lesson.labels)
    smoothing = config.label_smoothing or 0.0
    labels[0::2] = corrected(logs(other, first), first, smoothing)
    labels[1::2] = corrected(logs(halves[best], second), second, smoothing)
    whole = dataclasses.replace(config, strength=tried[best].strength)
    return calibrated(train(whole, last_key, Lesson(lesson.public, lesson.rows, labels)), lesson)


def train(config: Relabel, key: Array, lesson: Lesson) -> Learned:
    """A net that learns answers, from images that are distorted as strongly as the settings say."""
    return (_distorting if config.strength else _moving)(config, key[None], lesson)[0]


def corrected(
    expected: Float[np.ndarray, "answers classes"], lesson: Lesson, smoothing: float
) -> Int32[np.ndarray, " answers"]:
    """The most probable labels by what a net expects, in logarithms, and by the smoothed answers."""
    classes = lesson.public.classes
    told = np.eye(classes)[lesson.labels] if lesson.soft is None else lesson.soft.targets
    chances = np.maximum((1 - smoothing) * told + smoothing / classes, np.finfo(np.float32).tiny)
    return (expected + np.log(chances)).argmax(1).astype(np.int32)


def surprise(learned: Learned, lesson: Lesson) -> float:
    """How unlikely answers are to a net that has not seen them, each by its weight."""
    return float(negative_log_likelihood(logs(learned, lesson), *lesson.taught))


def calibrated(learned: Learned, lesson: Lesson) -> Learned:
    """The net at the temperature that makes the answers most likely, but no surer than it is."""
    plain, judges = learned._replace(temperature=1.0), lesson.spaced(_JUDGED)
    return plain._replace(temperature=max(1.0, temperature(logs(plain, judges), *judges.taught)))


def logs(learned: Learned, lesson: Lesson) -> Float[np.ndarray, "answers classes"]:
    """The logarithms of a net's probabilities of the answered inputs."""
    found = learned.student(lesson.public)(lesson.public.inputs[lesson.rows])
    return np.log(np.maximum(found, np.finfo(np.float32).tiny))
