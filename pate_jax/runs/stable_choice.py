"""Stable answers as flags: a cutoff, and where threshold and scale are left out, a rule that chooses them."""

from __future__ import annotations

from dataclasses import dataclass

from pate_jax.errors import PateError
from pate_jax.mechanisms.stable import StableAnswers


@dataclass(frozen=True)
class StableChoice:
    """Exact answers of which only the unstable ones cost (docs/stable.md); --epsilon sets what is left out.

    >>> StableChoice(cutoff=2).settled(1.0, 1e-5)
    StableAnswers(threshold=82, scale=6.0000000006, cutoff=2)
    """

    cutoff: int = 1
    """The list ends with this many unanswered queries."""
    threshold: int | None = None
    """Votes more than one that must be able to change without changing the answer, noise included."""
    scale: float | None = None
    """Of the noise, in votes."""

    def settled(self, epsilon: float | None, delta: float) -> StableAnswers:
        """The mechanism; threshold and scale follow from epsilon and delta where both are left out."""
        if self.threshold is not None and self.scale is not None:
            return StableAnswers(self.threshold, self.scale, self.cutoff)
        if epsilon is None or self.threshold is not None or self.scale is not None:
            raise PateError(
                f"stable-answers --cutoff {self.cutoff} lacks a threshold or a scale: give both, or neither "
                "of them and the epsilon that they follow from"
            )
        from pate_jax.accounting import stable  # which help pages do without

        return stable.calibrate(epsilon, delta, self.cutoff)
