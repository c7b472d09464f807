"""The exact data-dependent Renyi cost of an aggregation, from the known law of its outcome.

The cost of a query is the largest divergence, in both directions, between the law of the outcome and its law
after any one vote has moved (beyond the papers, derived in docs/accounting_exact.md). With a threshold test
the outcome is "refused" or a label: one joint mechanism. Numerical errors are bounded and added, so a figure
is never below the truth.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pate_jax.accounting.exact import argmax_law, divergence, remote_classes, screening, softmax_law
from pate_jax.accounting.exact.caps import caps, concentrated, shift_cost
from pate_jax.accounting.exact.groups import Groups, Merged, merge
from pate_jax.accounting.exact.threshold_law import Passing, largest, largest_after, passing
from pate_jax.accounting.inputs import check_orders
from pate_jax.mechanisms import Mechanism, Noise, ThresholdTest, check_votes_suffice
from pate_jax.system.progress import bar

BLOCK = 1_500_000  # numbers in one intermediate array
BUDGET = 4e8  # the most exponentials for one histogram if noise is so small that screening is impossible


class Parts(NamedTuple):
    """The costs of the test and of the argmax alone, and the chance that each query is answered."""

    test: np.ndarray  # [Q, A]
    argmax: np.ndarray  # [Q, A]
    log_answered: np.ndarray  # [Q]


def rdp(mechanism: Mechanism, votes: ArrayLike, orders: ArrayLike) -> np.ndarray:
    """The Renyi cost [query, order] of each query's outcome, with test and answer as one mechanism.

    >>> from pate_jax.mechanisms import GNMax
    >>> rdp(GNMax(sigma=40), [[250, 0], [130, 120]], [2.0, 8.0]).round(6).tolist()
    [[0.0, 1e-06], [0.000791, 0.003187]]
    """
    check_votes_suffice(mechanism)
    return rdp_of(mechanism, merge(votes), orders)


def rdp_of(mechanism: Mechanism, merged: Merged, orders: ArrayLike) -> np.ndarray:
    """`rdp` for histograms that `merge` put into groups, together with what the test reads of them.

    >>> from pate_jax.mechanisms import GNMax
    >>> rdp_of(GNMax(sigma=40), merge([[250, 0], [130, 120]]), [2.0]).round(6).tolist()
    [[0.0], [0.000791]]
    """
    result: np.ndarray = _costs(mechanism.noise, mechanism.test, merged, check_orders(orders))[merged.row_of]
    return result


def parts(mechanism: Mechanism, votes: ArrayLike, orders: ArrayLike) -> Parts:
    """The separate costs of test and argmax, for the papers' expected and realised sums: not bounds.

    >>> from pate_jax.mechanisms import ConfidentGNMax
    >>> found = parts(ConfidentGNMax(threshold=200, sigma_threshold=150, sigma=40), [[180, 70]], [2.0])
    >>> found.test.shape, found.argmax.shape, found.log_answered.round(3).tolist()
    ((1, 1), (1, 1), [-0.805])
    """
    check_votes_suffice(mechanism)
    orders, merged = check_orders(orders), merge(votes)
    argmax = _costs(mechanism.noise, None, merged, orders)
    test, answered = np.zeros((merged.rows, len(orders))), np.zeros(merged.rows)
    if mechanism.test is not None:
        for groups in merged.buckets:
            for piece in groups.split(max(1, BLOCK // (8 * groups.counts.shape[1] ** 2))):
                test[piece.rows] = _test_costs(mechanism.test, piece, orders)
                answered[piece.rows] = passing(mechanism.test, largest(piece)).answered
    return Parts(test[merged.row_of], argmax[merged.row_of], answered[merged.row_of])


def probabilities(mechanism: Mechanism, votes: ArrayLike) -> np.ndarray:
    """The log-probability [query, class] of each label, given that the query is answered.

    >>> from pate_jax.mechanisms import GumbelMax
    >>> np.exp(probabilities(GumbelMax(scale=2.0), [[1, 3]])).round(4).tolist()
    [[0.2689, 0.7311]]
    """
    merged = merge(votes)
    counts = np.asarray(votes, np.float64)
    order = np.argsort(-counts, axis=1, kind="stable")
    table = np.empty((merged.rows, merged.classes))
    for piece in pieces(mechanism.noise, merged):
        logs = _base(mechanism.noise, piece)
        for row, size, values in zip(piece.rows, piece.sizes.astype(int), logs, strict=True):
            table[row] = np.repeat(values, size)
    out = np.empty(counts.shape)
    np.put_along_axis(out, order, table[merged.row_of], axis=1)
    return out


def pieces(noise: Noise, merged: Merged, *, every_move: bool = False) -> Iterator[Groups]:
    """The merged histograms in pieces that fit into memory, even if every move is computed in full."""
    for groups in merged.buckets:
        distinct = groups.counts.shape[1]
        nodes = 100 if noise.family == "gaussian" else 400
        numbers = distinct * nodes + distinct**2 * (10 * distinct if every_move else 60)
        yield from groups.split(max(1, BLOCK // numbers))


def _base(noise: Noise, groups: Groups) -> np.ndarray:
    """The log-probability of one class of each group [R, U]."""
    if noise.family == "gumbel":
        return softmax_law.base(noise.scale, groups)
    return argmax_law.base(argmax_law.factors(noise, groups))


def _costs(noise: Noise, test: ThresholdTest | None, merged: Merged, orders: np.ndarray) -> np.ndarray:
    """The cost of each merged histogram [row, order]."""
    grid = np.unique(np.append(orders, [2.0, 4.0]) if orders.min() < 2 else orders)
    cost = np.zeros((merged.rows, len(grid)))
    with bar("exact privacy", total=merged.rows) as steps:
        for piece in pieces(noise, merged):
            cost[piece.rows] = _piece(noise, test, piece, grid) / (grid - 1)
            steps.advance(len(piece.rows))
    # divergences grow with the order, so a bound at a higher order holds at every lower one; near order 1,
    # where rounding is divided by a - 1, the bound from a higher order is better
    cost = np.minimum(cost, caps(noise, test, grid))
    cost = np.minimum.accumulate(cost[:, ::-1], axis=1)[:, ::-1]
    return cost[:, np.searchsorted(grid, orders)]


def _piece(noise: Noise, test: ThresholdTest | None, groups: Groups, orders: np.ndarray) -> np.ndarray:
    """The largest `(a-1) D_a` over all moves [R, A] for a few histograms."""
    if noise.family == "gumbel":
        return _softmax_moments(noise.scale, test, groups, orders)
    factors = argmax_law.factors(noise, groups)
    log_p = argmax_law.base(factors)
    if noise.scale < 1 or factors.steep or factors.ghost is not None:
        law = _Law(groups, factors, log_p, None if test is None else _test_law(test, groups))
        return _all_moves(law, groups.moves(), orders)
    near = remote_classes.leave_out(factors, groups, log_p, orders[-1], math.sqrt(concentrated(noise)))
    law = _Law(near.groups, near.made, near.log_p, None if test is None else _test_law(test, near.groups))
    result: np.ndarray = (
        _screened(law, near.possible, orders, not noise.is_discrete)
        + remote_classes.LEFT_OUT * (near.error > 0)[:, None]
    )
    return result


class _Law(NamedTuple):
    """A piece of histograms with everything that the cost of their moves depends on."""

    groups: Groups
    made: argmax_law.Factors
    log_p: np.ndarray
    test: tuple[Passing, Passing] | None  # before [R] and after [R, U, U]


def _test_law(test: ThresholdTest, groups: Groups) -> tuple[Passing, Passing]:
    return passing(test, largest(groups)), passing(test, largest_after(groups))


def _all_moves(law: _Law, possible: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """The result of all moves in full; infinite beyond the budget, where the cap applies."""
    out = np.zeros((len(law.log_p), len(orders)))
    cost = possible.sum(axis=(1, 2)) * law.made.level.shape[1] * law.made.level.shape[2]
    out[cost > BUDGET] = np.inf
    row, a, b = np.nonzero(possible & (cost <= BUDGET)[:, None, None])
    _lift(out, row, _moments(law, row, a, b, orders))
    return out


def _screened(law: _Law, possible: np.ndarray, orders: np.ndarray, ordered: bool) -> np.ndarray:
    """The result of bounds for all moves, then of full values for those that could be worst at some order."""
    screen = screening.screen(law.made, law.log_p, ordered)
    answered = None
    if law.test is not None:
        before, after = law.test
        answered = (
            before.answered[:, None, None],
            before.refused[:, None, None],
            after.answered,
            after.refused,
        )
    chosen = screening.anchors(orders)
    error = law.made.error.max(axis=1)
    if law.test is not None:
        error = error + law.test[1].error.max(axis=(1, 2))
    slack = (2 * orders + 1) * (error[:, None] + 1e-14)
    row, a, b = np.nonzero(possible)
    bounds = _bounds(screen, law.groups, orders[chosen], answered)[row, a, b] + slack[row][:, chosen]
    first = _largest(bounds, row)
    best = np.zeros((len(law.log_p), len(orders)))
    _lift(best, row[first], _moments(law, row[first], a[first], b[first], orders))
    everywhere = screening.between(orders, chosen, bounds)
    # where rounding hides the difference, the bound itself is taken, as full values would gain nothing
    close = best * (1 + 1e-9) + np.where(best > 3 * slack, 0.0, 3 * slack)
    remaining = (everywhere > close[row]).any(axis=1) & ~first
    crowded = np.bincount(row[remaining], minlength=len(best)) > 3 * possible.shape[1]
    if crowded.any():  # many moves cost almost the same: bound them at every order
        at = crowded[row]
        crowded_screen = screening.Screen(*(value[crowded] for value in screen))
        chances = None if answered is None else tuple(value[crowded] for value in answered)
        groups = Groups(*(value[crowded] for value in law.groups))
        place = (np.cumsum(crowded) - 1)[row[at]]
        everywhere[at] = (
            _bounds(crowded_screen, groups, orders, chances)[place, a[at], b[at]] + slack[row[at]]
        )
        remaining[at] = (everywhere[at] > close[row[at]]).any(axis=1) & ~first[at]
    _lift(best, row[remaining], _moments(law, row[remaining], a[remaining], b[remaining], orders))
    bounded = ~(remaining | first)
    _lift(best, row[bounded], everywhere[bounded])
    return best


def _lift(best: np.ndarray, row: np.ndarray, values: np.ndarray) -> None:
    """Raise `best[row[m]]` to `values[m]`, rows in ascending order: `np.maximum.at`, but fast."""
    starts = np.flatnonzero(np.diff(row, prepend=-1))
    if len(starts):
        best[row[starts]] = np.maximum(best[row[starts]], np.maximum.reduceat(values, starts, axis=0))


def _bounds(
    found: screening.Screen, groups: Groups, orders: np.ndarray, answered: tuple[np.ndarray, ...] | None
) -> np.ndarray:
    """Upper bounds [R, U, U, A] of `(a-1) D_a` for all moves."""
    mass = screening.after(found, groups)
    return np.stack([screening.upper(found, groups, order, answered, mass) for order in orders], axis=-1)


def _largest(bounds: np.ndarray, row: np.ndarray) -> np.ndarray:
    """Which moves [M] have the largest bound of their histogram at some anchor order."""
    first = np.zeros(len(row), bool)
    starts = np.flatnonzero(np.diff(row, prepend=-1))
    for column in bounds.T:
        top = np.maximum.reduceat(column, starts) if len(starts) else column
        candidates = np.flatnonzero(column == np.repeat(top, np.diff(starts, append=len(row))))
        first[candidates[np.flatnonzero(np.diff(row[candidates], prepend=-1))]] = True
    return first


def _moments(law: _Law, row: np.ndarray, a: np.ndarray, b: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """`(a-1) D_a` [M, A] of the moves `a[m] -> b[m]` of the histograms `row[m]`: the larger direction."""
    sizes, log_p, log_q, error = outcomes(law.groups, law.made, law.log_p, row, a, b)
    if law.test is not None:
        chances = (
            Passing(*(value[row] for value in law.test[0])),
            Passing(*(v[row, a, b] for v in law.test[1])),
        )
        sizes, log_p, log_q, error = join(*chances, sizes, log_p, log_q, error)
    return divergence.log_moments(orders, sizes, log_p, log_q, error)


def outcomes(
    groups: Groups,
    made: argmax_law.Factors,
    log_p: np.ndarray,
    row: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Sizes, log P, log P' and errors [M, U+2] of moves: untouched classes of each group, then a, then b."""
    after = argmax_law.neighbours(made, row, a, b)
    at = np.arange(len(row))
    sizes = np.ones((len(row), log_p.shape[1] + 2))
    sizes[:, :-2] = groups.sizes[row]
    sizes[at, a] -= 1
    sizes[at, b] -= 1
    before = log_p[row]
    before = np.concatenate([before, before[at, a, None], before[at, b, None]], axis=1)
    log_q = np.concatenate([after.others, after.loser[:, None], after.winner[:, None]], axis=1)
    error = made.error[row]
    return sizes, before, log_q, np.concatenate([error, error[at, a, None], error[at, b, None]], axis=1)


