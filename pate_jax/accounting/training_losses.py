"""Composed privacy losses of DP-SGD: Gaussian noise on Poisson samples of the records, rounded to more.

All steps are composed by `dp_accounting`, whose privacy losses are rounded towards more loss.
docs/proofs/dpsgd.md derives what is charged under each relation.
"""

from __future__ import annotations

import math
from functools import lru_cache

import dp_accounting
from dp_accounting import pld

from pate_jax.accounting.sampled_noise import Training

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
