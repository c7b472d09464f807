"""Whole noisy histograms with too little noise, with noise that was used before, or charged as an index."""

import numpy as np
import pytest
import small_runs
import test_teacher_plan
from catalogue import case, in_a_folder, is_caught, made, replaced

from pate_jax.accounting import composition, curves
from pate_jax.aggregate import noise
from pate_jax.mechanisms import DiscreteGaussianMax
from pate_jax.runs import batches, ledger, teacher_plan

COUNTED = made(small_runs.counted)


def half_the_scale(real):
    return lambda law, length=None: real(law._replace(scale=law.scale / 2), length)


def of_the_batch_before(patch):
    """The counts of a batch have the noise of the batch before, under a commitment to their own."""
    real, drawn = batches.draw, []

    def draw(run, mechanism, votes, label=1):
        given = real(run, mechanism, votes, label)
        drawn.append(np.asarray(given.counts) - votes)
        return given._replace(counts=votes + drawn[0][: len(votes)])

    patch.setattr(batches, "draw", draw)


def as_an_index(real):
    return lambda mechanism, *size: real(DiscreteGaussianMax(mechanism.noise.scale), *size)


def one_count_moved(real):
    return lambda mechanism, queries: real(mechanism, queries) / 2**0.5


def shares_for_counts(real):
    """The counts lose what noise adds to a row: less noise than was drawn."""

    def pack(labels, answered, counts=None):
        counts = np.asarray(counts)
        return real(labels, answered, counts - (counts.sum(1, keepdims=True) - 50) // 3)

    return pack


def no_question(patch):
    patch.setattr(teacher_plan, "_check_wish", lambda run, config, found: None)
    patch.setattr(teacher_plan, "said", lambda found: [])  # the test's plan has no more than it needs
    patch.setattr(teacher_plan, "_filled", lambda config, found: config)


MISTAKES = [
    case(
        "counts with half their noise", replaced(noise, "source", half_the_scale), COUNTED, "noise: .*follow"
    ),
    case("counts with the noise of the batch before", of_the_batch_before, COUNTED, "noise: batch 2.*follow"),
    case(
        "counts charged as an index", replaced(curves, "index_curve", as_an_index), COUNTED, "it was charged"
    ),
    case(
        "a row that moves by one count",
        replaced(composition, "gaussian_dp", one_count_moved),
        made(small_runs.counted_once),
        "statement: .*data_independent",
    ),
    case("counts that are not those drawn", replaced(ledger, "pack", shares_for_counts), COUNTED, "follow"),
    case(
        "a plan that is gone on with at another epsilon",
        no_question,
        in_a_folder(test_teacher_plan.test_a_plan_for_another_epsilon_or_delta_is_not_gone_on_with),
        "DID NOT RAISE",
    ),
]


@pytest.mark.parametrize("mutation", MISTAKES)
def test_a_run_of_counts_is_found(mutation, tmp_path):
    is_caught(mutation, tmp_path)
