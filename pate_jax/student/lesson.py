"""What every method is handed, public inputs with their answers, and what it hands back."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int, Int32

from pate_jax import models
from pate_jax.aggregate import Answers
from pate_jax.data.dataset import IMAGE_RANKS, Dataset, Part, Preprocessing
from pate_jax.errors import PateError, PateWarning
from pate_jax.student.serving import Student
from pate_jax.student.settings import Ridge, Settings, Tandem
from pate_jax.student.smoothing import Soft, smoothed, without_chance


class _Fields(NamedTuple):
    inputs: np.ndarray  # [record, ...]
    preprocessing: Preprocessing
    classes: int
    class_names: tuple[str, ...]
    shown: bool = True


class PublicInputs(_Fields):
    """Inputs that anyone may see, with what turns them into the net's own scale.

    Rows that were asked about come first, in the order of their answers. `of` reads a data set's public part;
    a `Part` itself is refused, since its type does not tell whether it is the private one. No student holds
    inputs that are not `shown`: their owner has not said that they may go out as they are.

    >>> PublicInputs(np.zeros((4, 2), np.float32), Preprocessing((0.0,), (1.0,)), 2, ("no", "yes")).classes
    2
    """

    __slots__ = ()

    def __new__(
        cls,
        inputs: Any,
        preprocessing: Preprocessing,
        classes: int,
        class_names: tuple[str, ...],
        shown: bool = True,
    ) -> PublicInputs:
        """Check and make."""
        if isinstance(inputs, (Part, Dataset)) or not hasattr(inputs, "shape"):
            raise PateError(
                f"inputs is a {type(inputs).__name__}, which may hold private records: pass the array of "
                "public inputs, or the data set to PublicInputs.of"
            )
        if classes < 2 or len(class_names) != classes:
            raise PateError(f"{len(class_names)} class names are given for classes={classes}; name each once")
        return super().__new__(cls, np.asarray(inputs), preprocessing, classes, tuple(class_names), shown)

    @classmethod
    def of(cls, dataset: Dataset, first: np.ndarray | None = None) -> PublicInputs:
        """The public part of a data set, the rows `first` (those asked about) before all others."""
        inputs = dataset.public.inputs
        if first is not None:
            inputs = inputs[np.concatenate([first, np.setdiff1d(np.arange(len(inputs)), first)])]
        return cls(inputs, dataset.preprocessing, dataset.classes, dataset.class_names, dataset.show_public)


class Lesson(NamedTuple):
    """Public inputs, and the answers by their rows."""

    public: PublicInputs
    rows: Int32[np.ndarray, " answers"]  # of the inputs that were answered
    labels: Int32[np.ndarray, " answers"]
    soft: Soft | None = None  # what soft answers say beyond their labels

    @property
    def taught(self) -> tuple[np.ndarray, np.ndarray | None]:
        """What students learn, and are calibrated by, and weights: labels, or the targets of soft answers."""
        return (self.labels, None) if self.soft is None else (self.soft.targets, self.soft.weights)

    def part(self, places: np.ndarray) -> Lesson:
        """The same public inputs with some of the answers."""
        soft = None if self.soft is None else self.soft.part(places)
        return Lesson(self.public, self.rows[places], self.labels[places], soft)

    def spaced(self, most: int) -> Lesson:
        """The same with at most this many answers, evenly spaced."""
        return self.part(evenly(most, len(self.rows)))


def evenly(most: int, places: int) -> Int[np.ndarray, " chosen"]:
    """At most so many places, evenly spaced among all.

    >>> evenly(3, 9).tolist(), evenly(3, 2).tolist(), evenly(0, 9).tolist()
    ([0, 3, 6], [0, 1], [])
    """
    count = min(most, places)
    return np.arange(count) * places // max(1, count)


class Learned(NamedTuple):
    """The net that a method trained."""

    description: dict[str, Any]  # of the net, as `models.build` takes it
    parameters: Any
    temperature: float
    net: Any = None  # the module of somebody's own net

    def student(self, public: PublicInputs) -> Student:
        """The net as a student that serves itself."""
        own = self.net is not None
        made = Student(
            jax.tree.map(np.asarray if own else jnp.asarray, self.parameters),
            self.description if own else models.build(**self.description).description,
            public.preprocessing,
            public.class_names,
            temperature=self.temperature,
            dtype=str(public.inputs.dtype),
            net=self.net,
        )
        return made.with_program() if own else made


def lesson(public_inputs: PublicInputs, answers: Answers) -> Lesson:
    """The lesson that public inputs and released answers make; anything else is refused."""
    check_types(public_inputs, answers)
    rows, labels = answered(public_inputs, answers)
    return Lesson(public_inputs, rows, labels, _soft(public_inputs, answers, rows))


def check_types(public_inputs: Any, answers: Any) -> None:
    """Refuse everything but public inputs and answers, above all a data set's parts, which may be private."""
    if not isinstance(public_inputs, PublicInputs):
        raise PateError(
            f"public_inputs is a {type(public_inputs).__name__}: pass PublicInputs, which hold public inputs"
        )
    if not isinstance(answers, Answers):
        raise PateError(f"answers is a {type(answers).__name__}: pass the Answers that the mechanism gave")


