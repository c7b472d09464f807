"""By what voters and students are judged: accuracy, or what a rare outcome does not hide behind.

Of two classes AUROC and AUPRC are those of one outcome; of more classes, and always of balanced accuracy,
they are means over the classes that occur, each against all others. The figures follow scikit-learn's
definitions, ties included, and take weights of rows, so that an interval can draw rows again.
"""

from __future__ import annotations

from typing import NamedTuple, get_args

import numpy as np
from jaxtyping import Float, Int

from pate_jax.errors import PateError
from pate_jax.models.names import Metric as Name

Said = Float[np.ndarray, "row classes"]
Labels = Int[np.ndarray, " row"]
Weights = Float[np.ndarray, "draw row"]
_HEADS = {"accuracy": "right", "balanced": "balanced accuracy", "auroc": "AUROC", "auprc": "AUPRC"}


class Metric(NamedTuple):
    """What is compared: one of the names, and the class that is the outcome (None: the rarest there)."""

    name: Name = "accuracy"
    positive: int | None = None

    def of(self, said: Said, truth: Labels) -> float:
        """How good what is said of rows is, the larger the better.

        >>> said = np.array([[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4]])
        >>> [Metric(name).of(said, np.array([0, 0, 0, 1])) for name in ("accuracy", "balanced", "auroc")]
        [0.75, 0.5, 1.0]
        """
        found = self.weighted(said, truth, np.ones((1, len(truth))))[0]
        return float(np.nan_to_num(found, nan=0.5))  # of one class alone nothing can be ranked

    def weighted(self, said: Said, truth: Labels, weights: Weights) -> Float[np.ndarray, " draw"]:
        """The same under each of several weights of the rows; NaN where it is not defined."""
        right = (said.argmax(1) == truth).astype(float)
        if self.name == "accuracy":
            return divided(weights @ right, weights.sum(1))
        classes = self._classes(truth, said.shape[1])
        own = [(truth == one).astype(float) for one in classes]
        if self.name == "balanced":
            each = [divided(weights @ (right * one), weights @ one) for one in own]
        else:
            area = auroc if self.name == "auroc" else auprc
            each = [area(one, said[:, place], weights) for place, one in zip(classes, own, strict=True)]
        there = np.isfinite(each)
        return divided(np.where(there, each, 0.0).sum(0), there.sum(0))

    def of_constant(self, truth: Labels) -> float:
        """What the same answer to everything reaches.

        >>> [Metric(name).of_constant(np.array([0, 0, 0, 1])) for name in get_args(Name)]
        [0.75, 0.5, 0.5, 0.25]
        """
        counts = np.bincount(truth)
        shares = counts[counts > 0] / len(truth)
        if self.name == "auprc":
            return float(np.mean(counts[self._classes(truth, len(counts))]) / len(truth))
        usual = {"accuracy": shares.max(), "balanced": 1 / len(shares), "auroc": 0.5}
        return float(usual[self.name])

    def rows(self, truth: Labels) -> float:
        """How many rows tell as much of accuracy as these tell of this: the fewer, the rarer a class is.

        A mean over classes of `n_c` rows each varies as a share of `classes^2 / sum(1/n_c)` rows does, an
        AUROC by less, and an AUPRC about as a share of the rows with the outcome.

        >>> [Metric(name).rows(np.array([0] * 90 + [1] * 10)) for name in get_args(Name)]
        [100.0, 36.0, 36.0, 10.0]
        """
        counts = np.bincount(truth)
        there = counts[counts > 0]
        if self.name == "accuracy" or len(there) < 2:
            return float(len(truth))
        if self.name == "auprc":
            own = counts[self._classes(truth, len(counts))]
            return float(len(own) / (1 / own).sum())
        return float(len(there) ** 2 / (1 / there).sum())

    def text(self, value: float) -> str:
        """A value as it is read.

        >>> Metric().text(0.871), Metric("auroc").text(0.871)
        ('87%', '0.871')
        """
        return f"{value:.0%}" if self.name in ("accuracy", "balanced") else f"{value:.3f}"

    @property
    def head(self) -> str:
        """Its name as it is read."""
        return _HEADS[self.name]

    def _classes(self, truth: Labels, classes: int) -> list[int]:
        """The classes that are ranked: one of two, else all that occur."""
        counts = np.bincount(truth, minlength=classes)
        there = [one for one in range(len(counts)) if counts[one]]
        if len(counts) > 2 or self.name == "balanced" or not there:
            return there
        wanted = self.positive
        return [min(there, key=lambda one: (counts[one], -one)) if wanted is None else wanted]


def named(name: str, positive: str | None, class_names: tuple[str, ...]) -> Metric:
    """The metric of this name, whose outcome is this class.

    >>> named("auroc", "yes", ("no", "yes"))
    Metric(name='auroc', positive=1)
    """
    known = {one: one for one in get_args(Name)}
    if name not in known:
        raise PateError(f"metric={name!r} is unknown; the metrics are {', '.join(known)}")
    if positive is not None and positive not in class_names:
        raise PateError(f"--positive {positive} must be one of {', '.join(class_names)}")
    return Metric(known[name], None if positive is None else class_names.index(positive))


def auroc(y: np.ndarray, p: np.ndarray, weights: Weights) -> np.ndarray:
    """The chance that a row with the outcome has a larger probability than one without; half for ties.

    >>> auroc(np.array([0, 1, 1]), np.array([0.2, 0.2, 0.9]), np.ones((1, 3))).item()
    0.75
    """
    true, false = (np.pad(one, ((0, 0), (1, 0))) for one in _curve(y, p, weights))
    area = (np.diff(false, axis=1) * (true[:, 1:] + true[:, :-1]) / 2).sum(1)
    return divided(area, true[:, -1] * false[:, -1])


def auprc(y: np.ndarray, p: np.ndarray, weights: Weights) -> np.ndarray:
    """Average precision: the precision at each threshold, weighted by the recall that it adds.

    >>> auprc(np.array([0, 1, 1]), np.array([0.2, 0.2, 0.9]), np.ones((1, 3))).round(4).item()
    0.8333
    """
    true, false = _curve(y, p, weights)
    added = np.diff(true, axis=1, prepend=0)
    return divided((added * divided(true, true + false, empty=0.0)).sum(1), true[:, -1])


def divided(over: np.ndarray, under: np.ndarray, empty: float = np.nan) -> np.ndarray:
    """A quotient, and `empty` where there is nothing to divide by.

    >>> divided(np.array([1.0, 2.0]), np.array([4.0, 0.0]), empty=0.5).tolist()
    [0.25, 0.5]
    """
    found: np.ndarray = np.divide(
        over, under, out=np.full(np.shape(over), empty), where=np.asarray(under) > 0
    )
    return found


def _curve(y: np.ndarray, p: np.ndarray, weights: Weights) -> tuple[np.ndarray, np.ndarray]:
    """True and false positives [draw, threshold] as the threshold falls from one probability to the next."""
    order = np.argsort(-p, kind="stable")
    last = np.append(np.flatnonzero(np.diff(p[order])), len(p) - 1)  # of each tie
    heavy = weights[:, order]
    positives = np.cumsum(heavy * y[order], axis=1)[:, last]
    return positives, np.cumsum(heavy, axis=1)[:, last] - positives
