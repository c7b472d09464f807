"""Known mistakes in the worst case of the argmax, put in one at a time: a named test fails for each."""

from functools import partial

import numpy as np
import pytest
import test_argmax_worst_case as worst
import test_laplace_worst_case as laplace
import test_lone_leader as leader
from catalogue import case, fails, is_caught, source
from scipy import special

from pate_jax.accounting.bounds import argmax_cells, laplace_worst_case, moved_vote, worst_case
from pate_jax.mechanisms import Noise

LITTLE = Noise("gaussian", 0.7)


def forgetful(*injections):
    """Mistakes in the search, whose honest results are not remembered, nor the mistaken ones later."""

    def all_of_them(patch):
        for kept in ("shares", "_largest"):
            patch.setattr(worst_case, kept, getattr(worst_case, kept).__wrapped__)
        for inject in injections:
            inject(patch)

    return all_of_them


def without_the_third(patch):
    """The excess without what becomes of the outcome "other"."""
    real = argmax_cells.excess
    shares = np.array([1.0, 1.0, 0.0])
    patch.setattr(argmax_cells, "excess", lambda *given: (real(*given).T * shares).T)
    patch.setattr(argmax_cells.Search, "_other", lambda self, row, others: np.zeros(len(row)))


def over_the_jump(patch):
    """The wins of a class by equal steps that take no notice of where the others take over."""

    def log_wins(x, y):
        s = np.arange(-12, 72, 0.5) + 0.2
        terms = -((s - x[:, None]) ** 2) / 2 + special.log_ndtr(s - y[:, None])
        return special.logsumexp(np.where(s > 0, terms, -np.inf), axis=1) + np.log(0.5 / np.sqrt(2 * np.pi))

    patch.setattr(moved_vote, "log_wins", log_wins)


GRID = fails(partial(worst.test_a_fine_grid_of_places_never_exceeds_the_search_and_comes_close, LITTLE))
SPLITS = fails(
    partial(
        leader.test_no_split_of_the_votes_lets_the_best_of_the_others_reach_further,
        Noise("discrete_gaussian", 3.0),
        4,
    )
)
LONE = fails(partial(leader.test_no_lone_leader_costs_more_either_way_and_some_come_close, *leader.CASES[0]))
MISTAKES = [
    case(
        "others of a lone leader that have no votes",
        source(
            worst_case,
            "_best_reaches",
            "place[:, None, :] - votes[:, :, None]",
            "place[:, None, :] + 0 * votes[:, :, None]",
        ),
        SPLITS,
        "no_split_of_the_votes",
    ),
    case(
        "only one of the others whose noise counts",
        source(worst_case, "_best_reaches", "max(others - 1, 0)", "0"),
        SPLITS,
        "no_split_of_the_votes",
    ),
    case(
        "a lone leader that is ahead by all its votes",
        source(worst_case, "_means", "2 * leader - teachers", "leader"),
        LONE,
        "no_lone_leader",
    ),
    case(
        "the two directions of a lone leader's cost exchanged",
        source(worst_case, "_means", "for cells in found.cells", "for cells in found.cells[::-1]"),
        LONE,
        "no_lone_leader",
    ),
    case(
        "test and argmax charged in opposite directions",
        source(worst_case, "_leader_moves", "(np.True_, np.False_)", "(np.False_, np.True_)"),
        fails(partial(leader.test_test_and_argmax_are_charged_in_the_same_direction, (0.0, 0.3), 9)),
        "same_direction",
    ),
    case("no outcome for the other classes", forgetful(without_the_third), GRID, "fine_grid"),
    case(
        "one direction of the divergence of a moved vote",
        forgetful(
            source(
                argmax_cells.Search,
                "__init__",
                "np.arange(2 * len(orders)) < len(orders)",
                "np.arange(2 * len(orders)) >= 0",
            )
        ),
        GRID,
        "fine_grid",
    ),
    case(
        "quadrature that steps over the jump at the best of the others",
        over_the_jump,
        fails(partial(worst.test_laws_equal_mpmath, "gaussian", 3, -2)),
        "laws_equal_mpmath",
    ),
    case(
        "wide noise that is taken for Gaussian noise at the same places",
        source(moved_vote.WideLatticeVote, "_two", "x - 0.5, y - 0.5", "x, y"),
        fails(partial(worst.test_laws_of_wide_noise_equal_sums, True)),
        "wide_noise_equal_sums",
    ),
    case(
        "others that leave their place twice as slowly as they may",
        forgetful(
            source(laplace_worst_case, "_mean_excess", "-count / noise.scale", "-count / (2 * noise.scale)")
        ),
        fails(partial(laplace.test_no_law_with_such_a_hazard_costs_more_and_one_comes_close, 1.0, 3.0)),
        "no_law_with_such_a_hazard",
    ),
]


@pytest.mark.parametrize("mutation", MISTAKES)
def test_a_mistake_of_the_worst_case_is_caught(mutation, tmp_path):
    is_caught(mutation, tmp_path)
