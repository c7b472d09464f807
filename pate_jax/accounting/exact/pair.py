"""The exact privacy of pairs of data sets whose difference is known: what one person risks.

A person's records are taken out of a finished run. Then the law of every released answer before and after is
known, so nothing has to be bounded over neighbours. For answers of teachers some votes move, and each query
with a moved vote has its own two laws of a label. Their losses are put on a grid by connecting the dots,
which is never too low, and composed by one Fourier transform a query. For a crowd's tables the pair is one
Gaussian shift of a known length. Derived in docs/proofs/attacks.md, sections 1 and 2.

These figures are functions of private records and of one person: they are sensitive, and never published.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy import fft, signal, special

from pate_jax.accounting import composition, trade_off
from pate_jax.accounting.curves import Epsilon, sampler_slack, with_slack
from pate_jax.accounting.exact import pld, renyi
from pate_jax.accounting.exact.groups import Merged, merge
from pate_jax.accounting.inputs import check_delta
from pate_jax.errors import PateError
from pate_jax.mechanisms import Mechanism, check_votes_suffice

FALSE_POSITIVES = trade_off.FALSE_ALARMS  # at which an attacker's true positives are given
_STEPS = 60  # of a bisection
_AT_ONCE = 200  # distinct moves whose curves are held at a time
_ROUNDING = 4e-16  # as in `composition.gaussian_log_delta`


class Exposure(NamedTuple):
    """What an attacker can learn of each of some persons, who knows everything but whether they took part."""

    epsilon: Float[np.ndarray, " person"]  # the larger of both directions, at the delta that was asked for
    variation: Float[np.ndarray, " person"]  # total variation between the released answers' two laws
    caught: Float[np.ndarray, " person"]  # true positives at `FALSE_POSITIVES`

    @property
    def guess(self) -> Float[np.ndarray, " person"]:
        """How often the best guess is right whether the person took part, where before it was even odds."""
        found: np.ndarray = (1 + self.variation) / 2
        return found


class Moves(NamedTuple):
    """The votes that move when one person's records are taken out: at most one at each query."""

    queries: Int[np.ndarray, " move"]
    before: Int[np.ndarray, " move"]  # the class that the vote is for with the person
    after: Int[np.ndarray, " move"]


class _Table(NamedTuple):
    """The losses of one moved vote in one direction on the grid, and the mass of an infinite loss."""

    losses: pld.Losses
    infinite: float


class _Stick(NamedTuple):
    """The divergence `H(e) = sum (P - exp(e) Q)_+` at the grid's points, and its parts between them."""

    grid: NDArray[np.float64]
    value: NDArray[np.float64]
    mass: NDArray[np.float64]  # of losses beyond each point, the infinite ones among them
    pulled: NDArray[np.float64]  # sum of their P exp(e - loss)


def of_votes(
    mechanism: Mechanism,
    votes: Int[np.ndarray, "query class"],
    persons: Sequence[Moves],
    delta: float,
) -> Exposure:
    """The exposure of persons, each by the votes that move without it; `votes` are those with everybody.

    >>> from pate_jax.mechanisms import GNMax
    >>> one = Moves(np.array([0]), np.array([0]), np.array([1]))
    >>> none = Moves(*np.zeros((3, 0), int))
    >>> found = of_votes(GNMax(sigma=40), np.array([[150, 100]]), [one, none], delta=1e-5)
    >>> found.epsilon.round(3).tolist(), found.guess.round(4).tolist()
    ([0.05, 0.0], [0.5048, 0.5])
    """
    check_delta(delta)
    check_votes_suffice(mechanism)
    slack, budget = sampler_slack(mechanism, *votes.shape), pld.SHARE * delta / max(1, len(votes))
    if mechanism.releases_counts:  # each vote moves two counts, whatever the others are
        number = np.array([len(one.queries) for one in persons], np.float64)
        return of_shifts(np.sqrt(2 * number) / mechanism.noise.scale, delta, slack)
    parts = np.array([_finer(len(one.queries)) for one in persons], np.int64)
    found = np.empty((len(persons), 3))
    for finer in np.unique(parts).tolist():
        rows = np.flatnonzero(parts == finer).tolist()
        step = pld.step_of(mechanism) / finer
        index, tables = _tables(mechanism, votes, [persons[row] for row in rows], finer, budget)
        for row, moved in zip(rows, index, strict=True):
            pairs = [tables[place] for place in moved.tolist()]
            forward, backward = (_stick(_composed([pair[side] for pair in pairs]), step) for side in (0, 1))
            found[row] = _figures(forward, backward, delta, slack)
    return Exposure(*found.T)


