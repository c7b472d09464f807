"""Known mistakes with the profile of the best candidate: a named test fails for each."""

from functools import partial

import pytest
import test_tuning
from catalogue import case, fails, is_caught, source

from pate_jax.accounting import tuning

LAW = test_tuning.LAWS[0]
exact = partial(test_tuning.test_the_exact_delta_of_the_best_never_exceeds_the_bound_and_comes_near, LAW)
figure = partial(test_tuning.test_the_figure_is_that_of_the_derivation, LAW)
ratio = test_tuning.test_a_ratio_bounds_every_rank

CASES = [
    case(
        "a random number of candidates is charged as one",
        source(tuning.Tuned, "_ideal", "(one + often)", "one"),
        fails(figure),
        "assert",
    ),
    case(
        "delta is not divided by the mean number",
        source(tuning, "log_delta", "math.log(law.mean) + ", ""),
        fails(exact),
        "assert",
    ),
    case(
        "the rank's own delta is left out",
        source(tuning, "log_ratio", "math.exp(profile(epsilon))", "0.0"),
        fails(ratio),
        "assert",
    ),
    case(
        "the law's shape is left out",
        source(tuning, "log_ratio", "(1 + law.shape) * ", ""),
        fails(ratio),
        "assert",
    ),
    case(
        "the figure of one candidate is that of the whole choice",
        source(tuning.Tuned, "_ideal", "delta / self.law.mean / _UP", "delta"),
        fails(figure),
        "assert",
    ),
]


@pytest.mark.parametrize("mutation", CASES)
def test_it_is_caught(mutation, tmp_path):
    is_caught(mutation, tmp_path)
