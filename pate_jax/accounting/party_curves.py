"""The Renyi curve of a vote among parties, for someone who cannot subtract a given number of noise shares.

Everything here is data-independent and holds for every history. `shares` is how many shares of each noise
the observer does not know. An observer who knows some shares sees the votes with those shares added to them.
So every bound must hold whatever number is added to each count: that is the difference from the figure of
somebody who knows none (docs/proofs/parties.md, "What each audience can learn").
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from pate_jax.accounting.bounds import threshold, worst_case
from pate_jax.accounting.bounds.worst_case import argmax_bound, index_curve
from pate_jax.accounting.exact import noise_law
from pate_jax.accounting.inputs import Curve, check_delta, check_orders
from pate_jax.errors import at_least
from pate_jax.mechanisms import Noise, shared_votes
from pate_jax.mechanisms.shared_votes import SharedVote

_UP = 1 + 1e-12
_ROUNDING = 1e-11  # relative: more than the rounding of a tail
_FARTHEST = 1e7  # the largest scale of a sum for which tails are computed


def rdp(vote: SharedVote, shares: int, orders: ArrayLike, *, group: int = 1, offset: bool = True) -> Curve:
    """The curve [A] of everything that is opened, if `group` voters change together.

    `offset` says that the observer knows further shares. Without it, `shares` is the least number of those
    that there are, and the counts add up to the number of teachers at most: to fewer, where parties are
    absent. The largest cost of all possible numbers of shares counts: see `_least_to_all`.

    >>> vote = SharedVote("teachers", "counts", parties=3, sigma=40.0, queries=8, classes=10)
    >>> rdp(vote, 3, [2.0]).round(6)
    array([0.01])
    """
    grid = check_orders(orders)
    at_least(1, group=group)
    found = _ideal(vote, shares, grid, group, offset)
    most = shares if offset else vote.parties
    return found * _UP + gap(vote, most, group) * (2 * grid - 1) / (grid - 1)


def gap(vote: SharedVote, shares: int, group: int = 1) -> float:
    """The most by which log-chances of all noises that a change meets differ from discrete Gaussians'.

    >>> vote = SharedVote("teachers", "counts", parties=3, sigma=40.0, queries=8, classes=10)
    >>> gap(vote, 3) < 1e-200
    True
    """
    if vote.opened == "counts":
        moved = vote.cells if vote.voters == "sums" else min(vote.cells, 2 * vote.touched * group)
        return moved * vote.noise.gap(shares) * _UP
    queries = _queries_met(vote, group)
    of_test = 0.0 if vote.test_noise is None else vote.test_noise.gap(shares)
    return queries * (vote.classes * vote.noise.gap(shares) + of_test) * _UP


def _queries_met(vote: SharedVote, group: int) -> int:
    """The most queries at which a change of voters can move votes."""
    return vote.queries if vote.voters == "teachers" else min(vote.queries, 2 * vote.votes * group)


def _ideal(vote: SharedVote, shares: int, orders: Curve, group: int, offset: bool) -> Curve:
    """The curve with discrete Gaussian noise in place of the sums of shares."""
    scale = vote.noise.together(shares).scale
    counts = orders * vote.squared_shift * group**2 / 2 / scale / scale
    if vote.opened == "counts":
        return counts
    if group > 1:
        return counts + _tests_of_group(vote, shares, orders, group)
    if vote.voters == "neighbours":
        return vote.votes * _neighbour(vote, shares, orders)
    teachers = sum(vote.voters_of_parties)
    if offset or not teachers:
        return vote.queries * moved_vote(vote, shares, orders)
    return vote.queries * _least_to_all(vote, shares, teachers, orders)


def _least_to_all(vote: SharedVote, shares: int, teachers: int, orders: Curve) -> Curve:
    """A moved vote for someone who knows no share, if at least this many were added.

    More noise can cost more here. A close race is far below the threshold, and hardly ever passes the test.
    With more noise on the test it passes more often, and then its answer tells which class was ahead.
    """
    classes = max(vote.classes, 3) if vote.absent else vote.classes  # of two, only `teachers` votes are tried
    numbers = range(shares, vote.parties + 1)
    curves = [index_curve(vote.remaining(number), teachers, classes, orders) for number in numbers]
    return np.asarray(np.max(curves, axis=0), np.float64)


def moved_vote(vote: SharedVote, shares: int, orders: Curve) -> Curve:
    """One query whose vote moves from one class to another, whatever is added to the counts.

    The argmax costs at most its worst case over all real leads, and test and argmax together at most the
    worst reading of the test, with no limit on the readings.

    >>> vote = SharedVote("teachers", "answers", parties=3, sigma=40.0, classes=10)
    >>> (moved_vote(vote, 3, np.array([2.0])) * 40**2 / 2).round(2)
    array([0.64])
    """
    mechanism = vote.remaining(shares)
    argmax = np.minimum(worst_case.argmax_curve(mechanism.noise, orders), argmax_bound(mechanism, orders))
    if mechanism.test is None:
        return argmax
    return threshold.joint_bound(mechanism.test, argmax, np.inf, orders)


def _neighbour(vote: SharedVote, shares: int, orders: Curve) -> Curve:
    """What a voter costs for each of its votes: one vote taken back and one added.

    At one query they are a moved vote. At two different queries, each moves one count by one. Given the best
    of the other counts, the answer is then a threshold test of the moved count, so it costs at most the worst
    such test. The test of the largest count comes on top.
    """
    mechanism = vote.remaining(shares)
    single = threshold.supremum(mechanism.noise, orders)
    if mechanism.test is not None:
        single = single + threshold.supremum(mechanism.test.noise, orders)
    return np.maximum(2 * single, moved_vote(vote, shares, orders))


def _tests_of_group(vote: SharedVote, shares: int, orders: Curve, group: int) -> Curve:
    """The tests, if `group` voters change: a query's largest count moves by as many of them as vote there.

    The numbers `h` of those who vote at a query are at most `group`. Their sum is at most `group` times the
    queries of a voter (twice as many for neighbours, who may leave one query for another), so the sum of the
    squares is at most `group^2` times that.
    """
    of_test = vote.test_noise
    if of_test is None:
        return np.zeros_like(orders)
    met = vote.queries if vote.voters == "teachers" else 2 * vote.votes
    return orders * met * group**2 / 2 / of_test.together(shares).scale ** 2


def unit_epsilon(sigma: float, moved: int, delta: float, gap: float = 0.0) -> float:
    """The least epsilon at `delta` of `moved` counts that move by one, exact and rounded up.

    Each count that moves from `x` to `x + 1` has the loss `(2 x + 1) / (2 sigma^2)`. So the loss of all `k`
    is `(2 S + k) / (2 sigma^2)`, where S is the sum of the noises, and the moved counts are exactly as hard
    to tell apart as S is from `S + k`. S has the law of a sum of shares: its log-chances differ by at most
    `shared_votes.gap` from those of one discrete Gaussian of scale `sqrt(k) sigma`. For that one, with `s`
    the largest whole number below `k/2 - epsilon sigma^2`,

        delta(epsilon) = P[S <= s] - exp(epsilon) P[S <= s - k].

    Both directions are the same, because the noise is symmetric. Fewer moved counts never cost more.

    `gap` bounds how far the log-chances of the noise on all of them differ from discrete Gaussians' together.
    Infinite where the sum is too wide for the tails computed here.

    >>> round(unit_epsilon(40.0, 128, 1e-5), 4), round(unit_epsilon(10.0, 2, 1e-5), 4)
    (1.0608, 0.497)
    """
    whole = check_delta(delta)
    if sigma * math.sqrt(moved) > _FARTHEST:
        return math.inf
    apart = gap + shared_votes.gap(sigma, moved)
    wanted = math.log(whole) - apart
    if log_delta(sigma, moved, 0.0) <= wanted:
        return 2 * apart
    low, high = 0.0, 1.0
    while log_delta(sigma, moved, high) > wanted:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if log_delta(sigma, moved, middle) > wanted else (low, middle)
    return high + 2 * apart


def log_delta(sigma: float, moved: int, epsilon: float) -> float:
    """Log of the delta at this epsilon of one discrete Gaussian of scale `sqrt(moved) sigma`, rounded up.

    >>> round(math.exp(log_delta(1.0, 1, 0.0)), 6)
    0.398942
    """
    whole = Noise("discrete_gaussian", sigma * math.sqrt(moved))
    last = math.ceil(moved / 2 - epsilon * sigma * sigma) - 1
    first, second = noise_law.log_cdf(whole, np.array([last, last - moved], np.float64)).tolist()
    ratio = epsilon + second - first - _ROUNDING * (1 + epsilon + abs(first) + abs(second))
    return float(first + _ROUNDING + (math.log(-math.expm1(ratio)) if ratio < 0 else -math.inf))
