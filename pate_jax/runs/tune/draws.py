"""What is drawn for a choice: how many candidates there are, and the setting of each.

Both follow from the secret of the choice alone, whatever the records are. So a choice that is interrupted
goes on with the same candidates, and nobody who lacks the secret knows their number.
"""

from __future__ import annotations

from pate_jax.accounting import repetitions
from pate_jax.accounting.tuning import Tuned
from pate_jax.runs.secret import Secret

_BITS = 53  # of a number from 0 to 1 that float64 holds exactly


def picks(secret: Secret, tuned: Tuned) -> list[int]:
    """For each candidate its place in the list of settings, from 0."""
    if tuned.of_all:
        return list(range(tuned.settings))
    drawn = int.from_bytes(secret.derive("number of candidates")[:8], "big") >> (64 - _BITS)
    number = repetitions.number_at(tuned.law, drawn / 2**_BITS)
    return [_pick(secret, candidate, tuned.settings) for candidate in range(1, number + 1)]


def _pick(secret: Secret, candidate: int, settings: int) -> int:
    """A place in the list; 256 bits leave no bias that matters."""
    return int.from_bytes(secret.derive(f"setting of candidate {candidate}"), "big") % settings


def best(scores: list[int]) -> int:
    """The number, from 1, of the first of the candidates with the highest noisy score.

    The first of equal ones is as good as a random one, because candidates are independent and of one law.

    >>> best([7, 9, 9])
    2
    """
    return 1 + scores.index(max(scores))
