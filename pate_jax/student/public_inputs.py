"""What every student is given: public inputs, and answers that left the mechanism.

`fit` takes them as `PublicInputs` and `Answers`, types that only public data and the aggregator make.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from pate_jax.data.dataset import Dataset, Part, Preprocessing
from pate_jax.errors import PateError


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
