"""The ridge student: a closed form on the typical patches of the public pool; seconds, and nothing to tune.

Least squares on the answers, with the penalty that predicts each answer best from all others. That says also
how sure it may be of itself, so its probabilities need no answers held back.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pate_jax import patches
from pate_jax.errors import PateError
from pate_jax.student.calibration import temperature
from pate_jax.student.interface import PublicInputs
from pate_jax.student.settings import StudentConfig

NET = "patches"
_PENALTIES = np.geomspace(1e-3, 3.0, 15)  # as shares of the typical squared length of an input's features
_LOUD = 20.0  # scores become logits by it, before the temperature


class Line(NamedTuple):
    """A linear classifier, and what it would have said of each answer without having seen it."""

    kernel: Float[np.ndarray, "features classes"]
    bias: Float[np.ndarray, "classes"]
    unseen: Float[np.ndarray, "answers classes"]


def fit(
    seed: int, public: PublicInputs, rows: np.ndarray, labels: np.ndarray, config: StudentConfig
) -> tuple[dict[str, Any], float]:
    """Parameters of the net `patches`, and its temperature."""
    if config.net != NET or config.hold_out:
        raise PateError(
            f"student net={config.net!r}, hold_out={config.hold_out}: ridge has a net of its own and holds "
            "each answer out in turn; leave both out"
        )
    pool = np.asarray(public.preprocessing.apply(public.inputs))
    known = patches.learn(pool, seed=seed)
    line = least_squares(patches.features(known, pool[rows]), labels, public.classes)
    head = {"kernel": _LOUD * line.kernel, "bias": _LOUD * line.bias}
    parameters = {**known._asdict(), "dense0": {name: leaf.astype(np.float32) for name, leaf in head.items()}}
    return parameters, temperature(_LOUD * line.unseen, labels)


def least_squares(
    features: Float[np.ndarray, "answers features"], labels: Int[np.ndarray, "answers"], classes: int
) -> Line:
    """The line of least squares on labels as 0 and 1, penalised as suits answers it has not seen.

    >>> line = least_squares(np.array([[1.0], [0.8], [-1.0], [-0.9]]), np.array([0, 0, 1, 1]), 2)
    >>> line.unseen.argmax(1).tolist()
    [0, 0, 1, 1]
    """
    targets = np.eye(classes)[labels]
    bias = targets.mean(0)
    alike = features.astype(np.float64) @ features.T.astype(np.float64)
    values, directions = np.linalg.eigh(alike)
    turned = directions.T @ (targets - bias)
    found = []
    for penalty in _PENALTIES * np.trace(alike) / len(labels):
        kept = values / (values + penalty)
        hat = (directions**2) @ kept
        fitted = directions @ (kept[:, None] * turned)
        # What each answer would be without itself: its residual grows by 1 / (1 - its weight on itself).
        left_out = targets - (targets - bias - fitted) / (1 - hat[:, None])
        found.append((((left_out - targets) ** 2).mean(), penalty, left_out))
    _, penalty, unseen = min(found, key=lambda one: one[0])
    weights = directions @ (turned / (values + penalty)[:, None])
    return Line(features.T @ weights, bias, unseen)
