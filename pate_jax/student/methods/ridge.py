"""The ridge student: a closed form on images' typical patches, or on a table's rows; nothing to tune.

Least squares on the answers, in terms of how alike an input is to each of the public ones that were answered,
with the penalty that predicts each answer best from all others. That says also how sure it may be of itself,
so its probabilities need no answers held back. The student holds those public inputs. Of a table it is linear
in the scaled columns, and holds no row, unless rows may go out and nearness to them predicts answers better.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from pate_jax import models
from pate_jax.data.dataset import IMAGE_RANKS
from pate_jax.models import patches
from pate_jax.models.nearness import squared_gaps
from pate_jax.student.calibration import temperature
from pate_jax.student.lesson import Learned, Lesson
from pate_jax.student.methods import nets
from pate_jax.student.methods.least_squares import (
    Line,
    least_squares,
    of_features,
    of_few_examples,
    weighted_least_squares,
)
from pate_jax.student.settings import Ridge, check_shown

_HELD = 1500  # inputs that a student of soft answers or of a table holds at most, evenly spaced among all
_REACHES = (0.25, 0.5, 1.0, 2.0)  # of a row, over the usual squared distance of two
_EQUAL = 1e-9  # squared distance of equal rows but for rounding, over the mean one
_LOUD = 20.0  # scores become logits by it, before the temperature


class OfTable(NamedTuple):
    """Least squares on a table's answers: on its columns, or on nearness to rows that are held."""

    line: Line
    held: Float[np.ndarray, "examples features"]
    reach: float = 0.0  # of a held row; 0: none is held


class Fitted(NamedTuple):
    """The net `patches`, and its logits of each answered input had that been left out."""

    parameters: dict[str, Any]
    unseen: Float[np.ndarray, "answers classes"]


def learn(config: Ridge, keys: Array, lesson: Lesson) -> list[Learned]:
    """One student for each key, which draws the patches of images."""
    image = lesson.public.inputs.ndim in IMAGE_RANKS
    check_shown(config, image=image, shown=lesson.public.shown)
    if not image:
        return [of_table(lesson)] * len(keys)
    return [_learned(seed, lesson) for seed in nets.seeds(keys)]


def of_table(lesson: Lesson) -> Learned:
    """The net `table` without a hidden layer, or the net `rows`, by least squares on the answered rows."""
    found, size = _best_of_table(lesson), (lesson.public.inputs.shape[1:], lesson.public.classes)
    parameters: dict[str, Any] = {"dense0": _head(found.line)}
    if found.reach:
        parameters |= {"examples": found.held, "reach": np.float32(found.reach)}
        net = models.build("rows", input_shape=size[0], classes=size[1], examples=len(found.held))
    else:
        net = models.build("table", input_shape=size[0], classes=size[1], hidden=())
    return Learned(net.description, parameters, temperature(_LOUD * found.line.unseen, *lesson.taught))


def left_out(seed: int, lesson: Lesson) -> Float[np.ndarray, "answers classes"]:
    """Scores of each answered input had its answer been left out, in closed form."""
    if lesson.public.inputs.ndim not in IMAGE_RANKS:
        return _best_of_table(lesson).line.unseen
    images = scaled(lesson)
    known = patches.learn(images, seed=seed)
    return _line(jnp.asarray(patches.features(known, images[lesson.rows])), lesson).unseen


def _best_of_table(lesson: Lesson) -> OfTable:
    """What predicts left-out answers best: the scaled columns, or nearness to rows, each by its reach."""
    rows, soft = scaled(lesson)[lesson.rows].reshape(len(lesson.rows), -1), lesson.soft
    targets = np.eye(lesson.public.classes)[lesson.labels] if soft is None else soft.targets
    weights = np.ones(len(rows)) if soft is None else soft.weights
    tried = [OfTable(of_features(rows, targets, weights), rows[:0])]
    if not lesson.public.shown:
        return tried[0]
    held = rows[np.searchsorted(lesson.rows, lesson.spaced(_HELD).rows)]
    gaps, whole = squared_gaps(held, held), len(held) == len(rows)
    across = gaps if whole else squared_gaps(rows, held)
    apart = gaps[gaps > _EQUAL * gaps.mean()]
    for reach in (share * float(np.median(apart)) for share in _REACHES if len(apart)):
        alike = np.exp(-gaps / reach)
        if whole:
            line = weighted_least_squares(alike, targets, weights)
        else:
            line = of_few_examples(alike, np.exp(-across / reach), targets, weights)
        tried.append(OfTable(line, held.astype(np.float32), reach))
    return min(tried, key=lambda one: (weights[:, None] * (one.line.unseen - targets) ** 2).mean())


def _learned(seed: int, lesson: Lesson) -> Learned:
    images = scaled(lesson)
    known = patches.learn(images, seed=seed)
    fitted = fit(known, images, patches.features(known, images[lesson.rows]), lesson)
    shape, classes = images.shape[1:], lesson.public.classes
    net = models.build("patches", input_shape=shape, classes=classes, examples=len(examples(lesson)))
    return Learned(net.description, fitted.parameters, temperature(fitted.unseen, *lesson.taught))


def scaled(lesson: Lesson) -> Float[np.ndarray, "input ..."]:
    """All public inputs as a net sees them."""
    return np.asarray(lesson.public.preprocessing.apply(lesson.public.inputs))


def examples(lesson: Lesson) -> Int[np.ndarray, " examples"]:
    """The rows of the images that the student holds: all answered ones, or as many as suffice."""
    return lesson.rows if lesson.soft is None else lesson.spaced(_HELD).rows


def fit(
    known: patches.Patches,
    images: Float[np.ndarray, "image h w c"],
    answered: Float[np.ndarray, "answers features"],
    lesson: Lesson,
) -> Fitted:
    """Least squares on the answers, from the features of the answered images."""
    line = _line(jnp.asarray(answered), lesson)
    parameters = {
        **known._asdict(),
        "examples": images[examples(lesson)].astype(np.float32),
        "dense0": _head(line),
    }
    return Fitted(parameters, _LOUD * line.unseen)


def _head(line: Line) -> dict[str, np.ndarray]:
    """The last layer that says what least squares found."""
    return {name: (_LOUD * getattr(line, name)).astype(np.float32) for name in ("kernel", "bias")}


def _line(answered: Array, lesson: Lesson) -> Line:
    """Least squares on labels, or weighted on soft answers."""
    held = answered if lesson.soft is None else answered[np.searchsorted(lesson.rows, examples(lesson))]
    alike = np.asarray(patches.likeness(held, held))
    if lesson.soft is None:
        return least_squares(alike, lesson.labels, lesson.public.classes)
    if len(held) == len(answered):
        return weighted_least_squares(alike, lesson.soft.targets, lesson.soft.weights)
    across = np.asarray(patches.likeness(answered, held))
    return of_few_examples(alike, across, lesson.soft.targets, lesson.soft.weights)


def logits(
    head: dict[str, np.ndarray],
    features: Float[np.ndarray, "image features"],
    held: Float[np.ndarray, "examples features"],
) -> Float[np.ndarray, "image classes"]:
    """What the net `patches` says of images, from their features and those of its examples."""
    alike = patches.likeness(jnp.asarray(features), jnp.asarray(held))
    return np.asarray(alike) @ head["kernel"] + head["bias"]
