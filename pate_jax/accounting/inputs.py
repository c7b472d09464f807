"""Checks of the accountant's inputs: orders, votes, delta and curves."""

from __future__ import annotations

import math
from numbers import Real

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate_jax.errors import PateError, at_least

Curve = NDArray[np.float64]  # a cost at each order
_LARGEST = 1 << 53  # float64 holds every whole number up to here
CUSTOMARY_DELTA = 1e-5


def check_orders(orders: ArrayLike) -> NDArray[np.float64]:
    """The orders as a float64 vector, each above 1.

    >>> check_orders([2, 3])
    array([2., 3.])
    """
    grid = np.atleast_1d(np.asarray(orders, dtype=np.float64))
    if grid.ndim != 1 or grid.size == 0 or not np.all(np.isfinite(grid) & (grid > 1)):
        raise PateError(f"orders={orders!r} must be a list of finite numbers above 1")
    return grid


def check_votes(votes: ArrayLike) -> NDArray[np.int64]:
    """The vote histograms as int64 [query, class], checked.

    >>> check_votes([[2, 0], [1, 1]]).shape
    (2, 2)
    """
    table = np.asarray(votes)
    if table.ndim != 2 or table.shape[1] < 2:
        raise PateError(
            f"votes of shape {table.shape} must be histograms [query, class] of at least two classes"
        )
    if not np.all(np.isfinite(table)) or np.any(table < 0) or np.any(table != np.floor(table)):
        raise PateError("votes must be whole numbers, none below 0; pass histograms, not shares")
    if table.size and table.max() >= _LARGEST:
        raise PateError(
            f"votes hold {table.max()}, which is 2^53 or more: no ensemble has that many teachers"
        )
    return table.astype(np.int64)


def check_totals(counts: NDArray[np.integer]) -> None:
    """Refuse rows of different totals: on each query every teacher has one vote.

    >>> check_totals(np.array([[2, 0], [1, 1]]))
    """
    totals = counts.sum(axis=1)
    other = np.flatnonzero(totals != totals[:1])
    if other.size:
        raise PateError(
            f"votes row {other[0]} sums to {totals[other[0]]}, row 0 to {totals[0]}: each teacher must vote "
            "once on each query (where who votes on what was fixed without the records, "
            "accounting.statement takes voters_may_sit_out=True)"
        )


def check_delta(delta: float) -> float:
    """`delta` as a float between 0 and 1, both excluded.

    >>> check_delta(1e-5)
    1e-05
    """
    if not (isinstance(delta, Real) and 0 < delta < 1):
        raise PateError(f"delta={delta!r} must be above 0 and below 1; below 1/records is usual")
    return float(delta)


def check_curve(rdp: ArrayLike) -> NDArray[np.float64]:
    """A Renyi curve as float64, never below 0.

    >>> check_curve([0.1, 0.2])
    array([0.1, 0.2])
    """
    curve = np.asarray(rdp, dtype=np.float64)
    if not np.all(curve >= 0):
        raise PateError("rdp holds a negative value or a NaN; a Renyi curve is never below 0")
    return curve


def delta_for(people: int) -> float:
    """A delta that promises something to so many people: the power of ten below one over ten times them.

    >>> delta_for(15_666), delta_for(90)
    (1e-06, 0.001)
    """
    return 10.0 ** math.floor(-math.log10(10 * people))


def delta_beside(people: int, given: float) -> float:
    """The delta that so many people want, and never above the customary one; refused beside another.

    The number of people is no wish for a weaker guarantee, so few people leave delta as it is.

    >>> delta_beside(15_666, CUSTOMARY_DELTA), delta_beside(90, CUSTOMARY_DELTA)
    (1e-06, 1e-05)
    """
    at_least(1, people_about=people)
    found = min(CUSTOMARY_DELTA, delta_for(people))
    if given not in (CUSTOMARY_DELTA, found):
        raise PateError(
            f"--people-about {people} makes delta {found:g}, and --delta {given:g} is another: leave one of "
            "them out"
        )
    return found