def join(
    before: Passing,
    after: Passing,
    sizes: np.ndarray,
    log_p: np.ndarray,
    log_q: np.ndarray,
    error: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The outcomes of the joint mechanism: "refused", then all labels, weighed by the chance of an answer."""
    p, q = (np.stack([law.refused, law.answered, law.error], axis=-1) for law in (before, after))
    p, q = np.broadcast_arrays(p, q)
    slack = np.maximum(p[..., 2:], q[..., 2:])
    log_p = np.concatenate([p[..., :1], p[..., 1:2] + log_p], axis=-1)
    log_q = np.concatenate([q[..., :1], q[..., 1:2] + log_q], axis=-1)
    sizes = np.concatenate([np.ones_like(sizes[..., :1]), sizes], axis=-1)
    return sizes, log_p, log_q, np.concatenate([slack, error + slack], axis=-1)


def _softmax_moments(
    scale: float, test: ThresholdTest | None, groups: Groups, orders: np.ndarray
) -> np.ndarray:
    """The largest `(a-1) D_a` over all moves [R, A] for Gumbel noise, for which three outcomes are enough."""
    log_p, log_q, error = softmax_law.outcomes(scale, groups)
    error = np.broadcast_to(error[:, None, None, None], log_p.shape)
    sizes = np.isfinite(log_p).astype(np.float64)
    if test is not None:
        before, after = _test_law(test, groups)
        before = Passing(*(value[:, None, None] for value in before))
        sizes, log_p, log_q, error = join(before, after, sizes, log_p, log_q, error)
    every = divergence.log_moments(orders, sizes, log_p, log_q, error)
    result: np.ndarray = np.where(groups.moves()[..., None], every, 0).max(axis=(1, 2))
    return result


def _test_costs(test: ThresholdTest, groups: Groups, orders: np.ndarray) -> np.ndarray:
    """The cost of the test's two outcomes alone [R, A], over every possible move."""
    before, after = _test_law(test, groups)
    log_p = np.stack([before.refused, before.answered], axis=-1)[:, None, None, :]
    log_q = np.stack([after.refused, after.answered], axis=-1)
    error = np.maximum(before.error[:, None, None], after.error)[..., None]
    every = divergence.log_moments(orders, np.ones(2), log_p, log_q, error) / (orders - 1)
    cost = np.where(groups.moves()[..., None], every, 0).max(axis=(1, 2))
    result: np.ndarray = np.minimum(cost, shift_cost(test.noise, orders))
    return result
