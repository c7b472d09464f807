"""How well an attack tells members from others, with limits, beside what a guarantee allows.

Guesses about one run share its noise, so they are not independent. How much their rates vary between runs
says how many independent guesses they are worth, and Clopper and Pearson's limits are those of that number
(Korn and Graubard, 1998). Derived in docs/attacks.md, section 5.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy import special

from pate_jax.errors import PateError

LEVELS = (0.001, 0.01)  # false positives at which an attack is told
_ALL_LEVELS = (*LEVELS, 0.1, 0.5)  # and those from which epsilon is bounded
DOUBT = 0.05  # of an interval
_FINITE = 700.0  # the largest epsilon whose exponential is a number
_ALARM = 1e-4  # of the limits by which a promise is said to be broken: many are looked at


class Promise(NamedTuple):
    """A guarantee for whether one record is there: epsilon at delta, and mu of Gaussian-DP if known."""

    epsilon: float
    delta: float
    mu: float | None = None

    def caught(self, level: float) -> float:
        """The most true positives of any attack with that share of false positives.

        >>> round(Promise(1.0, 1e-5).caught(0.001), 6), round(Promise(1.0, 1e-5, 0.2681).caught(0.001), 6)
        (0.002728, 0.002385)
        """
        growth = math.exp(min(self.epsilon, _FINITE))
        least = min(growth * level + self.delta, 1 - (1 - level - self.delta) / growth, 1.0)
        gauss = 1.0 if self.mu is None else float(special.ndtr(self.mu + special.ndtri(level)))
        return min(least, gauss)

    def right(self) -> float:
        """The most that any attacker is right, if every second record is a member.

        >>> round(Promise(1.0, 1e-5).right(), 4), round(Promise(1.0, 1e-5, 0.2681).right(), 4)
        (0.7311, 0.5533)
        """
        growth = math.exp(min(self.epsilon, _FINITE))
        variation = 1 - 2 * (1 - self.delta) / (growth + 1)
        gauss = 1.0 if self.mu is None else float(special.ndtr(self.mu / 2))
        return min((1 + variation) / 2, gauss, 1.0)


class Caught(NamedTuple):
    """True positives at a share of false positives, with 95% limits."""

    level: float
    share: float
    low: float
    high: float
    most: float  # that the guarantee allows


class Advantage(NamedTuple):
    """True positives less false ones, if those above the median score are accused, with 95% limits."""

    share: float
    low: float
    high: float


class Measured(NamedTuple):
    """What one attack achieved over all targets."""

    attack: str
    targets: int
    guesses: int
    auc: float
    right: float  # of the guesses, with members and others weighed alike
    most_right: float  # that the guarantee allows
    caught: tuple[Caught, ...]
    epsilon: float  # at least, with 95% confidence, at the guarantee's delta
    promise: Promise
    advantage: Advantage
    holds: bool  # whether it shows no more than the guarantee allows, beyond what chance explains

    def sentence(self) -> str:
        """What it says, for people."""
        strict = self.caught[0]
        found = (
            f"{self.attack}: an attacker who must say of each person whether they took part, at even odds, "
            f"is right in {100 * self.right:.1f} of 100 cases; guessing would give 50, and the guarantee "
            f"allows at most {100 * self.most_right:.1f}. With {1000 * strict.level:g} false alarm in 1,000 "
            f"it finds {strict.share:.3%} of those who did (95%: {strict.low:.3%} to {strict.high:.3%}; "
            f"at most {strict.most:.3%} is allowed)"
        )
        return f"{found}." if self.holds else f"{found}. THIS IS MORE THAN THE GUARANTEE ALLOWS: report it."

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        caught = [one._asdict() for one in self.caught]
        advantage = {**self.advantage._asdict(), "most": 2 * self.most_right - 1}
        return {
            **self._asdict(),
            "caught": caught,
            "promise": self.promise._asdict(),
            "advantage": advantage,
        }


def measured(
    attack: str,
    scores: Float[np.ndarray, "target record"],
    member: Bool[np.ndarray, "target record"],
    promise: Promise,
) -> Measured:
    """The figures of an attack whose scores are larger for whom it takes to be a member.

    >>> random, member = np.random.default_rng(0), np.arange(4000).reshape(4, 1000) % 2 == 0
    >>> found = measured("an attack", random.normal(size=member.shape) + member, member, Promise(9.0, 0.0))
    >>> abs(found.auc - 0.76) < 0.02, found.caught[1].low < 0.092 < found.caught[1].high
    (True, True)
    """
    if scores.shape != member.shape or not member.any() or member.all():
        raise PateError(
            f"scores {list(scores.shape)} and members {list(member.shape)} must be of the same targets and "
            "records, some of which are members and some are not"
        )
    inside, outside = np.sort(scores[member]), np.sort(scores[~member])
    caught, least, holds = [], [0.0], True
    for level in _ALL_LEVELS:
        cut = outside[-1 - min(int(level * len(outside)), len(outside) - 1)]
        if level in LEVELS:
            share = float((inside > cut).mean())
            limits = _limits(scores > cut, member, DOUBT)
            caught.append(Caught(level, share, *limits, promise.caught(level)))
        least.extend(_epsilons(scores > cut, member, promise.delta))
        holds = holds and _allowed(scores > cut, member, promise)
    return Measured(
        attack=attack,
        targets=len(scores),
        guesses=scores.size,
        auc=_auc(inside, outside),
        right=_right(scores, inside, outside),
        most_right=promise.right(),
        caught=tuple(caught),
        epsilon=max(least),
        promise=promise,
        advantage=_advantage(scores, member),
        holds=holds,
    )


def curve(
    scores: Float[np.ndarray, "target record"],
    member: Bool[np.ndarray, "target record"],
    levels: Float[np.ndarray, " level"],
) -> Float[np.ndarray, " level"]:
    """True positives at each share of false positives.

    >>> scores, member = np.array([[4.0, 3.0, 2.0, 1.0]]), np.array([[True, False, True, False]])
    >>> curve(scores, member, np.array([0.0, 0.5])).tolist()
    [0.5, 1.0]
    """
    inside, outside = np.sort(scores[member]), np.sort(scores[~member])
    places = np.minimum((levels * len(outside)).astype(np.int64), len(outside) - 1)
    above = len(inside) - np.searchsorted(inside, outside[-1 - places], side="right")
    found: np.ndarray = above / len(inside)
    return found


def _auc(inside: np.ndarray, outside: np.ndarray) -> float:
    """The chance that a member's score is above that of another record; ties count half."""
    below, upto = (np.searchsorted(outside, inside, side=side) for side in ("left", "right"))
    return float((below + upto).mean() / 2 / len(outside))


