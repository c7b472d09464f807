"""Exact data-dependent Renyi privacy of an aggregation: the law of the answer is known, so nothing is bounded.

For each query the largest divergence, in both directions, between the law of what is released and its law
after any one vote has moved (theory §4; beyond the papers, derived in docs/accounting_exact.md). With a
threshold test the released outcome is "refused" or a label: one joint mechanism.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import log_ndtr

from pate_jax.accounting import argmax_law, divergence
from pate_jax.accounting.groups import Groups, merge
from pate_jax.errors import PateError
from pate_jax.mechanisms import Mechanism, ThresholdTest

EPSILON = float(np.finfo(np.float64).eps)


class Parts(NamedTuple):
    """The cost of the test and of the argmax alone, and how likely each query is answered."""

    test: np.ndarray  # [Q, A]
    argmax: np.ndarray  # [Q, A]
    log_answered: np.ndarray  # [Q]


def rdp(mechanism: Mechanism, votes, orders, *, student_probabilities=None) -> np.ndarray:
    """Renyi cost [query, order] of what is released for each query, test and answer as one mechanism.

    >>> from pate_jax.mechanisms import GNMax
    >>> rdp(GNMax(sigma=40), [[250, 0], [130, 120]], [2.0, 8.0]).round(6).tolist()
    [[8e-06, 0.000187], [0.000776, 0.003072]]
    """
    orders = _orders(orders)
    return _costs(mechanism, votes, orders, student_probabilities, with_test=True)


def parts(mechanism: Mechanism, votes, orders, *, student_probabilities=None) -> Parts:
    """The test's and the argmax's own costs, for the published sums (expected, realised), which are no bounds."""
    orders = _orders(orders)
    argmax = _costs(mechanism, votes, orders, student_probabilities, with_test=False)
    merged = merge(votes, _margins(mechanism, student_probabilities))
    test, answered = np.zeros((merged.rows, len(orders))), np.zeros(merged.rows)
    if mechanism.test is not None:
        for groups in merged.buckets:
            log_pass, _ = passing(mechanism.test, groups.margins.max(axis=1))
            answered[groups.rows] = log_pass
            test[groups.rows] = _test_cost(mechanism.test, groups, orders)
    return Parts(test[merged.row_of], argmax, answered[merged.row_of])


def probabilities(mechanism: Mechanism, votes) -> np.ndarray:
    """Log-probability [query, class] of each label, given that the query is answered."""
    merged = merge(votes)
    counts = np.asarray(votes, np.float64)
    out = np.empty(counts.shape)
    lookup = {}
    for groups in merged.buckets:
        for piece in groups.split(64):
            base = argmax_law.laws(mechanism.noise, piece).base
            for row, values, logs in zip(piece.rows, piece.counts, base, strict=True):
                lookup[row] = (values, logs)
    for query, row in enumerate(merged.row_of):
        values, logs = lookup[row]
        out[query] = logs[np.searchsorted(-values, -counts[query])]
    return out


def passing(test: ThresholdTest, largest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities that a query whose largest margin is `largest` passes the test, and that it fails."""
    z = (largest - test.threshold) / test.noise.scale
    return log_ndtr(z), log_ndtr(-z)


