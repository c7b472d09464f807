"""What every student is given, what it may be told, and what comes out.

A student sees public inputs and the answers that left the mechanism. `fit` takes them as `PublicInputs` and
`Answers`, the types that only public data and only the aggregator make.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pate_jax import artefact, models
from pate_jax.aggregate import Answers
from pate_jax.data import Preprocessing
from pate_jax.errors import PateError

_CHUNK = 1000


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


class Student(NamedTuple):
    """A trained student: called on raw inputs, it returns class probabilities."""

    parameters: Any
    description: dict[str, Any]  # of the net, as `models.build` takes it
    preprocessing: Preprocessing
    class_names: tuple[str, ...]

    def __call__(self, inputs: np.ndarray) -> np.ndarray:
        """Probabilities [input, class]."""
        wanted = tuple(self.description["input_shape"])
        if inputs.shape[1:] != wanted:
            raise PateError(f"inputs have shape {inputs.shape[1:]} each; this student takes {wanted}")
        apply = _probabilities(json.dumps(self.description), self.preprocessing)
        chunks = [inputs[start : start + _CHUNK] for start in range(0, len(inputs), _CHUNK)]
        found = [
            np.asarray(apply(self.parameters, jnp.asarray(_padded(chunk))))[: len(chunk)] for chunk in chunks
        ]
        return np.concatenate(found) if found else np.zeros((0, len(self.class_names)), np.float32)

    def accuracy(self, inputs: np.ndarray, labels: np.ndarray) -> float:
        """Share of inputs whose most probable class is the label."""
        return float(np.mean(self(inputs).argmax(1) == labels))

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every parameter by its path."""
        return {name: tuple(leaf.shape) for name, leaf in _leaves(self.parameters).items()}

    def save(self, folder: Path) -> None:
        """Write parameters and description into a folder; `load` is the inverse."""
        arrays = {name: np.asarray(leaf) for name, leaf in _leaves(self.parameters).items()}
        artefact.write_arrays(folder / "parameters.npz", "student-parameters", arrays)
        body = {
            "net": self.description,
            "preprocessing": asdict(self.preprocessing),
            "class_names": list(self.class_names),
        }
        artefact.write_json(folder / "student.json", "student", body)

    @classmethod
    def load(cls, folder: Path | str) -> Student:
        """The student that was saved in a folder."""
        body = artefact.read_json(Path(folder) / "student.json", "student")
        arrays = artefact.read_arrays(Path(folder) / "parameters.npz", "student-parameters")
        constants = {name: tuple(values) for name, values in body["preprocessing"].items()}
        return cls(_tree(arrays), body["net"], Preprocessing(**constants), tuple(body["class_names"]))


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


@lru_cache(maxsize=8)
def _probabilities(description: str, preprocessing: Preprocessing):
    model = models.build(**json.loads(description))
    return jax.jit(
        lambda parameters, inputs: jax.nn.softmax(model.apply(parameters, preprocessing.apply(inputs)))
    )


def _padded(chunk: np.ndarray) -> np.ndarray:
    missing = _CHUNK - len(chunk)
    return np.concatenate([chunk, np.repeat(chunk[-1:], missing, axis=0)]) if missing else chunk


def _leaves(tree: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(tree, dict):
        return {prefix[:-1]: tree}
    return {
        name: leaf
        for key, branch in tree.items()
        for name, leaf in _leaves(branch, f"{prefix}{key}/").items()
    }


def _tree(leaves: dict[str, np.ndarray]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, leaf in leaves.items():
        *branches, last = path.split("/")
        here = tree
        for branch in branches:
            here = here.setdefault(branch, {})
        here[last] = leaf
    return tree