def _right(scores: np.ndarray, inside: np.ndarray, outside: np.ndarray) -> float:
    """How often the attacker is right that accuses those above the median score."""
    cut = np.median(scores)
    return float(((inside > cut).mean() + (outside <= cut).mean()) / 2)


def _advantage(
    scores: Float[np.ndarray, "target record"], member: Bool[np.ndarray, "target record"]
) -> Advantage:
    """The mean over targets, whose spread gives Student's limits; of one target nothing is known.

    >>> member = np.array([[True, True, False, False]] * 3)
    >>> _advantage(np.array([[2.0, 1, 0, 0], [2, 1, 0, 0], [1, 0, 2, 0]]), member).share
    0.6666666666666666
    """
    accused = scores > np.median(scores)
    sides = [(accused & among).sum(1) / np.maximum(among.sum(1), 1) for among in (member, ~member)]
    each = sides[0] - sides[1]
    found = float(each.mean())
    if len(each) < 2:
        return Advantage(found, -1.0, 1.0)
    room = float(special.stdtrit(len(each) - 1, 1 - DOUBT / 2) * each.std(ddof=1) / math.sqrt(len(each)))
    return Advantage(found, max(found - room, -1.0), min(found + room, 1.0))


def _allowed(
    accused: Bool[np.ndarray, "target record"], member: Bool[np.ndarray, "target record"], promise: Promise
) -> bool:
    """Whether a promise may be kept, by limits that one honest attack in thousands is beyond."""
    found, _ = _limits(accused, member, _ALARM)
    _, wrong = _limits(accused, ~member, _ALARM)
    return found <= promise.caught(wrong)


def _epsilons(
    accused: Bool[np.ndarray, "target record"], member: Bool[np.ndarray, "target record"], delta: float
) -> Iterator[float]:
    """What epsilon is at least, from the accused and from those who are not."""
    doubt = DOUBT / len(_ALL_LEVELS)  # two limits of each level, each on one side only
    found, _ = _limits(accused, member, doubt)
    _, wrong = _limits(accused, ~member, doubt)
    for more, fewer in ((found, wrong), (1 - wrong, 1 - found)):
        if more > delta:
            yield math.log(more - delta) - math.log(fewer)


def _limits(
    accused: Bool[np.ndarray, "target record"], among: Bool[np.ndarray, "target record"], doubt: float
) -> tuple[float, float]:
    """Clopper and Pearson's limits of the share that is accused, for as many guesses as they are worth."""
    hits, sizes = (accused & among).sum(1), among.sum(1)
    share, worth = hits.sum() / sizes.sum(), float(sizes.sum())
    if len(hits) > 1 and 0 < share < 1:
        spread = ((hits - share * sizes) ** 2).sum() / sizes.sum() ** 2 * len(hits) / (len(hits) - 1)
        worth = min(worth, share * (1 - share) / spread) if spread > 0 else worth
    some = share * worth
    low = special.betaincinv(some, worth - some + 1, doubt / 2) if share > 0 else 0.0
    high = special.betaincinv(some + 1, worth - some, 1 - doubt / 2) if share < 1 else 1.0
    return float(low), float(high)
