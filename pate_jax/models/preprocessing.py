"""What scales inputs before a net reads them, as nets see it: anything that has `apply`."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np


class Preprocessing(Protocol):
    """Scales a NumPy or JAX array: `data.Preprocessing`, or one of your own."""

    def apply(self, inputs: Any) -> Any:
        """The scaled array, of the same kind."""
        ...

    def __hash__(self) -> int:
        """Equal ones share a compiled program."""
        ...


class AsStored:
    """Leaves inputs as they are stored.

    >>> AsStored().apply(np.array([3], np.uint8))
    array([3.], dtype=float32)
    """

    def apply(self, inputs: Any) -> Any:
        """The same numbers as float32."""
        return inputs.astype(np.float32)
