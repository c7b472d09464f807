"""From labels to votes, also for teachers trained elsewhere; imports JAX only when a kernel is called."""

from pate_jax.voting.votes import Votes, check_votes, histogram, load_votes, save_votes

__all__ = [
    "Votes",
    "check_votes",
    "histogram",
    "load_votes",
    "save_votes",
]
