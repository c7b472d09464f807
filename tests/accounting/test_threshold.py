"""The threshold test: tails, two-outcome divergences, the worst reading, and the joint worst case."""

import itertools
import json
from pathlib import Path

import mp_bounds
import mpmath as mp
import numpy as np
import pytest

from pate_jax import accounting
from pate_jax.accounting import exact, threshold
from pate_jax.errors import PateError
from pate_jax.mechanisms import (
    ConfidentDiscreteGaussian,
    ConfidentDiscreteLaplace,
    ConfidentGNMax,
    InteractiveGNMax,
    Noise,
    ThresholdTest,
)

DIGITS = mp_bounds.DIGITS

GOLDENS = Path(__file__).parents[2] / "../shared/data/goldens.json"
ORDERS = np.array([1.05, 2.0, 9.0, 60.0])


def discrete_tail(weight, k, reach):
    whole = sum(weight(z) for z in range(-reach, reach + 1))
    return sum(weight(z) for z in range(k, reach + 1)) / whole


@pytest.mark.parametrize("scale", [0.3, 1.0, 7.0])
@pytest.mark.parametrize("k", [-30, -3, -1, 0, 1, 2, 11, 45])
def test_tails_equal_mpmath(scale, k):
    s = mp.mpf(scale)
    laws = {
        "gaussian": lambda x: mp_bounds.normal_tail(x / s),
        "laplace": lambda x: mp.exp(-x / s) / 2 if x > 0 else 1 - mp.exp(x / s) / 2,
        "discrete_gaussian": lambda x: discrete_tail(lambda z: mp.exp(-(z**2) / (2 * s**2)), x, 120),
        "discrete_laplace": lambda x: discrete_tail(lambda z: mp.exp(-abs(z) / s), x, 900),
    }
    for family, tail in laws.items():
        above, below = threshold.log_survival(Noise(family, scale), np.array([float(k)]))
        assert mp_bounds.close(above[0], mp.log(tail(k)), rel=1e-12, absolute=1e-16), family
        wanted = mp.log(1 - tail(k))
        assert mp_bounds.close(below[0], wanted, rel=1e-12, absolute=1e-16), family


def test_whole_noise_reads_a_broken_threshold_upwards():
    above, _ = threshold.log_survival(Noise("discrete_gaussian", 2.0), np.array([0.2, 1.0]))
    assert above[0] == above[1]


def test_a_family_without_a_test_is_refused():
    with pytest.raises(PateError, match="gumbel"):
        threshold.log_survival(Noise("gumbel", 2.0), np.array([0.0]))


@pytest.mark.parametrize("gap", [1e-6, 1e-3, 0.3, 2.0, 30.0])
@pytest.mark.parametrize("x", [-25.0, -3.0, 0.0, 0.4, 6.0])
@pytest.mark.parametrize("inner", [0.0, 1e-9, 0.01, 2.0])
def test_two_outcome_equals_mpmath(gap, x, inner):
    noise = Noise("gaussian", 1.0)
    p, q = threshold.log_survival(noise, np.array([-x])), threshold.log_survival(noise, np.array([gap - x]))
    yes, no = mp_bounds.normal_tail(-mp.mpf(x)), mp_bounds.normal_tail(mp.mpf(x))
    yes2, no2 = mp_bounds.normal_tail(mp.mpf(gap) - x), mp_bounds.normal_tail(mp.mpf(x) - gap)
    for order in ORDERS:
        a = mp.mpf(order)
        together = yes**a * yes2 ** (1 - a) * mp.exp((a - 1) * mp.mpf(inner)) + no**a * no2 ** (1 - a)
        found = threshold.two_outcome(p, q, np.array([order]), inner)[0]
        assert mp_bounds.close(found, mp.log(together) / (a - 1), rel=1e-6, absolute=1e-19)


@pytest.mark.parametrize("scale", [0.2, 1.0, 15.0, 150.0])
def test_supremum_is_the_largest_over_a_dense_line(scale):
    noise = Noise("gaussian", scale)
    found = threshold.supremum(noise, ORDERS)
    x = np.linspace(-70 - 12 * scale, 12 * scale + 70, 100_001)
    p, q = threshold.log_survival(noise, -x), threshold.log_survival(noise, 1 - x)
    for value, order in zip(found, ORDERS, strict=True):
        best = threshold.two_outcome(p, q, np.array([order])).max()
        assert best <= value <= order / (2 * scale**2) * (1 + 1e-12)
        assert value <= best * (1 + 1e-3)


@pytest.mark.parametrize("family", ["discrete_gaussian", "discrete_laplace"])
@pytest.mark.parametrize("scale", [0.3, 2.0, 31.0])
def test_supremum_of_whole_noise_is_the_largest_over_whole_readings(family, scale):
    noise = Noise(family, scale)
    x = np.arange(-600.0, 601.0)
    p, q = threshold.log_survival(noise, -x), threshold.log_survival(noise, 1 - x)
    cap = threshold.data_independent(ThresholdTest(0, noise), ORDERS)
    for value, top, order in zip(threshold.supremum(noise, ORDERS), cap, ORDERS, strict=True):
        both = np.maximum(
            threshold.two_outcome(p, q, np.array([order])), threshold.two_outcome(q, p, np.array([order]))
        )
        assert min(both.max(), top) <= value <= min(both.max() * (1 + 2e-6), top)


def test_worst_case_of_640_published_tests():
    orders = accounting.default_orders()
    curve = 640 * threshold.supremum(Noise("gaussian", 150.0), orders)
    assert accounting.epsilon(orders, curve, 1e-5).epsilon == pytest.approx(0.517, abs=1e-3)
    alone = accounting.worst_case(ConfidentGNMax(200, 150, 1e9), [250] * 640, 1e-5)[0].epsilon
    assert alone <= 0.5175


