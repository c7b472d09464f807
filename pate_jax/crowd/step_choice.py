"""How many steps sums take, along how many directions, and how strongly these are whitened; all public.

What noise moves the score of a usual input by, in all steps together, is known beforehand: with vectors of
the usual length m, n voters and K steps that share mu, it is K times `rate * 2 clip m / (mu n)` by the added
noise, and about K times `rate * sqrt(q (1 - q) / n) m` by the draw of the records, q being 1/classes. Each is
kept below a bound, which gives the largest K for every space: the fewer directions, and the less they are
whitened, the shorter the vectors, and the more steps. The widest space is taken that leaves room for enough
steps; where none does, one table is. Enough are those after which the weights along a direction of variance
1 are within 4% of where they go; of 18 classes and more that is beyond what a run may take. Where no
direction can be left out, as of most tables, whitening is held back by no more than 0.03, since labels may
depend on directions that vary little. The constants were chosen on drawn strokes, characters and tables.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from pate_jax.crowd import steps
from pate_jax.crowd.evidence import label_variance
from pate_jax.crowd.plan import Plan, plan
from pate_jax.crowd.roles import Labels
from pate_jax.mechanisms.crowds import MOST_STEPS
from pate_jax.models.spaces.space import Space

_ADDED, _DRAWN = 0.5, 0.8  # of a score: what added noise and the draw of records may move it by
_SPACES = ((800, 0.01), (800, 0.03), (400, 0.03), (400, 0.1), (200, 0.1), (200, 0.3))  # the widest first
_WHOLE = 0.03  # strongest whitening of a space of which no direction is left out
_NEAR, _LEAST = 3.2, 6  # what is enough: log of 1/0.04, and tables whatever the classes
WIDEST, FIRST = 800, 400  # directions that a space has for steps, and for the first table


class Candidate(NamedTuple):
    """Steps that may be taken."""

    number: int  # of tables, the first among them
    directions: int  # at most
    strength: float  # of whitening


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
    (True, Candidate(number=5, directions=400, strength=0.03))
    >>> chosen(space, seen, 10**6, 3, 0.25)
    Candidate(number=20, directions=800, strength=0.01)
    """
    least, last = max(number or 0, enough(classes)), _SPACES[0]
    for directions, strength in _SPACES:
        if directions >= len(space.variances) and strength > _WHOLE:
            continue
        last = directions, strength
        added, drawn = noises(space.narrowed(directions), public, strength, voters, classes, mu)
        most = int(min(_ADDED / added, _DRAWN / drawn, MOST_STEPS))
        if most >= least:
            return Candidate(number or most, directions, strength)
    return None if number is None else Candidate(number, *last)


def enough(classes: int) -> int:
    """Steps after which weights are about where they go.

    >>> enough(2), enough(5), enough(10), enough(30)
    (6, 7, 12, 34)
    """
    return max(_LEAST, math.ceil(_NEAR / steps.rate_of(classes) / label_variance(classes)))


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
    narrow, seen = space.narrowed(FIRST), public[:, :FIRST]
    first = plan("sums", narrow, seen, voters=voters, classes=classes, mu=share, users=users)
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
