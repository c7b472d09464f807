"""Local noise: exact epsilon by enumeration of everything that can be sent, in whole numbers."""

import itertools
from fractions import Fraction

import mpmath
import pytest

from pate_jax.errors import PateError
from pate_jax.mechanisms import local

EPSILONS = [0.1, 1.0, 4.0, 17.3]


def laws(mechanism):
    """For each class, the exact chance of everything that a voter can send."""
    rows = [[Fraction(count, local.WORDS) for count in row] for row in local.channel(mechanism)]
    if not local.is_bits(mechanism):
        return [dict(enumerate(row)) for row in rows]
    found = []
    for true in range(mechanism.classes):
        law = {}
        for bits in itertools.product((0, 1), repeat=mechanism.classes):
            chance = Fraction(1)
            for place, bit in enumerate(bits):
                chance *= rows[int(place == true)][bit]
            law[bits] = chance
        found.append(law)
    return found


def largest_ratio(mechanism):
    law = laws(mechanism)
    return max(p[sent] / q[sent] for p, q in itertools.permutations(law, 2) for sent in p)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("kind", local.BY_NAME.values(), ids=local.BY_NAME)
@pytest.mark.parametrize("classes", [2, 5])
def test_the_drawn_law_keeps_its_pure_epsilon_exactly(kind, classes, epsilon):
    mechanism = kind(classes, epsilon)
    assert all(sum(law.values()) == 1 and min(law.values()) > 0 for law in laws(mechanism))
    with mpmath.workprec(300):
        ratio = largest_ratio(mechanism)
        exact = mpmath.log(mpmath.mpf(ratio.numerator) / ratio.denominator)
        assert exact <= local.log_ratio(mechanism) <= exact * (1 + mpmath.mpf("1e-12"))
        assert exact <= mpmath.mpf(epsilon)  # not one part in 2^300 above what is promised
        if kind is not local.TruncatedGeometric:
            assert exact > mpmath.mpf(epsilon) * (1 - mpmath.mpf("1e-10"))


def test_truncated_geometric_noise_has_the_printed_law():
    mechanism = local.TruncatedGeometric(4, 2.0)
    with mpmath.workprec(200):
        for number, law in enumerate(laws(mechanism), 1):
            weights = [mpmath.exp(-mpmath.mpf(2) * abs(sent - number) / 4) for sent in range(5)]
            for sent, weight in enumerate(weights):
                found = mpmath.mpf(law[sent].numerator) / law[sent].denominator
                assert abs(found - weight / mpmath.fsum(weights)) <= mpmath.mpf(2) ** -125


@pytest.mark.parametrize(
    ("name", "classes", "epsilon", "message"),
    [
        ("coin", 3, 1.0, "'coin' is unknown"),
        ("one-hot", 1, 1.0, "classes=1"),
        ("one-hot", 2000, 1.0, "classes=2000"),
        ("one-hot", 3, 0.0, "epsilon=0.0"),
        ("one-hot", 3, float("nan"), "epsilon=nan"),
        ("one-hot", 3, 100.0, "epsilon=100"),
        ("one-hot", 3, "1", "epsilon='1'"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(name, classes, epsilon, message):
    with pytest.raises(PateError, match=message):
        local.make(name, classes, epsilon)
