"""The distance between drawn noise and its ideal law, paid for out of delta.

Samplers and tables differ from the ideal law by a total-variation distance `slack` (`mechanisms.laws`). If
ideal answers are (epsilon, delta')-DP, drawn ones are (epsilon, delta' + (1 + e^epsilon) slack)-DP. So every
figure is computed at a delta' that leaves room for the second term.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from pate_jax.accounting.curves import Epsilon
from pate_jax.mechanisms import Mechanism, laws


def sampler_slack(mechanism: Mechanism, queries: int, classes: int) -> float:
    """The total-variation distance of all draws from their ideal laws, from `mechanisms.laws`.

    >>> from pate_jax.mechanisms import DiscreteGaussianMax
    >>> sampler_slack(DiscreteGaussianMax(40.0), 100, 10) < 1e-20
    True
    """
    return laws.delta_slack(mechanism, queries=queries, classes=classes)


def with_slack(curve: Callable[[float], Epsilon], delta: float, slack: float) -> Epsilon:
    """The epsilon of `curve` at a delta' with `delta' + (1 + e^epsilon) slack <= delta`, or infinity.

    >>> with_slack(lambda delta: Epsilon(1.0, 2.0), 1e-5, 1e-18)
    Epsilon(epsilon=1.0, order=2.0)
    >>> with_slack(lambda delta: Epsilon(1.0, 2.0), 1e-5, 1e-5).epsilon
    inf
    """
    inner = delta * (1 - 1e-6)  # room for the slack of a 62-bit sampler without a second try
    for _ in range(50):
        epsilon = curve(inner)
        if slack == 0:
            return epsilon
        if epsilon.epsilon > math.log(delta) - math.log(slack):
            break
        needed = (1 + math.exp(epsilon.epsilon)) * slack
        if inner + needed <= delta:
            return epsilon
        inner = delta - 2 * needed if delta - 2 * needed < inner else inner / 2
        if inner <= 0:
            break
    return Epsilon(math.inf, None)
