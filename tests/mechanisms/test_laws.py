"""The integer tables against arbitrary precision, and the distances they claim."""

import itertools
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pate_jax.errors import PateError
from pate_jax.mechanisms import (
    BY_NAME,
    ConfidentDiscreteGaussian,
    ConfidentGNMax,
    DiscreteGaussianMax,
    GNMax,
    Noise,
    laws,
)

CASES = [
    Noise("discrete_gaussian", 0.05),
    Noise("discrete_gaussian", 0.7),
    Noise("discrete_gaussian", 3),
    Noise("discrete_gaussian", 40.0),
    Noise("discrete_laplace", 0.03),
    Noise("discrete_laplace", 1.3),
    Noise("discrete_laplace", 20.0),
    Noise("rounded_gaussian", 1.0),
    Noise("rounded_gaussian", 2.5),
    Noise("rounded_gaussian", 41.3),
]


def entries(law: laws.Table) -> list[int]:
    """The largest word of each value as one number."""
    return [int(a) << 96 | int(b) << 64 | int(c) << 32 | int(d) for a, b, c, d in law.words]


def drawn_chances(law: laws.Table) -> dict[int, Fraction]:
    """The exact chance of each value, as a sampler by inversion draws it."""
    ends = [-1, *entries(law)[: law.size]]
    counts = np.diff(np.array(ends, dtype=object))
    return {law.lowest + i: Fraction(int(count), 1 << 128) for i, count in enumerate(counts)}


def ideal_chances(noise: Noise, reach: int) -> tuple[dict[int, mpmath.mpf], mpmath.mpf]:
    """The law by arbitrary precision up to `reach` on both sides, and what it has beyond."""
    scale = mpmath.mpf(noise.scale)
    if noise.family == "discrete_laplace":
        q = mpmath.exp(-1 / scale)
        return {x: (1 - q) / (1 + q) * q ** abs(x) for x in range(-reach, reach + 1)}, 2 * q ** (
            reach + 1
        ) / (1 + q)
    if noise.family == "rounded_gaussian":
        ends = {x: mpmath.ncdf((x - mpmath.mpf(1) / 2) / scale) for x in range(-reach, reach + 2)}
        return {x: ends[x + 1] - ends[x] for x in range(-reach, reach + 1)}, 2 * ends[-reach]
    wide = reach + int(30 * noise.scale) + 50
    weights = {x: mpmath.exp(-(mpmath.mpf(x) ** 2) / (2 * scale**2)) for x in range(-wide, wide + 1)}
    total = mpmath.fsum(weights.values())
    beyond = mpmath.fsum(w for x, w in weights.items() if abs(x) > reach) / total
    return {x: weights[x] / total for x in range(-reach, reach + 1)}, beyond


@pytest.mark.parametrize("noise", CASES, ids=str)
def test_distance_bounds_the_exact_total_variation(noise):
    with mpmath.workprec(400):
        drawn = drawn_chances(laws.table(noise))
        ideal, beyond = ideal_chances(noise, laws.support(noise))
        assert set(drawn) == set(ideal)
        gaps = (abs(mpmath.mpf(p.numerator) / p.denominator - ideal[x]) for x, p in drawn.items())
        exact = (mpmath.fsum(gaps) + beyond) / 2
        assert exact <= laws.distance(noise)
        assert exact > laws.distance(noise) * 1e-6  # the claim is not idle
        assert beyond < mpmath.mpf(2) ** -138


@pytest.mark.parametrize("noise", CASES, ids=str)
def test_cumulative_counts_are_within_one_word(noise):
    with mpmath.workprec(400):
        law = laws.table(noise)
        ideal, beyond = ideal_chances(noise, laws.support(noise))
        running = beyond / 2
        for x, entry in zip(sorted(ideal), entries(law), strict=False):
            running += ideal[x]
            assert abs(entry + 1 - running * 2**128) <= 1


def test_a_table_ascends_covers_all_words_and_is_padded_with_ones():
    law = laws.table(Noise("discrete_gaussian", 2.0), length=256)
    ends = entries(law)
    assert law.words.shape == (256, 4) and law.words.dtype == np.uint32
    assert all(left <= right for left, right in itertools.pairwise(ends[: law.size]))
    assert set(ends[law.size - 1 :]) == {2**128 - 1}
    assert sum(drawn_chances(law).values()) == 1


