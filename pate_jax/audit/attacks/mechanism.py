"""Is the noise that is drawn the noise that is charged for? Millions of draws at the pair that tells most.

The sampler of a run answers one query again and again, with and without one moved vote, under keys of its own
that serve nothing else. Whoever sees an answer and must say which side it came from cannot do better than the
exact law allows. So the draws give a lower bound of epsilon, from Clopper and Pearson's limits at all
thresholds of the likelihood ratio. It must not exceed the exact epsilon of the pair, and it should come
close, or the attack would not notice a mistake. Nothing private is read. Derived in docs/proofs/attacks.md,
section 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int
from scipy import special

from pate_jax import aggregate
from pate_jax.accounting.exact import pair, probabilities
from pate_jax.accounting.exact.noise_law import passing
from pate_jax.accounting.exact.pair import Moves
from pate_jax.aggregate import noise
from pate_jax.aggregate.noise import noisy_table
from pate_jax.audit.attacks.attack import Attack, Flags, Way, answering, of_list
from pate_jax.mechanisms import Mechanism
from pate_jax.mechanisms.crowds import ClassSums, CrowdRelease, NeighbourCounts, TeacherSums, TeacherVotes
from pate_jax.runs import ledger
from pate_jax.runs.directory import RunDirectory
from pate_jax.system import progress

DOUBT = 0.05  # the chance that the lower bound of an honest sampler is above the truth
LEAST, MOST = 1_000_000, 40_000_000  # draws of each side
CLOSE = 0.93  # of the exact epsilon: what the bound of an honest sampler is expected to be, if draws suffice
_CHUNK = 200_000  # draws at a time
_THRESHOLDS = 64  # of a table's reading
_CELLS = 64  # that teachers' votes on several labels move, of all that they might
_SHARES = (0.05, 0.1, 0.2, 0.4)  # of the total variation: deltas that the comparison may be made at
Key = Callable[[], jax.Array]


class Audit(NamedTuple):
    """What draws of both sides of a pair show of epsilon, beside what is exact for that pair."""

    what: str
    draws: int  # of each side
    delta: float  # at which both are compared; not the run's
    exact: float
    estimate: float
    lower: float

    @property
    def holds(self) -> bool:
        """Whether the draws are no more telling than the law that is charged for."""
        return self.lower <= self.exact

    def sentence(self) -> str:
        """What came of it, for people."""
        found = (
            f"{self.draws:,} draws of each side of {self.what} show epsilon {self.lower:.4g} at least, at "
            f"delta {self.delta:.2g}; the law that is charged for has {self.exact:.4g}"
        )
        if self.holds:
            return f"{found}. The noise hides what it is said to hide."
        return f"{found}. THE NOISE HIDES LESS THAN IS SAID: publish nothing, and report this."


class Audits(NamedTuple):
    """The audits of all mechanisms of a run."""

    audits: list[Audit]

    @property
    def holds(self) -> bool:
        """Whether no draws are more telling than the law that is charged for."""
        return all(one.holds for one in self.audits)

    def to_dict(self) -> list[dict[str, Any]]:
        """As JSON; nothing private is in it."""
        return [{**one._asdict(), "holds": one.holds, "confidence": 1 - DOUBT} for one in self.audits]

    def text(self) -> str:
        """For a terminal."""
        return "\n".join(f"mechanism: {one.sentence()}" for one in self.audits)


def of_tables(run: RunDirectory, flags: Flags, *, key: Key = noise.fresh_key) -> Audits:
    """The audit of every different table that was released."""
    releases = dict.fromkeys(line.event for line in ledger.releases(run.ledger))
    return Audits([of_table(one, key=key, draws=flags.draws) for one in releases])


def of_teachers(run: RunDirectory, flags: Flags, *, key: Key = noise.fresh_key) -> Audits:
    """The audit of the mechanism that answered."""
    mechanism, event = answering(run)
    if mechanism.releases_counts:
        row = NeighbourCounts(queries=1, classes=event.classes, votes=1, sigma=mechanism.noise.scale)
        return Audits([of_table(row, key=key, draws=flags.draws, called="a row of counts")])
    return Audits([of_answers(mechanism, event.teachers, event.classes, key=key, draws=flags.draws)])


def of_answers(
    mechanism: Mechanism, teachers: int, classes: int, *, key: Key = noise.fresh_key, draws: int | None = None
) -> Audit:
    """The audit of a mechanism's sampler, at the two-class race where one vote tells most.

    `draws` of each side; unset: as many as bring the bound to about 0.9 of the truth, 20 million at most.
    """
    votes, variation = race(mechanism, teachers, classes)
    both = laws(mechanism, votes)
    order = np.argsort(np.nan_to_num(both[1], neginf=0.0) - np.nan_to_num(both[0], neginf=0.0), kind="stable")
    chances = np.cumsum(np.exp(both[:, order]), axis=1)[:, :-1]

    def exactly(delta: float) -> float:
        return float(pair.of_votes(mechanism, votes[:1], [_moved(0)], delta).epsilon[0])

    number, delta, exact = _comparison(chances, variation, exactly)
    number = draws or number
    left, right = (np.cumsum(_outcomes(mechanism, side, number, key)[order])[:-1] for side in votes)
    what = f"the votes {votes[0].tolist()}, one of which moves"
    return Audit(what, number, delta, exact, *bounds(left, right, number, delta))


def of_table(
    release: CrowdRelease,
    *,
    key: Key = noise.fresh_key,
    draws: int | None = None,
    called: str | None = None,  # unset: the release's name
) -> Audit:
    """The audit of a crowd's noise, at a voter whose change moves the table furthest.

    >>> from pate_jax.mechanisms.crowds import HeadCount
    >>> seeds = iter(range(100))
    >>> found = of_table(HeadCount(sigma=1.0), key=lambda: noise.seeded_key(next(seeds)), draws=20_000)
    >>> found.holds, found.lower > 0.8 * found.exact
    (True, True)
    """
    steps, cells = _steps(release)
    mu = np.array([steps * math.sqrt(cells) / release.sigma])
    scale = release.sigma * math.sqrt(cells)
    cuts = steps * cells / 2 + scale * np.linspace(-3, 3, _THRESHOLDS)
    chances = special.ndtr((np.array([[steps * cells], [0]]) - cuts) / scale)
    variation = float(pair.of_shifts(mu, 0.5).variation[0])

    def exactly(delta: float) -> float:
        return float(pair.of_shifts(mu, delta).epsilon[0])

    number, delta, exact = _comparison(chances, variation, exactly)
    number = draws or number
    left, right = (_readings(release, cells, side, number, cuts, key) for side in (steps, 0))
    named = called or f"the {release.name}"
    what = f"{named} with noise of scale {release.sigma:.6g}, of which {cells} move by {steps}"
    return Audit(what, number, delta, exact, *bounds(left, right, number, delta))


def bounds(
    left: Int[np.ndarray, " event"], right: Int[np.ndarray, " event"], draws: int, delta: float
) -> tuple[float, float]:
    """An estimate of epsilon at delta, and what it is at least, from how often nested events came.

    >>> estimate, lower = bounds(np.array([6000]), np.array([5000]), 10_000, 0.01)
    >>> round(estimate, 3), round(lower, 3)
    (0.203, 0.152)
    """
    doubt = DOUBT / (4 * len(left))  # two limits, two directions
    found = []
    for these, others in ((left, right), (draws - right, draws - left)):
        least, most = at_least(these, draws, doubt), 1 - at_least(draws - others, draws, doubt)
        with np.errstate(divide="ignore", invalid="ignore"):
            plain = np.log(np.maximum(these / draws - delta, 0)) - np.log(others / draws)
            certain = np.log(np.maximum(least - delta, 0)) - np.log(most)
        found.append((np.nan_to_num(plain[others > 0], nan=0.0).max(initial=0.0), certain.max(initial=0.0)))
    return float(max(one for one, _ in found)), float(max(one for _, one in found))


def at_least(hits: Int[np.ndarray, " event"], draws: int, doubt: float) -> Float[np.ndarray, " event"]:
    """Clopper and Pearson's lower limit of a probability."""
    limits = special.betaincinv(np.maximum(hits, 1), draws - hits + 1, doubt)
    result: np.ndarray = np.where(hits > 0, limits, 0.0)
    return result


