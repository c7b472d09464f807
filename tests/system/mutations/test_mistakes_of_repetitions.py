"""Known mistakes with settings that are chosen on private data: a named test fails for each."""

from functools import partial

import pytest
import test_repetitions
from catalogue import case, fails, is_caught, replaced, source

from pate_jax.accounting import tuning

LAW = test_repetitions.LAWS[0]
library = partial(test_repetitions.test_the_epsilon_is_that_of_another_library, LAW, 2.0)
of_poisson = partial(
    test_repetitions.test_the_epsilon_is_that_of_another_library, test_repetitions.LAWS[-1], 2.0
)
exact = partial(test_repetitions.test_the_exact_law_of_the_best_never_exceeds_the_bound_and_comes_near, LAW)
fixed = test_repetitions.test_the_best_of_a_fixed_number_costs_nearly_as_much_as_all_of_them
mean = partial(test_repetitions.test_the_law_has_its_mean_and_generating_function, LAW)


def as_one(real):
    return lambda law, orders, rdp: rdp


CASES = [
    case(
        "the best candidate is charged as one",
        replaced(tuning, "best_of", as_one),
        fails(exact, fixed),
        "assert",
    ),
    case(
        "the mean number is left out",
        source(tuning, "best_of", " + math.log(number) / (grid - 1)", ""),
        fails(library),
        "assert",
    ),
    case(
        "the law's tail is left out",
        source(tuning, "best_of", " - math.log(repetitions.gamma) / grid", ""),
        fails(library),
        "assert",
    ),
    case(
        "a second run of the mechanism is left out",
        source(tuning, "best_of", "(1 - 1 / grid) * curve", "0 * curve"),
        fails(library),
        "assert",
    ),
    case(
        "delta of one candidate is left out",
        source(tuning, "best_of", "repetitions.mean * np.exp", "0 * np.exp"),
        fails(of_poisson),
        "assert",
    ),
    case(
        "numbers are drawn by another law",
        source(tuning, "law", "(shape - 1) / (before + 1)", "shape / (before + 1)"),
        fails(mean),
        "assert",
    ),
]


@pytest.mark.parametrize("mutation", CASES)
def test_it_is_caught(mutation, tmp_path):
    is_caught(mutation, tmp_path)
