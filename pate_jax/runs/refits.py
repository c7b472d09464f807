"""What several fits on the same private records cost together, as far as this process knows.

Each fit publishes noisy numbers of its own, also that of a clone which a grid search throws away. So the
process keeps a digest of every record that was fitted on. Fits that share a record, directly or through a
third one, are added up: a bound for every record in them. Gaussian-DP of crowds adds up by its squares.
What teachers cost is added as it is, in epsilon and in delta.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import NamedTuple

import numpy as np

from pate_jax.accounting import composition
from pate_jax.accounting.exact import counts
from pate_jax.data import duplicates, forms
from pate_jax.errors import PateWarning
from pate_jax.runs.samples import Inputs

_UP, _ROOM = 1 + 1e-9, 1 - 1e-6  # of mu, and in delta for the distance of noise from its law


class Cost(NamedTuple):
    """What a fit may cost: an epsilon at a delta, by a table with Gaussian noise or by teachers' answers."""

    epsilon: float
    delta: float
    crowd: bool


@dataclass(eq=False)
class _Shared:
    """Fits that have records in common, by what tells their releases apart."""

    records: set[int] = field(default_factory=set)
    fits: dict[str, Cost] = field(default_factory=dict)


_known: list[_Shared] = []
_entering = Lock()  # fits may run in several threads


def digests(values: Inputs) -> set[int]:
    """A number for each record, which follows from its own inputs, whatever the other records hold.

    >>> len(digests({"age": ["30", "40", "30"], "town": ["Oslo"] * 3}))
    2
    >>> digests({"age": ["30", "40.5"]}) == digests(np.array([[30.0], [40.5]]))  # with or without a name
    True
    >>> digests({"age": ["30"]}) < digests({"age": ["30", "", "unknown"]})
    True
    """
    with np.errstate(over="ignore"):
        if not isinstance(values, dict):
            return _of_numbers(values.astype(np.float32))
        numbers = np.array([_numbers(column) for column in values.values()]).T.astype(np.float32)
    words = np.isnan(numbers).any(1)
    found = _of_numbers(numbers[~words])
    for row in np.flatnonzero(words):
        texts = [column[row] for column in values.values()]
        shown = [
            text if np.isnan(one) else str(one + 0.0) for one, text in zip(numbers[row], texts, strict=True)
        ]
        found.add(int.from_bytes(hashlib.blake2b("\0".join(shown).encode(), digest_size=8).digest(), "big"))
    return found


def _of_numbers(records: np.ndarray) -> set[int]:
    return {int(digest[:16], 16) for digest in duplicates.digests(records)}


def _numbers(column: Sequence[str]) -> np.ndarray:
    """The numbers of a column of texts, and NaN where there is something else."""
    texts = np.array(column, np.str_)
    found, there = np.full(len(texts), np.nan), texts != ""
    found[there] = forms.numbers(texts[there].tolist(), forms.NUMBER)
    return found


def together(fits: Iterable[Cost]) -> tuple[float, float]:
    """Epsilon and delta of all these fits.

    >>> epsilon, delta = together([Cost(1.0, 1e-5, True)] * 5)
    >>> round(epsilon, 3), delta
    (2.442, 1e-05)
    >>> together([Cost(1.0, 1e-5, False)] * 2)
    (2.0, 2e-05)
    """
    fits = list(fits)
    crowds, teachers = [one for one in fits if one.crowd], [one for one in fits if not one.crowd]
    epsilon, delta = (
        (math.fsum(each) for each in zip(*(one[:2] for one in teachers), strict=True))
        if teachers
        else (0.0, 0.0)
    )
    if not crowds:
        return epsilon, delta
    least = min(one.delta for one in crowds)
    mu = math.sqrt(math.fsum(counts.mu_for(one.epsilon, one.delta) ** 2 for one in crowds)) * _UP
    return epsilon + composition.gaussian_epsilon(mu, least * _ROOM), delta + least


def warn(records: set[int], release: str, cost: Cost) -> None:
    """Warn before a fit on records that other fits have had; a release that is read again costs nothing."""
    fits = _overlapping(records)[1]
    if not fits or release in fits:
        return
    epsilon, delta = together([*fits.values(), cost])
    warnings.warn(
        f"this is fit {len(fits) + 1} on the same private records, or on some of them, and each is a release "
        f"of its own: together they cost epsilon {math.ceil(100 * epsilon) / 100:.2f} at delta {delta:g}. "
        "Publish that sum, or choose settings on public or made-up data (docs/sklearn.md)",
        PateWarning,
        stacklevel=4,
    )


def enter(records: set[int], release: str, cost: Cost) -> None:
    """Count a fit that is done."""
    with _entering:
        same, fits = _overlapping(records)
        joined = _Shared(records.union(*(one.records for one in same)), {**fits, release: cost})
        _known[:] = [one for one in _known if one not in same] + [joined]


def _overlapping(records: set[int]) -> tuple[list[_Shared], Mapping[str, Cost]]:
    """What is known of these records, and all fits in it."""
    same = [one for one in _known if not one.records.isdisjoint(records)]
    return same, {release: cost for one in same for release, cost in one.fits.items()}
