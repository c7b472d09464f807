"""Mistakes in the pipelines that canaries audit, and in the canaries themselves: each is caught."""

import pytest
import test_canaries
from catalogue import case, fails, is_caught, replaced

from pate_jax.aggregate import noise
from pate_jax.audit.attacks import canaries, teacher_canaries, twins
from pate_jax.models import integers

_quick_normal_law = test_canaries._quick_normal_law


def of_sums(patch, folder):
    """What canaries show among voters whose vectors are made anew."""
    made = test_canaries.voters.__wrapped__()
    patch.setattr(test_canaries, "voters", lambda: made)
    found = test_canaries.of_sums(made)[1]
    return [] if found.holds else [found.text()]


def of_lengths(patch, folder):
    """Whether canaries that are made anew are as long as they may be."""
    made = test_canaries.voters.__wrapped__()
    patch.setattr(test_canaries, "voters", lambda: made)
    return fails(test_canaries.test_canaries_are_as_far_apart_as_two_contents_may_be_and_share_no_entry)(
        patch, folder
    )


def of_teachers(patch, folder):
    """What a canary in one shard shows."""
    found = test_canaries.of_teachers(patch)
    return [] if found.holds else [found.text()]


MISTAKES = [
    case(
        "a voter's vector is not shortened",
        replaced(integers, "shortened", lambda real: lambda rows, length: rows),
        of_sums,
        "`table`.*MORE THAN THE 1 THAT IS CLAIMED",
        traced=True,
        long=True,
    ),
    case(
        "one person lies in two shards",
        replaced(teacher_canaries, "divide", lambda real: twins.shared_shards(teacher_canaries.CANARY)),
        of_teachers,
        "`answers`.*THAT IS CLAIMED",
    ),
    case(
        "all runs draw their noise from one key",
        replaced(noise, "seeded_key", lambda real: lambda seed: real(7)),
        of_teachers,
        "`difference`.*THAT IS CLAIMED",
    ),
    case(
        "canaries are too short to show anything",
        lambda patch: patch.setattr(canaries, "_FAR", 1 << 19),
        of_lengths,
        "share_no_entry: AssertionError",
    ),
]


@pytest.mark.parametrize("mutation", MISTAKES)
def test_a_mistake_of_canaries_is_caught(mutation, tmp_path):
    is_caught(mutation, tmp_path)
