"""The law of the outcomes before and after moves of one vote, and the cost of these moves in full."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pate_jax.accounting.exact import argmax_law, divergence
from pate_jax.accounting.exact.groups import Groups
from pate_jax.accounting.exact.threshold_law import Passing, largest, largest_after, passing
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
