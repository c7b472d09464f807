"""What every student is given, what it may be told, and what comes out.

A student sees public inputs and the answers that left the mechanism. `fit` takes them as `PublicInputs` and
`Answers`, the types that only public data and only the aggregator make.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import numpy as np

from pate_jax.aggregate import Answers
from pate_jax.data import Preprocessing
from pate_jax.errors import PateError
from pate_jax.student.serving import Student

__all__ = ["PublicInputs", "Student", "StudentConfig", "fit"]


class PublicInputs(NamedTuple):
    """Inputs that anyone may see, with what turns them into the net's own scale."""

    inputs: np.ndarray  # [record, ...]
    preprocessing: Preprocessing
    classes: int
    class_names: tuple[str, ...]


@dataclass(frozen=True)
class StudentConfig:
    """How the student learns; everything here is free of privacy cost."""

    method: Literal["supervised"] = "supervised"
    """How it learns: from the answered queries only."""
    net: str | None = None
    """Its net; unset: `cnn` for images, `table` for tables."""
    steps: int = 1200
    """Steps of the optimiser."""
    batch_size: int = 64
    """Answered queries a step."""
    learning_rate: float = 5e-3
    """Peak rate of AdamW, reached after a tenth of the steps, then down a cosine to zero."""
    weight_decay: float = 1e-3
    """Decoupled weight decay."""
    label_smoothing: float = 0.1
    """Share of each label spread over all classes, since a few answers are wrong."""
    shift: int = 3
    """Images are moved by up to so many pixels in each direction at every step."""

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "learning_rate"):
            if getattr(self, name) <= 0:
                raise PateError(f"student {name}={getattr(self, name)} must be above 0")
        if not 0 <= self.label_smoothing < 1:
            raise PateError(f"student label_smoothing={self.label_smoothing} must be at least 0 and below 1")
        if self.shift < 0 or self.weight_decay < 0:
            raise PateError(f"student shift={self.shift} and weight_decay={self.weight_decay} must be >= 0")


def fit(key: jax.Array, public_inputs: PublicInputs, answers: Answers, config: StudentConfig) -> Student:
    """Train a student on the answered queries; row i of the answers belongs to row i of the inputs."""
    from pate_jax.student import supervised

    queries = len(answers.labels)
    if queries > len(public_inputs.inputs):
        raise PateError(
            f"{queries} answers for {len(public_inputs.inputs)} public inputs: pass the inputs asked about"
        )
    answered = np.flatnonzero(np.asarray(answers.answered))
    if not len(answered):
        raise PateError(
            f"none of the {queries} queries was answered, so there is nothing to learn from: "
            "lower the threshold or ask about more inputs"
        )
    labels = np.asarray(answers.labels)[answered]
    return supervised.fit(key, public_inputs, answered, labels, config)
