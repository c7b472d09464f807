"""Labels to votes: the door for teachers that are not ours; free of JAX until a kernel is called."""

from pate_jax.voting.votes import (
    Votes,
    check_votes,
    histogram,
    histogram_of_parts,
    labels_of,
    load_votes,
    save_votes,
)

__all__ = [
    "Votes",
    "check_votes",
    "histogram",
    "histogram_of_parts",
    "labels_of",
    "load_votes",
    "save_votes",
]
