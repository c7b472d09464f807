"""How far up its ramps each number of a table is: what lets a linear classifier bend along a column.

Public quantiles cut a column into stretches, each of which holds about as many public rows as any other. Over
its own stretch a ramp rises from 0 to the column's spread; before it is 0, and behind it the spread. Sums of
a column's ramps are the functions of it that are straight between the cuts. So what is said of a class may
rise and fall again along a column, and a long tail counts no more than any other stretch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

_STRETCHES = 5  # of a column, at most; how it was chosen: docs/voters.md
_MOST = 1000  # ramps of a table
_SHORTEST = 1e-4  # of a column's spread: shorter stretches would be steeper than rounding allows
_FEW = 8  # different numbers of a column that has ramps, at least; fewer are categories, or nearly


class Ramps(NamedTuple):
    """The ramps of all columns of a table, made from public rows."""

    column: Int[np.ndarray, " ramps"]
    start: Float[np.ndarray, " ramps"]
    steepness: Float[np.ndarray, " ramps"]
    height: Float[np.ndarray, " ramps"]

    def of(self, rows: Any) -> Any:
        """How far up its ramps each row is, [row, ramp]; of NumPy or JAX arrays.

        >>> ramps_of(np.arange(11.0)[:, None]).of(np.array([[-3.0], [3.0], [99.0]])).round(2).tolist()
        [[0.0, 0.0, 0.0, 0.0, 0.0], [3.16, 1.58, 0.0, 0.0, 0.0], [3.16, 3.16, 3.16, 3.16, 3.16]]
        """
        found = rows[:, self.column.astype(int)]  # a net holds them as floats
        return ((found - self.start) * self.steepness).clip(0, self.height)


NONE = Ramps(np.zeros(0, np.int32), *np.zeros((3, 0), np.float32))


def ramps_of(public: Float[np.ndarray, "row column"], tail: float = 0.0) -> Ramps:
    """The ramps of a public table's columns, of which a share `tail` at either end has none.

    >>> table = np.stack([np.arange(100.0), np.arange(100) % 2], 1)
    >>> ramps_of(table).column.tolist(), ramps_of(table[:, 1:]).column.tolist()
    ([0, 0, 0, 0, 0], [])
    """
    numbers = [column for column in range(public.shape[1]) if len(np.unique(public[:, column])) >= _FEW]
    stretches = min(_STRETCHES, _MOST // max(1, len(numbers)))
    made = [_of_column(public[:, column], column, stretches, tail) for column in numbers if stretches]
    return Ramps(*map(np.concatenate, zip(NONE, *made, strict=True)))


def _of_column(values: np.ndarray, column: int, stretches: int, tail: float) -> Ramps:
    places = np.linspace(tail, 1 - tail, stretches + 1)
    cuts, spread = np.unique(np.quantile(values, places, method="inverted_cdf")), values.std()
    cuts = cuts[np.append(True, np.diff(cuts) > _SHORTEST * spread)]
    height = np.full(len(cuts) - 1, spread, np.float32)
    return Ramps(
        np.full(len(height), column, np.int32),
        cuts[:-1].astype(np.float32),
        (height / np.diff(cuts)).astype(np.float32),
        height,
    )
