"""Products of pairs of a table's columns: what lets a linear classifier see two columns act together.

Both columns are taken from their public middles first, so that a product says only what neither column says
alone, and a product is drawn in to what is usual in public, as columns are. A pool of few rows does not show
how so many products vary, and then there are none.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

_ROWS = 50  # of the pool for each product, at least; how both were chosen: docs/voters.md
_WEIGHT = 0.15  # spread of a product over that of its columns
_MOST = 1000  # products of a table


class Products(NamedTuple):
    """The products of some pairs of columns, made from public rows."""

    left: Int[np.ndarray, " products"]
    right: Int[np.ndarray, " products"]
    left_middle: Float[np.ndarray, " products"]
    right_middle: Float[np.ndarray, " products"]
    factor: Float[np.ndarray, " products"]
    bottom: Float[np.ndarray, " products"]
    top: Float[np.ndarray, " products"]

    def of(self, rows: Any) -> Any:
        """The products of each row, [row, product]; of NumPy or JAX arrays.

        >>> table = np.random.default_rng(0).normal(size=(200, 3))
        >>> products_of(table, 0.0).of(table).shape
        (200, 3)
        """
        one = rows[:, self.left.astype(int)] - self.left_middle  # a net holds them as floats
        other = rows[:, self.right.astype(int)] - self.right_middle
        return (one * other * self.factor).clip(self.bottom, self.top)


NONE = Products(*np.zeros((2, 0), np.int32), *np.zeros((5, 0), np.float32))


def products_of(public: Float[np.ndarray, "row column"], tail: float) -> Products:
    """The products of all columns, or of those of numbers alone, if the pool is large enough for them.

    What is usual is what all but a share `tail` of public products at either end are.

    >>> table = np.random.default_rng(0).normal(size=(300, 5))
    >>> len(products_of(table, 0.005).left), len(products_of(table[:, :4], 0.005).left)
    (0, 6)
    """
    spread = public.std(0)
    varied = np.flatnonzero(spread > 0)
    numbers = [column for column in varied if len(np.unique(public[:, column])) > 2]
    most = min(_MOST, len(public) // _ROWS)
    fitting = [some for some in (varied, np.array(numbers)) if len(some) >= 2 and _pairs(len(some)) <= most]
    if not fitting:
        return NONE
    left, right = (fitting[0][of].astype(np.int32) for of in np.triu_indices(len(fitting[0]), 1))
    middle = public.mean(0)
    found = (public[:, left] - middle[left]) * (public[:, right] - middle[right])
    deviation = found.std(0)
    seen = deviation > 0  # marks that exclude one another hardly vary together
    left, right, found, deviation = left[seen], right[seen], found[:, seen], deviation[seen]
    factor = _WEIGHT * np.sqrt(spread[left] * spread[right]) / deviation
    bottom, top = np.quantile(found * factor, [tail, 1 - tail], axis=0, method="inverted_cdf")
    floats = middle[left], middle[right], factor, bottom, top
    return Products(left, right, *(each.astype(np.float32) for each in floats))


def _pairs(columns: int) -> int:
    return columns * (columns - 1) // 2
