"""How far a crowd's noisy tables move without one voter, in standard deviations of their noise.

Every voter adds a table of its own to the sum, so without it each sum is less by just that table. All noise
is Gaussian, and its squares add up over the releases of a run. A voter who is held out moves scores, or a
comparison, alone. The public side and the released numbers stay as they were.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pate_jax.crowd import agreement, tables
from pate_jax.data.partition import units_of
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums, CrowdRelease, NeighbourCounts
from pate_jax.runs.crowds import rivals, steps
from pate_jax.runs.crowds.inputs import Crowd
from pate_jax.runs.ledger import CrowdLine
from pate_jax.student import spaces


class Shifts(NamedTuple):
    """Of each voter, by name: the length of its shift if it is removed, and a bound if it is changed."""

    names: np.ndarray
    removed: Float[np.ndarray, " voter"]
    changed: Float[np.ndarray, " voter"]  # whatever its new contents are


def of(crowd: Crowd) -> Shifts:
    """The shifts of all voters of a crowd's run, over all that it has released."""
    names, which = np.unique(units_of(crowd.dataset.private, crowd.choice.by), return_inverse=True)
    shown, held = steps.shown(crowd.run), crowd.held_out
    _check([*shown.numbers, *shown.tables, *shown.scores, *shown.comparisons])
    removed, changed = np.zeros((2, len(names)))
    removed += sum(1 / line.release.sigma**2 for line in shown.numbers)
    for line in shown.tables:
        here, release = crowd.at(steps.step_of(line)), line.release
        own = tables.own_squares(here.plan, here.people)
        _add(removed, which, ~held, crowd, own / release.sigma**2)
        _add(changed, which, ~held, crowd, _furthest(release, own) / release.sigma**2)
    for line in shown.scores:
        own = agreement.agreed(crowd.judges, lambda seen: spaces.labels(crowd.scored, seen))
        _add(removed, which, held, crowd, own / line.release.sigma**2)
        _add(changed, which, held, crowd, np.ones(len(own)) / line.release.sigma**2)
    for line in shown.comparisons:
        gone, other = _compared(crowd)
        _add(removed, which, held, crowd, gone / line.release.sigma**2)
        _add(changed, which, held, crowd, other / line.release.sigma**2)
    return Shifts(names, np.sqrt(removed), np.sqrt(changed))


def _compared(crowd: Crowd) -> tuple[Float[np.ndarray, " voter"], Float[np.ndarray, " voter"]]:
    """How far held-out voters move a comparison of students, squared: removed, and changed at most.

    A voter of `m` of `k` students moves it by `k m (k - m)` in square. If it changes, it may lose `lost` of
    the `m` and win `won` of the others, and moves it by `k^2 (won + lost) - k (won - lost)^2`.
    """
    students = rivals.every(crowd)
    rules = [functools.partial(spaces.labels, student) for student in students]
    k, agreed = len(students), np.sum([agreement.agreed(crowd.judges, rule) for rule in rules], axis=0)
    changed = [
        max(k * k * (won + lost) - k * (won - lost) ** 2 for won in range(k - m + 1) for lost in range(m + 1))
        for m in range(k + 1)
    ]
    gone = np.array([k * m * (k - m) for m in range(k + 1)], np.float64)
    return gone[agreed], np.array(changed, np.float64)[agreed]


def _add(
    total: Float[np.ndarray, " voter"],
    which: Int[np.ndarray, " record"],
    rows: np.ndarray,
    crowd: Crowd,
    own: Float[np.ndarray, " some"],
) -> None:
    """Add what the voters of these rows move, which is given by record or by the number of the user."""
    if crowd.choice.by == "record":
        total[which[rows]] += own
    else:
        there = np.unique(which[rows])
        total[there] += own[there]


def _furthest(release: CrowdRelease, own: Int[np.ndarray, " voter"]) -> Float[np.ndarray, " voter"]:
    """The largest square of the shift if a voter's table is exchanged for any other that is allowed.

    Counts: the voter's own cells fall by 1, and as many others as a voter may touch rise by 1. Sums: lengths
    add up by the triangle inequality.
    """
    if isinstance(release, NeighbourCounts):
        return np.asarray(own + release.votes, np.float64)
    if isinstance(release, ClassSums):
        found: np.ndarray = (np.sqrt(own) + release.length) ** 2
        return found
    raise PateError(f"{release} is no table of a crowd: restore the ledger from a backup")


def _check(lines: list[CrowdLine]) -> None:
    """Refuse noise that is not the rounded Gaussian, which every run draws."""
    for line in lines:
        if line.release.family != "rounded_gaussian":
            raise PateError(
                f"release {line.batch} has noise of the family {line.release.family!r}, whose shifts this "
                "command does not know: only runs with rounded Gaussian noise, the default, can be asked"
            )
