"""Whether a noisy table shows more than how frequent the classes are; read from that table alone, so free.

The dull explanation is that labels are drawn from the class shares, whatever the input. Under it all that a
table shows beside the shares is the noise, which is known, and the chance of that draw, whose variance
follows from the shares. Other explanations add a signal of some variance. Each has a likelihood ratio against
the dull one, and their mean is the evidence. If the dull one is true, the mean ratio is 1 in expectation, so
by Markov's inequality it reaches 20 in one table of 20 at most, whatever the signals that are tried.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from pate_jax.mechanisms.crowds import NeighbourCounts

ENOUGH = 20.0  # mean likelihood ratio from which on a table shows something
TOLD = np.geomspace(1e-3, 1, 13)  # of a label's variance: what signals that are tried tell
_LARGEST = 700.0  # of a logarithm that is still a float


def mean_ratio(
    seen: Float[np.ndarray, " directions"],
    dull: Float[np.ndarray, " directions"],
    signals: Float[np.ndarray, "signals directions"],
    freedom: int,
) -> float:
    """The mean likelihood ratio of signals of these variances over none.

    `seen` is the mean square of `freedom` normal numbers of variance `dull`, if there is no signal.

    >>> dull, signals = np.ones(50), np.ones((1, 50))
    >>> mean_ratio(2 * dull, dull, signals, 2) > 20 > mean_ratio(dull, dull, signals, 2)
    True
    """
    whole = dull + signals
    logarithms = freedom / 2 * (np.log(dull / whole) + seen * (1 / dull - 1 / whole)).sum(1)
    top = float(logarithms.max())
    return float(np.exp(min(top, _LARGEST)) * np.exp(logarithms - top).mean())


def expected(
    dull: Float[np.ndarray, " directions"], signal: Float[np.ndarray, " directions"], freedom: int
) -> float:
    """The likelihood ratio of a signal that is there, typically: `exp` of its mean logarithm.

    >>> expected(np.ones(9), np.ones(9), 2) > 10 > expected(np.ones(9), np.full(9, 0.1), 2) > 1
    True
    """
    over = signal / dull
    return float(np.exp(min(freedom / 2 * float((over - np.log1p(over)).sum()), _LARGEST)))


def of_counts(noisy: Int[np.ndarray, "query class"], release: NeighbourCounts) -> float:
    """The evidence of noisy counts.

    A query's counts are its votes times its shares. Whatever the number of its votes, nothing of them is
    left at right angles to the class shares, if it has these; so noise and chance alone are left there.

    >>> release = NeighbourCounts(40, 2, votes=1, sigma=5.0)
    >>> random, even = np.random.default_rng(0), np.full((40, 2), 50)
    >>> drawn = even + np.rint(random.normal(size=(40, 2)) * 5).astype(int)
    >>> apart = np.where(np.arange(40)[:, None] % 2 == [0, 1], 40, -40)
    >>> of_counts(drawn, release) < 20 < of_counts(drawn + apart, release)
    True
    """
    totals = np.maximum(noisy.sum(0), 0).astype(np.float64)
    if release.queries < 2 or totals.sum() == 0:
        return 1.0
    shares = totals / totals.sum()
    left = noisy - np.outer(noisy @ shares, shares) / (shares @ shares)
    votes = totals.sum() / release.queries
    across = np.eye(release.classes) - np.outer(shares, shares) / (shares @ shares)
    chance = float(np.linalg.eigvalsh(across * shares @ across)[-1])
    freedom = (release.queries - 1) * (release.classes - 1)
    dull = np.array([release.sigma**2 + votes * chance])
    seen = np.array([float((left**2).sum()) / freedom])
    return mean_ratio(seen, dull, votes**2 * TOLD[:, None] / release.classes, freedom)


def chance_of(shares: Float[np.ndarray, " classes"]) -> float:
    """The largest variance that the draw of one label from class shares has, in any direction.

    >>> round(chance_of(np.array([0.5, 0.5])), 3), round(chance_of(np.array([0.8, 0.1, 0.1])), 3)
    (0.5, 0.24)
    """
    return float(np.linalg.eigvalsh(np.diag(shares) - np.outer(shares, shares))[-1])