def _finer(moves: int) -> int:
    """Into how many parts a step of the run's own grid is cut: where few votes move, single losses show."""
    return 8 if moves <= 4 else 2 if moves <= 16 else 1


def of_shifts(mu: Float[np.ndarray, " person"], delta: float, slack: float = 0.0) -> Exposure:
    """The exposure of persons whose records move a table by `mu` standard deviations of its Gaussian noise.

    `slack` is the distance of the drawn noise from its law, which is paid for out of delta.

    >>> found = of_shifts(np.array([0.0, 0.1, 1.0]), delta=1e-5)
    >>> found.epsilon.round(4).tolist(), found.guess.round(4).tolist()
    ([0.0, 0.3407, 4.3772], [0.5, 0.5199, 0.6915])
    """
    check_delta(delta)
    most, tried = float(mu.max(initial=0.0)), [delta]

    def curve(inner: float) -> Epsilon:
        tried.append(inner)
        return Epsilon(composition.gaussian_epsilon(most, inner), None)

    finite = math.isfinite(float(with_slack(curve, delta, slack).epsilon))
    epsilon = _gaussian_epsilons(mu, tried[-1]) if finite else np.where(mu > 0, math.inf, 0.0)
    variation = trade_off.gaussian_variation(mu, slack)
    return Exposure(epsilon, variation, trade_off.gaussian_caught(mu, FALSE_POSITIVES, slack))


def _gaussian_epsilons(mu: NDArray[np.float64], delta: float) -> NDArray[np.float64]:
    """`composition.gaussian_epsilon` of many shifts at once, rounded up by one part in 1e9."""
    least, most = np.zeros(len(mu)), np.full(len(mu), composition.gaussian_epsilon(float(mu.max()), delta))
    moved = np.maximum(mu, 1e-9)
    for _ in range(_STEPS):
        middle = (least + most) / 2
        room = _ROUNDING * (moved / 2 + middle / moved)
        first = special.log_ndtr(moved / 2 - middle / moved + room)
        second = special.log_ndtr(-moved / 2 - middle / moved)
        ratio = middle + second - first - _ROUNDING * (middle + abs(second) + abs(first))
        with np.errstate(divide="ignore"):
            log_delta = first + np.log(-np.expm1(np.minimum(ratio, 0.0)))
        above = log_delta > math.log(delta)
        least, most = np.where(above, middle, least), np.where(above, most, middle)
    none = special.erf(moved / 8**0.5) <= delta
    result: NDArray[np.float64] = np.where(none, 0.0, most * (1 + 1e-9))
    return result


def _tables(
    mechanism: Mechanism,
    votes: Int[np.ndarray, "query class"],
    persons: Sequence[Moves],
    finer: int,
    budget: float,
) -> tuple[list[np.ndarray], list[tuple[_Table, _Table]]]:
    """Each person's moves as numbers of distinct ones, and the losses of these in both directions.

    Two moves are the same if their histograms are equal when sorted, and if the votes leave and join classes
    of the same counts there.
    """
    flat = Moves(*(np.concatenate([np.zeros(0, np.int64), *each]) for each in zip(*persons, strict=True)))
    if not len(flat.queries):
        return [np.zeros(0, np.intp)] * len(persons), []
    _check(votes, flat)
    merged = merge(votes)
    fewer, more = (votes[flat.queries, classes] for classes in (flat.before, flat.after))
    keys = np.stack([merged.row_of[flat.queries], fewer, more], axis=1)
    distinct, which = np.unique(keys, axis=0, return_inverse=True)
    made: list[tuple[_Table, _Table] | None] = [None] * len(distinct)
    for place, pair in _losses(mechanism, merged, distinct, finer, budget):
        made[place] = pair
    ends = np.cumsum([len(one.queries) for one in persons])
    return np.split(which.ravel(), ends[:-1]), [pair for pair in made if pair is not None]


def _check(votes: Int[np.ndarray, "query class"], flat: Moves) -> None:
    """Refuse moves of votes that are not there."""
    there = votes[flat.queries, flat.before] >= 1
    if not there.all() or (flat.before == flat.after).any():
        at = int(np.argmin(there & (flat.before != flat.after)))
        raise PateError(
            f"a vote is said to move from class {flat.before[at]} to {flat.after[at]} at query "
            f"{flat.queries[at]}, where the votes are {votes[flat.queries[at]].tolist()}: give the votes "
            "that the labels belong to"
        )


