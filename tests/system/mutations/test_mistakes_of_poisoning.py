"""Mistakes in certificates against bad records, and in what a release says of attacks: each is caught."""

from functools import partial

import honest_runs
import pytest
import test_attacks
import test_poisoning
import test_public_twin
from catalogue import case, fails, is_caught, replaced, source
from test_mistakes_of_attacks import a_tenth

from pate_jax.audit.attacks import poisoned, poisoned_crowds, poisoning, public_twin, sums_pipeline
from pate_jax.audit.attacks.poisoned_crowds import PoisonedCrowd
from pate_jax.runs.release import check


def of_trials(patch, folder):
    """What the trials of a crowd find beside their certificate."""
    found = poisoned.of_crowd(honest_runs.crowd("sums"))
    return [] if found.holds else [found.text()]


def of_others(patch, folder):
    """The releases of runs on different private records."""
    folder.mkdir()
    honest = test_public_twin.attacked(folder / "honest")
    test = test_public_twin.test_the_release_is_the_same_whoever_the_private_records_are_of
    return fails(partial(test, honest, folder / "others", patch))(patch, folder)


def of_sentences(patch, folder):
    """A release with a sentence of an attack on private records."""
    run, sentence = honest_runs.crowd("sums"), test_public_twin.SAID[0]
    folder.mkdir()
    test = test_public_twin.test_what_attacks_found_on_private_records_is_refused_in_a_release
    return fails(partial(test, run, folder, sentence))(patch, folder)


def of_twin(patch, folder):
    """What the twin of a crowd with less noise shows."""
    found = public_twin.ATTACK.attacked(
        honest_runs.crowd("sums"), test_public_twin.FLAGS._replace(shadows=64)
    )
    return [] if all(one.holds for one in found.guesses) else [found.text()]


WORST = test_poisoning.test_the_worst_voters_change_a_label_and_one_fewer_than_certified_do_not
AGAIN = test_poisoning.test_a_poisoned_table_is_that_of_a_crowd_with_these_records
MISTAKES = [
    case(
        "a voter of sums takes its vector away, and brings no other",
        source(poisoned_crowds, "of_sums", "2 * longest * np", "longest * np"),
        fails(partial(WORST, 3)),
        "worst voters and the certificate",
    ),
    case(
        "a user's table is taken to lie in one class",
        source(poisoned_crowds, "of_sums", "if by_user and", "if False and"),
        fails(test_poisoning.test_a_user_may_move_a_lead_by_more_than_a_record_and_no_further_than_is_said),
        "no_further_than_is_said",
    ),
    case(
        "the constant is not in what a voter reaches",
        source(poisoned_crowds, "of_sums", "norm(functional, axis=1)", "norm(functional[:, :-1], axis=1)"),
        fails(partial(WORST, 2)),
        "worst voters and the certificate",
    ),
    case(
        "a lead of k + 1 votes of neighbours is taken to withstand k",
        source(poisoned_crowds, "of_counts", "2 * held.kept", "held.kept"),
        fails(test_poisoning.test_labels_of_counts_withstand_so_many_voters_and_no_more),
        "all voters and the certificate",
    ),
    case(
        "a lead of k + 1 votes of teachers is taken to withstand k",
        source(
            poisoning,
            "withstood",
            "(ranked[:, -1] - ranked[:, -2] + 1) // 2",
            "ranked[:, -1] - ranked[:, -2]",
        ),
        fails(test_attacks.test_a_plurality_withstands_so_many_bad_teachers_and_no_more),
        "plurality_withstands",
    ),
    case(
        "voters whose tables have no bound",
        replaced(poisoned_crowds.tables, "table", lambda real: lambda plan, people: 60 * real(plan, people)),
        of_trials,
        "THE CERTIFICATE IS WRONG",
    ),
    case(
        "the public twin is made of the private records",
        source(
            public_twin, "of_crowd", "here.seen.public.inputs[some]", "here.seen.private.inputs[: len(some)]"
        ),
        of_others,
        "depends on private records",
    ),
    case(
        "the release may say whatever attacks found",
        source(check, "_words", "attacks.beyond(html.unescape(text))", "()"),
        of_sentences,
        "the release may say it",
    ),
    case(
        "the sampler of the twin adds a tenth of the noise",
        replaced(sums_pipeline, "noisy_table", a_tenth),
        of_twin,
        "theory allows at most",
        long=True,  # `test_mistakes_of_attacks.py` has the same on private records
    ),
    case(
        "bad records are added beside the good ones, which still vote",
        source(PoisonedCrowd, "_moved", " - tables.table(self.plan, people)", ""),
        fails(partial(AGAIN, "sums", "record")),
        "not equal",
    ),
]


@pytest.mark.parametrize("mutation", MISTAKES)
def test_a_mistake_of_poisoning_is_caught(mutation, tmp_path):
    is_caught(mutation, tmp_path)
