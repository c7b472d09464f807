"""The threshold test: tails, two-outcome divergences, the worst reading, and the joint worst case."""

import functools
import itertools
import json
from pathlib import Path

import mp_bounds
import mp_readings
import mpmath as mp
import numpy as np
import pytest

from pate_jax import accounting
from pate_jax.accounting import exact
from pate_jax.accounting.bounds import threshold, worst_reading
from pate_jax.accounting.bounds.worst_case import counts_curve
from pate_jax.aggregate import interactive
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


def discrete_tail(weight, reach):
    """The chance of `k` and more, whatever k is, from the weights of all whole numbers within reach."""
    weights = [weight(z) for z in range(-reach, reach + 1)]
    return lambda k: sum(weights[k + reach :]) / sum(weights)


@pytest.mark.parametrize("scale", [0.3, 1.0, 7.0])
def test_tails_equal_mpmath(scale):
    s = mp.mpf(scale)
    laws = {
        "gaussian": lambda x: mp_bounds.normal_tail(x / s),
        "laplace": lambda x: mp.exp(-x / s) / 2 if x > 0 else 1 - mp.exp(x / s) / 2,
        "discrete_gaussian": discrete_tail(lambda z: mp.exp(-(z**2) / (2 * s**2)), 120),
        "discrete_laplace": discrete_tail(lambda z: mp.exp(-abs(z) / s), 900),
    }
    for family, tail in laws.items():
        for k in (-30, -3, -1, 0, 1, 2, 11, 45):
            above, below = threshold.log_survival(Noise(family, scale), np.array([float(k)]))
            chance = tail(k)
            for found, wanted in ((above, mp.log(chance)), (below, mp.log(1 - chance))):
                assert mp_bounds.close(found[0], wanted, rel=1e-12, absolute=1e-16), (family, k)


def test_whole_noise_reads_a_broken_threshold_upwards():
    above, _ = threshold.log_survival(Noise("discrete_gaussian", 2.0), np.array([0.2, 1.0]))
    assert above[0] == above[1]


def test_a_family_without_a_test_is_refused():
    with pytest.raises(PateError, match="gumbel"):
        threshold.log_survival(Noise("gumbel", 2.0), np.array([0.0]))


@functools.cache
def gaussian_law(gap):
    return mp_readings.gaussian(1 / mp.mpf(gap))


@pytest.mark.parametrize("gap", [1e-9, 1e-3, 0.3, 2.0, 30.0])
@pytest.mark.parametrize("x", [-25.0, -3.0, 0.0, 0.4, 6.0])
@pytest.mark.parametrize("inner", [0.0, 1e-9, 0.01, 2.0])
def test_the_cost_of_a_reading_equals_mpmath(gap, x, inner):
    law = gaussian_law(gap)
    for order in ORDERS:
        found = worst_reading.cost(Noise("gaussian", 1 / gap), np.array([x / gap]), np.array([order]), inner)
        given = law, mp.mpf(order), mp.mpf(inner), mp.mpf(x / gap)
        wanted = max(mp_readings.cost(*given, upwards) for upwards in (True, False))
        assert mp_bounds.close(found[0], wanted, rel=1e-11)


@pytest.mark.parametrize("family", ["gaussian", "discrete_gaussian"])
@pytest.mark.parametrize("order", [1.001, 1.7, 12.0, 300.0])
@pytest.mark.parametrize("scale", [0.3, 90.0])
def test_between_two_readings_the_moment_bends_no_more_than_the_search_allows(family, order, scale):
    """Second differences of `log(e^{(a-1) J} - 1)` and of `(a-1) J`."""
    noise, orders = Noise(family, scale), np.array([order])
    for argmax in (0.0, 0.02, 2.0):
        search = worst_reading._Search(noise, (orders - 1) * argmax, 10.0, orders)
        step = 1.0 if search.whole else scale / 64
        x = np.arange(-order - 12 * scale, 12 * scale, max(step, scale / 8))
        x = np.round(x) if search.whole else x
        for upwards in (np.True_, np.False_):
            with np.errstate(all="ignore"):
                values = [
                    worst_reading.log_excess(worst_reading.law(noise, at), orders, search.extra[:1], upwards)
                    for at in (x - step, x, x + step)
                ]
            for bend, (low, middle, high) in (
                (search.bend[1][0], values),
                (search.bend[0][0], [np.logaddexp(0, value) for value in values]),
            ):
                finite = np.isfinite(low) & np.isfinite(middle) & np.isfinite(high)
                rounding = 1e-11 * (1 + np.abs(middle[finite]))
                assert np.all((low + high - 2 * middle)[finite] >= -bend * step**2 - rounding)