def _losses(
    mechanism: Mechanism, merged: Merged, distinct: np.ndarray, finer: int, budget: float
) -> list[tuple[int, tuple[_Table, _Table]]]:
    """The losses of distinct moves, with the number of each; a move is a row, and two counts in it."""
    found, step = [], pld.step_of(mechanism) / finer
    for piece in renyi.pieces(mechanism.noise, merged):
        local = {int(row): place for place, row in enumerate(piece.rows)}
        here = np.flatnonzero(np.isin(distinct[:, 0], piece.rows))
        if not len(here):
            continue
        row = np.array([local[one] for one in distinct[here, 0].tolist()])
        a, b = (np.argmax(piece.counts[row] == distinct[here, side, None], axis=1) for side in (1, 2))
        laws = pld.of_moves(mechanism.noise, mechanism.test, piece, row, a, b)
        for start in range(0, len(here), _AT_ONCE):
            some = slice(start, start + _AT_ONCE)
            alone = pld.Outcomes(np.arange(len(here[some])), *(part[some] for part in laws[1:]))
            reach = pld.reach(alone, step, finer * pld.POINTS)
            curves = pld.time_values(alone, len(alone.row), step, reach)
            for place, forward, backward in zip(here[some].tolist(), *curves, strict=True):
                sides = [_Table(*pld.trimmed(curve, step, budget)) for curve in (forward, backward)]
                found.append((place, (sides[0], sides[1])))
    return found


def _composed(tables: Sequence[_Table]) -> _Table:
    """The losses of some queries together, by one product of their Fourier transforms.

    A transform's error in the Euclidean norm is a few `ulp log n` of what it is given, and no transform of
    probabilities exceeds 1. So the errors add up, and the probabilities' sum is off by at most `sqrt(n)`
    times as much. That is added to the infinite losses.
    """
    if not tables:
        return _Table(pld.Losses(0, np.ones(1), 1.0), 0.0)
    lost = -math.fsum(math.log1p(-min(table.infinite, 1 - 1e-12)) for table in tables)
    if len(tables) == 1:
        return tables[0]
    size = 1 + sum(len(table.losses.probs) - 1 for table in tables)
    length = fft.next_fast_len(size, real=True)
    spectrum = fft.rfft(tables[0].losses.probs, length)
    for table in tables[1:]:
        spectrum *= fft.rfft(table.losses.probs, length)
    probs = np.maximum(fft.irfft(spectrum, length)[:size], 0.0)
    error = 8 * pld.ULP * math.log2(length + 2) * (len(tables) + 1) * math.sqrt(length)
    lower = sum(table.losses.lower for table in tables)
    return _Table(pld.Losses(lower, probs, 1.0), -math.expm1(-lost) + error)


def _stick(table: _Table, step: float) -> _Stick:
    """The divergence at every point of the grid, summed from the largest loss down."""
    lower, probs, _ = table.losses
    decay = math.exp(-step)
    mass = np.append(np.cumsum(probs[::-1])[::-1][1:], 0.0)
    weighed = signal.lfilter([1.0], [1.0, -decay], probs[::-1])[::-1]
    pulled = decay * np.append(weighed[1:], 0.0)
    mass = mass * (1 + 4 * len(probs) * pld.ULP) + table.infinite
    grid = step * (lower + np.arange(len(probs), dtype=np.float64))
    return _Stick(grid, np.maximum(mass - pulled, 0.0), mass, pulled)


def _figures(forward: _Stick, backward: _Stick, delta: float, slack: float) -> tuple[float, float, float]:
    """Epsilon, total variation and true positives of one person."""

    def curve(inner: float) -> Epsilon:
        return Epsilon(max(_epsilon(stick, inner) for stick in (forward, backward)), None)

    epsilon = with_slack(curve, delta, slack).epsilon
    variation = min(float(stick.value[np.searchsorted(stick.grid, -1e-12)]) for stick in (forward, backward))
    claimed = np.exp(np.minimum(forward.grid, 700.0)) * (FALSE_POSITIVES + slack) + forward.value
    return float(epsilon), min(1.0, variation + 2 * slack), min(1.0, float(claimed.min()) + slack)


def _epsilon(stick: _Stick, delta: float) -> float:
    """The smallest epsilon, 0 at least, at which the divergence is at most delta."""
    first = int(np.searchsorted(stick.grid, -1e-12))
    above = np.flatnonzero(stick.value[first:] > delta)
    if not len(above):
        return 0.0
    last = first + int(above[-1])
    if stick.pulled[last] <= 0:
        return math.inf
    return float(stick.grid[last] + math.log((stick.mass[last] - delta) / stick.pulled[last]))
