"""What each audience of a vote among parties can learn: one epsilon for each, all publishable.

Outsiders see what is opened, under the noise of all parties that are present. A party also knows its own
votes and its own share of noise, which it subtracts. Parties that collude subtract all of their shares. The
figures are about voters of the *other* parties, and none of them reads a vote. docs/proofs/parties.md derives
them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple, cast, get_args

from pate_jax.accounting import composition, curves, data_independent, party_curves, trade_off
from pate_jax.accounting.curves import Epsilon, with_slack
from pate_jax.accounting.figures import rounded_up
from pate_jax.accounting.filter import Cost
from pate_jax.accounting.inputs import check_delta
from pate_jax.accounting.trade_off import Gaussian, TradeOff
from pate_jax.errors import PateError
from pate_jax.mechanisms import shared_votes
from pate_jax.mechanisms.shared_votes import SharedVote

Unit = Literal["record", "user", "party"]  # whose contents may change: one voter's, or all of a party's
COMPARISON = 2.0**-80  # one over the size of a comparison's mask (`pate_jax.parties.engine.SECURITY`)
_UP = 1 + 1e-12
_WIDEST = 1e6  # the largest noise that a search tries


class Audience(NamedTuple):
    """Somebody who looks on, and what is proved about what they learn."""

    name: str
    sees: str
    shares: int  # how many shares of noise they do not know, at the least
    noise: float  # the scale of the noise that these shares make together
    epsilon: float


class _Observer(NamedTuple):
    """Somebody who looks on: how many shares they do not know, and whether they know any."""

    name: str
    sees: str
    shares: int
    offset: bool


def audiences(vote: SharedVote, delta: float, *, unit: Unit = "record") -> tuple[Audience, ...]:
    """The figure of each audience, from outsiders to as many colluding parties as were agreed on.

    >>> vote = SharedVote("teachers", "counts", parties=3, colluding=1, sigma=40.0, queries=64, classes=10)
    >>> [(one.name, one.shares, round(one.epsilon, 2)) for one in audiences(vote, 1e-5)]
    [('outsiders', 3, 0.85), ('one party', 2, 1.06)]
    """
    group, found = group_size(vote, unit), []
    for name, sees, shares, offset in _observers(vote):
        figure = epsilon(vote, shares, delta, group=group, offset=offset)
        found.append(Audience(name, sees, shares, vote.noise.together(shares).scale, figure))
    return tuple(found)


def worst(vote: SharedVote, delta: float, *, unit: Unit = "record") -> float:
    """The largest figure of all audiences: that of the audience that knows the most shares.

    Its bound holds whatever the known shares are, so it holds for everybody who knows fewer.

    >>> vote = SharedVote("neighbours", "counts", parties=3, sigma=40.0, queries=64, classes=10, votes=2)
    >>> round(worst(vote, 1e-5), 2)
    0.2
    """
    return epsilon(vote, _observers(vote)[-1].shares, delta, group=group_size(vote, unit))


def text(found: Sequence[Audience], delta: float, unit: Unit = "record") -> str:
    """The table for people.

    >>> vote = SharedVote("teachers", "counts", parties=3, colluding=1, sigma=40.0, queries=64, classes=10)
    >>> print(text(audiences(vote, 1e-5), 1e-5).splitlines()[1])
    outsiders             0.8493    49.0  the opened counts
    """
    whose = "all voters of one other party" if unit == "party" else f"one {unit} of another party"
    head = f"{'who looks on':<20}{'epsilon':>8}{'noise':>8}  what they see (for {whose}, delta = {delta:g})"
    rows = [f"{one.name:<20}{_printed(one.epsilon):>8}{one.noise:>8.1f}  {one.sees}" for one in found]
    return "\n".join([head, *rows]) + "\n"


@lru_cache(maxsize=256)
def joint(vote: SharedVote, delta: float, unit: Unit) -> TradeOff:
    """The trade-off curve of everything that is opened, for the audience that learns most at each delta.

    >>> vote = SharedVote("teachers", "counts", parties=3, colluding=1, sigma=40.0, queries=64, classes=10)
    >>> found = joint(vote, 1e-5, "record")
    >>> round(found.mu, 4), round(found.guess, 4)
    (0.2829, 0.5562)
    """
    return trade_off.of(
        lambda at: max(one.epsilon for one in audiences(vote, at, unit=unit)), delta, _gaussian(vote, unit)
    )


def _gaussian(vote: SharedVote, unit: Unit) -> Gaussian | None:
    """The mu of all noisy counts, and of the tests: whatever is opened follows from these.

    A sum of shares strays from a discrete Gaussian by `party_curves.gap` of all counts at most.
    """
    group, mus, gaps = group_size(vote, unit), [], []
    tests = vote.queries if vote.voters == "teachers" else 2 * vote.votes
    for observer in _observers(vote):
        for shares in range(observer.shares, observer.shares + 1 if observer.offset else vote.parties + 1):
            squares = [(vote.noise, vote.squared_shift)]
            squares += [] if vote.test_noise is None else [(vote.test_noise, tests)]
            moved = group * (2 * vote.length if vote.voters == "sums" else 1)
            each = [composition.unit_mu(noise.together(shares), moved) for noise, _ in squares]
            if any(one is None for one in each):
                return None
            total = sum(one * one * shift for one, (_, shift) in zip(each, squares, strict=True) if one)
            mus.append(group * math.sqrt(total) * _UP)
            gaps.append(math.expm1(sum(vote.cells * noise.gap(shares) for noise, _ in squares)))
    return Gaussian(max(mus), 2 * slack(vote) + max(gaps))


def epsilon(vote: SharedVote, shares: int, delta: float, *, group: int = 1, offset: bool = True) -> float:
    """The least proven epsilon for an observer who does not know this many shares of each noise.

    >>> vote = SharedVote("teachers", "answers", parties=3, sigma=40.0, queries=64, classes=10)
    >>> round(epsilon(vote, 3, 1e-5), 2)
    0.9
    """
    check_delta(delta)

    def least(inner: float) -> Epsilon:
        return Epsilon(min(_methods(vote, shares, inner, group, offset)), None)

    return float(with_slack(least, delta, slack(vote)).epsilon) * _UP


def cost(vote: SharedVote, order: float, *, unit: Unit = "record") -> Cost:
    """The cost of the whole vote under a filter, at its order, for the audience that learns most.

    >>> vote = SharedVote("teachers", "counts", parties=3, colluding=1, sigma=40.0, queries=8, classes=10)
    >>> 0.01 < cost(vote, 2.0).rdp < 0.0100001
    True
    """
    shares = _observers(vote)[-1].shares
    most = party_curves.rdp(vote, shares, [order], group=group_size(vote, unit))
    return Cost(float(most[0]) * _UP, slack(vote))


def slack(vote: SharedVote) -> float:
    """An upper bound of the total-variation distance of all drawn shares from their laws.

    The order of tied classes is sorted by words of 128 bits, two of which may be equal. Where answers are
    opened, numbers are compared under masks, and each comparison may tell what `masked` says of them.

    >>> vote = SharedVote("teachers", "answers", parties=3, sigma=40.0, queries=64, classes=10)
    >>> slack(vote) < 1e-20
    True
    """
    total = vote.cells * shared_votes.distance(vote.noise, vote.parties)
    if vote.test_noise is not None:
        total += vote.queries * shared_votes.distance(vote.test_noise, vote.parties)
    if vote.opened == "answers":
        ties = (vote.classes - 1) / 2 * 2.0**-128
        total += vote.queries * vote.classes * (ties + 2 * masked(vote))
    return total * (1 + 2.0**-40)


def masked(vote: SharedVote) -> float:
    """The statistical distance of one secure comparison, for as many colluding parties as were agreed on.

    What is opened is a difference plus a mask, a sum of numbers of which every set of `m - t` parties knows
    one. Colluders know all of these but one. Its range is that of the whole mask divided by the number of
    sets, rounded down to a power of two. Another difference moves the opened number by one such step at most.

    >>> vote = SharedVote("teachers", "answers", parties=5, colluding=2, sigma=40.0, classes=10)
    >>> 2.0**-76 < masked(vote) <= 2.0**-75
    True
    """
    return 2 * math.comb(vote.parties, max(vote.colluding, 1)) * COMPARISON


def least_noise(vote: SharedVote, target: float, delta: float, *, unit: Unit = "record") -> SharedVote:
    """The same vote with the least noise, up to one part in a thousand, whose worst figure is within target.

    The noise of a test keeps its proportion to the noise of the answer.

    >>> vote = SharedVote("neighbours", "counts", parties=3, sigma=40.0, queries=64, classes=10, votes=2)
    >>> found = least_noise(vote, 0.5, 1e-5)
    >>> 15 < found.sigma < 25, worst(found, 1e-5) <= 0.5
    (True, True)
    """
    if not (target > 0 and math.isfinite(target)):
        raise PateError(f"target={target!r} must be a finite epsilon above 0")
    least = shared_votes.SMALLEST_SHARE * math.sqrt(vote.noise.honest) * (1 + 1e-9)
    ratio = 1.0 if vote.sigma_threshold is None else vote.sigma_threshold / vote.sigma
    low, high, sigma = least / min(1.0, ratio), math.inf, vote.sigma
    if worst(with_noise(vote, low), delta, unit=unit) <= target:
        return with_noise(vote, low)
    if vote.threshold is not None:  # begin where the same vote without a test ends, which is found sooner
        plain = dataclasses.replace(vote, threshold=None, sigma_threshold=None)
        sigma = max(low * (1 + 1e-3), least_noise(plain, target, delta, unit=unit).sigma)
    while high / low > 1 + 1e-3:
        figure = worst(with_noise(vote, sigma), delta, unit=unit)
        low, high = (low, sigma) if figure <= target else (sigma, high)
        if low > _WIDEST:
            raise PateError(f"target={target!r} needs noise beyond {_WIDEST:g}: raise it, or delta")
        sigma = _next(sigma, figure / target, low, high)
    return with_noise(vote, high)


def _next(sigma: float, excess: float, low: float, high: float) -> float:
    """A scale between `low` and `high`: epsilon falls about as the scale rises."""
    guess = sigma * min(excess, 10.0) * (1 + (3e-4 if excess > 1 else -3e-4))
    if low < guess < high:
        return guess
    return math.sqrt(low * high) if math.isfinite(high) else 2 * low


def with_noise(vote: SharedVote, sigma: float) -> SharedVote:
    """The same vote with other noise; the noise of a test keeps its proportion.

    >>> vote = SharedVote("teachers", "answers", 3, 40.0, 10, threshold=200, sigma_threshold=150.0)
    >>> with_noise(vote, 20.0).sigma_threshold
    75.0
    """
    of_test = None if vote.sigma_threshold is None else vote.sigma_threshold * (sigma / vote.sigma)
    return dataclasses.replace(vote, sigma=sigma, sigma_threshold=of_test)


def group_size(vote: SharedVote, unit: Unit) -> int:
    """How many voters change together: one for a record or a user, all of the largest party's for a party.

    >>> group_size(SharedVote("teachers", "counts", 3, 40.0, 10, voters_of_parties=(80, 90, 80)), "party")
    90
    """
    if unit not in get_args(Unit):
        raise PateError(f"unit={unit!r} must be one of {', '.join(get_args(Unit))}")
    if cast(Unit, unit) != "party":
        return 1
    if not vote.voters_of_parties:
        raise PateError("unit='party' needs voters_of_parties: the number of voters of each party is public")
    return max(1, *vote.voters_of_parties)


def _observers(vote: SharedVote) -> list[_Observer]:
    present = vote.parties - vote.absent
    what = f"the opened {vote.opened}"
    found = [
        _Observer("outsiders", what, present, False),
        _Observer("one party", f"{what}; knows its own votes and noise", present - 1, True),
    ]
    if vote.colluding > 1:
        knows = f"{what}; know their own votes and noise"
        found.append(_Observer(f"{vote.colluding} parties together", knows, vote.noise.honest, True))
    return found


def _methods(vote: SharedVote, shares: int, delta: float, group: int, offset: bool) -> list[float]:
    """Epsilon by each method that applies."""
    orders = curves.default_orders()
    curve = party_curves.rdp(vote, shares, orders, group=group, offset=offset)
    found = [float(curves.epsilon(orders, curve, delta).epsilon)]
    if group > 1 or vote.voters == "sums":
        return found
    if vote.test_noise is None:  # answers are computed from the noisy counts
        scale, apart = vote.noise.together(shares).scale, party_curves.gap(vote, shares)
        found.append(party_curves.unit_epsilon(scale, 2 * vote.touched, delta, apart))
    if vote.opened == "answers":
        steps = party_curves.rdp(vote, shares, data_independent.ORDERS, offset=offset) / vote.touched * _UP
        found.append(data_independent.epsilon(data_independent.ORDERS, steps, vote.touched, delta))
    return found


def _printed(figure: float) -> str:
    return rounded_up(figure) if math.isfinite(figure) else "none"
