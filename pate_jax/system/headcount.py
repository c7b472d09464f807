"""The number of private records, rounded: a choice that depends on the exact number would reveal it."""

from __future__ import annotations


def coarse(count: int) -> int:
    """The count rounded down to two significant digits.

    >>> coarse(9_999), coarse(10_000), coarse(57)
    (9900, 10000, 57)
    """
    step = int(10 ** max(len(str(count)) - 2, 0))
    return count // step * step


def coarse_above(count: int) -> int:
    """The count rounded up to two significant digits, and to tens at least.

    >>> coarse_above(30_162), coarse_above(60_000), coarse_above(81)
    (31000, 60000, 90)
    """
    step = int(10 ** max(len(str(count)) - 2, 1))
    return max(1, -(-count // step)) * step
