"""Which class fitted shares speak for, where there are three or more.

The largest fitted share is a poor guide then: of ordered classes a linear function gives the middle ones the
largest share nowhere, and rare ones hardly anywhere. Fisher's linear discriminant also looks at how shares f
vary among inputs of one class. It needs the usual share p of each class and the covariance S of shares over
the pool, and no more: what least squares leave is uncorrelated with f, so that inputs of class c have the
mean `p + S e_c / p_c`, and the covariance within classes is `S - S D^-1 S`, with D the diagonal of p.

Let `D^-1/2 S D^-1/2 = U diag(r) U'`, where r are squares of canonical correlations. Then class c has, but for
what all classes share, the logit

    log p_c + sum_k U_ck / ((1 - r_k) sqrt(p_c)) (z_k - r_k U_ck / (2 sqrt(p_c))),   z = U' D^-1/2 (f - p).

Noise makes correlations look larger than they are, and 1 / (1 - r) of one near 1 would follow the noise, so r
counts as `_MOST` at most.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import softmax

from pate_jax.system.eigen import eigensystem

_MOST = 0.7  # of the square of a canonical correlation; how it was chosen: benchmarks/NOTES.md


class Spread(NamedTuple):
    """What there is to know of fitted shares over the pool."""

    covariance: Float[np.ndarray, "classes classes"]
    usual: Float[np.ndarray, " classes"]  # share of each class, above 0
    wider: float = 1.0  # how much more they vary over new inputs than over the pool


class Discriminant(NamedTuple):
    """The logits of fitted shares are `shares @ turn + offset`."""

    turn: Float[np.ndarray, "classes classes"]
    offset: Float[np.ndarray, " classes"]

    def probabilities(self, shares: Float[np.ndarray, "n classes"]) -> Float[np.ndarray, "n classes"]:
        """Of each class, for each input."""
        return np.asarray(softmax(shares @ self.turn + self.offset, axis=1), np.float32)


def discriminant(
    covariance: Float[np.ndarray, "classes classes"], usual: Float[np.ndarray, " classes"]
) -> Discriminant:
    """That of shares with this covariance, where each class has its usual share.

    >>> ordered = np.array([[0.06, 0.0, -0.06], [0.0, 0.0, 0.0], [-0.06, 0.0, 0.06]])
    >>> made = discriminant(ordered, np.full(3, 1 / 3))
    >>> made.probabilities(np.array([[0.8, 0.3, -0.1], [0.35, 0.3, 0.35]])).argmax(1).tolist()
    [0, 1]
    """
    root = np.sqrt(usual)
    correlations, axes = eigensystem(covariance / root / root[:, None])
    correlations = np.clip(correlations, 0, _MOST)
    within, apart = axes / (1 - correlations), axes / root[:, None]
    turn = (within / root[:, None]) @ apart.T
    offset = np.log(usual) - (apart**2 * correlations / (1 - correlations)).sum(1) / 2
    return Discriminant(turn, offset - usual @ turn)