def answered(public_inputs: PublicInputs, answers: Answers) -> tuple[np.ndarray, np.ndarray]:
    """The rows that were answered and their labels."""
    queries = len(answers.labels)
    if queries > len(public_inputs.inputs):
        raise PateError(
            f"{queries} answers for {len(public_inputs.inputs)} public inputs: pass the inputs asked about"
        )
    rows = np.flatnonzero(np.asarray(answers.answered))
    if not len(rows):
        raise PateError(
            f"none of the {queries} queries was answered, so there is nothing to learn from: "
            "lower the threshold or ask about more inputs"
        )
    labels = np.asarray(answers.labels)[rows]
    if labels.min() < 0 or labels.max() >= public_inputs.classes:
        raise PateError(
            f"an answer is {labels.min() if labels.min() < 0 else labels.max()}, but labels run from 0 to "
            f"{public_inputs.classes - 1}; pass the number of classes that the teachers voted on"
        )
    _warn_of_missing_classes(public_inputs, labels)
    return rows.astype(np.int32), labels.astype(np.int32)


def _soft(public_inputs: PublicInputs, answers: Answers, rows: np.ndarray) -> Soft | None:
    """What the answers at these rows teach, where they are soft."""
    if answers.shares is None or answers.deviation is None:
        return None
    shares, deviation = np.asarray(answers.shares), np.asarray(answers.deviation)
    wanted = len(answers.labels), public_inputs.classes
    if shares.shape != wanted or deviation.shape != wanted[:1]:
        raise PateError(
            f"shares {list(shares.shape)} and deviation {list(deviation.shape)} are given for {wanted[0]} "
            f"queries of {wanted[1]} classes: make them with aggregate.soft_answers"
        )
    image = public_inputs.inputs.ndim in IMAGE_RANKS
    found = smoothed(shares[rows], deviation[rows], image=image)
    if answers.counts is None:
        return found
    plain = without_chance(shares[rows], deviation[rows])
    return found._replace(plain=plain, noise=deviation[rows])


def _warn_of_missing_classes(public_inputs: PublicInputs, labels: np.ndarray) -> None:
    missing = np.setdiff1d(np.arange(public_inputs.classes), labels)
    if len(missing):
        names = ", ".join(str(public_inputs.class_names[label]) for label in missing[:5])
        warnings.warn(
            f"no answer names class {names}{' ...' if len(missing) > 5 else ''}: the student cannot learn "
            f"{'it' if len(missing) == 1 else 'them'}. Rare classes want more voters, a larger epsilon, or a "
            "lower threshold where there is one",
            PateWarning,
            stacklevel=6,
        )


def check_shown(config: Settings, *, image: bool, shown: bool) -> None:
    """Refuse a student that holds public images as they are, where these may not go out.

    >>> check_shown(Ridge(), image=False, shown=False)  # which is linear in a table's columns then
    """
    if image and not shown and isinstance(config, Ridge | Tandem):
        raise PateError(
            f"student method={config.method!r} holds public images as they are, and yours may not go out: "
            "pass --show-public if anyone may see them, or choose --student.method fixmatch"
        )


def covers(answers: int, pool: int, *, image: bool) -> bool:
    """Whether so many soft answers leave little to guess: of images for half of the pool, of tables always.

    On made-up tables students that guess were 12 points behind ridge where few rows had soft answers.

    >>> covers(4, 9, image=True), covers(5, 9, image=True), covers(1, 9, image=False)
    (False, True, True)
    """
    return not image or 2 * answers >= pool
