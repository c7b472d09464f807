"""How well an attack tells members from others, with limits, beside what a guarantee allows.

Guesses about one run share its noise, so they are not independent. How much their rates vary between runs
says how many independent guesses they are worth, and Clopper and Pearson's limits are those of that number
(Korn and Graubard, 1998). The cut that gives a share of false positives is itself estimated, so the limits of
true positives are those of cuts that are surely on either side of it. Derived in docs/proofs/attacks.md,
section 5.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy import special

from pate_jax.accounting import trade_off
from pate_jax.errors import PateError

LEVELS = (0.001, 0.01)  # false positives at which an attack is told
_ALL_LEVELS = (*LEVELS, 0.1, 0.5)  # and those from which epsilon is bounded
DOUBT = 0.05  # of an interval
Scores = Float[np.ndarray, "target record"]
Members = Bool[np.ndarray, "target record"]
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
        gauss = 1.0 if self.mu is None else float(trade_off.gaussian_caught(self.mu, level))
        return min(trade_off.caught(self.epsilon, self.delta, level), gauss)

    def right(self) -> float:
        """The most that any attacker is right, if every second record is a member.

        >>> round(Promise(1.0, 1e-5).right(), 4), round(Promise(1.0, 1e-5, 0.2681).right(), 4)
        (0.7311, 0.5533)
        """
        gauss = 1.0 if self.mu is None else float(trade_off.gaussian_variation(self.mu))
        return (1 + min(trade_off.variation(self.epsilon, self.delta), gauss)) / 2


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
    scores: Scores,
    member: Members,
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
    auc, right = _auc(scores, member), _right(scores, member)
    scores = _untied(scores)
    inside, outside = np.sort(scores[member]), np.sort(scores[~member])
    caught, least, holds = [], [0.0], True
    for level in _ALL_LEVELS:
        cut = _cut(outside, level)
        if level in LEVELS:
            caught.append(_caught(scores, member, inside, outside, level, promise.caught(level)))
        least.extend(_epsilons(scores > cut, member, promise.delta))
        holds = holds and _allowed(scores > cut, member, promise)
    return Measured(
        attack=attack,
        targets=len(scores),
        guesses=scores.size,
        auc=auc,
        right=right,
        most_right=promise.right(),
        caught=tuple(caught),
        epsilon=max(least),
        promise=promise,
        advantage=_advantage(scores, member),
        holds=holds,
    )


def curve(
    scores: Scores,
    member: Members,
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


def _auc(scores: Scores, member: Members) -> float:
    """The chance that a member's score is above that of another record; ties count half."""
    inside, outside = scores[member], np.sort(scores[~member])
    below, upto = (np.searchsorted(outside, inside, side=side) for side in ("left", "right"))
    return float((below + upto).mean() / 2 / len(outside))


def _right(scores: Scores, member: Members) -> float:
    """How often the attacker is right that accuses those above the median score."""
    accused = scores > np.median(scores)
    return float((accused[member].mean() + (~accused[~member]).mean()) / 2)


def _advantage(scores: Scores, member: Members) -> Advantage:
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


def _untied(scores: Scores) -> Scores:
    """The ranks of the scores, with ties in random order: else no cut has few false positives, and some.

    >>> sorted(_untied(np.array([[5.0, 1.0], [5.0, 7.0]])).ravel().tolist())
    [0.0, 1.0, 2.0, 3.0]
    """
    ranks = np.empty(scores.size)
    chance = np.random.default_rng(0).random(scores.size)
    ranks[np.lexsort((chance, scores.ravel()))] = np.arange(scores.size)
    return ranks.reshape(scores.shape)


def _allowed(accused: Members, member: Members, promise: Promise) -> bool:
    """Whether a promise may be kept, by limits that one honest attack in thousands is beyond."""
    found, _ = _limits(accused, member, _ALARM)
    _, wrong = _limits(accused, ~member, _ALARM)
    return found <= promise.caught(wrong)