def test_a_large_scale_agrees_with_arbitrary_precision_at_sampled_places():
    noise = Noise("discrete_gaussian", 2345.6)
    ends = entries(laws.table(noise))
    with mpmath.workprec(300):
        scale = mpmath.mpf(noise.scale)
        total = mpmath.sqrt(2 * mpmath.pi) * scale  # Poisson summation: exact to exp(-2 pi^2 sigma^2)
        largest = laws.support(noise)
        for x in (-30000, -2345, 0, 1, 7777, 31000):
            chance = ends[x + largest] - ends[x + largest - 1]
            exact = mpmath.exp(-(mpmath.mpf(x) ** 2) / (2 * scale**2)) / total * 2**128
            assert abs(chance - exact) <= 2


def test_a_large_rounded_gaussian_agrees_with_arbitrary_precision_at_sampled_places():
    noise = Noise("rounded_gaussian", 1234.5)
    ends, largest = entries(laws.table(noise)), laws.support(Noise("rounded_gaussian", 1234.5))
    with mpmath.workprec(300):
        for x in (-16000, -1234, 0, 1, 4321, 17000):
            exact = mpmath.ncdf((x + mpmath.mpf(1) / 2) / mpmath.mpf(noise.scale)) * 2**128
            assert abs(ends[x + largest] + 1 - exact) <= 1


def test_rounded_noise_below_one_vote_is_refused():
    with pytest.raises(PateError, match=r"scale=0\.5 .* at least 1"):
        laws.table(Noise("rounded_gaussian", 0.5))


@given(st.fractions(min_value=0, max_value=400, max_denominator=10**9))
def test_exponentials_are_rounded_down_by_less_than_two(exponent):
    with mpmath.workprec(900):
        exact = mpmath.exp(-mpmath.mpf(exponent.numerator) / exponent.denominator) * mpmath.mpf(2) ** 256
        assert 0 <= exact - laws.exp_minus(exponent) < 2


def test_exponents_far_out_give_nothing():
    assert laws.exp_minus(Fraction(10**30)) == 0
    assert drawn_chances(laws.table(Noise("discrete_gaussian", 1e-3)))[0] > 1 - Fraction(1, 2**120)


@pytest.mark.parametrize("family", ["discrete_gaussian", "discrete_laplace", "rounded_gaussian"])
def test_too_large_a_scale_is_refused_with_the_largest_that_is_not(family):
    with pytest.raises(PateError, match=r"scale=1000000\.0 ") as caught:
        laws.table(Noise(family, 1e6))
    largest = float(str(caught.value).split("scale up to ")[1].split(",")[0])
    assert 2 * laws.support(Noise(family, largest - 1)) + 1 <= laws.LARGEST_TABLE
    with pytest.raises(PateError):
        laws.support(Noise(family, largest + 1))


def test_slack_adds_up_over_all_draws():
    one = laws.distance(Noise("discrete_gaussian", 40.0))
    test = laws.distance(Noise("discrete_gaussian", 150.0))
    slack = laws.delta_slack(ConfidentDiscreteGaussian(200, 150.0, 40.0), queries=7, classes=3)
    assert slack == pytest.approx(7 * (3 * (one + 2.0**-128) + test), rel=1e-9)
    assert laws.delta_slack(GNMax(40), 1000, 10) < 1e-13
    assert laws.delta_slack(ConfidentGNMax(200, 150, 40), 12000, 150) < 1e-11
    assert laws.delta_slack(DiscreteGaussianMax(40), 0, 10) == 0


@pytest.mark.parametrize("name", BY_NAME)
def test_every_mechanism_has_a_slack_far_below_any_delta(name):
    kind = BY_NAME[name]
    fields = {"threshold": 30, "student_confidence": 0.5}
    mechanism = kind(*(fields.get(field, 9.0) for field in kind.__dataclass_fields__))
    assert 0 < laws.delta_slack(mechanism, 1000, 10) < 1e-13


def test_bad_input_is_refused():
    with pytest.raises(PateError, match="no table"):
        laws.table(Noise("gaussian", 4.0))
    with pytest.raises(PateError, match="length=100"):
        laws.table(Noise("discrete_gaussian", 1.0), length=100)
    with pytest.raises(PateError, match="queries=-1"):
        laws.delta_slack(GNMax(1.0), -1, 10)
