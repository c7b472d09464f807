"""How many steps sums take, in how many directions and how strongly whitened; from public things alone.

What noise moves the score of a usual input by, in all steps together, is known beforehand: with vectors of
the usual length m, n voters and K steps that share mu, it is K times `rate * 2 clip m / (mu n)` by the added
noise, and about K times `rate * sqrt(q (1 - q) / n) m` by the draw of the records, q being 1/classes. Each is
kept below a bound, so K follows from the rest. A rehearsal on the pool with made-up labels compares a few
directions and strengths, each at its K, with one table alone, which is taken where steps are not ahead of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from pate_jax.crowd import rehearsal, steps
from pate_jax.crowd.directions import label_variance
from pate_jax.crowd.plan import Plan, plan
from pate_jax.crowd.roles import Labels
from pate_jax.mechanisms.crowds import MOST_STEPS
from pate_jax.models.spaces.space import Space

_ADDED, _DRAWN = 0.35, 0.8  # of a score: what added noise and the draw of records may move it by
_FEWEST = 3  # tables: fewer are not worth their noise
_DIRECTIONS, _STRENGTHS = (200, 800), (0.003, 0.03)
_AHEAD = 0.01  # of the judged inputs: by how much steps must be ahead of one table in the mean
_VOTING, _JUDGED = 6000, 1500  # public inputs that stand for voters, and that are judged


class Candidate(NamedTuple):
    """Steps that may be taken."""

    number: int
    directions: int
    strength: float


def stepped(
    space: Space,
    public: Int[np.ndarray, "pool directions"],
    labels: Sequence[Labels],
    *,
    voters: int,
    classes: int,
    mu: float,
    users: Labels | None = None,
    number: int | None = None,
) -> Plan:
    """The plan of sums with the steps that a rehearsal favours, or with so many tables in all."""

    def planned(wanted: Candidate | None) -> Plan:
        return with_steps(wanted, space, public, voters=voters, classes=classes, mu=mu, users=users)

    tried = candidates(space, public, voters=voters, classes=classes, mu=mu, number=number)
    if number == 1 or not tried:
        return planned(None)
    found = {one: _right(planned(one), public, labels, voters, users) for one in tried}
    best = max(found, key=lambda one: found[one])
    if number is None and found[best] < _right(planned(None), public, labels, voters, users) + _AHEAD:
        return planned(None)
    return planned(best)


def with_steps(
    wanted: Candidate | None,
    space: Space,
    public: Int[np.ndarray, "pool directions"],
    *,
    voters: int,
    classes: int,
    mu: float,
    users: Labels | None = None,
) -> Plan:
    """The plan of sums with these steps, or of one table; it costs `mu` in all."""
    number = 1 if wanted is None else wanted.number
    share = mu / math.sqrt(number)
    first = plan("sums", space, public, voters=voters, classes=classes, mu=share, users=users)
    if wanted is None:
        return first
    more = steps.made(space, public, **wanted._asdict(), voters=voters, classes=classes, mu=share)
    return first._replace(steps=more)


def candidates(
    space: Space,
    public: Int[np.ndarray, "pool directions"],
    *,
    voters: int,
    classes: int,
    mu: float,
    number: int | None = None,
) -> list[Candidate]:
    """The steps that are tried, each with as many tables as noise allows, or with this number."""
    found = []
    for wide in sorted({min(one, len(space.variances)) for one in _DIRECTIONS}):
        for strength in _STRENGTHS:
            added, drawn = noises(space, public, wide, strength, voters, classes, mu)
            most = min(_ADDED / added, _DRAWN / drawn, MOST_STEPS)
            if number is not None or most >= _FEWEST:
                found.append(Candidate(number or int(most), wide, strength))
    return found


def noises(
    space: Space, public: np.ndarray, directions: int, strength: float, voters: int, classes: int, mu: float
) -> tuple[float, float]:
    """What moves the score of a usual input, for each step: the added noise, and the draw of the records."""
    size = steps.usual_length(steps.whitened(space, public, directions, strength))
    rate = steps.rate_of(classes) * size
    added = 2 * steps.clip_of(size, classes) / mu / voters
    return rate * added, rate * math.sqrt(label_variance(classes) / voters)


def _right(
    made: Plan, public: np.ndarray, labels: Sequence[Labels], voters: int, users: Labels | None
) -> float:
    """The share of judged public inputs that is labelled right, in the mean over made-up labels."""
    return rehearsal.rehearse(made, public, labels, voters, users).accuracy
