"""What makes a student's probabilities believable: a temperature, or the logistic of fitted shares."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int
from scipy.special import expit

_EVEN = 1e-9  # shares that vary less say one thing of all inputs
_STEPS = 50  # of Newton's method
_STIFF = 1e-5  # of the slope's square, against which the data of the pool stand: it keeps slopes finite
_GRID = np.exp(np.linspace(np.log(0.2), np.log(5.0), 161))


def temperature(
    logits: Float[np.ndarray, "inputs classes"],
    wanted: Int[np.ndarray, " inputs"] | Float[np.ndarray, "inputs classes"],
    weights: Float[np.ndarray, " inputs"] | None = None,
) -> float:
    """The temperature between 0.2 and 5 by which logits are divided so that labels are most likely.

    Probabilities may stand for labels, weighted by how much each row counts.

    >>> logits = np.array([[4.0, 0.0]] * 3)
    >>> temperature(logits, np.array([0, 0, 1])) > 3
    True
    """
    scaled = logits[None] / _GRID[:, None, None]
    return float(_GRID[np.argmin(negative_log_likelihood(scaled, wanted, weights))])


def negative_log_likelihood(
    logits: Float[np.ndarray, "*many inputs classes"],
    wanted: Int[np.ndarray, " inputs"] | Float[np.ndarray, "inputs classes"],
    weights: Float[np.ndarray, " inputs"] | None = None,
) -> np.ndarray:
    """`-E log p_label` for each of the leading axes; of probabilities `-E sum_c wanted_c log p_c`, weighted.

    >>> logits = np.log([[0.5, 0.5], [0.2, 0.8]])
    >>> wanted, weights = np.array([[0.3, 0.7], [0.0, 1.0]]), np.array([2.0, 0.0])
    >>> negative_log_likelihood(logits, wanted, weights).round(6).item()
    0.693147
    """
    logits = np.asarray(logits, np.float64)
    shifted = logits - logits.max(-1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    if wanted.ndim == 1:
        return -logs[..., np.arange(len(wanted)), wanted].mean(-1)
    return -np.average((wanted * logs).sum(-1), axis=-1, weights=weights)


def logistic(shares: Float[np.ndarray, " inputs"], covariance: float) -> tuple[float, float]:
    """Offset a and slope b of `p = 1 / (1 + exp(-(a + b f)))`, for the fitted share f of one of two classes.

    Least squares give shares that are no probabilities: beyond 0 and 1 where inputs are typical of a class.
    Logistic regression of labels y on f reads no more of them than their mean and their `covariance` with f,
    and both follow from class sums. So a and b solve `mean p = mean f` and
    `cov(p, f) = cov(y, f)` over the public inputs, and no label is read.

    >>> shares = np.array([0.1, 0.2, 0.3])
    >>> offset, slope = logistic(shares, shares.var())
    >>> (1 / (1 + np.exp(-(offset + slope * shares)))).round(2).tolist(), logistic(np.full(3, 0.5), 0.0)
    ([0.11, 0.19, 0.31], (0.0, 0.0))
    """
    middle, spread = float(shares.mean()), float(shares.std())
    usual = min(max(middle, 1e-6), 1 - 1e-6)
    if spread < _EVEN:
        return float(np.log(usual / (1 - usual))), 0.0
    features = np.stack([np.ones_like(shares), (shares - middle) / spread])
    found = np.array([np.log(usual / (1 - usual)), 0.0])
    wanted = len(shares) * np.array([usual, covariance / spread])
    stiff = np.array([0.0, _STIFF * len(shares)])
    for _ in range(_STEPS):
        p = expit(found @ features)
        slope = wanted - features @ p - stiff * found
        curve = (features * p * (1 - p)) @ features.T + np.diag(stiff) + 1e-9 * np.eye(2)
        found = found + np.clip(np.linalg.solve(curve, slope), -1, 1)
    steep = found[1] / spread
    return float(found[0] - steep * middle), float(steep)
