"""The data-independent curve of a mechanism that answers with one index, for any votes and any history.

An index reveals less than the noisy counts from which it is computed, and this curve is never above
`counts_curve`. The proof is in docs/proofs/worst_case.md. A mechanism that releases the counts has their
curve.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pate_jax.accounting.bounds import argmax_worst_case, gnmax, joint_worst_case, laplace, threshold
from pate_jax.accounting.inputs import check_orders
from pate_jax.errors import PateError
from pate_jax.mechanisms import Mechanism

Curve = NDArray[np.float64]
MOST_VOTES = 2000  # for two classes: up to this number of votes all histograms are tried


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
    argmax = argmax_worst_case.curve(mechanism.noise, orders)
    if mechanism.test is None:
        return argmax
    out = np.full(len(orders), np.inf)
    good = np.isfinite(argmax)
    if not good.any():
        return out
    out[good] = threshold.joint_bound(mechanism.test, argmax[good], teachers, orders[good])
    if not mechanism.votes_suffice:  # the test does not read a count
        return out
    joint = joint_worst_case.curve(mechanism.noise, mechanism.test, teachers, classes, orders)
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
        return gnmax.data_independent(scale, orders)
    if family == "gumbel":
        return laplace.bounded_range(2 / scale, orders)
    whole = laplace.pure(2 / scale, orders)
    if family == "laplace":
        return np.minimum(whole, 2 * laplace.shifted(scale, orders))
    return np.minimum(whole, 2 * laplace.pure(1 / scale, orders)) if family == "discrete_laplace" else whole


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
