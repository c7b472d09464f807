"""Upper bounds at all orders from those at a few, the anchors.

`E(a) = exp((a-1) D_a) - 1` is a sum of `phi_a(d) = a (a-1) int (y-t) t^(a-2) dt` from 1 to `y = exp(d)`, so
`E(a) / (a (a-1))` is a mixture of exponentials in a: its log is convex and lies below its chords.
"""

from __future__ import annotations

import numpy as np

from pate_jax.accounting.exact.products import ALONE

ANCHORS = 16
MOST = 1e300  # stands for an infinite log, so that it may be multiplied by 0


def anchors(orders: np.ndarray) -> np.ndarray:
    """The indices of the anchors among the sorted orders: both ends, and others evenly spaced in log(a-1).

    >>> anchors(np.array([1.5, 2.0, 3.0])).tolist()
    [0, 1, 2]
    """
    if len(orders) <= ANCHORS:
        return np.arange(len(orders))
    logs = np.log(orders - 1)
    return np.unique(np.searchsorted(logs, np.linspace(logs[0], logs[-1], ANCHORS)).clip(max=len(orders) - 1))


def logs(orders: np.ndarray, moments: np.ndarray) -> np.ndarray:
    """`log(E(a) / (a (a-1)))` of moments `(a-1) D_a` [.., A]: it grows with them, and is convex in a."""
    moments = np.maximum(moments, 1e-290)
    with np.errstate(over="ignore"):
        # log(exp(m) - 1), which neither overflows nor loses small m
        plain = np.where(moments > 30, moments, np.log(np.expm1(np.minimum(moments, 30))))
    result: np.ndarray = np.minimum(plain - np.log(orders * (orders - 1)), MOST)
    return result


def chords(orders: np.ndarray, chosen: np.ndarray, anchored: np.ndarray) -> np.ndarray:
    """The chords [M, A] at all sorted orders through the logs [M, K] at the chosen ones."""
    right = np.searchsorted(chosen, np.arange(len(orders))).clip(min=min(1, len(chosen) - 1))
    left = np.maximum(right - 1, 0)
    span = np.where(right > left, orders[chosen][right] - orders[chosen][left], 1.0)
    share = (orders - orders[chosen][left]) / span
    weights = np.zeros((len(chosen), len(orders)))
    at = np.arange(len(orders))
    weights[left, at] += 1 - share
    weights[right, at] += share
    result: np.ndarray = np.empty((len(anchored), len(orders)))
    step = max(1, ALONE // weights.size)
    for start in range(0, len(anchored), step):
        result[start : start + step] = anchored[start : start + step] @ weights
    return result


def moments(orders: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Moments `(a-1) D_a` [.., A] from their logs.

    >>> orders, chosen = np.array([2.0, 3.0, 4.0]), np.array([0, 2])
    >>> anchored = logs(orders[chosen], np.log1p(np.array([[0.2, 1.2]])))
    >>> moments(orders, chords(orders, chosen, anchored)).round(4).tolist()
    [[0.1823, 0.47, 0.7885]]
    """
    with np.errstate(over="ignore"):
        raised = found + np.log(orders * (orders - 1))
        out = np.where(raised > 30, raised + 1e-12, np.log1p(np.exp(np.minimum(raised, 30))))
    result: np.ndarray = np.where(out < MOST / 2, out, np.inf)
    return result
