"""The law of the outcomes before and after moves of one vote, and the cost of these moves in full.

Renyi divergences between a law and its neighbours are taken in both directions, rounded up
(docs/proofs/exact.md, section 4). With `d = log(P/P')` and both laws of total mass 1,

    D_a(P || P') = log1p( sum_j P'_j phi_a(d_j) ) / (a - 1),   phi_a(d) = exp(a d) - 1 - a (exp(d) - 1) >= 0.

Every term is non-negative and grows with |d|. So if each log-probability is known to within `e`, the sum
with `P'_j exp(e)` and `|d_j| + 2 e` is an upper bound of the true one, and nothing cancels.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pate_jax.accounting.exact import argmax_law
from pate_jax.accounting.exact.groups import Groups
from pate_jax.accounting.exact.noise_law import Passing, largest, largest_after, passing
from pate_jax.mechanisms import ThresholdTest


class Law(NamedTuple):
    """A piece of histograms with everything that the cost of their moves depends on."""

    groups: Groups
    made: argmax_law.Factors
    log_p: np.ndarray
    test: tuple[Passing, Passing] | None  # before [R] and after [R, U, U]

    @classmethod
    def of(
        cls, groups: Groups, made: argmax_law.Factors, log_p: np.ndarray, test: ThresholdTest | None
    ) -> Law:
        """The law with a test, if there is one."""
        return cls(groups, made, log_p, None if test is None else test_law(test, groups))


def test_law(test: ThresholdTest, groups: Groups) -> tuple[Passing, Passing]:
    """The test's law before [R] and after each move [R, U, U]."""
    return passing(test, largest(groups)), passing(test, largest_after(groups))


def in_full(law: Law, possible: np.ndarray, orders: np.ndarray, budget: float) -> np.ndarray:
    """The largest `(a-1) D_a` [R, A] of all moves in full; infinite beyond the budget of exponentials."""
    out = np.zeros((len(law.log_p), len(orders)))
    cost = possible.sum(axis=(1, 2)) * law.made.level.shape[1] * law.made.level.shape[2]
    out[cost > budget] = np.inf
    row, a, b = np.nonzero(possible & (cost <= budget)[:, None, None])
    lift(out, row, moments(law, row, a, b, orders))
    return out


def lift(best: np.ndarray, row: np.ndarray, values: np.ndarray) -> None:
    """Raise `best[row[m]]` to `values[m]`, rows in ascending order: `np.maximum.at`, but fast."""
    starts = np.flatnonzero(np.diff(row, prepend=-1))
    if len(starts):
        best[row[starts]] = np.maximum(best[row[starts]], np.maximum.reduceat(values, starts, axis=0))


