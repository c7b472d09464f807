"""What a crowd of voters is asked, chosen from public things alone, never from labels or private votes.

The inputs of every rule are the public pool in its space, the rounded number of voters, the number of classes
and `mu`, what the release may cost in Gaussian-DP. Directions are weighed by the root of what whitening would
weigh them by (`power` 0.5): with none the first directions take nearly all of the length, and with all of it
rare columns and directions that the pool hardly shows do.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Int

from pate_jax.crowd import evidence, neighbours, vectors
from pate_jax.crowd.evidence import CONSTANT, LINEAR, best, expected_part, held_out, split
from pate_jax.crowd.neighbours import Queries
from pate_jax.crowd.steps import Steps, Weights
from pate_jax.crowd.vectors import Scaling
from pate_jax.data.dataset import Dataset
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums, CrowdTable, NeighbourCounts
from pate_jax.models import spaces
from pate_jax.models.spaces.space import Space
from pate_jax.system.remembering import remembered

Kind = Literal["neighbours", "sums"]
_UP = 1 + 1e-6  # the noise is rounded up by this: with mu of `counts.mu_for` no figure is above its target
_POWER, _FULL = 0.5, 0.95  # of whitening; and the share of the pool whose vectors have full length
_LIKENED, _COMPARED = 0.25, 30  # power of whitening and directions in which neighbours are compared
_ASKED = 0.2  # of the pool, at most
_DROWNED = 4  # voters of a class over the scale of the noise: with fewer, noise looks like a class
_NOISES = 8  # votes of a query, if all go to one class, over the scale of the noise, where a voter casts two
_ALIKE = 0.75  # likeness of a voter and its last query at least, over that of its first
_VOTES = 8  # of a voter at most
_FEW = 200  # numbers that are taken for the columns of a table: as many as have all their ramps
_UNEVEN = 20  # spread of a column over the usual one from which on the columns have units of their own
_WEIGHED = 2  # times that the weight of users' sums is looked at, which depends on the directions
_LENGTH, _SHORTEST, _LONGEST = 4000, 16, 1000  # of a vector, per mu, and its bounds


class Plan(NamedTuple):
    """All that voters, the noise and those who read the noisy table have to know; it is public."""

    space: Space  # its first directions, those that are used
    scaling: Scaling
    queries: Queries | None  # of neighbours only
    release: CrowdTable  # with its noise
    steps: Steps | None = None  # that follow the table, of sums only
    weights: Weights | None = None  # of a step: where its gradients are taken


def plan(
    kind: Kind,
    space: Space,
    public: Int[np.ndarray, "pool directions"],
    *,
    voters: int,
    classes: int,
    mu: float,
    queries: int | None = None,
    votes: int | None = None,
    directions: int | None = None,
    users: Int[np.ndarray, " pool"] | None = None,
) -> Plan:
    """The plan of a release that costs `mu` (`accounting.exact.counts.mu_for`) where contents change.

    `public` are the pool's coordinates in the space, and `voters` is their number, rounded. Where users vote,
    `users` are those of the pool, if it has any. What is not given follows by rule.

    >>> pool = np.random.default_rng(0).normal(size=(300, 4)) * [9, 1, 3, 2]
    >>> space = spaces.learn("identity", pool)
    >>> made = plan("sums", space, space.coordinates(pool), voters=5000, classes=3, mu=0.25)
    >>> made.release.shape, made.queries is None
    ((3, 5), True)
    """
    if not (mu > 0 and math.isfinite(mu)):
        raise PateError(f"mu={mu!r} must be a finite number above 0")
    if voters < 1 or classes < 2:
        raise PateError(f"voters={voters} must be at least 1 and classes={classes} at least 2")
    total = len(space.variances)
    if directions is not None and not 1 <= directions <= total:
        raise PateError(f"directions={directions} must be from 1 to the {total} of the space")
    if kind == "sums":
        return _sums(space, public, voters, classes, mu, directions, users)
    return _neighbours(space, public, voters, classes, mu, queries, votes, directions)


def weight_of_users(
    made: Plan, public: Int[np.ndarray, "pool directions"], users: Int[np.ndarray, " pool"]
) -> float:
    """For how many of their records' means users about stand in sums.

    A user's sum is taken to be the longer of what it would be if all its labels were alike, or no two of
    them. Where labels follow from inputs it is longer, and the weight less than this.

    >>> pool = np.random.default_rng(0).normal(size=(300, 4))
    >>> space = spaces.learn("identity", pool)
    >>> seen = space.coordinates(pool)
    >>> made = plan("sums", space, seen, voters=5000, classes=3, mu=0.25)
    >>> [round(weight_of_users(made, seen, np.arange(300) // each), 1) for each in (1, 4, 25)]
    [1.0, 1.8, 3.7]
    """
    seen = vectors.vectors(made.scaling, public[:, : len(made.scaling.weights)])
    of = np.unique(users, return_inverse=True)[1]
    records, apart = np.bincount(of), np.bincount(of, (seen.astype(np.float64) ** 2).sum(1))
    sums = np.zeros((len(records), seen.shape[1]))
    np.add.at(sums, of, seen)
    size = np.sqrt(np.maximum((sums**2).sum(1), apart)) / made.scaling.length
    return float((records / np.maximum(size, 1)).mean())


def many_classes(release: CrowdTable, voters: int) -> str | None:
    """One sentence, if a class of the usual size says hardly more than the noise does; else None.

    A voter adds at most one vote at a query, or one vector of the release's length. So a class cannot say
    more in one place than it has voters, which is `voters / classes` of the usual one.

    >>> many_classes(NeighbourCounts(queries=20, classes=40, votes=2, sigma=2.0), voters=80)[:46]
    '40 classes have about 2 voters each, and the n'
    >>> many_classes(NeighbourCounts(queries=20, classes=10, votes=2, sigma=2.0), voters=80) is None
    True
    """
    noise = release.sigma if isinstance(release, NeighbourCounts) else release.sigma / release.length
    each = voters / release.classes
    if each >= _DROWNED * noise:
        return None
    return (
        f"{release.classes} classes have about {each:.0f} voters each, and the noise is as large as "
        f"{noise:.0f} of them: labels may be no better than the most frequent class; join classes, allow a "
        "larger epsilon, or have more voters"
    )


def doubts(
    made: Plan, space: Space, public: Int[np.ndarray, "pool directions"], *, voters: int
) -> str | None:
    """One sentence, if the noise of a plan is expected to leave little of what voters say; else None.

    `space` and `public` are those that the plan was made from.
    """
    release = made.release
    if isinstance(release, NeighbourCounts):
        return _doubts_of_counts(made, release, public, voters)
    ratio = _expected_of_sums(release, space, public, voters)
    if ratio >= evidence.ENOUGH:
        return None
    return (
        f"of what {voters} voters can say, little is expected to stand out from the noise: labels may be no "
        "better than the most frequent class; allow a larger epsilon, or have more voters"
    )


def space_kind(dataset: Dataset) -> spaces.Kind:
    """The space that suits the inputs, by their kind and the public part alone.

    Images are seen by their patches. Numbers are columns of a table, each in a unit of its own, where the
    table was read as one, where they are few, or where some vary much more than most. Else they are vectors
    as they are, since an encoder's numbers have one unit, and those that hardly vary say little.
    """
    if dataset.kind == "image":
        return "patches"
    spread = dataset.public.inputs.std(0, dtype=np.float64)
    uneven = spread.max() > _UNEVEN * np.median(spread)
    return "columns" if dataset.columns or len(spread) <= _FEW or uneven else "identity"


def _sums(
    space: Space,
    public: np.ndarray,
    voters: int,
    classes: int,
    mu: float,
    directions: int | None,
    users: np.ndarray | None,
) -> Plan:
    variances, energies = _seen(space, public)
    wanted = directions or best(variances, energies, voters=voters, classes=classes, noise=2 / mu)
    made = _along(wanted, space, public, classes, mu)
    if users is None or directions is not None:
        return made
    for _ in range(_WEIGHED):
        weight = weight_of_users(made, public, users)
        wanted = best(variances, energies, voters=int(weight * voters), classes=classes, noise=2 / mu)
        made = _along(wanted, space, public, classes, mu)
    return made


def _along(wanted: int, space: Space, public: np.ndarray, classes: int, mu: float) -> Plan:
    """The plan with this number of directions."""
    narrow, seen = space.narrowed(wanted), public[:, :wanted]
    length = int(np.clip(_LENGTH * mu, _SHORTEST, _LONGEST))
    scaling = vectors.scaling(narrow, seen, length=length, power=_POWER, full=_FULL, constant=CONSTANT)
    release = ClassSums(classes, wanted + 1, length, max(1.0, 2 * length / mu * _UP))
    return Plan(narrow, scaling, None, release)


def _seen(space: Space, public: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The held-out variances of the pool along each direction, plain and weighed."""
    variances = _outside(public)
    return variances, variances * (space.variances / space.variances[0]) ** -_POWER


@remembered
def _outside(public: np.ndarray) -> np.ndarray:
    return held_out(public - public.mean(0))[::-1]


def _expected_of_sums(release: ClassSums, space: Space, public: np.ndarray, voters: int) -> float:
    """The evidence that noisy sums are expected to hold, by the prior of `crowd.evidence`."""
    kept, classes = release.directions - 1, release.classes
    variances, energies = _seen(space, public)
    energy, around = split(energies[:kept], voters, classes, release.sigma / release.length)
    told = expected_part(variances, classes)[:kept]
    return evidence.expected(around, voters**2 * energy * told, classes - 1)


def _neighbours(
    space: Space,
    public: np.ndarray,
    voters: int,
    classes: int,
    mu: float,
    queries: int | None,
    votes: int | None,
    directions: int | None,
) -> Plan:
    narrow = space.narrowed(directions or _COMPARED)
    seen = public[:, : len(narrow.variances)]
    least, most = votes or 1, max(votes or 1, int(_ASKED * len(public)))
    wanted = int(np.clip(voters * mu / _NOISES, least, most)) if queries is None else queries
    scaling = vectors.scaling(narrow, seen, length=neighbours.LENGTH, power=_LIKENED)
    chosen = neighbours.choose(scaling, seen, wanted)
    cast = votes or _votes(chosen, seen)
    release = NeighbourCounts(wanted, classes, cast, max(1.0, math.sqrt(2 * cast) / mu * _UP))
    return Plan(narrow, scaling, chosen, release)


def _doubts_of_counts(made: Plan, release: NeighbourCounts, public: np.ndarray, voters: int) -> str | None:
    """A query's shares are expected to vary as much as it is like the inputs whose voters it has."""
    if made.queries is None:
        raise PateError("a plan of neighbours without queries: make it with crowd.plan")
    alike = float(neighbours.likeness(made.queries, public[:, : len(made.space.variances)], 1)[0])
    votes = voters * release.votes / release.queries
    dull = release.sigma**2 + votes / release.classes
    signal = votes**2 * LINEAR * max(alike, 0) / release.classes
    freedom = (release.queries - 1) * (release.classes - 1)
    ratio = evidence.expected(np.array([dull]), np.array([signal]), freedom)
    if ratio >= evidence.ENOUGH:
        return None
    return (
        f"{release.queries} queries have about {votes:.0f} votes each, the noise has scale "
        f"{release.sigma:.0f}, and public inputs are {max(alike, 0):.0%} like their nearest query: labels "
        "may be no better than the most frequent class; allow a larger epsilon, have more voters, or try sums"
    )


def _votes(chosen: Queries, public: np.ndarray) -> int:
    """More votes stand out from the noise better, as the root of their number, while they are as right."""
    alike = neighbours.likeness(chosen, public, _VOTES)
    return max(1, int((alike >= _ALIKE * alike[0]).sum()))
