"""How many steps sums take and how strongly their space is whitened; from public things alone.

What noise moves the score of a usual input by, in all steps together, is known beforehand: with vectors of
the usual length m, n voters and K steps that share mu, it is K times `rate * 2 clip m / (mu n)` by the added
noise, and about K times `rate * sqrt(q (1 - q) / n) m` by the draw of the records, q being 1/classes. Each is
kept below a bound, which gives the largest K for every strength of whitening: the stronger, the shorter the
vectors, and the more steps. The weakest strength that leaves enough steps is taken; where even the strongest
leaves few, one table is. The constants were chosen on drawn strokes, characters and tables.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from pate_jax.crowd import steps
from pate_jax.crowd.directions import label_variance
from pate_jax.crowd.plan import Plan, plan
from pate_jax.crowd.roles import Labels
from pate_jax.mechanisms.crowds import MOST_STEPS
from pate_jax.models.spaces.space import Space

_ADDED, _DRAWN = 0.3, 0.8  # of a score: what added noise and the draw of records may move it by
_STRENGTHS = (0.003, 0.01, 0.03)  # of whitening, the weakest first
_ENOUGH, _FEWEST = (
    8,
    4,
)  # tables: with so many no stronger whitening is tried; fewer are not worth their noise


class Candidate(NamedTuple):
    """Steps that may be taken."""

    number: int  # of tables, the first among them
    strength: float


def stepped(
    space: Space,
    public: Int[np.ndarray, "pool directions"],
    *,
    voters: int,
    classes: int,
    mu: float,
    users: Labels | None = None,
    number: int | None = None,
) -> Plan:
    """The plan of sums with as many steps as noise leaves room for, or with so many tables in all."""
    wanted = None if number == 1 else chosen(space, public, voters, classes, mu, number)
    return with_steps(wanted, space, public, voters=voters, classes=classes, mu=mu, users=users)


def chosen(
    space: Space,
    public: Int[np.ndarray, "pool directions"],
    voters: int,
    classes: int,
    mu: float,
    number: int | None = None,
) -> Candidate | None:
    """The steps that are taken, with this number of tables if one is given; None: one table.

    >>> from pate_jax.models import spaces
    >>> pool = np.random.default_rng(0).normal(size=(300, 4)) * [9, 1, 3, 2]
    >>> space = spaces.learn("identity", pool)
    >>> seen = space.coordinates(pool)
    >>> chosen(space, seen, 300, 3, 0.25) is None, chosen(space, seen, 300, 3, 0.25, 5)
    (True, Candidate(number=5, strength=0.03))
    >>> chosen(space, seen, 10**6, 3, 0.25)
    Candidate(number=20, strength=0.003)
    """
    most = 0
    for strength in _STRENGTHS:
        added, drawn = noises(space, public, strength, voters, classes, mu)
        most = int(min(_ADDED / added, _DRAWN / drawn, MOST_STEPS))
        if most >= max(number or 0, _ENOUGH):
            return Candidate(number or most, strength)
    if number is None and most < _FEWEST:
        return None
    return Candidate(number or most, _STRENGTHS[-1])


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


def noises(
    space: Space, public: np.ndarray, strength: float, voters: int, classes: int, mu: float
) -> tuple[float, float]:
    """What moves the score of a usual input, for each step: the added noise, and the draw of the records."""
    size = steps.usual_length(steps.whitened(space, public, strength))
    rate = steps.rate_of(classes) * size
    added = 2 * steps.clip_of(size, classes) / mu / voters
    return rate * added, rate * math.sqrt(label_variance(classes) / voters)
