"""The votes files that a user names."""

from __future__ import annotations

from pathlib import Path

from pate_jax.errors import PateError
from pate_jax.voting.votes import Votes, load_votes


def votes_of(path: Path, labels_are_teacher_labels: bool = False) -> Votes:
    """The votes of a file, on one query at least."""
    found = load_votes(path, labels_are_teacher_labels=labels_are_teacher_labels)
    if not len(found.votes):
        raise PateError(f"{path} holds votes on no query: write one row for each query into it")
    return found
