"""Numbers as labels: a target within a public range, as whole numbers of that range."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from pate_jax.data import tables
from pate_jax.errors import PateError
from pate_jax.system.progress import say

GRID = 10_000  # steps of the range: its low end is 0, its high end this
Range = tuple[float, float]


class Target(NamedTuple):
    """A number that is predicted, and its public range; private ones beyond it count as its ends."""

    name: str
    low: float
    high: float

    def steps(self, values: np.ndarray) -> np.ndarray:
        """Numbers as steps of the range, which may lie beyond it.

        >>> Target("days", 0, 50).steps(np.array([5.0, 60.0])).tolist()
        [1000, 12000]
        """
        wide = np.clip((values - self.low) / (self.high - self.low) * GRID, -(2**30), 2**30)
        return np.rint(wide).astype(np.int32)

    def values(self, shares: np.ndarray) -> np.ndarray:
        """The numbers at shares of the range: 0 is its low end and 1 its high end.

        >>> Target("days", 10, 50).values(np.array([0.0, 0.25])).tolist()
        [10.0, 20.0]
        """
        return np.asarray(self.low + (self.high - self.low) * np.asarray(shares, np.float64).round(7))

    @property
    def ends(self) -> tuple[str, str]:
        """How the ends of the range are called.

        >>> Target("days", 0, 60.5).ends
        ('0', '60.5')
        """
        return f"{self.low:.12g}", f"{self.high:.12g}"


def of_range(text: str) -> Range:
    """The two ends of a range, with a comma between them.

    >>> of_range("0,60")
    (0.0, 60.0)
    """
    try:
        low, high = (float(one) for one in text.split(","))
    except ValueError:
        raise PateError(f"--target-range {text} must be two numbers, such as 0,60") from None
    if not (np.isfinite([low, high]).all() and low < high):
        raise PateError(f"--target-range {text} must be finite, the smaller first, such as 0,60")
    return low, high


def read(
    name: str, given: Mapping[str, np.ndarray | None], declared: str | None
) -> tuple[Target, dict[str, np.ndarray | None]]:
    """The target and the steps of each part, from texts; private numbers are clipped to the range.

    The range is declared, or that of the public part; private numbers have no part in it.

    >>> parts = {"private": np.array(["5", "90"]), "public": np.array(["10", "30"]), "test": None}
    >>> target, steps = read("days", parts, None)
    >>> target, steps["private"].tolist(), steps["public"].tolist()
    (Target(name='days', low=10.0, high=30.0), [0, 10000], [0, 10000])
    """
    numbers = {part: None if texts is None else _numbers(texts, name, part) for part, texts in given.items()}
    public = numbers["public"]
    if declared is not None:
        low, high = of_range(declared)
    elif public is None or not len(public) or np.ptp(public) == 0:
        raise PateError(
            f"--target-range is not given, and no public numbers of {name!r} show one (private ones must "
            "not): pass the least and the largest number, such as --target-range 0,60"
        )
    else:
        low, high = float(public.min()), float(public.max())
        say(
            f"{name}: the range is that of the public part, {low:g} to {high:g}; private numbers beyond it "
            "count as its ends, and the noise grows with it (--target-range)"
        )
    target = Target(name, low, high)
    steps = {part: None if found is None else target.steps(found) for part, found in numbers.items()}
    private = steps["private"]
    return target, steps | {"private": None if private is None else np.clip(private, 0, GRID)}


def _numbers(texts: np.ndarray, name: str, part: str) -> np.ndarray:
    """Texts as numbers; one that is missing, or is none, is refused."""
    values = [number(text) for text in texts.tolist()]
    wrong = [row for row, value in enumerate(values) if not np.isfinite(value)]
    if wrong:
        shown = "nothing" if tables.missing([texts[wrong[0]]])[0] else repr(str(texts[wrong[0]]))
        raise PateError(
            f"the {part} part has {shown} for {name!r} at row {wrong[0]}, and {len(wrong)} such rows: give a "
            "number for each, or remove these rows"
        )
    return np.array(values, np.float64)


def number(text: str) -> float:
    """Of a text; NaN where it is none."""
    try:
        return float(text)
    except ValueError:
        return np.nan
