"""Gumbel noise: the laws of the label, for a histogram and its neighbours, are softmaxes of the counts."""

from __future__ import annotations

import numpy as np

from pate_jax.accounting.exact.groups import Groups

EPSILON = float(np.finfo(np.float64).eps)


def base(scale: float, groups: Groups) -> np.ndarray:
    """The log-probability `n_j/b - log sum_k exp(n_k/b)` of one class of each group [R, U].

    >>> groups = Groups(np.array([0]), np.array([[3.0, 1.0]]), np.array([[1.0, 1.0]]), np.array([[3.0, 1.0]]))
    >>> np.exp(base(2.0, groups)).round(4).tolist()
    [[0.7311, 0.2689]]
    """
    score = (groups.counts - groups.counts[:, :1]) / scale
    result: np.ndarray = score - np.log((groups.sizes * np.exp(score)).sum(axis=1))[:, None]
    return result


def outcomes(scale: float, groups: Groups) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log P and log P' [R, U(a), U(b), 3] of "another class", a and b for every move, and the error [R].

    All classes that a move does not touch change by the same factor, so together they are one outcome.
    """
    with np.errstate(under="ignore", over="ignore", divide="ignore"):
        log_p = base(scale, groups)
        rest = _rest(np.exp(log_p), groups.sizes)
        p_a, p_b = log_p[:, :, None], log_p[:, None, :]
        down, up = p_a - 1 / scale, p_b + 1 / scale  # not yet normalised
        change = np.exp(p_a) * np.expm1(-1 / scale) + np.exp(p_b) * np.expm1(min(1 / scale, 1.0))
        log_rest = np.log(rest)
        whole = np.logaddexp(np.logaddexp(log_rest, down), up)
        log_mass = np.where((np.abs(change) < 0.5) & (scale >= 1), np.log1p(np.maximum(change, -0.5)), whole)
        before = np.stack(np.broadcast_arrays(log_rest, p_a, p_b), axis=-1)
        after = np.stack(np.broadcast_arrays(log_rest, down, up), axis=-1) - log_mass[..., None]
    error = EPSILON * (32 + 8 * (groups.counts[:, 0] - groups.counts[:, -1] + 2) / scale)
    return before, after, error


def _rest(share: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The probability of all classes but one of group a and one of group b [R, U, U], without cancelling."""
    number = share.shape[1]
    mass = share * sizes
    remaining = mass[:, None, None, :] - share[:, None, None, :] * (
        np.eye(number)[:, None, :] + np.eye(number)[None, :, :]
    )
    touched = np.eye(number, dtype=bool)[:, None, :] | np.eye(number, dtype=bool)[None, :, :]
    spare = sizes[:, None, None, :] - (np.eye(number)[:, None, :] + np.eye(number)[None, :, :])
    result: np.ndarray = np.where(
        touched, np.maximum(spare, 0) * share[:, None, None, :], np.maximum(remaining, 0)
    ).sum(axis=3)
    return result
