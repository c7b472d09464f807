"""The data-independent curve of a release of all noisy counts, from which the index is computed.

Older versions charged their runs by it. `index_curve` starts from it and is never above it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pate_jax.accounting.bounds import gnmax, laplace, threshold
from pate_jax.mechanisms import Mechanism

Curve = NDArray[np.float64]


def argmax_bound(mechanism: Mechanism, orders: Curve) -> Curve:
    """The data-independent curve [A] of the noisy argmax alone.

    >>> from pate_jax.mechanisms import GNMax
    >>> argmax_bound(GNMax(sigma=10.0), np.array([2.0]))
    array([0.02])
    """
    family, scale = mechanism.noise
    if family in ("gaussian", "discrete_gaussian"):
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
