"""The student that is the classifier which class sums give: nothing is trained, and no copy loses anything.

Its net turns an input into the vector that a voter with this input has, and its last layer says what the
classifier says of that vector. All of it follows from public inputs and the noisy sums.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Float

from pate_jax.crowd.classifier import Linear
from pate_jax.crowd.discriminant import Discriminant
from pate_jax.crowd.vectors import Scaling, inner_length, vectors
from pate_jax.data.dataset import AS_STORED
from pate_jax.errors import PateError
from pate_jax.models import trees
from pate_jax.models.spaces import fronts
from pate_jax.models.spaces.fronts import Front
from pate_jax.models.spaces.space import Space
from pate_jax.student.calibration import logistic
from pate_jax.student.lesson import Learned, PublicInputs
from pate_jax.student.serving import Student

_SCALES = tuple(np.linspace(1, 8, 141).tolist())  # by which shares are drawn in
_MOST_TOLD = 0.5  # of the most that shares may vary with labels, once they are drawn in


def holds(front: Front) -> bool:
    """Whether a student can hold what makes a space's features; it cannot hold an encoder of the owner's.

    >>> holds(fronts.Identity("identity")), holds(fronts.Identity("encoder"))
    (True, False)
    """
    if isinstance(front, fronts.Patches | fronts.Photos | fronts.Columns):
        return True
    return front.kind in ("identity", "contrast")


def of_sums(public: PublicInputs, space: Space, scaling: Scaling, model: Linear) -> Student:
    """The classifier of noisy sums as a student.

    >>> from pate_jax import crowd
    >>> from pate_jax.models import spaces
    >>> pool = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    >>> public = PublicInputs(pool, AS_STORED, 2, ("no", "yes"))
    >>> space = spaces.learn("identity", pool)
    >>> scaling = crowd.scaling(space, space.coordinates(pool), length=100, power=0.5, constant=0.25)
    >>> weights = np.array([[0.3, -0.3], [0.1, -0.1], [0.0, 0.0], [0.2, -0.2]])
    >>> model = Linear(weights, 100, np.zeros((4, 3)), 1.0)
    >>> shares = model.linear(crowd.vectors(scaling, space.coordinates(pool)))[:, 1]
    >>> found = of_sums(public, space, scaling, model)(pool)[:, 1]
    >>> bool((found.argsort() == shares.argsort()).all()), bool(abs(found.mean() - shares.mean()) < 1e-3)
    (True, True)
    """
    if model.head is not None:
        return of_head(public, space, scaling, model.head)
    even = np.full(public.classes, 1 / public.classes)
    made = _believable(model, model.linear(vectors(scaling, space.coordinates(public.inputs))))
    return _behind(public, space, scaling, model.weights @ made.turn, even @ made.turn + made.offset, "head")


def _believable(model: Linear, shares: Float[np.ndarray, "pool classes"]) -> Discriminant:
    """The logits of fitted shares: of two classes by their logistic, of more by the discriminant.

    The noisy sums tell how the label varies with fitted shares, less what noise adds to it: `model.spread`.
    """
    made, spread = model.discriminant, model.spread
    if made is not None:
        return made
    if spread is None:
        return _logistic(shares[:, 1])
    middle = shares[:, 1].mean()
    others = middle + math.sqrt(spread.wider) * (shares[:, 1] - middle)  # as those of new inputs vary
    return _logistic(others, float(spread.covariance[1, 1]))


def of_line(public: PublicInputs, space: Space, scaling: Scaling, weights: np.ndarray) -> Student:
    """A linear prediction as a student: `weights` give the share of class 1, which is cut at 0 and 1.

    >>> from pate_jax import crowd
    >>> from pate_jax.models import spaces
    >>> pool = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    >>> public = PublicInputs(pool, AS_STORED, 2, ("0", "60"))
    >>> space = spaces.learn("identity", pool)
    >>> scaling = crowd.scaling(space, space.coordinates(pool), length=100, power=0.5, constant=0.25)
    >>> weights = np.array([0.5, 0.1, 0.0, 2.0])
    >>> shares = (crowd.vectors(scaling, space.coordinates(pool)) / 100 @ weights).clip(0, 1)
    >>> bool(np.allclose(of_line(public, space, scaling, weights)(pool)[:, 1], shares, atol=1e-5))
    True
    """
    kernel = np.stack([-weights, weights], 1)
    return _behind(public, space, scaling, kernel, np.array([1.0, 0.0]), "sums")


def _logistic(shares: Float[np.ndarray, " pool"], covariance: float | None = None) -> Discriminant:
    """The logits of two classes from the fitted shares of one, as believable probabilities have them.

    Where nobody has told how labels and shares vary together, it is as shares vary: what the best linear
    guess leaves of labels is uncorrelated with it.
    """
    scale = _scale(shares)
    drawn_in = 0.5 + (shares - 0.5) / scale
    known = float(drawn_in.var()) if covariance is None else covariance / scale**2
    offset, slope = logistic(drawn_in, known)
    offset, slope = offset + slope * (0.5 - 0.5 / scale), slope / scale
    return Discriminant(np.array([[0.0, 0.0], [0.0, slope]]), np.array([0.0, offset]))


def _scale(shares: Float[np.ndarray, " pool"]) -> float:
    """By how much fitted shares are too far from 1/2, as where users have more records than public ones.

    With a label of the mean m no shares vary more than with the mark of the largest ones, of which there are
    as many as m says. Where they vary more than they can, they are drawn in until half of that is left.

    >>> few = np.random.default_rng(0).normal(0.1, 0.05, 500)
    >>> _scale(few), _scale(0.5 + 1.5 * (few - 0.5)) > 1.3
    (1.0, True)
    """
    if _told(shares) < 1:
        return 1.0
    return next((scale for scale in _SCALES if _told(0.5 + (shares - 0.5) / scale) < _MOST_TOLD), _SCALES[-1])


def _told(shares: Float[np.ndarray, " pool"]) -> float:
    """The variance of shares, over the most that they may vary with a label of their mean."""
    mean = float(shares.mean())
    if not 0 < mean < 1:
        return math.inf
    largest = shares > np.quantile(shares, 1 - mean)
    most = float(np.mean((shares - mean) * largest))
    return float(shares.var()) / most if most > 0 else 0.0


def of_head(public: PublicInputs, space: Space, scaling: Scaling, kernel: np.ndarray) -> Student:
    """A linear head as a student: `kernel` gives logits of a vector over its length, the constant last.

    >>> from pate_jax import crowd
    >>> from pate_jax.models import spaces
    >>> pool = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    >>> space = spaces.learn("identity", pool)
    >>> scaling = crowd.scaling(space, space.coordinates(pool), length=100, power=0.5, constant=0.25)
    >>> student = of_head(PublicInputs(pool, AS_STORED, 2, ("no", "yes")), space, scaling, np.eye(4)[:, :2])
    >>> logits = crowd.vectors(scaling, space.coordinates(pool))[:, :2] / 100
    >>> bool(np.allclose(student(pool)[:, 1], 1 / (1 + np.exp(logits[:, 0] - logits[:, 1])), atol=1e-5))
    True
    """
    return _behind(public, space, scaling, kernel, np.zeros(public.classes), "head")


def _behind(
    public: PublicInputs, space: Space, scaling: Scaling, kernel: np.ndarray, offset: np.ndarray, name: str
) -> Student:
    """A student whose last layer, `offset` and `kernel` of a vector over its length, is behind a space."""
    inner, directions = inner_length(scaling.length, scaling.constant), len(space.variances)
    bias = offset + scaling.constant / scaling.length * kernel[directions:].sum(0)
    dense = {"kernel": kernel[:directions] * inner / scaling.length, "bias": bias}
    kind = space.front.kind
    parameters = {
        **_of_front(space.front),
        "origin": space.middle,
        "steps": np.array(space.steps),
        "directions": space.directions,
        "weights": scaling.weights,
        "dense0": dense,
    }
    flat = {name: np.asarray(leaf, np.float32) for name, leaf in trees.flat(parameters).items()}
    net = {
        "name": name,
        "input_shape": list(public.inputs.shape[1:]),
        "classes": public.classes,
        "front": _named(space.front),
        "directions": directions,
        "length": inner,
        **_sizes(space.front, public.inputs.shape[-1]),
    }
    if kind == "identity":  # which looks at inputs as they are stored
        public = PublicInputs(public.inputs, AS_STORED, public.classes, public.class_names)
    return Learned(net, trees.nested(flat), 1.0).student(public)


def _named(front: Front) -> str:
    """How the net calls what its directions measure."""
    return "photos" if isinstance(front, fronts.Photos) else front.kind


def _sizes(front: Front, channels: int) -> dict[str, int]:
    """How many ramps and products; of typical patches, and of the grid of cells in which they are counted."""
    if isinstance(front, fronts.Columns):
        return {"ramps": len(front.ramps.column), "products": len(front.products.left)}
    if isinstance(front, fronts.Photos):
        sides, pixels, kinds = front.known.filters.shape
        cells = math.isqrt(front.known.within.shape[2])
        return {"kinds": kinds, "size": math.isqrt(pixels // channels), "cells": cells, "sides": sides}
    if not isinstance(front, fronts.Patches):
        return {}
    kinds, pixels = front.known.typical.shape
    cells = math.isqrt(len(front.known.middle) // kinds)
    return {"kinds": kinds, "size": math.isqrt(pixels // channels), "cells": cells}


def _of_front(front: Front) -> dict[str, Any]:
    """The parameters of a front."""
    if isinstance(front, fronts.Columns):
        bends = [each._asdict() for each in (front.ramps, front.products) if len(each[0])]
        return {
            "low": front.low,
            "high": front.high,
            **{name: leaf for one in bends for name, leaf in one.items()},
        }
    if isinstance(front, fronts.Patches | fronts.Photos):
        return front.known._asdict()
    if isinstance(front, fronts.Net) and front.kind == "contrast":
        return {"front": front.parameters}
    if not holds(front):
        raise PateError(f"no student can hold the space {front.kind!r}: choose another method than linear")
    return {}
