"""What DP-SGD costs: Gaussian noise on Poisson samples of the records, rounded to more.

A training by itself is charged by composed privacy losses: `dp_accounting` composes all steps and rounds
their losses towards more loss. docs/proofs/dpsgd.md derives what is charged under each relation.

Registers add the Renyi curve of `changed` to those of other runs. There one record's contents change, between
the worlds `P = (1 - q) N(0) + q N(1)` and `Q = (1 - q) N(0) + q N(-1)`, of the scale of the noise in units of
the longest gradient; docs/proofs/dpsgd.md shows that no other pair of gradients tells more.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import dp_accounting
import numpy as np
from dp_accounting import pld

from pate_jax.accounting.inputs import Curve
from pate_jax.errors import PateError

_UP = 1e-9  # relative: more than what the sum below may miss of its integral
_ROUNDING = 2.0**-49  # relative: of a power's log, whose two parts nearly cancel at high orders
_TAIL = 30.0  # what is cut off is less than e^-30 of the integral, and so is the error of the steps
_MOST = 50_000  # points of one sum; where more are needed, the noise is charged without its sample


class Training(NamedTuple):
    """What DP-SGD did to the records."""

    rate: float  # chance of each record to take part in each step
    steps: int
    noise_multiplier: float  # standard deviation of the noise, in units of the longest gradient


def changed(rate: float, scale: float, orders: Curve) -> Curve:
    """The curve of one step at each order; never below the truth.

    >>> changed(1.0, 2.0, np.array([8.0])).tolist()  # all records take part: 2 a / scale^2
    [4.0]
    >>> bool(changed(0.01, 2.0, np.array([8.0]))[0] < 0.003)
    True
    """
    if not (0 < rate <= 1 and 0 < scale < math.inf):
        raise PateError(f"rate={rate} must be above 0 and at most 1, and scale={scale} above 0")
    unsampled = 2 * orders / scale**2  # Renyi divergences are jointly quasi-convex
    if rate == 1:
        return np.asarray(unsampled, np.float64)
    sampled = [_one(rate, scale, float(order)) for order in orders]
    return np.asarray(np.minimum(sampled, unsampled), np.float64)


def _one(rate: float, scale: float, order: float) -> float:
    """The divergence at one order, by the trapezoidal rule (its error is derived in docs/proofs/dpsgd.md)."""
    points = _points(rate, scale, order)
    if points is None:
        return math.inf
    out, joins = math.log1p(-rate) - points**2 / (2 * scale**2), math.log(rate)
    first = np.logaddexp(out, joins - (points - 1) ** 2 / (2 * scale**2))
    second = np.logaddexp(out, joins - (points + 1) ** 2 / (2 * scale**2))
    logs = order * first + (1 - order) * second
    logs += _ROUNDING * (order * np.abs(first) + (order - 1) * np.abs(second))
    most = float(logs.max())
    density = (points[1] - points[0]) / (scale * math.sqrt(2 * math.pi))
    found = most + math.log(float(np.exp(logs - most).sum()) * density * (1 + _UP))
    return max(found, 0.0) / (order - 1)


def _points(rate: float, scale: float, order: float) -> Curve | None:
    """Where the integrand is summed: so finely, and so far out, that the error is below `_UP`."""
    step = math.pi**2 * scale**2 / (_TAIL + 0.35 * order + 1.3 * scale**2)
    thin = (order - 1) * -math.log1p(-rate)  # how far the sample thins out the second world, at most
    left = scale * math.sqrt(2 * (_TAIL + thin)) + 1
    right = scale * math.sqrt(2 * (_TAIL + thin + order * (order - 1) / (2 * scale**2))) + 1
    count = math.ceil((left + order + right) / step) + 1
    return np.linspace(-left, order + right, count) if count <= _MOST else None


ADD_OR_REMOVE = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = dp_accounting.NeighboringRelation.REPLACE_ONE
RESERVED = 1e-2  # share of delta that is kept for what the sampler's noise strays from its law
_GRID, COARSE = 2e-4, 2e-3  # steps of privacy loss: of figures, and of a search
_FEW = 100  # steps that the coarse grid is enough for: it adds less than 2e-4 to epsilon
_WILD = 30.0  # about so much Gaussian-DP is too much for any statement
_LARGEST = 700.0  # an epsilon whose exponential is a number


@lru_cache(maxsize=1024)  # a search for the noise asks for thirty
def composed(
    trained: tuple[Training, ...],
    delta: float,
    relation: dp_accounting.NeighboringRelation = ADD_OR_REMOVE,
    grid: float | None = None,
) -> float:
    """Epsilon of several trainings on the same records together; all of delta is for their ideal noise.

    >>> 4.37 < composed((Training(1.0, 1, 1.0),), 1e-5) < 4.39  # without sampling, Gaussian-DP gives 4.377
    True
    """
    if math.hypot(*(_wildness(one) for one in trained)) > _WILD:  # losses beyond all grids
        return math.inf
    width = grid or (COARSE if sum(one.steps for one in trained) <= _FEW else _GRID)
    return float(_accountant(trained, relation, width).get_epsilon(delta))


@lru_cache(maxsize=64)
def _accountant(
    trained: tuple[Training, ...], relation: dp_accounting.NeighboringRelation, width: float
) -> pld.PLDAccountant:
    """The losses of all steps, which serve every delta."""
    accountant = pld.PLDAccountant(relation, value_discretization_interval=width)
    for rate, steps, multiplier in trained:
        step = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(multiplier))
        accountant.compose(dp_accounting.SelfComposedDpEvent(step, steps))
    return accountant


def either(trained: Training, delta: float) -> float:
    """Epsilon of one record added, removed or changed, of ideal noise."""
    return max(composed((trained,), delta, relation) for relation in (ADD_OR_REMOVE, REPLACE))


def strays(epsilon: float, delta: float) -> float:
    """How far all noise of a training may stray whose epsilon at delta was stated: more is refused.

    >>> strays(0.0, 1e-5) < 5.1e-8
    True
    """
    return RESERVED * delta / (1 + math.exp(min(epsilon, _LARGEST)))


def _wildness(made: Training) -> float:
    """About the mu of a training, in Gaussian differential privacy."""
    return made.rate * math.sqrt(made.steps * math.expm1(min(made.noise_multiplier**-2, 100.0)))
