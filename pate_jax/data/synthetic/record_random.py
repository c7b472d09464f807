"""Random numbers by record: hashes of the stream's name, the record's number and the order of requests only.

Record 7 gets the same numbers whether ten records are made or a million. For synthetic data only: this is not
a source of noise for privacy.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FACTORS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = tuple(np.uint64(shift) for shift in (30, 27, 31))


class Stream:
    """Random numbers for some records; each request advances the streams of all of them (splitmix64).

    >>> few, many = Stream("demo", np.array([7])), Stream("demo", np.arange(9))
    >>> bool((few.uniform(3)[0] == many.uniform(3)[7]).all())
    True
    """

    def __init__(self, name: str, records: np.ndarray) -> None:
        start = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
        self._start = _mix(_mix(np.asarray(records).astype(np.uint64)) ^ np.uint64(start))
        self._drawn = 0

    def bits(self, count: int) -> np.ndarray:
        """Hashes: uint64 [records, count]."""
        steps = np.arange(self._drawn + 1, self._drawn + 1 + count, dtype=np.uint64)
        self._drawn += count
        return _mix(self._start[:, None] + steps * _STEP)

    def uniform(self, count: int) -> np.ndarray:
        """Uniform numbers in [0, 1): float32 [records, count]."""
        return (self.bits(count) >> np.uint64(40)).astype(np.float32) * np.float32(2.0**-24)

    def integers(self, below: np.ndarray | int) -> np.ndarray:
        """One whole number for each record, at least 0 and below its bound."""
        return ((self.bits(1)[:, 0] >> np.uint64(33)) * np.asarray(below, np.uint64)) >> np.uint64(31)

    def normal(self, count: int) -> np.ndarray:
        """Standard normal numbers of 65,536 possible values, four per hash: float32 [records, count]."""
        return _normal_steps()[self.bits(-(-count // 4)).astype("<u8").view("<u2")[:, :count]]


def _mix(state: np.ndarray) -> np.ndarray:
    state = (state ^ (state >> _SHIFTS[0])) * _FACTORS[0]
    state = (state ^ (state >> _SHIFTS[1])) * _FACTORS[1]
    return state ^ (state >> _SHIFTS[2])


@lru_cache(maxsize=1)
def _normal_steps() -> np.ndarray:
    from scipy.special import ndtri

    return ndtri((np.arange(65536) + 0.5) / 65536).astype(np.float32)