@pytest.mark.parametrize("scale", [0.2, 1.0, 15.0, 150.0])
def test_supremum_is_the_largest_over_a_dense_line(scale):
    noise = Noise("gaussian", scale)
    found = threshold.supremum(noise, ORDERS)
    x = np.linspace(-70 - 12 * scale, 12 * scale + 70, 100_001)
    for value, order in zip(found, ORDERS, strict=True):
        best = worst_reading.cost(noise, x, np.array([order])).max()
        assert best <= value <= order / (2 * scale**2) * (1 + 1e-12)
        assert value <= best * (1 + 1e-4)


@pytest.mark.parametrize("family", ["discrete_gaussian", "discrete_laplace"])
@pytest.mark.parametrize("scale", [0.3, 2.0, 31.0])
def test_supremum_of_whole_noise_is_the_largest_over_whole_readings(family, scale):
    noise = Noise(family, scale)
    x = np.arange(-600.0, 601.0)
    cap = threshold.data_independent(ThresholdTest(0, noise), ORDERS)
    for value, top, order in zip(threshold.supremum(noise, ORDERS), cap, ORDERS, strict=True):
        both = worst_reading.cost(noise, x, np.array([order])).max()
        assert min(both, top) <= value * (1 + 1e-13) and value <= min(both * (1 + 3e-9), top)


@pytest.mark.parametrize(
    ("mechanism", "order", "truth"),
    [
        (ConfidentGNMax(125.939, 0.4, 56.2341), 1.187281, 2.44832396),
        (ConfidentGNMax(126.439, 0.7, 121.1528), 1.9, None),
    ],
)
def test_a_narrow_peak_between_the_points_of_a_grid_is_found(mechanism, order, truth):
    """Votes [126, 124] once cost more than the figure for all votes, and the exact one was cut down to it."""
    law, argmax = mp_readings.gaussian(mp.mpf(mechanism.sigma_threshold)), mp.mpf(order) / mechanism.sigma**2
    reading = 126 - mp.mpf(mechanism.threshold)
    together = max(
        _joint(law, reading + move, reading, mechanism, order, way) for move in (-1, 1) for way in (0, 1)
    )
    assert truth is None or abs(together - truth) < 1e-6
    top = mp_readings.worst(
        "gaussian", mechanism.sigma_threshold, order, argmax, 250 - mp.mpf(mechanism.threshold)
    )
    counts = counts_curve(mechanism, 250, np.array([order]))[0]
    published = accounting.rdp(mechanism, [[126, 124]], [order], method="data_independent")[0, 0]
    exact = accounting.rdp(mechanism, [[126, 124]], [order], method="exact")[0, 0]
    for found in (exact, published, counts):
        assert together * (1 - mp.mpf(10) ** -12) <= found <= top * (1 + mp.mpf(10) ** -8)
    assert top <= counts


def _joint(law, after, before, mechanism, order, way):
    """The divergence of {refused, 1, 2} when one of two classes' 126 votes becomes 125 or 127."""
    pairs = []
    for reading in (before, after):
        gap = 2 * (reading + mp.mpf(mechanism.threshold)) - 250
        answered, refused = law(-reading)
        first = mp_bounds.normal_tail(-gap / (mp.sqrt(2) * mechanism.sigma))
        pairs.append((refused, answered * first, answered * (1 - first)))
    return mp_bounds.renyi(*(pairs if way else pairs[::-1]), mp.mpf(order))


def test_worst_case_of_640_published_tests():
    orders = accounting.default_orders()
    curve = 640 * threshold.supremum(Noise("gaussian", 150.0), orders)
    assert accounting.epsilon(orders, curve, 1e-5).epsilon == pytest.approx(0.517, abs=1e-3)
    alone = accounting.worst_case(ConfidentGNMax(200, 150, 1e9), [250] * 640, 1e-5, classes=10)[0].epsilon
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
@pytest.mark.long
def test_joint_worst_case_falls_as_either_noise_grows(limit):
    for argmax_scale in [3.0, 40.0]:
        curves = [
            threshold.joint_bound(
                ThresholdTest(limit, Noise("gaussian", s)), ORDERS / argmax_scale**2, 250, ORDERS
            )
            for s in np.geomspace(0.01, 1e4, 20)
        ]
        assert np.all(np.diff(curves, axis=0) <= 1e-9 * np.array(curves[:-1]))
    grown = [
        threshold.joint_bound(ThresholdTest(limit, Noise("gaussian", 30.0)), ORDERS / s**2, 250, ORDERS)
        for s in np.geomspace(0.01, 1e4, 20)
    ]
    assert np.all(np.diff(grown, axis=0) <= 0)


def test_an_interactive_test_needs_the_student():
    mechanism = InteractiveGNMax(threshold=3, sigma_threshold=2.0, sigma=1.0, student_confidence=0.9)
    votes = [[8, 2], [5, 5]]
    with pytest.raises(PateError, match="student_probabilities"):
        accounting.published_parts(mechanism, votes, ORDERS)
    with pytest.raises(PateError, match="must match"):
        interactive.rdp(mechanism, votes, [[1.0, 0.0]], ORDERS)


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
