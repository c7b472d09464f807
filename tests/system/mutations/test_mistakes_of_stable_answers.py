"""Known mistakes with stable answers: a named test fails for each."""

from functools import partial

import numpy as np
import pytest
import small_runs
import test_mistakes_of_noise
import test_stable
import test_stable_answers
import test_stable_runs
from catalogue import case, fails, is_caught, made, replaced, source

from pate_jax.accounting import stable as figures
from pate_jax.aggregate import stable
from pate_jax.mechanisms import stable as described
from pate_jax.runs import driver, registration, stable_list

FIRST = test_stable.SMALL[0]
enumerated = partial(
    test_stable.test_no_small_ensemble_and_neighbour_exceed_the_claim_and_some_come_close, FIRST
)
patterns = partial(
    test_stable.test_the_pattern_alone_is_pure_and_nearly_costs_what_is_charged, scale=1.5, cutoff=1
)
two_epochs = partial(
    test_stable.test_the_pattern_alone_is_pure_and_nearly_costs_what_is_charged, scale=2.5, cutoff=2
)
epochs = test_stable_answers.test_patterns_follow_their_exact_law_with_a_fresh_threshold_in_each_epoch
digits = partial(test_stable.test_the_chance_of_a_false_answer_against_fifty_digits, FIRST)
charged = test_stable.test_every_epoch_is_charged
moved = test_stable.test_one_changed_added_or_removed_vote_moves_the_distance_by_one_and_no_stable_plurality
wrong = test_stable_runs.test_what_strays_covers_the_chance_of_a_wrong_answer
LISTED = made(small_runs.listed)
KILLED = made(partial(small_runs.crashed, make=small_runs.listed))
covered = partial(test_stable_runs.test_the_curve_covers_all_answers_but_the_false_ones, 3.0, 2)
halting = test_stable_answers.test_a_list_in_parts_gets_the_same_answers_and_halts_at_the_cutoff


def epoch_goes_over(patch, folder):
    test = test_stable_runs.test_a_threshold_and_its_epoch_go_over_into_the_next_batch
    return fails(partial(test, folder, seeds=2))(patch, folder)


def in_a_register(patch, folder):
    folder.mkdir(parents=True)
    return fails(partial(test_stable_runs.test_a_register_adds_a_list_to_other_runs, folder))(patch, folder)


def silent(kept):
    """The noise of thresholds (or of queries) as zeros; that of a list's first call comes before."""

    def make(real):
        calls = []

        def drawn(mechanism, key, first, count):
            calls.append(None)
            of_queries = len(calls) % 2 == 1
            found = real(mechanism, key, first, count)
            return found if of_queries == (kept == "queries") else 0 * found

        return drawn

    return make


def the_first_one(real):
    return lambda *arguments: np.repeat(real(*arguments)[:1], len(real(*arguments)))


CASES = [
    case(
        "one threshold's noise serves all epochs",
        replaced(stable, "_thresholds", the_first_one),
        fails(epochs),
        "assert",
    ),
    case("queries have no noise", replaced(stable, "_drawn", silent("thresholds")), fails(epochs), "assert"),
    case("thresholds have no noise", replaced(stable, "_drawn", silent("queries")), fails(epochs), "assert"),
    case(
        "the threshold's noise alone is charged",
        replaced(figures, "epoch_epsilon", lambda real: lambda mechanism: 1 / mechanism.scale),
        fails(patterns),
        "assert",
    ),
    case(
        "one unstable query is charged, whatever the cutoff",
        source(
            figures,
            "epsilon",
            "steps = [(epoch_epsilon(mechanism), mechanism.cutoff)]",
            "steps = [(epoch_epsilon(mechanism), 1)]",
        ),
        fails(charged),
        "assert",
    ),
    case(
        "the cutoff is not in the noise",
        replaced(
            figures,
            "calibrate",
            lambda real: (
                lambda budget, delta, cutoff: described.StableAnswers(
                    real(budget, delta, 1).threshold, real(budget, delta, 1).scale, cutoff
                )
            ),
        ),
        fails(
            partial(
                test_stable.test_a_calibrated_list_keeps_to_its_budget_and_costs_what_its_epochs_cost, 0.5, 4
            )
        ),
        "assert",
    ),
    case(
        "delta does not pay for false answers",
        replaced(figures, "false_answer", lambda real: lambda mechanism: 1e-300),
        fails(enumerated, digits),
        "assert",
    ),
    case(
        "false answers are paid for once, whatever the cutoff",
        source(
            figures,
            "epsilon",
            "false = mechanism.cutoff * false_answer(mechanism) * _UP",
            "false = false_answer(mechanism) * _UP",
        ),
        fails(enumerated),
        "assert",
    ),
    case(
        "the lead stands for the distance",
        replaced(described, "distance", lambda real: lambda votes: 2 * real(votes)),
        fails(moved),
        "assert",
    ),
    case(
        "a lead of two is held for stable",
        source(described, "distance", "(lead + 1) // 2 - 1", "(lead + 2) // 2 - 1"),
        fails(moved),
        "assert",
    ),
    case(
        "the list goes on after the cutoff",
        source(stable, "_pattern", "break", "unstable -= 1"),
        fails(halting),
        "assert|differ",
    ),
    case(
        "a continued list draws the first noise again",
        source(stable, "answer", "of_queries, before.asked,", "of_queries, 0,"),
        fails(halting),
        "assert|differ",
    ),
]

CASES += [
    case(
        "every further batch of a run has a cutoff of its own",
        replaced(stable_list, "progress", lambda real: lambda lines: stable.Progress()),
        LISTED,
        "noise: .*did not end where it must",
    ),
    case(
        "a list goes on after its end",
        source(stable, "_pattern", "break", "unstable -= 1"),
        LISTED,
        "noise: .*did not end where it must",
    ),
    case(
        "a batch begins with a threshold of its own",
        source(stable_list, "drawn", "opened=_opened(run, lines)", "opened=key"),
        epoch_goes_over,
        "assert",
    ),
    case(
        "only later batches are charged",
        source(driver, "_charged", "first=not released", "first=bool(released)"),
        LISTED,
        "budget: .*not the first alone",
    ),
    case(
        "a list is charged for one epoch, whatever its cutoff",
        source(figures, "curve", "mechanism.cutoff * np.minimum", "np.minimum"),
        fails(covered),
        "assert",
    ),
    case(
        "stable answers that leave before they are charged",
        replaced(driver, "_charged", test_mistakes_of_noise.answers_before_the_ledger),
        KILLED,
        "ledger: .*(missing|does not show)",
    ),
    case(
        "a copy of a list goes on under the same register",
        replaced(registration, "_misfit", lambda real: lambda *_: None),
        in_a_register,
        "DID NOT RAISE",
    ),
    case(
        "wrong answers are not reserved in a register",
        source(figures, "strays", "mechanism.cutoff * false_answer(mechanism) * _UP + ", ""),
        fails(wrong),
        "assert",
    ),
]


@pytest.mark.parametrize("mutation", CASES)
def test_it_is_caught(mutation, tmp_path):
    is_caught(mutation, tmp_path)
