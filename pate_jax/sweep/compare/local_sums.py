"""Local noise on vectors: each record noises the vector that it would add to the sums, and trusts nobody.

The mechanism is that of Duchi, Jordan and Wainwright (2018) for vectors no longer than `r`. A record holds a
vector `v` of D entries: its row of the table of sums, and zeros in the others. It takes the unit vector `u`
along `v` or its opposite, with chances `1/2 +- |v| / 2r`, so that `r u` has mean `v`. Then with chance
`e^eps / (1 + e^eps)` it sends a random point of the sphere of radius `B` on the side of `u`, and otherwise
one of the other side. Whatever two records hold, the densities of a point that they send differ by a factor
of at most `e^eps`: pure epsilon.

The mean of `<z, u>` over the half sphere of radius 1 is `c = gamma(D/2) / (sqrt(pi) gamma((D+1)/2))`, so what
is sent has mean `B c tanh(eps/2) u`, and `B = r / (c tanh(eps/2))` makes it unbiased. An entry of the sum of
n reports has a variance of about `n B^2 / D`, nearly the same for every D. So directions and lengths follow
from the plan of sums with this noise in place of theirs.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float
from scipy import special

from pate_jax import crowd
from pate_jax.crowd import shares
from pate_jax.crowd.plan import Plan
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums
from pate_jax.sweep.compare.contender import Contender, Needs, Outcome
from pate_jax.sweep.compare.ground import Draw, Ground

_AT_ONCE = 2000  # records
Vectors = Float[np.ndarray, "record entries"]


def learn(ground: Ground, draw: Draw) -> Outcome:
    """The classifier that sums of noisy vectors give."""
    made = plan(ground, draw.epsilon)
    random = np.random.default_rng(draw.number("local sums"))
    noisy = np.rint(received(made, ground, draw.epsilon, random)).astype(np.int64)
    found = shares.of_sums(noisy, made, ground.wide.pool, ground.records, ground.tested)
    settings = {"directions": made.release.shape[1] - 1, "sigma": round(made.release.sigma, 1)}
    return Outcome(found.probabilities, draw.epsilon, settings)


def plan(ground: Ground, epsilon: float) -> Plan:
    """The plan of sums whose noise is that of all records together: `sigma = 2 length / mu`."""
    each = math.sqrt(math.pi / 2) / math.tanh(epsilon / 2)  # noise of an entry over the length; many entries
    return crowd.plan(
        "sums",
        *ground.wide,
        voters=ground.records,
        classes=ground.dataset.classes,
        mu=2 / (each * math.sqrt(ground.records)),
    )


def received(
    made: Plan, ground: Ground, epsilon: float, random: np.random.Generator
) -> Float[np.ndarray, "row entry"]:
    """The sum of what all records send."""
    release = made.release
    if not isinstance(release, ClassSums):
        raise PateError(f"{release} has no sums: make the plan for sums")
    seen = ground.places[:, : len(made.space.variances)]
    total = np.zeros(release.shape)
    for start in range(0, len(seen), _AT_ONCE):
        there = slice(start, start + _AT_ONCE)
        rows, labels = crowd.vectors(made.scaling, seen[there]), ground.labels[there]
        held = _held(rows.astype(np.float64), labels, release)
        total += sent(held, release.length, epsilon, random).sum(0).reshape(release.shape)
    return total


def _held(rows: Vectors, labels: np.ndarray, release: ClassSums) -> Vectors:
    """Each record's own table as one vector; of two classes there is one row, for both signs."""
    if release.classes == 2:
        return rows * np.where(labels == 1, 1.0, -1.0)[:, None]
    tables = np.zeros((len(rows), *release.shape))
    tables[np.arange(len(rows)), labels] = rows
    return tables.reshape(len(rows), -1)


def sent(held: Vectors, length: float, epsilon: float, random: np.random.Generator) -> Vectors:
    """What records send in place of vectors no longer than `length`.

    >>> found = sent(np.array([[3.0, 4.0]]), 5.0, 2.0, np.random.default_rng(0))
    >>> bool(np.isclose(np.linalg.norm(found), radius(2, 5.0, 2.0)))
    True
    """
    sizes = np.linalg.norm(held, axis=1)
    if (sizes > length * (1 + 1e-9)).any():
        raise PateError(f"a vector of length {sizes.max():g} is longer than {length:g}: shorten it")
    entries = held.shape[1]
    anywhere = np.zeros((1, entries))
    anywhere[0, 0] = 1.0  # stands for the direction of a vector of zeros
    units = np.where(sizes[:, None] > 0, held / np.maximum(sizes, 1e-300)[:, None], anywhere)
    along = random.random(len(held)) < 0.5 + sizes / (2 * length)
    kept = random.random(len(held)) < special.expit(epsilon)
    points = random.standard_normal(held.shape)
    points *= radius(entries, length, epsilon) / np.linalg.norm(points, axis=1, keepdims=True)
    side = (points * units).sum(1) >= 0
    found: np.ndarray = np.where((side == (along == kept))[:, None], points, -points)
    return found


def radius(entries: int, length: float, epsilon: float) -> float:
    """How long what is sent has to be, so that it is unbiased.

    >>> round(radius(1, 1.0, 2.0), 4), round(1 / math.tanh(1.0), 4)
    (1.313, 1.313)
    """
    mean = math.exp(math.lgamma(entries / 2) - math.lgamma((entries + 1) / 2)) / math.sqrt(math.pi)
    return length / (mean * math.tanh(epsilon / 2))


LOCAL_SUMS = Contender(
    "local sums",
    Needs(
        pool="unlabelled inputs, sent to every record's owner, which only say what records are compared by",
        trust="nobody: each vector is noised before it leaves its owner",
        gives="a linear classifier, and the noisy sums",
    ),
    learn,
)
