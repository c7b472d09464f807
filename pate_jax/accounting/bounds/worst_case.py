"""The worst case of answering with one index, whatever the votes and the history.

An index reveals less than the noisy counts from which it is computed, so its curve (`index_curve`) is never
above that of a mechanism that releases the counts (`counts_curve`).

For the noisy argmax (`argmax_curve`), a vote moves between two classes. `R(a)` is the largest divergence of
the three outcomes of `moved_vote`, over all places of these two classes and in both directions. It bounds the
noisy argmax of every histogram, with any number of teachers and classes (docs/proofs/worst_case.md).

For test and argmax as one mechanism (`joint_curve`), a large reading excludes a close race. A largest count
of M leaves `T - M` votes for all other classes. So if M is more than half of the votes, the vote that moves
either leaves a leader that is far ahead, or moves between two classes that are far behind (section 6).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate_jax.accounting.bounds import noisy_max, threshold, worst_reading
from pate_jax.accounting.bounds.argmax_cells import TOLERANCE, Search, Suprema, box
from pate_jax.accounting.bounds.laplace_worst_case import largest_excess
from pate_jax.accounting.bounds.moved_vote import GaussianVote, LatticeVote, WideLatticeVote
from pate_jax.accounting.exact import noise_law
from pate_jax.accounting.inputs import Curve, check_orders
from pate_jax.errors import PateError
from pate_jax.mechanisms import Mechanism, Noise, ThresholdTest

ROUNDING = 1e-6  # relative: more than the error of quadrature and rounding in a sum of terms
LEFT_OUT = 1e-18  # times the order: more than everything outside the box that is searched
LARGEST_SHIFT = 3.0  # the largest order / scale for which the bound is claimed
SCALES = {  # the smallest and the largest scale for which the bound is claimed
    "gaussian": (0.5, 1e5),
    "discrete_gaussian": (1.0, 1e5),
    "laplace": (0.5, 1e5),
    "discrete_laplace": (1.0, 100.0),
}
Counts = NDArray[np.int64]
FAR = 4.2  # the lead, in scales, from which on all largest counts share one bound
GROUPS = 150  # how many groups of largest counts there are up to that lead, each with its own bound
MOST_VOTES = 2000  # for two classes: up to this number of votes all histograms are tried
WIDE = 250.0  # the widest discrete Gaussian noise whose masses are added up one by one


class Levels(NamedTuple):
    """Costs [A, K] of all pairs whose level is at least `levels[k]`, in votes; the first is of all pairs."""

    levels: Curve
    costs: Curve


def argmax_curve(noise: Noise, orders: Curve) -> Curve:
    """`R` [A]: the largest divergence between two neighbours' noisy argmaxes, in either direction.

    Infinite where the bound is not claimed: for other families, and beyond the limits of order and scale.

    >>> orders = np.array([2.0, 10.0])
    >>> (argmax_curve(Noise("gaussian", 40.0), orders) / (orders / 40**2)).round(2)
    array([0.64, 0.64])
    """
    smallest, largest = SCALES.get(noise.family, (math.inf, 0.0))
    if not smallest <= noise.scale <= largest:
        return np.full(len(orders), np.inf)
    of = _largest(noise)
    right = _right_knots(of.knots, orders[orders <= of.knots[-1]])
    return costs(noise, of.at(np.unique([right - 1, right]))[:, None], orders)[:, 0]


def by_depth(noise: Noise, orders: Curve) -> Levels:
    """`R` by the depth `-x`: how far the class that loses the vote is below the best of the others."""
    top, _, places, cells = shares(noise)
    to_place = np.maximum.accumulate(cells.max(axis=(0, 2)), axis=1)
    lower = 1 if noise.is_discrete else 0  # the rule for ties may lower a depth by one
    depths = np.append(-np.inf, lower - places[-2:0:-1])
    return Levels(depths, costs(noise, np.hstack([top[:, None], to_place[:, -2::-1]]), orders))


def costs(noise: Noise, at_knots: Curve, orders: Curve) -> Curve:
    """Costs [A, N] at any orders from `e / (a (a-1))` at the knots [knots, N]; infinite past the last."""
    knots = _knots(noise.scale)
    out = np.full((len(orders), at_knots.shape[1]), np.inf)
    inside, logs = orders <= knots[-1], np.log(at_knots)
    # e / (a (a-1)) is log-convex in the order, so it lies below the chord between two orders
    place = np.maximum(orders[inside], knots[0])
    right = _right_knots(knots, place)
    share = ((place - knots[right - 1]) / (knots[right] - knots[right - 1]))[:, None]
    excess = np.exp((1 - share) * logs[right - 1] + share * logs[right])
    out[inside] = np.log1p(excess * (place * (place - 1))[:, None]) / (place - 1)[:, None]
    return out


def _right_knots(knots: Curve, orders: Curve) -> NDArray[np.int64]:
    """The place of the knot above each order; the one before it is below, or the order itself is lower."""
    return np.clip(np.searchsorted(knots, orders), 1, len(knots) - 1)


class _Largest:
    """`e / (a (a-1))` of all pairs at the knots, each computed at its first use: a search asks for few."""

    def __init__(self, noise: Noise) -> None:
        self._noise, self.knots = noise, _knots(noise.scale)
        self._found = np.full(len(self.knots), np.nan)
        self._searches = () if "laplace" in noise.family else _searches(noise)

    def at(self, places: NDArray[np.int64]) -> Curve:
        """The whole curve, known at these places at least."""
        new = places[np.isnan(self._found[places])]
        if new.size:
            self._found[new] = _share(self._excess(new), self.knots[new])
        return self._found

    def _excess(self, places: NDArray[np.int64]) -> Curve:
        if not self._searches:
            return largest_excess(self._noise, self.knots[places], TOLERANCE)
        result: Curve = np.stack([search.run(places).largest for search in self._searches]).max(axis=0)
        return result


@lru_cache(maxsize=64)
def _largest(noise: Noise) -> _Largest:
    return _Largest(noise)


@lru_cache(maxsize=32)
def shares(noise: Noise) -> Suprema:
    """The largest excesses, divided by `a (a-1)`, at the knots, rounded up; Laplace noise has a single cell.

    The leads are those of the votes, but the rule for ties may raise a lead by one vote.
    """
    knots = _knots(noise.scale)
    if "laplace" in noise.family:
        top, ends = largest_excess(noise, knots, TOLERANCE), np.array([-np.inf, np.inf])
        suprema = Suprema(top, ends, ends, top[None, :, None, None])
    else:
        suprema, *others = (search.run() for search in _searches(noise))
        for other in others:
            suprema = suprema.larger(other)
    return suprema._replace(
        largest=_share(suprema.largest, knots), cells=_share(suprema.cells, knots[:, None, None])
    )


@lru_cache(maxsize=64)
def _searches(noise: Noise) -> tuple[Search, ...]:
    """One for the law of the moved vote, or one for each class that may win ties; what they found is kept."""
    knots = _knots(noise.scale)
    if noise.family == "gaussian":
        return (Search(GaussianVote(noise.scale), noise.scale, knots, 1.0),)
    # a class that wins ties needs a lead that is smaller by one vote
    return tuple(Search(vote, noise.scale, knots, 1.0 - vote.a_wins) for vote in _on_whole_numbers(noise))


def _on_whole_numbers(noise: Noise) -> tuple[LatticeVote | WideLatticeVote, ...]:
    """The laws where b wins the ties between the two, and where a does."""
    if noise.scale > WIDE:
        return WideLatticeVote(noise.scale, a_wins=False), WideLatticeVote(noise.scale, a_wins=True)
    below, above = box(noise.scale, LARGEST_SHIFT * noise.scale)
    vote = LatticeVote(noise, int(2 * below + above) + 4, a_wins=False)
    return vote, vote.mirrored()


def _share(excess: Curve, knots: Curve) -> Curve:
    moments = np.log1p(excess + LEFT_OUT * knots) * (1 + TOLERANCE + ROUNDING)
    return np.expm1(moments) / (knots * (knots - 1))


def _knots(scale: float) -> Curve:
    """The orders at which the search runs, up to `LARGEST_SHIFT` scales."""
    last = LARGEST_SHIFT * scale
    knots = [1.001, 1.05, 1.2, 1.5, 2.0]
    while knots[-1] < last:
        knots.append(knots[-1] + 0.1 * max(scale, knots[-1]))
    return np.array([*(knot for knot in knots if knot < last), last])


def joint_curve(noise: Noise, test: ThresholdTest, teachers: int, classes: int, orders: Curve) -> Curve:
    """An upper bound [A] of the joint cost of test and argmax over all histograms of this many votes.

    The test must read the largest count. Infinite where `argmax_curve` claims nothing, and for Laplace
    noise, for which it has no bounds by lead and depth.

    >>> noise, test = Noise("gaussian", 40.0), ThresholdTest(200, Noise("gaussian", 150.0))
    >>> found = joint_curve(noise, test, 250, 10, np.array([9.5]))
    >>> bool(0.22 < found[0] / (9.5 / 40**2) < 0.24)
    True
    """
    half, out = (teachers + 1) // 2, np.full(len(orders), np.inf)
    argmax = argmax_curve(noise, orders)
    good = np.isfinite(argmax)
    if "laplace" in noise.family or not good.any():
        return out
    grid = orders[good]
    out[good] = _up_to(test, argmax[good], half, grid)
    if half < teachers:
        ends = _ends(half, teachers, noise.scale)
        first, last = ends[:-1] + 1, ends[1:]
        ahead = lone_leader_costs(noise, first, teachers, classes, grid)
        depths = by_depth(noise, grid)
        out[good] = np.maximum(out[good], _up_to(test, ahead[:, -1].max(axis=0), teachers, grid))
        out[good] = np.maximum(out[good], _leader_moves(test, ahead[:, :-1], first[:-1], last[:-1], grid))
        out[good] = np.maximum(out[good], _leader_stays(noise, test, depths, teachers, first, last, grid))
    return out


def _ends(half: int, teachers: int, scale: float) -> Counts:
    """The ends of the groups of largest counts above `half`; the last group goes from `FAR` to all votes."""
    far = min(teachers - 1, math.ceil((teachers + FAR * scale) / 2))
    step = max(1, math.ceil((far - half) / GROUPS))
    return np.array([*range(half, far, step), far, teachers])


def _up_to(test: ThresholdTest, argmax: Curve, largest: int, orders: Curve) -> Curve:
    """The joint cost [A] over all largest counts up to `largest`, given the curve of the argmax."""
    room = max(float(largest) - test.threshold, -8 * test.noise.scale)
    ceiling = threshold.data_independent(test, orders) + argmax
    return np.minimum(worst_reading.supremum(test.noise, argmax, room, orders), ceiling)


def _leader_moves(test: ThresholdTest, argmax: Curve, first: Counts, last: Counts, orders: Curve) -> Curve:
    """The largest joint cost [A] at the largest counts of each group, with its own curves [2, M, A]."""
    if not len(first):
        return np.zeros(len(orders))
    bend = worst_reading.bend_of_excess(orders, test.noise) * (last - first)[:, None] ** 2
    most = np.zeros(len(orders))
    with np.errstate(divide="ignore", over="ignore", under="ignore", invalid="ignore"):
        laws = [
            worst_reading.law(test.noise, (m - np.float64(test.threshold))[:, None]) for m in (first, last)
        ]
        for curve_of_way, upwards in zip(argmax, (np.True_, np.False_), strict=True):
            extra = (orders - 1) * curve_of_way
            low, high = (worst_reading.log_excess(law, orders, extra, upwards) for law in laws)
            highest = worst_reading.highest(low, high, np.maximum(bend, 1e-100))
            most = np.maximum(most, np.logaddexp(0.0, highest).max(axis=0))
    return most / (orders - 1) * (1 + worst_reading.ROUNDING)


def _leader_stays(
    noise: Noise,
    test: ThresholdTest,
    depths: Levels,
    teachers: int,
    first: Counts,
    last: Counts,
    orders: Curve,
) -> Curve:
    """The largest cost [A] of a vote that moves between two classes behind the leader.

    It is a mean over the leader's noise: the best of all other classes is at least the leader's noisy count.
    """
    above = (2 * first - teachers)[:, None] - depths.levels[1:]  # least lead over any other class, less depth
    reached = np.exp(noise_law.log_tail(noise, -above)[0])
    share = -np.diff(reached, axis=1, prepend=1.0, append=0.0)  # probability between two depths
    behind = share @ np.expm1((orders - 1) * depths.costs.T)
    passed = np.exp(threshold.log_answered(test, last.astype(np.float64))[0])
    result: Curve = np.log1p((passed[:, None] * behind).max(axis=0)) / (orders - 1)
    return result


def lone_leader_costs(noise: Noise, leader: Counts, teachers: int, classes: int, orders: Curve) -> Curve:
    """The largest cost [2, M, A] of a moved vote that lowers a largest count of M or more.

    A leader with M of T votes that is p ahead of the class that gains the vote leaves `p - (2M - T)` votes
    for all other classes. A close race between the leader and the best of these would cost most, but with so
    few votes it is rare (docs/proofs/worst_case.md, section 6).

    The first row is the law before the move over the law after it, the second the reverse. Each M must be
    more than half of the votes, and `argmax_curve` must be finite.

    >>> noise, leaders, orders = Noise("gaussian", 40.0), np.array([126, 150, 240]), np.array([5.0])
    >>> (lone_leader_costs(noise, leaders, 250, 10, orders)[..., 0] / (5 / 40**2)).round(2)
    array([[0.64, 0.47, 0.  ],
           [0.64, 0.53, 0.  ]])
    """
    means = _means(noise, leader.tobytes(), teachers, classes)
    return np.stack([costs(noise, mean, orders).T for mean in means])


@lru_cache(maxsize=64)
def _means(noise: Noise, leaders: bytes, teachers: int, classes: int) -> list[Curve]:
    """The mean excess [knots, M] in either direction, the same for all orders that are asked for."""
    found, leader = shares(noise), np.frombuffer(leaders, np.int64)
    ahead = (2 * leader - teachers)[:, None]
    ends = np.append(np.ceil(found.leads[1:-1]) - 1, np.inf)  # the largest whole lead before the next cell
    room = np.minimum(ends - ahead, (teachers - leader)[:, None])  # votes left for all others [M, K]
    reached = _best_reaches(noise, leader[:, None] - found.places[1:-1], np.maximum(room, 0), classes - 2)
    return [np.where((room >= 0).T, _mean(cells, reached), 0.0).max(axis=1) for cells in found.cells]


def _mean(cells: Curve, reached: Curve) -> Curve:
    """The mean excess [knots, K, M] in the cells of each lead, over the place of the best of the others."""
    most = np.maximum.accumulate(cells[:, :, ::-1], axis=2)[:, :, ::-1]  # from each place on
    less = -np.diff(most, axis=2)
    result: Curve = most[:, :, -1:] + np.einsum("akj,mkj->akm", less, reached, optimize=True)
    return result


def _best_reaches(noise: Noise, place: Curve, votes: Curve, others: int) -> Curve:
    """The largest probability [M, K, J] that the best of `others` classes with these votes exceeds a place.

    It is largest if one class has all the votes, because the log of a distribution function is concave.
    """
    alone = noise_law.log_cdf(noise, place[:, None, :] - votes[:, :, None])
    rest = max(others - 1, 0) * noise_law.log_cdf(noise, place)
    result: Curve = -np.expm1(alone + rest[:, None, :])
    return result


def index_curve(mechanism: Mechanism, teachers: int, classes: int, orders: ArrayLike) -> Curve:
    """The smallest proven bound [A] of one query's cost, whatever the votes.

    Two classes have only `teachers + 1` histograms, so all of them are tried. With more classes, Gumbel and
    exponential noise gain nothing: their curve is that of `counts_curve`.

    >>> from pate_jax.mechanisms import GNMax, GumbelMax
    >>> (index_curve(GNMax(40.0), 250, 10, [2.0]) * 40**2 / 2).round(2)  # 1 if all noisy counts were released
    array([0.64])
    >>> kept = counts_curve(GumbelMax(40.0), 250, np.array([2.0]))
    >>> bool(index_curve(GumbelMax(40.0), 250, 10, [2.0]) == kept)
    True
    """
    if teachers < 1 or classes < 2:
        raise PateError(f"teachers={teachers} and classes={classes} must be at least 1 and 2")
    return _kept(mechanism, teachers, classes, check_orders(orders).tobytes()).copy()


@lru_cache(maxsize=1024)  # one command asks for a curve again where it plans, charges and states
def _kept(mechanism: Mechanism, teachers: int, classes: int, orders: bytes) -> Curve:
    grid = np.frombuffer(orders)
    of_counts = counts_curve(mechanism, teachers, grid)
    if mechanism.releases_counts:
        return of_counts
    if classes == 2 and teachers <= MOST_VOTES and mechanism.votes_suffice:
        return np.minimum(of_counts, _every_histogram(mechanism, teachers, grid))
    return np.minimum(of_counts, _any_histogram(mechanism, teachers, classes, grid))


def _every_histogram(mechanism: Mechanism, teachers: int, orders: Curve) -> Curve:
    """The largest exact cost [A] of all histograms of two classes; swapping the classes changes nothing."""
    from pate_jax.accounting import exact

    fewer = np.arange(teachers // 2 + 1)
    result: Curve = exact.rdp(mechanism, np.stack([teachers - fewer, fewer], axis=1), orders).max(axis=0)
    return result


def _any_histogram(mechanism: Mechanism, teachers: int, classes: int, orders: Curve) -> Curve:
    argmax = argmax_curve(mechanism.noise, orders)
    if mechanism.test is None:
        return argmax
    out = np.full(len(orders), np.inf)
    good = np.isfinite(argmax)
    if not good.any():
        return out
    out[good] = threshold.joint_bound(mechanism.test, argmax[good], teachers, orders[good])
    if not mechanism.votes_suffice:  # the test does not read a count
        return out
    joint = joint_curve(mechanism.noise, mechanism.test, teachers, classes, orders)
    result: Curve = np.minimum(out, joint)
    return result


def argmax_bound(mechanism: Mechanism, orders: Curve) -> Curve:
    """The data-independent curve [A] of the noisy argmax alone.

    >>> from pate_jax.mechanisms import GNMax
    >>> argmax_bound(GNMax(sigma=10.0), np.array([2.0]))
    array([0.02])
    """
    family, scale = mechanism.noise
    if "gaussian" in family:
        return noisy_max.gaussian_curve(scale, orders)
    if family == "gumbel":
        return noisy_max.bounded_range(2 / scale, orders)
    whole = noisy_max.pure_curve(2 / scale, orders)
    if family == "laplace":
        return np.minimum(whole, 2 * noisy_max.shifted(scale, orders))
    return (
        np.minimum(whole, 2 * noisy_max.pure_curve(1 / scale, orders))
        if family == "discrete_laplace"
        else whole
    )


def counts_curve(mechanism: Mechanism, teachers: int, orders: Curve) -> Curve:
    """A bound [A] for every histogram of this many teachers and every history.

    Test and argmax of a confident mechanism are bounded as one joint mechanism: see `threshold.joint_bound`.

    >>> from pate_jax.mechanisms import GNMax
    >>> counts_curve(GNMax(sigma=10.0), 250, np.array([2.0]))
    array([0.02])
    """
    argmax = argmax_bound(mechanism, orders)
    if mechanism.test is None:
        return argmax
    return threshold.joint_bound(mechanism.test, argmax, teachers, orders)
