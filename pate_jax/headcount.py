"""How many private records there are, told coarsely: what is chosen or refused by it tells of them."""

from __future__ import annotations


def coarse(count: int) -> int:
    """The count rounded down to two significant digits.

    >>> coarse(9_999), coarse(10_000), coarse(57)
    (9900, 10000, 57)
    """
    step = 10 ** max(len(str(count)) - 2, 0)
    return count // step * step
