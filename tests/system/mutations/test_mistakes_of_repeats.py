"""Mistakes by which one question is asked again in other words: each is caught."""

import numpy as np
import pytest
import test_nearness
import test_recovery
from catalogue import case, fails, is_caught, replaced, source

from pate_jax.audit.attacks import recovery
from pate_jax.data import overlap
from pate_jax.runs import batches
from pate_jax.system import storage


def repeats(patch, folder):
    """What the attack on an input that is asked about again finds."""
    found = recovery.repeated(test_recovery.TESTED, 12, 3, seed=1)
    return [] if found.holds else [f"{found.differing} inputs got differing answers"]


def anew(real):
    """Rows that repeat an input get labels of their own, and the ledger shows one answer for all of them."""

    def issue(run, line):
        real(run, line)
        arrays = storage.read_arrays(run.answers_of(line.batch), "answers")
        labels = np.random.default_rng(0).integers(0, line.event.classes, len(arrays["row_labels"]))
        storage.write_arrays(run.answers_of(line.batch), "answers", {**arrays, "row_labels": labels})

    return issue


MOVED = test_nearness.test_an_image_moved_by_a_pixel_or_changed_in_the_last_digit_is_near_and_others_are_not
MISTAKES = [
    case(
        "an input that is asked about again is answered anew and free of charge",
        replaced(batches, "_issue", anew),
        repeats,
        "differing answers",
    ),
    case(
        "images are compared pixel by pixel",
        source(overlap, "coordinates", "if scaled.ndim == 4:", "if False:"),
        fails(MOVED),
        "moved_by_a_pixel",
    ),
    case(
        "inputs that were asked about before are not looked at",
        source(overlap.Ruler, "apart", "if before is None", "if True"),
        fails(test_nearness.test_what_was_asked_before_counts),
        "asked_before",
    ),
    case(
        "copies in the public part shorten the unit that they are measured by",
        source(overlap, "ruler", "size = min(_SAMPLE, max(2, len(public) // _SHARE))", "size = len(public)"),
        fails(test_nearness.test_a_pool_that_holds_everything_twice_has_about_the_same_typical_distance),
        "everything_twice",
    ),
]


@pytest.mark.parametrize("mutation", MISTAKES)
def test_a_mistake_of_repeats_is_caught(mutation, tmp_path):
    is_caught(mutation, tmp_path)
