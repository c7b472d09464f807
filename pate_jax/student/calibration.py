"""How far a student's probabilities may be believed: their error, and a temperature that makes it small."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

_GRID = np.exp(np.linspace(np.log(0.2), np.log(5.0), 161))


def temperature(logits: Float[np.ndarray, "inputs classes"], labels: Int[np.ndarray, " inputs"]) -> float:
    """The temperature between 0.2 and 5 by which logits are divided so that labels are most likely.

    >>> logits = np.array([[4.0, 0.0]] * 3)
    >>> temperature(logits, np.array([0, 0, 1])) > 3
    True
    """
    scaled = logits[None] / _GRID[:, None, None]
    return float(_GRID[np.argmin(negative_log_likelihood(scaled, labels))])


def negative_log_likelihood(
    logits: Float[np.ndarray, "*many inputs classes"], labels: np.ndarray
) -> np.ndarray:
    """`-E log p_label` for each of the leading axes."""
    logits = np.asarray(logits, np.float64)
    shifted = logits - logits.max(-1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return -logs[..., np.arange(len(labels)), labels].mean(-1)


def expected_calibration_error(probabilities: np.ndarray, labels: np.ndarray, *, bins: int = 15) -> float:
    """`sum_b |b|/n * |accuracy(b) - mean probability(b)|` over bins of the largest probability.

    >>> expected_calibration_error(np.array([[0.8, 0.2], [0.8, 0.2]]), np.array([0, 1]))
    0.30000000000000004
    """
    best = probabilities.max(1)
    right = probabilities.argmax(1) == labels
    places = np.minimum((best * bins).astype(int), bins - 1)
    gaps = [abs((right[places == b].astype(float) - best[places == b]).sum()) for b in range(bins)]
    return float(sum(gaps) / max(1, len(labels)))
