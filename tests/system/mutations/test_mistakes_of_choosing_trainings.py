"""Known mistakes when settings of DP-SGD are chosen and paid for: a named test fails for each."""

import pytest
import test_training_choice
from catalogue import case, fails, is_caught, replaced, source

from pate_jax.baselines.dpsgd import choice

profile = test_training_choice.test_trainings_by_their_own_profile_stay_within_the_cost_of_the_choice


def noise():
    with pytest.MonkeyPatch.context() as patch:
        test_training_choice.test_the_noise_of_a_score_is_what_a_candidate_may_cost(patch)


def number():
    with pytest.MonkeyPatch.context() as patch:
        test_training_choice.test_the_number_of_candidates_has_its_law(patch)


def held_out():
    with pytest.MonkeyPatch.context() as patch:
        given = test_training_choice.trained.__wrapped__(patch)
        test_training_choice.test_held_out_records_train_no_candidate_and_each_has_noise_of_its_own(given)


CASES = [
    case(
        "a training takes the noise of a run without a choice",
        source(choice, "within", "at.epsilon, at.delta, records", "1.0, delta, records"),
        fails(profile),
        "assert",
    ),
    case(
        "the noise of trainings is planned for an added record",
        source(choice, "within", 'neighbours="changed"', 'neighbours="added"'),
        fails(profile),
        "assert",
        long=True,
    ),
    case(
        "scores have half the noise",
        source(choice, "error", "1 / tuned.mu", "0.5 / tuned.mu"),
        fails(noise),
        "assert",
    ),
    case(
        "records that judge train too",
        source(choice, "best_of", "inputs[~judges], labels[~judges]", "inputs, labels"),
        fails(held_out),
        "assert",
    ),
    case(
        "the best is returned with its own epsilon",
        source(choice, "best_of", "epsilon=spent, replaced=spent", "epsilon=best[1].epsilon"),
        fails(held_out),
        "assert",
        long=True,
    ),
    case(
        "the number of candidates is fixed",
        replaced(choice, "_keys", lambda real: lambda key, tuned: real(key, tuned)[:1] * 10),
        fails(number),
        "assert",
    ),
]


@pytest.mark.parametrize("mutation", CASES)
def test_it_is_caught(mutation, tmp_path):
    is_caught(mutation, tmp_path)
