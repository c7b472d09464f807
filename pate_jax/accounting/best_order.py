"""The least epsilon over a grid of orders, computed only at the orders that could attain it.

As the order grows, a curve never falls, and what the conversion adds never rises. So between two orders no
epsilon is below the curve at the lower order plus the conversion at the higher one. Intervals that cannot
contain the least epsilon are skipped.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pate_jax.accounting.inputs import check_curve

Curve = NDArray[np.float64]
Places = NDArray[np.int64]
_STRIDE = 24  # distance between the first orders that are computed
_PIECES = 4  # how many pieces an interval of orders is cut into


class Columns:
    """A curve [row, order] over a grid of orders, each order computed at its first use.

    >>> curve = Columns(np.array([2.0, 3.0, 4.0]), lambda orders: np.outer([1.0, 10.0], orders))
    >>> curve.at(np.array([2, 0])).tolist(), curve.known.tolist()
    ([[4.0, 2.0], [40.0, 20.0]], [0, 2])
    """

    def __init__(self, grid: Curve, compute: Callable[[Curve], Curve]) -> None:
        self.grid, self._compute = grid, compute
        self._columns: dict[int, Curve] = {}

    def at(self, places: Places) -> Curve:
        """The curve [row, k] at places of the grid."""
        wanted = places.tolist()
        new = [place for place in dict.fromkeys(wanted) if place not in self._columns]
        if new:
            computed = check_curve(self._compute(self.grid[new]))
            self._columns.update(zip(new, computed.T, strict=True))
        return np.stack([self._columns[place] for place in wanted], axis=-1)

    @property
    def known(self) -> Places:
        """The places that were computed, in ascending order."""
        return np.array(sorted(self._columns), np.int64)


def least(curve: Callable[[Places], Curve], extra: Curve, known: float = np.inf) -> tuple[Curve, Places]:
    """The least `curve + extra` over all orders, at least 0, and its place in the grid: [S] each.

    `curve` gives columns [S, k] at some places of the grid. It never falls along the grid, and `extra` never
    rises. `known` is an epsilon that is already proved: orders that cannot improve on it are skipped.

    >>> orders = np.arange(2.0, 200.0)
    >>> value, place = least(lambda at: orders[at][None] / 100, 10 / (orders - 1))
    >>> value.round(4).tolist(), orders[place].tolist()
    ([0.6425], [33.0])
    """
    size = len(extra)
    seen = np.unique(np.append(np.arange(0, size, _STRIDE), size - 1))
    values = curve(seen)
    while True:
        total = np.maximum(values + extra[seen], 0.0)
        best = np.minimum(total.min(axis=1), known)
        wide = np.flatnonzero(np.diff(seen) > 1)
        floor = values[:, wide] + extra[seen[wide + 1] - 1]
        wide = wide[(floor < best[:, None] * (1 - 1e-12)).any(axis=0)]
        if not len(wide):
            at = total.argmin(axis=1)
            return total[np.arange(len(total)), at], seen[at]
        new = _between(seen, wide)
        order = np.argsort(np.concatenate([seen, new]))
        values = np.concatenate([values, curve(new)], axis=1)[:, order]
        seen = np.concatenate([seen, new])[order]


def _between(seen: Places, wide: Places) -> Places:
    """Places that cut the intervals after `seen[wide]` into pieces."""
    cuts = [np.linspace(seen[i], seen[i + 1], _PIECES + 1)[1:-1].round().astype(np.int64) for i in wide]
    return np.setdiff1d(np.concatenate(cuts), seen)
