"""Features of tables whose sums tell more than columns do: ramps along each column, and products of pairs."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

_STRETCHES = 5  # of a column, at most; how it was chosen: benchmarks/NOTES.md
_MOST = 1000  # ramps of a table
_SHORTEST = 1e-4  # of a column's spread: shorter stretches would be steeper than rounding allows
_FEW = 8  # different numbers of a column that has ramps, at least; fewer are categories, or nearly


class Ramps(NamedTuple):
    """The ramps of all columns of a table, made from public rows: how far up each of them a number is.

    They let a linear classifier bend along a column. Public quantiles cut it into stretches, each of which
    holds about as many public rows as any other. Over its own stretch a ramp rises from 0 to the column's
    spread; before it is 0, and behind it the spread. Sums of a column's ramps are the functions of it that
    are straight between the cuts. So what is said of a class may rise and fall again along a column, and a
    long tail counts no more than any other stretch.
    """

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


NO_RAMPS = Ramps(np.zeros(0, np.int32), *np.zeros((3, 0), np.float32))


def ramps_of(public: Float[np.ndarray, "row column"], tail: float = 0.0) -> Ramps:
    """The ramps of a public table's columns, of which a share `tail` at either end has none.

    >>> table = np.stack([np.arange(100.0), np.arange(100) % 2], 1)
    >>> ramps_of(table).column.tolist(), ramps_of(table[:, 1:]).column.tolist()
    ([0, 0, 0, 0, 0], [])
    """
    numbers = [column for column in range(public.shape[1]) if len(np.unique(public[:, column])) >= _FEW]
    stretches = min(_STRETCHES, _MOST // max(1, len(numbers)))
    made = [_of_column(public[:, column], column, stretches, tail) for column in numbers if stretches]
    return Ramps(*map(np.concatenate, zip(NO_RAMPS, *made, strict=True)))


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


_ROWS = 50  # of the pool for each product, at least; how both were chosen: benchmarks/NOTES.md
_MOST_PRODUCTS = 1000  # of a table
_WEIGHT = 0.15  # spread of a product over that of its columns


class Products(NamedTuple):
    """The products of some pairs of columns, made from public rows.

    They let a linear classifier see two columns act together. Both columns are taken from their public
    middles first, so that a product says only what neither column says alone, and a product is drawn in to
    what is usual in public, as columns are. A pool of few rows does not show how so many products vary, and
    then there are none.
    """

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


NO_PRODUCTS = Products(*np.zeros((2, 0), np.int32), *np.zeros((5, 0), np.float32))


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
    most = min(_MOST_PRODUCTS, len(public) // _ROWS)
    fitting = [some for some in (varied, np.array(numbers)) if len(some) >= 2 and _pairs(len(some)) <= most]
    if not fitting:
        return NO_PRODUCTS
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


def nearness(
    ones: Float[Array, "one features"], others: Float[Array, "other features"], reach: Array
) -> Float[Array, "one other"]:
    """1 at the same place, and falling as a Gaussian: `exp(-1)` where the squared distance is the reach.

    >>> found = nearness(jnp.zeros((1, 2)), jnp.array([[0.0, 0.0], [1.0, 1.0]]), jnp.array(2.0))
    >>> [f"{one:.3f}" for one in found[0]]
    ['1.000', '0.368']
    """
    products = jnp.matmul(ones, others.T, precision=jax.lax.Precision.HIGHEST)
    gaps = (ones**2).sum(1)[:, None] + (others**2).sum(1) - 2 * products
    return jnp.exp(-jnp.maximum(gaps, 0) / reach)


def squared_gaps(
    ones: Float[np.ndarray, "one features"], others: Float[np.ndarray, "other features"]
) -> Float[np.ndarray, "one other"]:
    """Squared distances in double precision: what least squares on nearness needs where rows are equal.

    >>> squared_gaps(np.array([[0.0, 3.0]]), np.array([[4.0, 0.0], [0.0, 3.0]])).tolist()
    [[25.0, 0.0]]
    """
    ones, others = ones.astype(np.float64), others.astype(np.float64)
    gaps = (ones**2).sum(1)[:, None] + (others**2).sum(1) - 2 * ones @ others.T
    return np.asarray(np.maximum(gaps, 0))