def moments(law: Law, row: np.ndarray, a: np.ndarray, b: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """`(a-1) D_a` [M, A] of the moves `a[m] -> b[m]` of the histograms `row[m]`: the larger direction."""
    sizes, log_p, log_q, error = outcomes(law.groups, law.made, law.log_p, row, a, b)
    if law.test is not None:
        chances = (
            Passing(*(value[row] for value in law.test[0])),
            Passing(*(v[row, a, b] for v in law.test[1])),
        )
        sizes, log_p, log_q, error = join(*chances, sizes, log_p, log_q, error)
    return log_moments(orders, sizes, log_p, log_q, error)


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


ROUNDING = 8 * float(np.finfo(np.float64).eps)
FAR = 600.0  # above this exponent phi is exp(a d) to the last bit, and weights are added in logarithms
BLOCK = 40_000  # numbers in one block, so that it fits into the processor's cache


def log_moments(
    orders: np.ndarray, sizes: ArrayLike, log_p: np.ndarray, log_q: np.ndarray, error: ArrayLike
) -> np.ndarray:
    """Upper bounds [.., A] of `(a-1)` times the larger of `D_a(P||Q)` and `D_a(Q||P)` over the last axis.

    `sizes` is the number of copies of each outcome (0 leaves it out); `error` bounds the error of the logs.

    >>> p, q = np.log([0.75, 0.25]), np.log([0.5, 0.5])
    >>> float(np.exp(log_moments(np.array([2.0]), np.ones(2), p, q, 0.0))[0].round(6))
    1.333333
    """
    sizes, log_p, log_q, error = np.broadcast_arrays(sizes, log_p, log_q, error)
    outcomes = log_p.shape[-1]
    flat = [array.reshape(-1, outcomes) for array in (sizes, log_p, log_q, error)]
    out = np.empty((len(flat[0]), len(orders)))
    piece = max(1, BLOCK // outcomes)
    for start in range(0, len(out), piece):
        at = slice(start, start + piece)
        out[at] = _block(orders, *(array[at] for array in flat))
    return out.reshape(*log_p.shape[:-1], len(orders))


def _block(
    orders: np.ndarray, sizes: np.ndarray, log_p: np.ndarray, log_q: np.ndarray, error: np.ndarray
) -> np.ndarray:
    """The bounds [M, A] for a few laws [M, K] at once."""
    with np.errstate(invalid="ignore", under="ignore", over="ignore", divide="ignore"):
        d = np.where(sizes > 0, log_p - log_q, 0.0)
        log_size = np.log(sizes) + error
        ahead, back = log_size + log_q, log_size + log_p
        rises = d > 0
        size = np.abs(d) + 2 * error
        if len(size) and orders.max() * size.max() > FAR:
            return _far(orders, np.where(rises, size, -size), ahead, back)
        weights = np.exp(ahead), np.exp(back)
        # the outcomes that rise and those that fall, for each direction
        up, down = np.where(rises, *weights), np.where(rises, *weights[::-1])
        forward_up, backward_up = np.where(rises, up, 0), np.where(rises, 0, up)
        forward_down, backward_down = np.where(rises, 0, down), np.where(rises, down, 0)
        out = np.empty((len(d), len(orders)))
        once = np.expm1(size)
        once_back = once / (1 + once)
        for at in _pieces(d.size, len(orders)):
            above, below = _phi(orders[at, None, None], size, once, once_back)
            forward = np.einsum("mk,amk->ma", forward_up, above)
            forward += np.einsum("mk,amk->ma", forward_down, below)
            backward = np.einsum("mk,amk->ma", backward_up, above)
            backward += np.einsum("mk,amk->ma", backward_down, below)
            out[:, at] = np.maximum(forward, backward)
        result: np.ndarray = np.log1p(out) * (1 + ROUNDING * (4 + d.shape[1]))
        return result


def _pieces(numbers: int, orders: int) -> Iterator[slice]:
    """The orders in pieces that fit into the processor's cache, if each needs so many numbers."""
    step = max(1, BLOCK // max(numbers, 1))
    return (slice(start, start + step) for start in range(0, orders, step))


def _phi(
    order: float | np.ndarray, size: np.ndarray, once: np.ndarray, once_back: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """`phi_a(s)` and `phi_a(-s)` for `s >= 0`, rounded up; `exp(-x) - 1` is taken from `exp(x) - 1`."""
    exponent = order * size
    power = np.expm1(exponent)
    back = power / (1 + power)
    once, once_back = order * once, order * once_back
    relative = ROUNDING * (1 + exponent)
    above = (power - once) + (relative * power + ROUNDING * once)
    below = (once_back - back) + (relative * back + ROUNDING * once_back)
    return above, below


def _far(orders: np.ndarray, d: np.ndarray, ahead: np.ndarray, back: np.ndarray) -> np.ndarray:
    """The bounds [M, A] if powers may overflow: every term is a logarithm."""
    out = np.empty((len(d), len(orders)))
    for at in _pieces(d.size, len(orders)):
        order = orders[at, None, None]
        size = np.minimum(np.abs(d), FAR / order)
        once = np.expm1(size)
        above, below = _phi(order, size, once, once / (1 + once))
        exponent, rises = order * d, d > 0
        # beyond FAR phi(d) is at most exp(a d), and below -FAR at most a
        near = np.abs(exponent) <= FAR
        above = np.where(near, np.log(above), np.abs(exponent))
        below = np.where(near, np.log(below), np.log(order))
        forward, backward = np.where(rises, above, below), np.where(rises, below, above)
        terms = (np.where(w > -np.inf, w + phi, -np.inf) for w, phi in ((ahead, forward), (back, backward)))
        largest = np.maximum(*map(_log_sum, terms))
        out[:, at] = np.logaddexp(0.0, largest).T
    result: np.ndarray = out * (1 + ROUNDING * (4 + d.shape[1]))
    return result


def _log_sum(terms: np.ndarray) -> np.ndarray:
    """`log(sum(exp(terms)))` over the last axis; SciPy's function takes ten times longer for few terms."""
    top = np.maximum(terms.max(axis=-1), -(FAR**2))
    result: np.ndarray = top + np.log(np.exp(terms - top[..., None]).sum(axis=-1))
    return result
