"""Mistakes in the protocol among parties: votes are shown, or wrong ones come in. A test fails for each."""

from functools import partial

import numpy as np
import pytest
import test_secrecy
from catalogue import case, fails, is_caught, replaced, source

from pate_jax.parties import engine, ranges
from pate_jax.parties.shamir import Prime

LAW = fails(partial(test_secrecy.test_t_shares_have_one_law_and_one_more_gives_the_secret, 1, 3, 5))
VIEW = fails(test_secrecy.test_the_view_of_one_party_has_the_law_of_the_opened_sum_alone)
CHECK = fails(
    partial(test_secrecy.test_the_check_is_zero_if_and_only_if_a_party_keeps_to_its_range, 1, "teachers")
)
ZERO = fails(test_secrecy.test_for_zero_shows_whether_a_number_is_zero_and_nothing_else)
SHUFFLE = fails(partial(test_secrecy.test_a_shuffle_is_one_uniform_order_that_t_parties_do_not_know, 3, 1))
SCALE = fails(test_secrecy.test_the_agreement_fixes_what_is_sent)


def unmasked(real):
    return lambda self, field, count: field.array([0] * count)


def in_one_order(real):
    return lambda key, queries, classes: np.tile(np.arange(classes), (queries, 1))


@pytest.mark.parametrize(
    "mutation",
    [
        case(
            "shares lie on a line through the same point for every secret",
            source(Prime, "_at", "value = coefficients[0]", "value = coefficients[0] * 0"),
            LAW,
            "",
        ),
        case(
            "a digit may be anything",
            source(ranges, "combination", "products, weights", "products * 0, weights"),
            CHECK,
            "",
        ),
        case("counts need not add up", source(ranges, "combination", "-party.votes", "0"), CHECK, ""),
        case("a product is opened without a mask", replaced(engine._kind(), "zeros", unmasked), ZERO, ""),
        case(
            "classes keep their order",
            replaced(
                ranges,
                "_order",
                lambda real: lambda key, queries, classes: real(bytes(32), 1, classes).repeat(queries, 0),
            ),
            SHUFFLE,
            "",
        ),
        case(
            "shuffled shares are not shared anew",
            source(Prime, "uniform", "self.modulus\n    return", "1\n    return"),
            SHUFFLE,
            "",
        ),
        case(
            "the noise of colluders counts",
            source(ranges, "share_scale", " - agreement.colluders", ""),
            SCALE,
            "",
        ),
    ],
)
def test_a_mistake_is_caught(mutation, tmp_path):
    is_caught(mutation, tmp_path)
