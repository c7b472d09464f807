"""Mistakes in membership inference, and pipelines that it must find: each is caught."""

import shutil
from functools import partial

import honest_runs
import pytest
import test_membership
import test_replicas
from catalogue import case, fails, is_caught, replaced, source
from test_risk import contents

from pate_jax.audit.attacks import (
    every,
    membership,
    roc,
    shadows,
    sums_pipeline,
    tables_pipeline,
    teachers_pipeline,
)
from pate_jax.audit.attacks.attack import Flags
from pate_jax.audit.attacks.sums_pipeline import Sums
from pate_jax.runs import directory
from pate_jax.runs.directory import RunDirectory


def of_noise(patch, folder):
    """What the attacks say of a small crowd, with the sampler that is there."""
    made = test_membership.crowd()
    seen = shadows.played(made, 60, seed=3)
    found = membership.attacked(seen, made.promise(test_membership.DELTA))
    return [one.sentence() for one in found if not one.holds]


def of_files(patch, folder):
    """What the release holds before and after."""
    run = RunDirectory(shutil.copytree(honest_runs.crowd("sums").root, folder))
    before = contents(run.root / "release")
    every.attacked(run, "membership", Flags(shadows=32))
    return ["release/ is another"] if contents(run.root / "release") != before else []


def a_tenth(real):
    """A sampler of a tenth of the noise."""
    return lambda asked, table, *, key: real(
        test_membership.twins._less(asked, 10.0), table, key=key
    )._replace(release=asked)


LOOP = test_membership.test_rmia_counts_the_records_that_are_raised_less
MISTAKES = [
    case(
        "the sampler adds a tenth of the noise",
        replaced(sums_pipeline, "noisy_table", a_tenth),
        of_noise,
        "table, others known: .*MORE THAN THE GUARANTEE",
    ),
    case(
        "the target is among its own shadows",
        source(membership, "_side", "(counted.sum(0) - counted) / number", "counted.sum(0) / there.sum(0)"),
        fails(LOOP),
        "raised_less",
    ),
    case(
        "who leaves a teacher is added once more",
        source(teachers_pipeline, "_moved", "-1.0, 1.0)", "1.0, 1.0)"),
        fails(partial(test_replicas.test_votes_that_move_are_those_of_teachers_that_are_trained_again, 0)),
        "trained_again",
    ),
    case(
        "a user counts once for each of its records",
        source(tables_pipeline, "of_vectors", "of_cell, release.length)", "of_cell, 10**6)"),
        fails(partial(test_replicas.test_a_crowds_own_pipeline_counts_what_the_run_counted, "users")),
        "what_the_run_counted",
    ),
    case(
        "the released number of voters is not in the bound",
        source(Sums, "promise", "[self.release, self.number]", "[self.release]"),
        fails(test_membership.test_a_promise_covers_the_table_and_the_number_of_voters),
        "number_of_voters",
    ),
    case(
        "guesses about one run are taken to be independent",
        source(roc, "_worth", "runs == 1", "True"),
        fails(test_membership.test_limits_hold_where_guesses_of_one_run_agree),
        "guesses_of_one_run_agree",
    ),
    case(
        "the cut of an attack is taken to be known",
        source(roc, "_caught", "_worth(accused, ~member, DOUBT / 2)", "1e12"),
        fails(
            test_membership.test_limits_of_true_positives_hold_although_the_cut_comes_from_the_same_guesses
        ),
        "cut_comes_from_the_same_guesses",
    ),
    case(
        "the results are written into release/",
        lambda patch: patch.setattr(
            RunDirectory, "attacks", directory._Place("release", "attacks.json"), raising=False
        ),
        of_files,
        "release/ is another",
    ),
]


@pytest.mark.parametrize("mutation", MISTAKES)
def test_a_mistake_of_attacks_is_caught(mutation, tmp_path):
    is_caught(mutation, tmp_path)
