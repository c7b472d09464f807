"""The cost of a crowd's noisy table: data-independent, so it may be published.

A release adds noise of scale sigma to every cell of a table that one voter moves by at most `sqrt(S)`, in
Euclidean length (`mechanisms.crowds`). Then, for any two neighbours and in both directions:

- **Rounded Gaussian noise** is computed from continuous Gaussian noise, so the release is mu-Gaussian-DP with
  `mu = sqrt(S) / sigma`, for any number of cells (Dong, Roth, Su 2022, Theorem 2.7 and rotation). The epsilon
  at delta is exact for the worst pair of neighbours, apart from the information that rounding removes.
- **Discrete Gaussian noise**: a cell that moves by a whole number `d_i` has a Renyi divergence of at most
  `a d_i^2 / (2 sigma^2)` (Canonne, Kamath, Steinke 2020, Proposition 5), so all cells together of at most
  `a S / (2 sigma^2)`. Counts move by 1 in at most S cells, so their exact distribution of losses is that of
  one moved cell, composed S times.

Both costs add up adaptively, also with other releases whose Renyi curve or mu is known: curves add, and so do
squares of mu. The distance of the noise's tables from their laws is paid for in delta.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate_jax.accounting import composition, curves
from pate_jax.accounting.curves import with_slack
from pate_jax.accounting.filter import Cost
from pate_jax.accounting.inputs import check_delta, check_orders
from pate_jax.errors import PateError, at_least
from pate_jax.mechanisms import GaussianHistogram, laws
from pate_jax.mechanisms.crowds import (
    Change,
    Comparison,
    CrowdRelease,
    HeadCount,
    Judgement,
    NeighbourCounts,
    Score,
    TeacherSums,
    TeacherVotes,
    Voting,
)

_UP = 1 + 1e-12  # every figure is rounded up by this
_MORE = 1 + 2e-6  # factor of the noise that leaves room in delta for the noise's distance from its law
_STRAY = 1e-26  # distance of all noise of a run from its law: up to 1.2e-32 for each of a million numbers
_NOTHING = 1e-6  # of delta, for which that factor leaves room
_FINE = 2e-3  # step of the losses' grid, in losses of one moved cell
_JOINED = {"sums": 1 / 4, "neighbours": 1 / 2}  # of a table's mu^2, where a voter is added or removed
_MOST_COMPOSED = 64  # the most moved cells for which losses are composed; beyond, the Renyi curve is used


def rdp(release: CrowdRelease, orders: ArrayLike, *, change: Change = "changed") -> NDArray[np.float64]:
    """The Renyi curve [order] of a release: `a S / (2 sigma^2)`, for both kinds of noise.

    >>> rdp(NeighbourCounts(queries=80, classes=10, votes=1, sigma=10.0), [2.0, 4.0])
    array([0.02, 0.04])
    """
    grid = check_orders(orders)
    return grid * release.squared_shift(change) / 2 / release.sigma / release.sigma * _UP


def cost(release: CrowdRelease, order: float) -> Cost:
    """The cost of a release under a filter: at the filter's order, with the distance of its noise.

    It can be added to the cost of teachers' answers at the same order (`accounting.filter`), because it holds
    for every history before it.

    >>> found = cost(NeighbourCounts(queries=80, classes=10, votes=1, sigma=10.0), 4.0)
    >>> 0.04 < found.rdp < 0.0400001, found.slack < 1e-9
    (True, True)
    """
    most = max(float(rdp(release, [order], change=change)[0]) for change in get_args(Change))
    return Cost(most * _UP, _slack(release) * _UP)


def gaussian_mu(release: CrowdRelease, *, change: Change = "changed") -> float | None:
    """The mu of Gaussian-DP of a release, rounded up; None if its noise is discrete Gaussian.

    >>> round(gaussian_mu(NeighbourCounts(queries=80, classes=10, votes=2, sigma=20.0)), 9)
    0.1
    """
    if release.family != "rounded_gaussian":
        return None
    return math.sqrt(release.squared_shift(change)) / release.sigma * _UP


def epsilon(
    releases: Sequence[CrowdRelease],
    delta: float,
    *,
    change: Change = "changed",
) -> float:
    """The least proven epsilon of several releases together, which may depend on earlier ones.

    >>> release = NeighbourCounts(queries=80, classes=10, votes=1, sigma=10.0)
    >>> round(epsilon([release], 1e-5), 4), round(epsilon([release, release], 1e-5, change="joined"), 4)
    (0.497, 0.497)
    """
    check_delta(delta)

    def least(inner: float) -> curves.Epsilon:
        return curves.Epsilon(_least(releases, inner, change), None)

    return float(with_slack(least, delta, slack_of(releases)).epsilon)


def slack_of(releases: Sequence[CrowdRelease]) -> float:
    """An upper bound of the total-variation distance of all noise of some releases from its law.

    >>> slack_of([NeighbourCounts(queries=80, classes=10, votes=1, sigma=10.0)]) < 1e-9
    True
    """
    return math.fsum(_slack(release) for release in releases) * _UP


def mu_for(target: float, delta: float) -> float:
    """The largest mu of Gaussian-DP whose epsilon at delta is at most the target, rounded down.

    >>> [round(mu_for(target, 1e-5), 4) for target in (0.05, 0.1, 0.5, 1)]
    [0.0173, 0.0325, 0.1422, 0.2681]
    """
    check_delta(delta)
    if not (target > 0 and math.isfinite(target)):
        raise PateError(f"epsilon={target!r} must be a finite number above 0")
    if target > (most := largest_epsilon(delta)):
        remedy = f"ask for {most:.3g} at most, or raise delta" if most > 0 else "raise delta"
        raise PateError(
            f"epsilon={target:g} cannot be kept at delta={delta:g}: drawn noise differs a little from its "
            f"law, which counts 1 + e^epsilon times and leaves nothing of delta; {remedy}"
        )
    low, high = 0.0, 1.0
    while composition.gaussian_log_delta(high, target) <= math.log(delta):
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        fits = composition.gaussian_log_delta(middle, target) <= math.log(delta)
        low, high = (middle, high) if fits else (low, middle)
    return low


def largest_epsilon(delta: float) -> float:
    """The largest epsilon at which what tables of noise stray from their law is nothing beside delta.

    >>> round(largest_epsilon(1e-5), 1)
    34.5
    """
    return math.log(max(delta * _NOTHING / _STRAY - 1, 1e-300))


def share_of(target: float, delta: float, runs: int) -> float:
    """The epsilon of each of so many runs of crowds that together cost at most the target at this delta.

    Squares of mu add up, so each may cost `mu / sqrt(runs)`. That is rounded down to six digits, which leaves
    room for what the noise of all of them strays from its law.

    >>> share_of(1, 1e-5, 1), share_of(1, 1e-5, 4), share_of(1, 1e-5, 40)
    (0.999998, 0.468709, 0.133609)
    """
    at_least(1, runs=runs)
    each = composition.gaussian_epsilon(mu_for(target, delta) / math.sqrt(runs), delta) * (1 - 1e-6)
    scale = 10.0 ** (5 - math.floor(math.log10(each))) if each > 0 else 1.0
    found = math.floor(each * scale) / scale
    if found <= 0:
        raise PateError(f"epsilon={target:g} leaves nothing for each of {runs} runs: raise it, or have fewer")
    return found


def headcount_for(mu: float, voting: Voting) -> HeadCount:
    """A noisy number of voters that costs nothing more than a table which costs `mu`.

    A voter that is added or removed moves sums half as far as a changed one, and neighbours' counts
    `1 / sqrt(2)` times as far. Squares of mu add up, so 3/4 or 1/2 of `mu^2` is left for the number of
    voters, which a changed voter does not move. So for either change the total is at most `mu`.

    >>> round(headcount_for(0.0325, "sums").sigma, 2), round(headcount_for(0.0325, "neighbours").sigma, 2)
    (35.53, 43.51)
    """
    return HeadCount(max(1.0, 1 / mu / math.sqrt(1 - _JOINED[voting]) * _MORE))


def teacher_sums_for(mu: float, teachers: int, directions: int, length: int) -> TeacherSums:
    """Sums of teachers' vectors that cost `mu`, however one record changes its teacher.

    >>> round(teacher_sums_for(0.25, 100, 8, 1000).sigma, 1)
    8000.0
    """
    return TeacherSums(teachers, directions, length, max(1.0, 2 * length / mu * _MORE))


def teacher_votes_for(mu: float, teachers: int, queries: int, labels: int, most: int) -> TeacherVotes:
    """Counts of several labels that cost `mu`, where a teacher names at most `most` labels of an input.

    >>> [round(teacher_votes_for(0.25, 100, 200, 9, most).sigma, 1) for most in (9, 5, 2)]
    [169.7, 169.7, 113.1]
    """
    length = math.sqrt(TeacherVotes(teachers, queries, labels, most, 1.0).squared_shift("changed"))
    return TeacherVotes(teachers, queries, labels, most, max(1.0, length / mu * _MORE))


def histogram_for(mu: float, queries: int) -> GaussianHistogram:
    """Noise with which whole rows of teachers' votes on so many queries cost at most `mu` together.

    One teacher votes anew on every query: two counts of each row move by one vote.

    >>> round(histogram_for(0.25, 200).sigma, 2)
    80.0
    """
    at_least(1, queries=queries)
    return GaussianHistogram(max(1.0, math.sqrt(2 * queries) / mu * _MORE))


def score_for(mu: float, voting: Voting) -> Score:
    """A score that costs nothing more than tables which cost `mu` together.

    A held-out voter moves no table. Added or removed, it moves the number of voters, which `headcount_for`
    charges for with 3/4 or 1/2 of `mu^2`. The rest is for the score.

    >>> round(score_for(0.1, "sums").sigma, 2), round(score_for(0.1, "neighbours").sigma, 2)
    (20.0, 14.14)
    """
    return Score(max(1.0, math.sqrt(1 / _JOINED[voting]) / mu * _MORE))


def comparison_for(mu: float, students: int) -> Comparison:
    """A comparison of students that costs nothing more than sums which cost `mu`.

    A held-out voter whose contents change moves it as far as `mu` allows at this noise, and moves nothing
    else. Added or removed it moves it half as far, a quarter of `mu^2`, beside the number of voters, for
    which `headcount_for` charges 3/4 at most.

    >>> found = comparison_for(0.1, 2)
    >>> round(found.sigma, 2), round(found.between_two, 2), round(comparison_for(0.1, 3).between_two, 2)
    (28.28, 20.0, 23.09)
    """
    length = math.sqrt(Comparison(students, 1.0).squared_shift("changed"))
    return Comparison(students, max(1.0, length / mu * _MORE))


def worst(releases: Sequence[CrowdRelease], delta: float) -> float:
    """The epsilon of several releases together for a voter who is changed, added or removed.

    Where there are scores, or a comparison, a voter is held out or votes in tables, or a change moves it
    from one to the other.

    >>> from pate_jax.mechanisms.crowds import ClassSums
    >>> table, mu = ClassSums(classes=3, directions=4, length=100, sigma=2000.0), 0.1
    >>> alone = epsilon([table], 1e-5)
    >>> worst([table, headcount_for(mu, "sums")], 1e-5) == alone
    True
    >>> worst([table, headcount_for(mu, "sums"), score_for(mu, "sums")], 1e-5) == alone
    True
    >>> worst([table, headcount_for(mu, "sums"), comparison_for(mu, 3)], 1e-5) == alone
    True
    """
    return max(epsilon(together, delta, change=change) for together, change in _cases(releases))


def worst_mu(releases: Sequence[CrowdRelease]) -> float | None:
    """The mu of Gaussian-DP of several releases together, for the same voters as `worst`; None if none is.

    Whole-number noise has one where no cell moves by more than one, or where a move of a whole length in one
    cell is no wider than what `composition.unit_mu` looks at.

    >>> round(worst_mu([NeighbourCounts(queries=80, classes=10, votes=2, sigma=20.0)] * 4), 9)
    0.2
    """
    found = [_joint_mu(*case) for case in _cases(releases)]
    known = [mu for mu in found if mu is not None]
    return max(known) if len(known) == len(found) else None


def _cases(releases: Sequence[CrowdRelease]) -> list[tuple[list[CrowdRelease], Change]]:
    """What a voter may move: which releases, by which change."""
    judged: list[CrowdRelease] = [release for release in releases if isinstance(release, Judgement)]
    others = [release for release in releases if not isinstance(release, Judgement)]
    tables = [release for release in others if not isinstance(release, HeadCount)]
    changes: tuple[Change, ...] = get_args(Change)
    found: list[tuple[list[CrowdRelease], Change]] = [(list(others), change) for change in changes]
    if judged:
        numbers = [release for release in others if isinstance(release, HeadCount)]
        found += [(list(judged), "changed"), ([*numbers, *judged], "joined")]
        # A voter whose new contents come under another name may move from tables to judging, or back.
        found.append(([*tables, *judged], "joined"))
    return found


def _joint_mu(releases: Sequence[CrowdRelease], change: Change) -> float | None:
    squares = []
    for release in releases:
        shift = release.squared_shift(change)
        each = composition.unit_mu(release.noise, math.isqrt(shift) + 1)
        if each is None:
            return None
        squares.append(shift * each * each)
    return math.sqrt(math.fsum(squares)) * _UP


def _slack(release: CrowdRelease) -> float:
    """An upper bound of the total-variation distance of all draws from their law."""
    return math.prod(release.shape) * laws.distance(release.noise)


def _least(releases: Sequence[CrowdRelease], delta: float, change: Change) -> float:
    """The least of the bounds that hold for these releases."""
    mus = [gaussian_mu(release, change=change) for release in releases]
    if all(mu is not None for mu in mus):
        together = math.sqrt(math.fsum(mu * mu for mu in mus if mu)) * _UP
        return composition.gaussian_epsilon(together, delta)
    orders = curves.default_orders()
    total = np.sum([rdp(release, orders, change=change) for release in releases], axis=0)
    renyi = float(curves.epsilon(orders, total * _UP, delta).epsilon)
    return min(renyi, _composed(releases, delta, change))


def _composed(releases: Sequence[CrowdRelease], delta: float, change: Change) -> float:
    """Epsilon of counts with discrete Gaussian noise only, by exact losses; infinite for anything else."""
    moved = [(release.sigma, release.squared_shift(change)) for release in releases]
    counts = all(isinstance(one, NeighbourCounts) and one.family == "discrete_gaussian" for one in releases)
    if not moved or not counts or sum(cells for _, cells in moved) > _MOST_COMPOSED:
        return math.inf
    return float(_losses(tuple(moved)).get_epsilon_for_delta(delta * (1 - 1e-9))) * _UP


@lru_cache(maxsize=8)
def _losses(moved: tuple[tuple[float, int], ...]) -> Any:
    """The losses of cells that move by one, for each scale of their noise; they serve every delta."""
    from dp_accounting.pld import privacy_loss_distribution as losses

    step = min(_FINE / sigma for sigma, _ in moved)
    total = losses.identity(value_discretization_interval=step)
    for sigma, cells in moved:
        one = losses.from_discrete_gaussian_mechanism(
            sigma, sensitivity=1, value_discretization_interval=step, use_connect_dots=True
        )
        total = total.compose(one.self_compose(cells))
    return total
