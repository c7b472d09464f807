"""Known mistakes when methods are compared: a named test fails for each."""

from functools import partial

import pytest
import test_compare
from catalogue import case, fails, is_caught, replaced, source

from pate_jax.mechanisms import local as described
from pate_jax.sweep.compare import cells, comparison, dpsgd, local_sums
from pate_jax.sweep.compare import local_votes as local

law = partial(test_compare.test_local_counts_have_the_law_of_the_channel, described.OneHotNoise(4, 1.0))
answers = partial(
    test_compare.test_local_counts_have_the_law_of_the_channel, described.RandomisedResponse(4, 1.0)
)


def relation():
    test_compare.test_the_epsilon_of_dpsgd_is_that_of_a_changed_record(test_compare.ground.__wrapped__())


vectors = partial(test_compare.test_a_vector_is_sent_without_bias_and_as_private_as_is_said, 1.0)
words = test_compare.test_a_choice_on_private_records_is_never_said_to_be_covered
apart = test_compare.test_methods_that_the_test_rows_do_not_tell_apart_are_named_together
errors = test_compare.test_the_error_of_draws_and_of_test_rows_add_up

CASES = [
    case(
        "other records send no noise",
        source(local, "received", " + random.binomial(exact.sum() - exact, wrong)", ""),
        fails(law),
        "assert|Not equal",
    ),
    case(
        "answers that were moved are lost",
        source(local, "received", "random.multinomial(number, others)", "0"),
        fails(answers),
        "assert|Not equal",
    ),
    case(
        "the side of the sphere follows the vector alone",
        source(local_sums, "sent", "(along == kept)", "along"),
        fails(vectors),
        "assert",
    ),
    case(
        "DP-SGD states what an added record costs",
        source(
            dpsgd,
            "outcome",
            "made.probabilities(tested), made.replaced",
            "made.probabilities(tested), made.epsilon",
        ),
        fails(relation),
        "assert",
    ),
    case(
        "DP-SGD's noise is planned for an added record",
        source(dpsgd, "chosen", '"changed"', '"added"'),
        fails(relation),
        "assert",
    ),
    case(
        "vectors are not shortened",
        source(local_sums, "sent", "(sizes > length * (1 + 1e-9)).any()", "False"),
        fails(vectors),
        "DID NOT RAISE|assert",
    ),
    case(
        "a choice on private records is said to be free",
        replaced(comparison, "covered", lambda real: lambda kind: real("public")),
        fails(words),
        "assert",
    ),
    case(
        "the best figure wins however near the others are",
        replaced(comparison, "_apart", lambda real: lambda best, other: True),
        fails(apart),
        "assert",
    ),
    case(
        "more draws make the test rows more",
        source(comparison, "_standing", 'rows[0]["test"]', 'sum(row["test"] for row in rows)'),
        fails(errors),
        "assert",
    ),
]


@pytest.mark.parametrize("mutation", CASES)
def test_it_is_caught(mutation, tmp_path):
    is_caught(mutation, tmp_path)


def test_an_epsilon_that_is_not_kept_is_noticed(monkeypatch, tmp_path):
    ground = test_compare.ground.__wrapped__()
    monkeypatch.setattr(cells, "_check", lambda spent, cell: None)
    with pytest.raises(pytest.fail.Exception):
        test_compare.test_a_method_that_spends_more_than_it_may_ends_the_comparison(ground, tmp_path)