def _comparison(
    chances: Float[np.ndarray, "side event"], variation: float, exactly: Callable[[float], float]
) -> tuple[int, float, float]:
    """The draws, the delta and the exact epsilon of the comparison that needs the fewest draws."""
    found = []
    for delta in (variation * share for share in _SHARES):
        exact = exactly(delta)
        number, close = _needed(chances, delta, exact)
        found.append((number, -close, delta, exact))
    number, _, delta, exact = min(found)
    return number, delta, exact


def _needed(chances: Float[np.ndarray, "side event"], delta: float, exact: float) -> tuple[int, float]:
    """The draws that bring the bound of an honest sampler close to the truth, and how close that is."""
    number = LEAST
    while True:
        left, right = np.rint(chances * number).astype(np.int64)
        close = bounds(left, right, number, delta)[1] / exact
        if close >= CLOSE or number >= MOST:
            return number, close
        number = min(MOST, number * 5 // 4)


def _moved(query: int) -> Moves:
    """One vote moves from the first class to the second."""
    return Moves(np.array([query]), np.array([0]), np.array([1]))


def race(mechanism: Mechanism, teachers: int, classes: int) -> tuple[Int[np.ndarray, "side class"], float]:
    """The votes of the two-class race in which one moved vote changes the law most, before and after."""
    first = np.arange(-(-teachers // 2), teachers + 1)
    races = np.zeros((len(first), classes), np.int64)
    races[:, 0], races[:, 1] = first, teachers - first
    found = pair.of_votes(mechanism, races, [_moved(row) for row in range(len(races))], 0.5).variation
    worst = int(np.argmax(found))
    after = races[worst] + np.eye(classes, dtype=np.int64)[1] - np.eye(classes, dtype=np.int64)[0]
    return np.stack([races[worst], after]), float(found[worst])


def laws(mechanism: Mechanism, votes: Int[np.ndarray, "side class"]) -> Float[np.ndarray, "side outcome"]:
    """The exact log-probability of every outcome on each side, refused first."""
    found = probabilities(mechanism, votes)
    if mechanism.test is None:
        return np.concatenate([np.full((len(votes), 1), -np.inf), found], axis=1)
    passed = passing(mechanism.test, votes.max(1).astype(np.float64))
    return np.concatenate([passed.refused[:, None], passed.answered[:, None] + found], axis=1)


def _outcomes(
    mechanism: Mechanism, counts: Int[np.ndarray, " class"], draws: int, key: Key
) -> Int[np.ndarray, " outcome"]:
    """How often each outcome comes, refused first."""
    total = np.zeros(len(counts) + 1, np.int64)
    many = np.tile(counts.astype(np.int32), (min(_CHUNK, draws), 1))
    for start in _chunks(draws):
        found = aggregate.answer(mechanism, many, key=key())
        labels = np.where(np.asarray(found.answered), np.asarray(found.labels), -1)[: draws - start]
        total += np.bincount(labels + 1, minlength=len(total))
    return total


def _steps(release: CrowdRelease) -> tuple[int, int]:
    """By how much each of how many cells moves for the voter whose change tells most."""
    if isinstance(release, NeighbourCounts):
        return 1, 2 * release.votes
    if isinstance(release, TeacherVotes):
        return 1, min(int(release.squared_shift("changed")), _CELLS)
    return (2 * release.length if isinstance(release, ClassSums | TeacherSums) else 1), 1


def _readings(
    release: CrowdRelease, cells: int, moved: int, draws: int, cuts: Float[np.ndarray, " event"], key: Key
) -> Int[np.ndarray, " event"]:
    """How often the sum of the moved cells is at least each of the cuts, by the sampler of real tables."""
    total = np.zeros(len(cuts), np.int64)
    asked = NeighbourCounts(
        queries=min(_CHUNK, draws), classes=max(2, cells), votes=1, sigma=release.sigma, family=release.family
    )
    table = np.zeros(asked.shape, np.int64)
    table[:, :cells] = moved
    for start in _chunks(draws):
        noisy = noisy_table(asked, table, key=key()).values[: draws - start, :cells].sum(1)
        total += len(noisy) - np.searchsorted(np.sort(noisy), cuts)
    return total


def _chunks(draws: int) -> Iterator[int]:
    """The first draw of each chunk."""
    with progress.bar("draws", total=draws) as steps:
        for start in range(0, draws, _CHUNK):
            yield start
            steps.advance(min(_CHUNK, draws - start))


_TABLES = Way(of_tables)
ATTACK = Attack("mechanism", {"teachers": Way(of_teachers, of_list), "crowd": _TABLES, "method": _TABLES})
