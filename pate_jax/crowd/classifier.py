"""The linear classifier that noisy class sums give, for any number of inputs; public, like the sums.

Least squares reads no more of the labels than the sums M, less what all classes share; the second moment of
the inputs is that of the public pool. What is not known is the noise, but its scale s is. Along each
eigenvector of the second moment, with eigenvalue e, `power` is the mean square of M over the classes,
smoothed over neighbouring directions, less what noise alone has, s^2 and one standard deviation of that mean.
The direction counts with the share `power / (power + s^2)` of what it says. So nothing is chosen, no label is
looked at, and a direction that says no more than noise does is left out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums

_SMOOTHED = 9  # neighbouring directions whose power is taken together
_FAINT = 1e-9  # of the largest eigenvalue: the least that is divided by


class Linear(NamedTuple):
    """A linear classifier of vectors (`crowd.vectors`)."""

    weights: Float[np.ndarray, "entries classes"]
    length: int
    noise: Float[np.ndarray, "entries directions"]  # that the known noise has in a class's weights

    def probabilities(self, vectors: Int[np.ndarray, "n entries"]) -> Float[np.ndarray, "n classes"]:
        """Of each class, for each vector: fitted shares, none below 0, that add up to 1."""
        classes = self.weights.shape[1]
        shares = np.maximum(1 / classes + vectors / self.length @ self.weights, 0)
        return (shares / shares.sum(1, keepdims=True)).astype(np.float32)

    def deviation(self, vectors: Int[np.ndarray, "n entries"]) -> Float[np.ndarray, " n"]:
        """Of each vector's fitted shares: the standard deviation that noise gives them."""
        return np.linalg.norm(vectors / self.length @ self.noise, axis=1).astype(np.float32)


def fit(
    noisy: Int[np.ndarray, "rows entries"],
    release: ClassSums,
    public: Int[np.ndarray, "pool entries"],
    voters: int,
) -> Linear:
    """The classifier of noisy sums; `voters` is their public, rounded number.

    >>> release = ClassSums(classes=3, directions=2, length=10, sigma=20.0)
    >>> public = np.array([[9, 1], [-8, 3], [1, -7], [0, 6]])
    >>> model = fit(np.array([[9000, 0], [-9000, 100], [0, -90]]), release, public, voters=3000)
    >>> model.probabilities(public).argmax(1)[:2].tolist()
    [0, 1]
    """
    if noisy.shape != release.shape or public.shape[1] != release.directions or voters < 1:
        raise PateError(
            f"sums {list(noisy.shape)} and public vectors {list(public.shape)} do not fit a release "
            f"{list(release.shape)} of {voters} voters"
        )
    pool = public / release.length
    values, axes = np.linalg.eigh(pool.T @ pool / len(pool))
    sums, scale = _contrasts(noisy, release)
    along = axes.T @ sums.T
    sure = 1 + np.sqrt(2 / (min(_SMOOTHED, len(along)) * (release.classes - 1)))
    power = np.maximum(_smoothed((along**2).mean(1)) - sure * scale**2, 0)
    share = power / (power + scale**2) / np.maximum(values, _FAINT * values[-1])
    weights = axes @ (share[:, None] * along) / voters
    return Linear(weights, release.length, axes * share * scale / voters)


def _contrasts(noisy: np.ndarray, release: ClassSums) -> tuple[np.ndarray, float]:
    """The sums [classes, entries] without what all classes share, and the root mean square of their noise."""
    values = noisy.astype(np.float64) / release.length
    scale = release.sigma / release.length
    if release.classes == 2:
        return np.concatenate([-values, values]) / 2, scale / 2
    return values - values.mean(0), scale * np.sqrt(1 - 1 / release.classes)


def _smoothed(power: np.ndarray) -> np.ndarray:
    """Means over neighbouring directions; at the ends over those that there are."""
    ones = np.ones(min(_SMOOTHED, len(power)))
    return np.convolve(power, ones, "same") / np.convolve(np.ones_like(power), ones, "same")
