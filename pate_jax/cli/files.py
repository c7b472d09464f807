"""The votes files that a command names."""

from __future__ import annotations

from pathlib import Path

from pate_jax import voting
from pate_jax.errors import PateError


def votes_of(path: Path, labels_are_teacher_labels: bool) -> voting.Votes:
    """The votes of a file, on one query at least."""
    found = voting.load_votes(path, labels_are_teacher_labels=labels_are_teacher_labels)
    if not len(found.votes):
        raise PateError(f"{path} holds votes on no query: write one row for each query into it")
    return found
