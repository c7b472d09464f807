"""The temperature that makes a student's probabilities believable."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

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
