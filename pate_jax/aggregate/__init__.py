"""From votes, a mechanism and a key to answers: the package that draws the noise of answers."""

from pate_jax.aggregate.answers import (
    Answers,
    Sampler,
    answer,
    answer_many,
    of_histograms,
    prepare,
    soft_answers,
)
from pate_jax.aggregate.noise import fresh_key, is_private, seeded_key

__all__ = [
    "Answers",
    "Sampler",
    "answer",
    "answer_many",
    "fresh_key",
    "is_private",
    "of_histograms",
    "prepare",
    "seeded_key",
    "soft_answers",
]