def _costs(mechanism, votes, orders, student_probabilities, *, with_test: bool) -> np.ndarray:
    merged = merge(votes, _margins(mechanism, student_probabilities))
    test = mechanism.test if with_test else None
    cost = np.zeros((merged.rows, len(orders)))
    for groups in merged.buckets:
        distinct = groups.counts.shape[1]
        for piece in groups.split(max(1, 200_000 // distinct**3 // 100 + 1)):
            cost[piece.rows] = _piece(mechanism.noise, test, piece, orders)
    return np.minimum(cost, _cap(mechanism, test, orders))[merged.row_of]


def _piece(noise, test: ThresholdTest | None, groups: Groups, orders: np.ndarray) -> np.ndarray:
    """Largest divergence over all moves [R, A] for a few histograms."""
    laws = argmax_law.laws(noise, groups)
    sizes, log_p, log_q = _outcomes(groups, laws)
    error = np.broadcast_to(laws.error[:, None, None, None], log_p.shape)
    if test is not None:
        sizes, log_p, log_q, error = _join(test, groups, sizes, log_p, log_q, error)
    possible = groups.moves()
    cost = np.zeros((len(groups.rows), len(orders)))
    for index, order in enumerate(orders):
        both = divergence.renyi(order, sizes, log_p, log_q, error)
        cost[:, index] = np.where(possible, both, 0).max(axis=(1, 2))
    return cost


def _outcomes(groups: Groups, laws: argmax_law.Laws) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sizes, log P and log P' of all outcomes of every move: untouched groups, then the class a, then b."""
    rows, distinct = groups.counts.shape
    touched = np.eye(distinct)
    rest = groups.sizes[:, None, None, :] - touched[None, :, None, :] - touched[None, None, :, :]
    one = np.ones((rows, distinct, distinct, 1))
    sizes = np.concatenate([np.maximum(rest, 0), one, one], axis=3)
    log_p = np.concatenate(
        [
            np.broadcast_to(laws.base[:, None, None, :], rest.shape),
            laws.base[:, :, None, None] * one,
            laws.base[:, None, :, None] * one,
        ],
        axis=3,
    )
    log_q = np.concatenate([laws.others, laws.loser[..., None], laws.winner[..., None]], axis=3)
    return sizes, log_p, log_q


def _join(test: ThresholdTest, groups: Groups, sizes, log_p, log_q, error):
    """The same with the outcome "refused" in front and all others weighed by the chance of an answer."""
    before = passing(test, groups.margins.max(axis=1)[:, None, None, None])
    after = passing(test, largest_after(groups)[..., None])
    one = np.ones_like(log_q[..., :1])
    log_p = np.concatenate([before[1] * one, before[0] + log_p], axis=3)
    log_q = np.concatenate([after[1] * one, after[0] + log_q], axis=3)
    slack = 16 * EPSILON * (1 + sum(np.abs(value) for value in (*before, *after)))
    error = np.concatenate([slack * one, error + slack], axis=3)
    return np.concatenate([one, sizes], axis=3), log_p, log_q, error


def largest_after(groups: Groups) -> np.ndarray:
    """Largest margin after each move [R, U(a), U(b)]."""
    distinct = groups.counts.shape[1]
    touched = np.eye(distinct)
    rest = groups.sizes[:, None, None, :] - touched[None, :, None, :] - touched[None, None, :, :]
    untouched = np.where(rest >= 1, groups.margins[:, None, None, :], -np.inf).max(axis=3)
    moved = np.maximum(groups.margins[:, :, None] - 1, groups.margins[:, None, :] + 1)
    return np.maximum(untouched, moved)


def _test_cost(test: ThresholdTest, groups: Groups, orders: np.ndarray) -> np.ndarray:
    """Cost of the test's two outcomes alone [R, A], over every move that exists."""
    before = np.stack(passing(test, groups.margins.max(axis=1)), axis=-1)[:, None, None, :]
    after = np.stack(passing(test, largest_after(groups)), axis=-1)
    error = 16 * EPSILON * (1 + np.abs(before).max() + np.abs(after))
    possible = groups.moves()
    cost = np.empty((len(groups.rows), len(orders)))
    for index, order in enumerate(orders):
        both = divergence.renyi(order, np.ones(1), before, after, error)
        cost[:, index] = np.where(possible, both, 0).max(axis=(1, 2))
    return np.minimum(cost, orders / (2 * test.noise.scale**2))


def _cap(mechanism: Mechanism, test: ThresholdTest | None, orders: np.ndarray) -> np.ndarray:
    """What the mechanism costs on any votes: no exact value may exceed it."""
    cap = orders / mechanism.noise.scale**2
    return cap if test is None else cap + orders / (2 * test.noise.scale**2)


def _margins(mechanism: Mechanism, student_probabilities):
    """The student's probabilities where the mechanism reads them; an error where they are missing or unused."""
    interactive = hasattr(mechanism, "student_confidence")
    if interactive and student_probabilities is None:
        raise PateError("student_probabilities=None: the interactive test reads the student's class probabilities")
    return student_probabilities if interactive else None


def _orders(orders) -> np.ndarray:
    """The orders as float64 [A], all above 1."""
    orders = np.atleast_1d(np.asarray(orders, np.float64))
    if orders.ndim != 1 or not (np.isfinite(orders) & (orders > 1)).all():
        raise PateError(f"orders={orders.tolist()[:8]} must be finite numbers above 1")
    return orders


__all__ = ["Parts", "math", "parts", "probabilities", "rdp"]
