"""A student that learns from public labels too: its last layer is fitted to them, which costs no privacy.

The logits z = h K + b of a student read features h of an input. They become `a z + h D + c`, where a, D and c
are the most likely ones given the public labels, and D is held small. How small, and whether z counts at all,
follows from public rows that were left out; so may what comes out be the student as it was. All that is read
is the student, public inputs and public labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from pate_jax.errors import PateError
from pate_jax.models import trees
from pate_jax.student import spaces
from pate_jax.student.calibration import negative_log_likelihood
from pate_jax.student.serving import Student

LEAST = 50  # public rows that a last layer is fitted to
_PARTS = 5  # of the public rows, each left out once
# Of D, for features whose variances have the mean 1, in shares of the rows.
_PENALTIES = (1e-3, 1e-2, 1e-1, 1.0)
_FAINT = 1e-6  # the penalty of a and c: it keeps them finite
_EXACT = 1e-10  # the slope of the likelihood at which fitting ends

Logits = Float[np.ndarray, "row classes"]
Features = Float[np.ndarray, "row features"]


class Labelled(NamedTuple):
    """A student that has learned from public labels, and how right it was on rows that were left out."""

    student: Student
    right: float
    alone: float  # the same of the student as it was


class _Layer(NamedTuple):
    """What is added to a last layer, for features that are scaled."""

    slope: float  # a
    kernel: Float[np.ndarray, "features classes"]  # D
    bias: Float[np.ndarray, " classes"]  # c

    def of(self, logits: Logits, features: Features) -> Logits:
        return self.slope * logits + features @ self.kernel + self.bias


def learned(student: Student, inputs: np.ndarray, labels: Int[np.ndarray, " row"]) -> Labelled:
    """The student with a last layer that public labels have informed.

    >>> from pate_jax.student import PublicInputs, Ridge, fit
    >>> import jax, pate_jax
    >>> pool = np.random.default_rng(0).normal(size=(300, 2)).astype(np.float32)
    >>> public = PublicInputs(pool, pate_jax.data.Preprocessing((0.0,), (1.0,)), 2, ("no", "yes"))
    >>> wrong = pate_jax.aggregate.Answers((pool[:40, 1] > 0).astype(int), np.ones(40, bool))
    >>> found = learned(fit(jax.random.key(0), public, wrong, Ridge()), pool, (pool[:, 0] > 0).astype(int))
    >>> found.alone < 0.6 < 0.95 < found.right
    True
    """
    check(labels)
    if student.program is not None:
        raise PateError(
            f"the net of this student is your own ({student.description['name']}), whose last layer is not "
            "known: leave out --learn-from-public-labels, or choose another --student.method"
        )
    features = spaces.front(student)(inputs).astype(np.float64)
    with np.errstate(divide="ignore"):
        logits = np.maximum(np.log(student(inputs).astype(np.float64)), -50.0)
    middle, scale = features.mean(0), float(np.sqrt(features.var(0).mean())) or 1.0
    scaled = (features - middle) / scale
    tried = list(_tried(logits, scaled, labels))
    unseen, how = min(tried, key=lambda one: float(negative_log_likelihood(one[0], labels)))
    right, alone = (float((one.argmax(1) == labels).mean()) for one in (unseen, logits))
    if how is None:
        return Labelled(student, right, alone)
    added = _fitted(logits, scaled, labels, *how)
    kernel = added.kernel / scale
    return Labelled(_behind(student, added.slope, kernel, added.bias - middle @ kernel), right, alone)


def check(labels: Int[np.ndarray, " row"]) -> None:
    """Refuse public labels that are too few to learn from.

    >>> check(np.arange(60) % 2)
    """
    classes = len(np.unique(labels))
    if len(labels) < LEAST or classes < 2:
        raise PateError(
            f"{len(labels)} public labels, of {classes} different kinds, are too few to learn: give {LEAST} "
            "of two classes or more, or leave them out"
        )


def _tried(
    logits: Logits, features: Features, labels: np.ndarray
) -> Iterator[tuple[Logits, tuple[float, bool] | None]]:
    """What each way of learning says of rows it has not seen: none, and each penalty with and without z."""
    yield logits, None
    part = np.random.default_rng(0).permutation(len(labels)) % _PARTS
    for heard in (True, False):
        for penalty in _PENALTIES:
            unseen = np.empty_like(logits)
            for one in range(_PARTS):
                out, rest = part == one, part != one
                layer = _fitted(logits[rest], features[rest], labels[rest], penalty, heard)
                unseen[out] = layer.of(logits[out], features[out])
            yield unseen, (penalty, heard)


def _fitted(logits: Logits, features: Features, labels: np.ndarray, penalty: float, heard: bool) -> _Layer:
    """The most likely a, D and c; a is 0 where the student is not `heard`."""
    rows, classes = logits.shape
    wanted = np.eye(classes)[labels]
    entries = features.shape[1] * classes
    held = np.concatenate([[_FAINT], np.full(entries, penalty), np.full(classes, _FAINT)])

    def layer(flat: np.ndarray) -> _Layer:
        kernel = flat[1 : 1 + entries].reshape(-1, classes)
        return _Layer(float(flat[0]) if heard else 0.0, kernel, flat[-classes:])

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        found = layer(flat)
        said = found.of(logits, features)
        missed = (softmax(said, axis=1) - wanted) / rows
        slope = np.sum(missed * logits) if heard else 0.0
        steep = np.concatenate([[slope], (features.T @ missed).ravel(), missed.sum(0)])
        value = -np.sum(wanted * log_softmax(said, axis=1)) / rows + 0.5 * float(held @ flat**2)
        return value, steep + held * flat

    start = np.zeros(len(held))
    start[0] = float(heard)
    options = {"maxiter": 500, "gtol": _EXACT, "ftol": 0.0}
    return layer(minimize(loss, start, jac=True, method="L-BFGS-B", options=options).x)


def _behind(student: Student, slope: float, kernel: np.ndarray, bias: np.ndarray) -> Student:
    """The student whose last layer is `slope` times its own, and `kernel` and `bias`."""
    flat: dict[str, Any] = dict(trees.flat(student.parameters))
    kernels = sorted(name for name in flat if name.endswith("kernel") and "dense" in name)
    last = kernels[-1].removesuffix("kernel")
    share = slope / student.temperature
    for name, added in (("kernel", kernel), ("bias", bias)):
        flat[last + name] = np.asarray(share * np.asarray(flat[last + name]) + added, np.float32)
    return student._replace(parameters=trees.nested(flat), temperature=1.0)
