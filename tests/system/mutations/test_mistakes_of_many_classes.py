"""Known mistakes of the quadrature for many classes: a named test fails for each."""

from functools import partial

import pytest
from catalogue import case, fails, is_caught, source
from test_many_classes import test_laws_of_many_classes_are_those_of_exact_sums as exact_sums
from test_many_classes import test_the_ratios_of_the_left_tail_hold_for_every_class_and_move as left_tail
from test_many_classes import test_the_rule_within_cells_is_for_the_law_on_the_numbers_that_are_nodes as cells

from pate_jax.accounting.exact import nodes
from pate_jax.mechanisms import Noise

CASES = [
    case(
        "the law of a winner with its own class among those below it",
        source(nodes, "_log_ratio", "density + every - ratio", "density + every"),
        fails(partial(left_tail, Noise("gaussian", 12.0))),
        "left_tail",
    ),
    case(
        "the left tail of the votes as they are, not after a move",
        source(nodes, "_log_ratio", "groups.counts[:, :, None] - 1", "groups.counts[:, :, None]"),
        fails(partial(left_tail, Noise("gaussian", 0.8))),
        "left_tail",
    ),
    case(
        "the left tail of whole numbers without the places between them",
        source(nodes, "_log_ratio", "1.0 if noise.is_discrete else 0.0", "0.0"),
        fails(partial(left_tail, Noise("discrete_gaussian", 3.0))),
        "left_tail",
    ),
    case(
        "a quadrature that begins where a hundredth of the mass lies below",
        source(nodes.LeftTail, "start", "<= LEFT_OUT", "<= -4.0"),
        fails(partial(exact_sums, 3.0)),
        "exact_sums",
    ),
    case(
        "the rule within cells for a law on all whole numbers, of which few are nodes",
        source(nodes, "_lattice", "tail.of_every(step)", "tail"),
        fails(cells),
        "== 6",
    ),
]


@pytest.mark.parametrize("mutation", CASES)
def test_a_mistake_of_the_quadrature_is_caught(mutation, tmp_path):
    is_caught(mutation, tmp_path)