def histograms(teachers, classes):
    for cuts in itertools.combinations(range(teachers + classes - 1), classes - 1):
        ends = (-1, *cuts, teachers + classes - 1)
        yield [b - a - 1 for a, b in itertools.pairwise(ends)]


@pytest.mark.parametrize(
    "mechanism",
    [
        ConfidentGNMax(4, 1.5, 1.0),
        ConfidentGNMax(9, 3.0, 2.0),
        ConfidentGNMax(2.5, 0.4, 3.0),
        ConfidentDiscreteGaussian(4, 1.5, 1.0),
        ConfidentDiscreteLaplace(5, 2.0, 1.5),
    ],
)
@pytest.mark.parametrize(("teachers", "classes"), [(6, 2), (5, 3)])
def test_joint_worst_case_covers_every_histogram(mechanism, teachers, classes):
    votes = np.array(list(histograms(teachers, classes)))
    worst = accounting.rdp(mechanism, votes[:1], ORDERS, method="data_independent")[0]
    joint = exact.rdp(
        mechanism, votes, ORDERS[:-1]
    )  # at the last order rounding alone can lift it to its cap
    assert np.all(joint <= worst[:-1] * (1 + 1e-9))
    alone = threshold.data_independent(mechanism.test, ORDERS) + accounting.curves.argmax_bound(
        mechanism, ORDERS
    )
    assert np.all(worst <= alone * (1 + 1e-12))


@pytest.mark.parametrize("limit", [0, 50, 200, 250, 400])
def test_joint_worst_case_falls_as_either_noise_grows(limit):
    for argmax_scale in [3.0, 40.0]:
        curves = [
            threshold.joint_bound(
                ThresholdTest(limit, Noise("gaussian", s)), ORDERS / argmax_scale**2, 250, ORDERS
            )
            for s in np.geomspace(0.01, 1e4, 40)
        ]
        assert np.all(np.diff(curves, axis=0) <= 1e-9 * np.array(curves[:-1]))
    grown = [
        threshold.joint_bound(ThresholdTest(limit, Noise("gaussian", 30.0)), ORDERS / s**2, 250, ORDERS)
        for s in np.geomspace(0.01, 1e4, 40)
    ]
    assert np.all(np.diff(grown, axis=0) <= 0)


def test_interactive_reads_what_the_student_leaves():
    mechanism = InteractiveGNMax(threshold=3, sigma_threshold=2.0, sigma=1.0, student_confidence=0.9)
    votes, shares = [[8, 2], [5, 5]], [[0.5, 0.5], [1.0, 0.0]]
    parts = accounting.published_parts(mechanism, votes, ORDERS, student_probabilities=shares)
    wanted = [mp.log(mp_bounds.normal_tail(mp.mpf(0))), mp.log(mp_bounds.normal_tail(mp.mpf(-1)))]
    assert all(mp_bounds.close(a, b, rel=1e-13) for a, b in zip(parts.log_answered, wanted, strict=True))
    with pytest.raises(PateError, match="student_probabilities"):
        accounting.published_parts(mechanism, votes, ORDERS)
    with pytest.raises(PateError, match="must match"):
        accounting.published_parts(mechanism, votes, ORDERS, student_probabilities=[[1.0, 0.0]])


@pytest.mark.parametrize(
    ("reading", "sigma"), list(itertools.product([0, 100, 199, 250], [2.0, 30.0, 150.0]))
)
def test_published_test_is_theorem_6_of_the_rarer_outcome(reading, sigma):
    test = ThresholdTest(200, Noise("gaussian", sigma))
    passed, refused = threshold.log_answered(test, np.array([float(reading)]))
    p = mp_bounds.normal_tail((200 - mp.mpf(reading)) / sigma)
    for order in ORDERS:
        found = threshold.published(test, passed, refused, np.array([order]))[0, 0]
        wanted = mp_bounds.theorem6(min(p, 1 - p), mp.sqrt(2) * sigma, order)
        assert mp_bounds.close(found, wanted, rel=1e-9)


def test_published_goldens_of_the_test():
    if not GOLDENS.exists():
        pytest.skip("no shared data here")
    for name, entry in json.loads(GOLDENS.read_text())["per_query"].items():
        votes = np.load(GOLDENS.parent / f"votes/published_{name}_250.npz")["votes"][entry["rows"]]
        test = ThresholdTest(entry["threshold"], Noise("gaussian", entry["sigma1"]))
        passed, refused = threshold.log_answered(test, votes.max(axis=1))
        np.testing.assert_allclose(passed, entry["logpr_answered"], rtol=1e-9)
        found = threshold.published(test, passed, refused, np.array(entry["orders"]))
        np.testing.assert_allclose(found, entry["rdp_threshold"], rtol=1e-9)


def test_answered_as_often_as_drawn():
    """Monte Carlo with continuous noise; two-sided, so a wrong scale is caught."""
    rng, draws = np.random.default_rng(2), 200_000
    test = ThresholdTest(20, Noise("gaussian", 6.0))
    for largest in (12, 20, 31):
        share = (largest + rng.normal(0, 6.0, draws) >= 20).mean()
        for scale, right in ((6.0, True), (4.0, False), (9.0, False)):
            passed, _ = threshold.log_answered(
                test._replace(noise=Noise("gaussian", scale)), np.array([largest])
            )
            close = abs(share - np.exp(passed[0])) < 5 * np.sqrt(0.25 / draws)
            assert close == (right or largest == 20)
