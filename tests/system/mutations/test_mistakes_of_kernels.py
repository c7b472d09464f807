"""Known mistakes of a crowd's tables as pure functions: a named test fails for each."""

import pytest
import test_own_programs
from catalogue import case, fails, is_caught, source

from pate_jax.crowd import kernels

bound = fails(test_own_programs.test_no_row_moves_a_table_further_than_its_release_says)

CASES = [
    case(
        "sums take rows of any length",
        source(kernels, "_bounded", ", length)", ", 1 << 15)"),
        bound,
        "assert",
        traced=True,
    ),
    case(
        "a label outside the classes counts for the nearest of them",
        source(kernels, "_inside", "(labels >= 0) & (labels < classes)", "labels == labels"),
        bound,
        "assert",
        traced=True,
    ),
    case(
        "a voter has one vote too many",
        source(kernels, "_counts", ".sum(1), votes)", ".sum(1), votes + 1)"),
        bound,
        "assert",
        traced=True,
    ),
]


@pytest.mark.parametrize("mutation", CASES)
def test_it_is_caught(mutation, tmp_path):
    is_caught(mutation, tmp_path)
