"""The ridge student: a closed form on images' typical patches, or on a table's rows; nothing to tune.

Least squares on the answers, in terms of how alike an input is to each of the public ones that were answered,
with the penalty that predicts each answer best from all others. That says also how sure it may be of itself,
so its probabilities need no answers held back: every answer can be left out in turn at no cost. The student
holds those public inputs. Answers about images are carried over the pool first, where that predicts them
better (`carried`); then all of the pool is learned, and the student holds images of it. Of a table it is
linear in the scaled columns, and holds rows only where these may go out and nearness to them answers better.

Of images: where classes lie in heaps, a graph of images that are near to each other by their typical patches
(`models.clusters`) tells more: answers are carried along it to the pool, and least squares learn every
image's carried label. A tenth of the answers is left out in turn to say how right the carried labels are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from pate_jax import models
from pate_jax.data.dataset import IMAGE_RANKS
from pate_jax.models import patches
from pate_jax.models.clusters import Graph, graph, spread
from pate_jax.models.table_features import squared_gaps
from pate_jax.student.calibration import temperature
from pate_jax.student.lesson import Learned, Lesson, check_shown, evenly
from pate_jax.student.methods import nets
from pate_jax.student.settings import Ridge
from pate_jax.system.eigen import eigensystem, leading

_POOL = 4000  # images of the graph at most
_DIRECTIONS, _TURNS = 100, 4  # in which they are compared, and of finding these
_PARTS = 10  # of the answers, each left out once
_FEW = 20  # answers, below which nothing is carried
_PENALTIES = np.geomspace(1e-3, 3.0, 15)  # as shares of the typical likeness of an input to itself
_OF_NOISE = np.geomspace(1e-3, 30.0, 18)  # the same for noisy shares, of which an answer alone says little
_NOTHING = 1e-9  # likeness of equal images, and weight of the others where there are none
_ROUNDING = 1e-6  # added to the likeness of examples to themselves, so that it has a root
_TINY = 1e-12


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
    stretch = (found * (targets - middle)).sum() / max((found**2).sum(), _TINY)
    return np.asarray(middle + max(stretch, _TINY) * found)


def _places(features: Float[np.ndarray, "image features"]) -> Float[np.ndarray, "image directions"]:
    """The features along the directions in which they vary most."""
    centred = features - features.mean(0)
    begin = np.random.default_rng(0).standard_normal((features.shape[1], min(_DIRECTIONS, *features.shape)))
    return np.asarray(centred @ leading(centred, begin.astype(np.float32), _TURNS))


Penalties = Float[np.ndarray, " penalty"]


class Line(NamedTuple):
    """Scores that are linear in the likeness to every example, and what they would be unseen."""

    kernel: Float[np.ndarray, "examples classes"]  # of `of_features` [feature, class]
    bias: Float[np.ndarray, " classes"]
    unseen: Float[np.ndarray, "answers classes"]  # each answer's scores, had it been left out

    def shares(self, features: Float[np.ndarray, "inputs features"]) -> Float[np.ndarray, "inputs classes"]:
        """The scores of some inputs as probabilities: none below 0, and added up to 1."""
        scores = np.maximum(features @ self.kernel + self.bias, 0) + _NOTHING
        return np.asarray(scores / scores.sum(1, keepdims=True))


def weighted_least_squares(
    alike: Float[np.ndarray, "answers answers"],
    targets: Float[np.ndarray, "answers classes"],
    weights: Float[np.ndarray, " answers"],
    penalties: Penalties | None = None,  # unset: the usual ones
) -> Line:
    """The scores of least squares on targets, penalised as suits answers they have not seen.

    `alike` says how alike the answered inputs are, as inner products of some features do; only what differs
    from their mean is used. Each answer has a weight, and weights are 1 in the mean. With weights w, likeness
    K and the weighted means taken off both sides, the coefficients are
    `sqrt(w) (sqrt(w) K sqrt(w) + penalty)^-1 sqrt(w) targets`.

    >>> places = np.array([[1.0], [0.8], [-1.0], [-0.9]])
    >>> line = weighted_least_squares(places @ places.T, np.eye(2)[[0, 0, 1, 1]], np.ones(4))
    >>> line.unseen.argmax(1).tolist()
    [0, 0, 1, 1]
    """
    weights = np.asarray(weights, np.float64)
    each, root = weights[:, None], np.sqrt(weights)
    shares, usual = (each * targets).mean(0), (each * alike).mean(0)
    centred = (alike - usual - usual[:, None] + (weights * usual).mean()) * root * root[:, None]
    values, directions = eigensystem(centred)
    turned = directions.T @ (root[:, None] * (targets - shares))
    tried = []
    for penalty in _tried(penalties) * max(np.trace(centred) / len(weights), _NOTHING):
        shrunk = values / (values + penalty)
        hat = (directions**2) @ shrunk
        fitted = directions @ (shrunk[:, None] * turned) / root[:, None]
        tried.append((penalty, _left_out(targets, targets - shares - fitted, hat, weights)))
    penalty, unseen = _best(tried, targets, weights)
    coefficients = root[:, None] * (directions @ (turned / (values + penalty)[:, None]))
    coefficients -= coefficients.mean(0) * each  # as centring the likeness does
    return Line(coefficients, shares - usual @ coefficients, unseen)


def of_few_examples(
    alike: Float[np.ndarray, "examples examples"],
    across: Float[np.ndarray, "answers examples"],
    targets: Float[np.ndarray, "answers classes"],
    weights: Float[np.ndarray, " answers"],
    penalties: Penalties | None = None,  # unset: the usual ones
) -> Line:
    """Least squares on all answers, by their likeness to a few examples only (Nystroem's approximation).

    `alike` and `across` say how alike examples are to each other, and answered inputs to examples. With
    `alike = L L^T` the rows of `across L^-T` are features whose inner products stand for likeness.

    >>> places = np.array([[1.0], [0.8], [-1.0], [-0.9]])
    >>> targets, weights = np.eye(2)[[0, 0, 1, 1]], np.ones(4)
    >>> line = of_few_examples(places[::2] @ places[::2].T, places @ places[::2].T, targets, weights)
    >>> line.unseen.argmax(1).tolist(), line.kernel.shape
    ([0, 0, 1, 1], (2, 2))
    """
    root = np.linalg.cholesky(alike + _ROUNDING * np.trace(alike) / len(alike) * np.eye(len(alike)))
    back = np.linalg.inv(root).T
    line = of_features(across @ back, targets, weights, penalties)
    return line._replace(kernel=back @ line.kernel)


def of_features(
    features: Float[np.ndarray, "answers features"],
    targets: Float[np.ndarray, "answers classes"],
    weights: Float[np.ndarray, " answers"],
    penalties: Penalties | None = None,  # unset: the usual ones
) -> Line:
    """Least squares on all answers, linear in a few features of each; the kernel is [feature, class].

    >>> places, targets = np.array([[1.0], [0.8], [-1.0], [-0.9]]), np.eye(2)[[0, 0, 1, 1]]
    >>> line = of_features(places, targets, np.ones(4))
    >>> (places @ line.kernel + line.bias).argmax(1).tolist(), line.kernel.shape
    ([0, 0, 1, 1], (1, 2))
    """
    weights = np.asarray(weights, np.float64)
    each = weights[:, None]
    shares, usual = (each * targets).mean(0), (each * features).mean(0)
    features = features - usual
    values, directions = eigensystem(features.T @ (each * features))
    along = features @ directions
    turned = along.T @ (each * (targets - shares))
    tried = []
    for penalty in _tried(penalties) * max(values.sum() / len(targets), _NOTHING):
        hat = weights * (along**2 @ (1 / (values + penalty)))
        fitted = along @ (turned / (values + penalty)[:, None])
        tried.append((penalty, _left_out(targets, targets - shares - fitted, hat, weights)))
    penalty, unseen = _best(tried, targets, weights)
    found = directions @ (turned / (values + penalty)[:, None])
    return Line(found, shares - usual @ found, unseen)


def _tried(penalties: Penalties | None) -> Penalties:
    return _PENALTIES if penalties is None else penalties


def _left_out(targets: np.ndarray, residual: np.ndarray, hat: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """What each answer's scores would be without it, from the weight `hat` that it has on its own.

    Its residual grows by 1 / (1 - its weight on itself), and it has weight on itself through the means of
    answers and of likeness too.
    """
    others = np.maximum(1 - weights / len(targets) - hat, _NOTHING)
    return targets - residual / others[:, None]


def _best(
    tried: list[tuple[float, np.ndarray]], targets: np.ndarray, weights: np.ndarray
) -> tuple[float, np.ndarray]:
    """The penalty with which answers are predicted best when they are left out, and these predictions."""
    return min(tried, key=lambda one: _missed(one[1], targets, weights))


def _missed(unseen: np.ndarray, targets: np.ndarray, weights: np.ndarray) -> float:
    """By how much left-out answers are missed: the weighted mean of squares."""
    return float((weights[:, None] * (unseen - targets) ** 2).mean())


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
    return _of_images(seed, lesson).unseen


class _Wanted(NamedTuple):
    """What least squares learns of a lesson."""

    targets: Float[np.ndarray, "answers classes"]
    weights: Float[np.ndarray, " answers"]
    penalties: Penalties | None = None  # unset: the usual ones


def _wanted(lesson: Lesson) -> _Wanted:
    """Labels as 0 and 1, or weighted shares; of whole histograms larger penalties are tried as well."""
    soft = lesson.soft
    if soft is None:
        return _Wanted(np.eye(lesson.public.classes)[lesson.labels], np.ones(len(lesson.labels)))
    return _Wanted(soft.unshrunk, soft.weights, None if soft.plain is None else _OF_NOISE)


def _best_of_table(lesson: Lesson) -> OfTable:
    """What predicts left-out answers best: the scaled columns, or nearness to rows, each by its reach."""
    rows, wanted = scaled(lesson)[lesson.rows].reshape(len(lesson.rows), -1), _wanted(lesson)
    tried = [OfTable(of_features(rows, *wanted), rows[:0])]
    if not lesson.public.shown:
        return tried[0]
    held = rows[np.searchsorted(lesson.rows, lesson.spaced(_HELD).rows)]
    gaps, whole = squared_gaps(held, held), len(held) == len(rows)
    across = gaps if whole else squared_gaps(rows, held)
    apart = gaps[gaps > _EQUAL * gaps.mean()]
    for reach in (share * float(np.median(apart)) for share in _REACHES if len(apart)):
        alike = np.exp(-gaps / reach)
        if whole:
            line = weighted_least_squares(alike, *wanted)
        else:
            line = of_few_examples(alike, np.exp(-across / reach), *wanted)
        tried.append(OfTable(line, held.astype(np.float32), reach))
    return min(tried, key=lambda one: _missed(one.line.unseen, wanted.targets, wanted.weights))


def _learned(seed: int, lesson: Lesson) -> Learned:
    found, public = _of_images(seed, lesson), lesson.public
    held = len(found.parameters["examples"])
    shape = public.inputs.shape[1:]
    net = models.build("patches", input_shape=shape, classes=public.classes, examples=held)
    return Learned(net.description, found.parameters, temperature(found.logits, *lesson.taught))


class _OfImages(NamedTuple):
    """The net `patches` by the answers, or by what they say of the pool."""

    parameters: dict[str, Any]
    unseen: Float[np.ndarray, "answers classes"]  # shares of each answered image had its answer been left out
    logits: Float[np.ndarray, "answers classes"]  # of the net, by which its temperature is set


def _of_images(seed: int, lesson: Lesson) -> _OfImages:
    """The better of the two, by the answers that they have not seen."""
    images = scaled(lesson)
    known = patches.learn(images, seed=seed)
    own = fit(known, images, patches.features(known, images[lesson.rows]), lesson)
    targets = _wanted(lesson).targets
    found = carried(known, images, lesson, targets)
    if found is None or _agreement(found.unseen, targets) <= _agreement(own.unseen, targets):
        return _OfImages(own.parameters, own.unseen / _LOUD, own.unseen)
    held = evenly(_HELD, len(found.rows))
    across = np.asarray(patches.likeness(jnp.asarray(found.features), jnp.asarray(found.features[held])))
    line = of_few_examples(
        across[held], across, np.eye(lesson.public.classes)[found.labels], np.ones(len(across))
    )
    parameters = own.parameters | {
        "examples": images[found.rows[held]].astype(np.float32),
        "dense0": _head(line),
    }
    return _OfImages(parameters, found.unseen, _LOUD * line.unseen[: len(lesson.rows)])


def _agreement(said: Float[np.ndarray, "answers classes"], targets: np.ndarray) -> float:
    """What answers give the classes that are said of them, in the mean."""
    return float(np.take_along_axis(targets, said.argmax(1)[:, None], 1).mean())


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
    wanted = _wanted(lesson)
    held = answered if lesson.soft is None else answered[np.searchsorted(lesson.rows, examples(lesson))]
    alike = np.asarray(patches.likeness(held, held))
    if len(held) == len(answered):
        return weighted_least_squares(alike, *wanted)
    return of_few_examples(alike, np.asarray(patches.likeness(answered, held)), *wanted)


def logits(
    head: dict[str, np.ndarray],
    features: Float[np.ndarray, "image features"],
    held: Float[np.ndarray, "examples features"],
) -> Float[np.ndarray, "image classes"]:
    """What the net `patches` says of images, from their features and those of its examples."""
    alike = patches.likeness(jnp.asarray(features), jnp.asarray(held))
    return np.asarray(alike) @ head["kernel"] + head["bias"]