def _epsilons(accused: Members, member: Members, delta: float) -> Iterator[float]:
    """What epsilon is at least, from the accused and from those who are not."""
    doubt = DOUBT / len(_ALL_LEVELS)  # two limits of each level, each on one side only
    found, _ = _limits(accused, member, doubt)
    _, wrong = _limits(accused, ~member, doubt)
    for more, fewer in ((found, wrong), (1 - wrong, 1 - found)):
        if more > delta:
            yield math.log(more - delta) - math.log(fewer)


def _caught(
    scores: Scores, member: Members, inside: np.ndarray, outside: np.ndarray, level: float, most: float
) -> Caught:
    """True positives at a level, with limits that hold although the cut comes from the same guesses.

    The lower one is that of a cut whose false positives are surely below the level, and the upper one that
    of a cut whose false positives are surely above it; the four limits share the doubt.
    """
    accused = scores > _cut(outside, level)
    low, high = 0.0, 1.0
    strict, loose = _between(level, _worth(accused, ~member, DOUBT / 2), DOUBT / 2)
    if strict is not None:
        low, _ = _limits(scores > _cut(outside, strict), member, DOUBT / 2)
    if loose is not None:
        _, high = _limits(scores > _cut(outside, loose), member, DOUBT / 2)
    share = float((inside > _cut(outside, level)).mean())
    return Caught(level, share, low, high, most)


def _cut(outside: np.ndarray, level: float) -> float:
    """Above which at most this share of the sorted scores is."""
    found: float = outside[-1 - min(int(level * len(outside)), len(outside) - 1)]
    return found


def _between(level: float, worth: float, doubt: float) -> tuple[float | None, float | None]:
    """The largest share whose upper limit is at most the level, and the least whose lower limit is at least.

    >>> [round(share, 3) for share in _between(0.1, 1000.0, 0.05)]
    [0.081, 0.119]
    """
    below, above = level * np.linspace(1, 0, 2001), level ** np.linspace(1, 0, 4001)
    strict = bisect_left(below, True, key=lambda share: bool(_upper(share, worth, doubt) <= level))
    loose = bisect_left(above, True, key=lambda share: bool(_lower(share, worth, doubt) >= level))
    sure = float(below[strict]) if strict < len(below) else None
    return sure, float(above[loose]) if loose < len(above) else None


def _limits(accused: Members, among: Members, doubt: float) -> tuple[float, float]:
    """Clopper and Pearson's limits of the share that is accused, for as many guesses as they are worth."""
    share = np.array((accused & among).sum() / among.sum())
    worth = _worth(accused, among, doubt)
    return float(_lower(share, worth, doubt)), float(_upper(share, worth, doubt))


def _lower(share: np.ndarray, worth: float, doubt: float) -> np.ndarray:
    some = share * worth
    found: np.ndarray = np.where(share > 0, special.betaincinv(some, worth - some + 1, doubt / 2), 0.0)
    return found


def _upper(share: np.ndarray, worth: float, doubt: float) -> np.ndarray:
    some = share * worth
    found: np.ndarray = np.where(share < 1, special.betaincinv(some + 1, worth - some, 1 - doubt / 2), 1.0)
    return found


def _worth(accused: Members, among: Members, doubt: float) -> float:
    """How many independent guesses the accusations are worth: by how much runs' rates vary.

    A variance of T runs is itself uncertain, so that Student's quantile takes the place of the normal one.
    Where all are accused, or none, nothing shows how guesses of a run go together. Whatever they do, a run is
    without any accusation with a chance of at most `1 - rate`: so T runs are worth T guesses at least.
    """
    hits, sizes = (accused & among).sum(1), among.sum(1)
    share, runs = hits.sum() / sizes.sum(), len(hits)
    if runs == 1:
        return float(sizes.sum())
    if not 0 < share < 1:
        return float(runs)
    spread = ((hits - share * sizes) ** 2).sum() / sizes.sum() ** 2 * runs / (runs - 1)
    worth = min(sizes.sum(), share * (1 - share) / spread) if spread > 0 else sizes.sum()
    wider = special.stdtrit(runs - 1, 1 - doubt / 2) / special.ndtri(1 - doubt / 2)
    return float(worth / wider**2)
