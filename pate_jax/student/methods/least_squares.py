"""Least squares on answers by likeness, penalised as suits answers they have not seen; all in closed form.

Scores of an input are linear in how alike it is to some examples, public images with an answer. Every answer
can be left out in turn at no cost, which chooses the penalty, and says how sure the scores may be.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pate_jax.system.eigen import eigensystem

_PENALTIES = np.geomspace(1e-3, 3.0, 15)  # as shares of the typical likeness of an input to itself
_NOTHING = 1e-9  # likeness of equal images, and weight of the others where there are none
_ROUNDING = 1e-6  # added to the likeness of examples to themselves, so that it has a root


class Line(NamedTuple):
    """Scores that are linear in the likeness to every example, and what they would be unseen."""

    kernel: Float[np.ndarray, "examples classes"]  # of `of_features` [feature, class]
    bias: Float[np.ndarray, " classes"]
    unseen: Float[np.ndarray, "answers classes"]  # each answer's scores, had it been left out

    def shares(self, features: Float[np.ndarray, "inputs features"]) -> Float[np.ndarray, "inputs classes"]:
        """The scores of some inputs as probabilities: none below 0, and added up to 1."""
        scores = np.maximum(features @ self.kernel + self.bias, 0) + _NOTHING
        return np.asarray(scores / scores.sum(1, keepdims=True))


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
    return weighted_least_squares(alike, np.eye(classes)[labels], np.ones(len(labels)))


def weighted_least_squares(
    alike: Float[np.ndarray, "answers answers"],
    targets: Float[np.ndarray, "answers classes"],
    weights: Float[np.ndarray, " answers"],
) -> Line:
    """The same on any targets, each answer with a weight; weights are 1 in the mean.

    With weights w, likeness K and the weighted means taken off both sides, the coefficients are
    `sqrt(w) (sqrt(w) K sqrt(w) + penalty)^-1 sqrt(w) targets`.
    """
    weights = np.asarray(weights, np.float64)
    each, root = weights[:, None], np.sqrt(weights)
    shares, usual = (each * targets).mean(0), (each * alike).mean(0)
    centred = (alike - usual - usual[:, None] + (weights * usual).mean()) * root * root[:, None]
    values, directions = eigensystem(centred)
    turned = directions.T @ (root[:, None] * (targets - shares))
    tried = []
    for penalty in _PENALTIES * max(np.trace(centred) / len(weights), _NOTHING):
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
    line = of_features(across @ back, targets, weights)
    return line._replace(kernel=back @ line.kernel)


def of_features(
    features: Float[np.ndarray, "answers features"],
    targets: Float[np.ndarray, "answers classes"],
    weights: Float[np.ndarray, " answers"],
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
    for penalty in _PENALTIES * max(values.sum() / len(targets), _NOTHING):
        hat = weights * (along**2 @ (1 / (values + penalty)))
        fitted = along @ (turned / (values + penalty)[:, None])
        tried.append((penalty, _left_out(targets, targets - shares - fitted, hat, weights)))
    penalty, unseen = _best(tried, targets, weights)
    found = directions @ (turned / (values + penalty)[:, None])
    return Line(found, shares - usual @ found, unseen)


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
    return min(tried, key=lambda one: (weights[:, None] * (one[1] - targets) ** 2).mean())
