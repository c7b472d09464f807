"""The exact Renyi cost: never below the truth, hardly above it, against 50 digits and brute force."""

import itertools
import json
import warnings
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_ndtr

from pate_jax.accounting import exact
from pate_jax.accounting.exact.groups import merge
from pate_jax.accounting.exact.noise_law import caps
from pate_jax.aggregate import interactive
from pate_jax.errors import PateError
from pate_jax.mechanisms import (
    ConfidentDiscreteGaussian,
    ConfidentDiscreteLaplace,
    ConfidentGNMax,
    DiscreteGaussianMax,
    DiscreteLaplaceMax,
    GNMax,
    GumbelMax,
    InteractiveGNMax,
    LNMax,
    PermuteAndFlip,
)

DATA = Path(__file__).parents[2] / "../shared/data"
ORDERS = np.array([1.01, 1.5, 2.0, 4.5, 17.0, 64.0, 300.0])
MECHANISMS = [
    GNMax(3.0),
    GNMax(40.0),
    LNMax(5.0),
    GumbelMax(4.0),
    PermuteAndFlip(4.0),
    DiscreteGaussianMax(3.0),
    DiscreteLaplaceMax(3.0),
    ConfidentGNMax(8, 6.0, 3.0),
    ConfidentDiscreteGaussian(8, 6.0, 3.0),
    ConfidentDiscreteLaplace(8, 5.0, 3.0),
]


def divergence(order, p, q):
    """`D_a(P||Q)` at 50 digits for lists of probabilities."""
    order = mp.mpf(float(order))
    return mp.log(mp.fsum(x**order * y ** (1 - order) for x, y in zip(p, q, strict=True))) / (order - 1)


def both(order, p, q):
    return max(divergence(order, p, q), divergence(order, q, p))


def neighbours(votes):
    """All histograms that one moved vote can make of this one."""
    for a, b in itertools.permutations(range(len(votes)), 2):
        if votes[a] >= 1:
            moved = list(votes)
            moved[a] -= 1
            moved[b] += 1
            yield moved


def two_class_law(mechanism, votes):
    """Released outcomes of two classes with Gaussian, Laplace or Gumbel noise, in closed form."""
    family, scale = mechanism.noise
    gap, scale = mp.mpf(votes[0] - votes[1]), mp.mpf(scale)
    far = abs(gap) / scale
    if family == "gaussian":
        small = mp.ncdf(-far / mp.sqrt(2))
    elif family == "laplace":
        small = (2 + far) / 4 * mp.exp(-far)
    else:
        small = mp.exp(-far) / 2 if family == "exponential" else 1 / (1 + mp.exp(far))
    law = [1 - small, small] if gap >= 0 else [small, 1 - small]
    if mechanism.test is None:
        return law
    z = (mp.mpf(max(votes)) - mp.mpf(mechanism.test.threshold)) / mp.mpf(mechanism.test.noise.scale)
    return [mp.ncdf(-z), *(mp.ncdf(z) * value for value in law)]


CASES = [
    (mechanism(scale), votes)
    for scale, votes in itertools.product(
        [0.5, 2.0, 15.0, 40.0, 1e4], [[1, 0], [30, 30], [31, 30], [250, 0], [180, 70], [126, 124], [3, 247]]
    )
    for mechanism in (
        GNMax,
        LNMax,
        GumbelMax,
        PermuteAndFlip,
        lambda s: ConfidentGNMax(200, 4 * s, s),
        lambda s: ConfidentGNMax(0, 2 * s, s),
    )
]


def test_two_classes_at_fifty_digits():
    """210 cases at 5 orders: at least the truth, at most a millionth above it."""
    orders = [1.01, 2.0, 7.5, 40.0, 300.0]
    for mechanism, votes in CASES:
        found = exact.rdp(mechanism, [votes], orders)[0]
        cap = caps(mechanism.noise, mechanism.test, orders)
        law = two_class_law(mechanism, votes)
        for order, value, most in zip(orders, found, cap, strict=True):
            truth = max(both(order, law, two_class_law(mechanism, moved)) for moved in neighbours(votes))
            assert float(value) >= truth or value == most, (mechanism, votes, order)
            slack = mp.mpf(2e-12 * order / (order - 1))
            assert float(value) <= min(truth * (1 + mp.mpf(10) ** -6) + slack, most * (1 + 1e-12))


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
def test_brute_force_over_all_histograms(mechanism):
    """Every histogram of 5 teachers and 3 classes, every neighbour's law for itself, naive sums."""
    laws = {}

    def law(votes):
        if votes not in laws:
            label = [mp.exp(mp.mpf(float(x))) for x in exact.probabilities(mechanism, [votes])[0]]
            if mechanism.test is None:
                laws[votes] = label
            else:
                chance = mp.exp(mp.mpf(float(exact.parts(mechanism, [votes], [2.0]).log_answered[0])))
                laws[votes] = [1 - chance, *(chance * value for value in label)]
        return laws[votes]

    for votes in [v for v in itertools.product(range(6), repeat=3) if sum(v) == 5 and list(v) == sorted(v)]:
        found = exact.rdp(mechanism, [votes], [1.5, 4.0, 30.0])[0]
        for order, value in zip([1.5, 4.0, 30.0], found, strict=True):
            truth = max(both(order, law(votes), law(tuple(moved))) for moved in neighbours(votes))
            cap = float(caps(mechanism.noise, mechanism.test, [order])[0])
            assert value >= min(float(truth) * (1 - 1e-9), cap) - 1e-13
            assert value <= min(float(truth) * (1 + 1e-6) + 1e-11, cap * (1 + 1e-12))


def theorem_6(order: float, sigma: float, log_q: float) -> float:
    """Papernot et al. 2018, theorem 6 with the Gaussian curve a/s^2, written from the paper."""
    independent = order / sigma**2
    if log_q >= -1e-12:
        return independent
    mu2 = sigma * np.sqrt(-log_q)
    mu1 = mu2 + 1
    if mu2 <= 1 or order > mu1:
        return independent
    e1, e2 = mu1 / sigma**2, mu2 / sigma**2
    if log_q > (mu2 - 1) * e2 - mu2 * np.log(mu1 / (mu1 - 1) * mu2 / (mu2 - 1)):
        return independent
    log_a = np.log1p(-np.exp(log_q)) - np.log1p(-np.exp((log_q + e2) * (mu2 - 1) / mu2))
    log_b = e1 - log_q / (mu1 - 1)
    terms = np.log1p(-np.exp(log_q)) + (order - 1) * log_a, log_q + (order - 1) * log_b
    return min(independent, np.logaddexp(*terms) / (order - 1))


def test_forward_divergence_is_never_above_theorem_6():
    """Forward below the published bound, both below the worst case; the reverse may exceed theorem 6."""
    reversed_above = 0
    for sigma in (2.0, 5.0, 20.0):
        for votes in ([9, 3], [12, 0], [20, 18], [40, 1], [7, 5, 0], [30, 10, 5]):
            law = np.exp(exact.probabilities(GNMax(sigma), [votes])[0])
            log_q = (
                float(np.log(law.sum() - law.max()))
                if law.max() < 0.9
                else float(np.log(np.sort(law)[:-1].sum()))
            )
            for order in (1.5, 3.0, 6.0):
                bound = theorem_6(order, sigma, log_q)
                for moved in neighbours(votes):
                    other = np.exp(exact.probabilities(GNMax(sigma), [moved])[0])
                    assert float(divergence(order, law, other)) <= bound * (1 + 1e-9) + 1e-13
                    reversed_above += float(divergence(order, other, law)) > bound * (1 + 1e-9)
                assert exact.rdp(GNMax(sigma), [votes], [order])[0, 0] <= order / sigma**2
    assert reversed_above > 0


@given(data=st.data())
def test_any_votes_and_any_noise(data):
    """Never NaN, negative or above the cap, no warning, and the order of the classes does not matter."""
    classes = data.draw(st.sampled_from([2, 3, 5, 10, 30, 200]))
    teachers = data.draw(st.sampled_from([1, 2, 17, 250, 5000]))
    scale = data.draw(st.sampled_from([1e-3, 0.1, 1.0, 7.3, 40.0, 300.0, 3e5]))
    seed = data.draw(st.integers(0, 2**32 - 1))
    kinds = [
        GNMax(scale),
        LNMax(scale),
        GumbelMax(scale),
        PermuteAndFlip(scale),
        DiscreteGaussianMax(scale),
        DiscreteLaplaceMax(scale),
        ConfidentGNMax(0.6 * teachers, 3 * scale, scale),
        ConfidentDiscreteGaussian(0.6 * teachers, 3 * scale, scale),
    ]
    mechanism = data.draw(st.sampled_from(kinds))
    rng = np.random.default_rng(seed)
    votes = rng.multinomial(
        teachers, rng.dirichlet(np.full(classes, data.draw(st.sampled_from([0.02, 0.3, 5.0]))))
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = exact.rdp(mechanism, votes[None], ORDERS)
        shuffled = exact.rdp(mechanism, rng.permutation(votes)[None], ORDERS)
    assert np.isfinite(found).all()
    assert (found >= 0).all()
    assert (found <= caps(mechanism.noise, mechanism.test, ORDERS) * (1 + 1e-12)).all()
    assert (np.diff(found[0]) >= 0).all()
    np.testing.assert_array_equal(found, shuffled)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
def test_concatenation_is_the_sum_of_the_parts(mechanism):
    rng = np.random.default_rng(3)
    votes = rng.multinomial(20, rng.dirichlet(np.ones(4)), size=30)
    whole = exact.rdp(mechanism, votes, ORDERS)
    parts = np.concatenate(
        [exact.rdp(mechanism, votes[:11], ORDERS), exact.rdp(mechanism, votes[11:], ORDERS)]
    )
    np.testing.assert_allclose(whole, parts, rtol=1e-7, atol=1e-11)
    assert whole.shape == (30, len(ORDERS))


@pytest.mark.parametrize("family", ["gaussian", "discrete"])
@pytest.mark.parametrize("scale", [1e-3, 0.05, 1.0, 4.0, 40.0, 1e3, 1e6])
def test_unanimous_votes_at_every_scale(family, scale):
    """Strong consensus at 250 to 0 costs next to nothing with little noise, and never breaks."""
    mechanism = GNMax(scale) if family == "gaussian" else DiscreteGaussianMax(scale)
    found = exact.rdp(mechanism, [[250] + [0] * 9], [2.0, 8.0, 32.0])[0]
    assert np.isfinite(found).all()
    assert (found >= 0).all()
    if scale <= 1:
        assert found[0] < 1e-11


def test_adversarial_histograms():
    """Ties, gaps beyond 24 scales, empty classes, one teacher, thresholds out of reach."""
    votes = [[100, 100, 0, 0], [200, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0], [99, 98, 2, 1], [50, 50, 50, 50]]
    for mechanism in (GNMax(3.0), ConfidentGNMax(1e5, 2.0, 3.0), ConfidentGNMax(0, 1.0, 3.0), LNMax(0.5)):
        found = exact.rdp(mechanism, votes, ORDERS)
        assert np.isfinite(found).all()
        assert (found >= 0).all()
    assert (
        exact.rdp(GNMax(3.0), [[0, 0, 0, 0]], ORDERS) == 0
    ).all()  # nobody voted, so nobody's vote can move
    refused = exact.rdp(ConfidentGNMax(1e5, 2.0, 3.0), votes, ORDERS)
    assert (refused[:, :4] < 1e-9).all()  # a threshold out of reach hides everything
    low = ORDERS[:5]  # at high orders even a refusal of probability exp(-5000) costs
    always = exact.rdp(ConfidentGNMax(0, 1.0, 3.0), [[100, 98, 2, 0]], low)
    np.testing.assert_allclose(always, exact.rdp(GNMax(3.0), [[100, 98, 2, 0]], low), rtol=1e-6, atol=1e-11)


def test_empty_class_cannot_give_a_vote():
    """250 to 0 has one neighbour, 249 to 1: nothing can leave the empty class."""
    found = exact.rdp(GNMax(40.0), [[250, 0]], [5.0])[0, 0]
    law, other = two_class_law(GNMax(40.0), [250, 0]), two_class_law(GNMax(40.0), [249, 1])
    assert abs(found / float(both(5.0, law, other)) - 1) < 1e-6
    assert float(both(5.0, law, two_class_law(GNMax(40.0), [251, -1]))) != pytest.approx(found, rel=1e-3)


def test_the_move_between_two_classes_of_equal_counts_is_tried():
    found = exact.rdp(GNMax(2.0), [[10, 10]], [3.0])[0, 0]
    truth = both(3.0, two_class_law(GNMax(2.0), [10, 10]), two_class_law(GNMax(2.0), [11, 9]))
    assert abs(found / float(truth) - 1) < 1e-6


def test_cost_is_not_monotone_in_the_noise():
    """It peaks midway, so calibration must not search on it (docs/proofs/accounting.md, "Calibration")."""
    small, middle, large = (exact.rdp(GNMax(s), [[230, 20]], [20.0])[0, 0] for s in (20.0, 80.0, 320.0))
    assert small < 1e-9 < large < middle


def test_joint_mechanism_is_neither_the_test_nor_the_sum():
    mechanism = ConfidentGNMax(150, 30.0, 20.0)
    votes = np.array([[140, 70, 40], [160, 60, 30]])
    joint, parts = exact.rdp(mechanism, votes, ORDERS), exact.parts(mechanism, votes, ORDERS)
    assert (joint >= parts.test * (1 - 1e-9)).all()  # the test's outcome is part of what is released
    assert (joint <= parts.test + caps(mechanism.noise, None, ORDERS)).all()
    answered = log_ndtr((votes.max(axis=1) - 150) / 30.0)
    np.testing.assert_allclose(parts.log_answered, answered, rtol=1e-12)
    np.testing.assert_allclose(parts.argmax, exact.rdp(GNMax(20.0), votes, ORDERS), rtol=1e-9)


def test_interactive_mechanism_by_enumeration():
    mechanism = InteractiveGNMax(threshold=3, sigma_threshold=4.0, sigma=3.0, student_confidence=0.9)
    votes, shares = [6, 4, 2], [0.5, 0.3, 0.2]

    def law(counts):
        label = np.exp(exact.probabilities(GNMax(3.0), [counts])[0])
        z = (max(n - 12 * p for n, p in zip(counts, shares, strict=True)) - 3) / 4.0
        return [np.exp(log_ndtr(-z)), *(np.exp(log_ndtr(z)) * label)]

    found = interactive.rdp(mechanism, [votes], [shares], [2.0, 10.0])[0]
    for order, value in zip([2.0, 10.0], found, strict=True):
        truth = max(both(order, law(votes), law(moved)) for moved in neighbours(votes))
        assert abs(value / float(truth) - 1) < 1e-6
    with pytest.raises(PateError, match="student_probabilities"):
        exact.rdp(mechanism, [votes], [2.0])


def test_many_classes_with_screening_agree_with_every_move():
    """Left-out and screened moves cost nothing: 40 classes against the same laws, move by move."""
    rng = np.random.default_rng(8)
    for teachers, scale in ((800, 12.0), (120, 8.0)):
        votes = rng.multinomial(teachers, rng.dirichlet(np.full(40, 0.15)), size=3)
        found = exact.rdp(GNMax(scale), votes, [1.5, 6.0, 80.0])
        for row, counts in enumerate(votes):
            law = exact.probabilities(GNMax(scale), [counts])[0]
            for moved in {tuple(sorted(moved)): moved for moved in neighbours(counts)}.values():
                other = exact.probabilities(GNMax(scale), [moved])[0]
                for at, order in enumerate([1.5, 6.0, 80.0]):
                    for p, q in ((law, other), (other, law)):
                        d = p - q
                        value = np.log1p((np.exp(q) * (np.expm1(order * d) - order * np.expm1(d))).sum()) / (
                            order - 1
                        )
                        assert found[row, at] >= min(value * (1 - 1e-7), order / scale**2) - 1e-13


def test_merging_keeps_the_order_of_the_queries():
    votes = np.array([[3, 0, 1], [0, 1, 3], [2, 2, 0], [1, 3, 0]])
    merged = merge(votes)
    assert merged.rows == 2
    found = exact.rdp(GNMax(2.0), votes, [2.0])[:, 0]
    assert found[0] == found[1] == found[3] != found[2]
    law = np.exp(exact.probabilities(GNMax(2.0), votes))
    np.testing.assert_allclose(law.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_array_equal(law[0][[2, 0, 1]][[1, 2, 0]], law[0])
    assert law[1].argmax() == 2


@pytest.mark.parametrize(
    ("votes", "orders", "message"),
    [
        ([[1.5, 2.0]], [2.0], "whole numbers"),
        ([[-1, 2]], [2.0], "whole numbers"),
        ([3, 4], [2.0], "histograms"),
        ([[3, 4]], [1.0], "above 1"),
        ([[3, 4]], [np.nan], "above 1"),
    ],
)
def test_bad_input_is_refused(votes, orders, message):
    with pytest.raises(PateError, match=message):
        exact.rdp(GNMax(2.0), votes, orders)


def tight_epsilon(orders, curve, delta=1e-5):
    return (curve + np.log1p(-1 / orders) - (np.log(delta) + np.log(orders)) / (orders - 1)).min()


@pytest.fixture(scope="module")
def goldens():
    path = DATA / "goldens.json"
    if not path.exists():
        pytest.skip("the golden figures are not on this machine")
    orders = np.concatenate([np.arange(2, 100.5, 0.5), np.geomspace(100, 500, 100)])
    votes = {name: np.load(DATA / f"votes/published_{name}_250.npz")["votes"] for name in ("mnist", "adult")}
    return json.loads(path.read_text()), votes, orders


def test_golden_queries(goldens):
    for entry in goldens[0]["exact_per_query"]:
        found = exact.rdp(GNMax(entry["sigma2"]), [entry["counts"]], entry["orders"])[0]
        truth = np.maximum(entry["rdp_exact_fwd"], entry["rdp_exact_bwd"])
        np.testing.assert_allclose(found, truth, rtol=1e-9)


@pytest.mark.parametrize(
    ("name", "settings_", "joint", "least"),
    [("mnist", (200, 150, 40), 0.923, 0.828), ("adult", (300, 200, 40), 0.958, 0.858)],
)
def test_golden_lists(goldens, name, settings_, joint, least):
    """Expected sums as recorded, and the joint guarantee.

    The record for Adult also counts moves out of empty classes (docs/proofs/exact.md, section 1,
    rules them out): 610 of 1,500 queries are unanimous, and its expected sum is 6e-5 higher.
    """
    record, votes, orders = goldens[0]["confident_gnmax"][name], goldens[1][name], goldens[2]
    votes = votes[: record["setting"]["queries"]]
    mechanism = ConfidentGNMax(*settings_)
    parts = exact.parts(mechanism, votes, orders)
    expected = parts.test + np.exp(parts.log_answered)[:, None] * parts.argmax
    found, golden = tight_epsilon(orders, expected.sum(axis=0)), record["exact_rdp_expected_cks"][0]
    assert golden - 6.1e-5 <= found <= golden + 1e-9
    if name == "mnist":
        assert abs(found - golden) < 1e-9
    classic = (expected.sum(axis=0) + np.log(1e5) / (orders - 1)).min()
    assert abs(classic - record["exact_rdp_expected_classic"][0]) < (1e-9 if name == "mnist" else 8e-5)
    whole = tight_epsilon(orders, exact.rdp(mechanism, votes, orders).sum(axis=0))
    assert least < whole <= joint


def test_synthetic_list_of_two_classes_has_a_closed_form():
    """The mirror of the golden lists on votes made here: 400 queries, joint mechanism, both directions."""
    rng = np.random.default_rng(1)
    right = rng.binomial(250, rng.beta(6, 1, 400))
    votes = np.stack([right, 250 - right], axis=1)
    orders = np.arange(2.0, 40.0, 1.0)
    found = exact.rdp(ConfidentGNMax(200, 150, 40), votes, orders).sum(axis=0)
    total = np.zeros(len(orders))
    for a, b in votes.astype(float):
        laws = []
        for x, y in [(a, b)] + ([(a - 1, b + 1)] if a else []) + ([(a + 1, b - 1)] if b else []):
            z, g = (max(x, y) - 200) / 150, (x - y) / np.sqrt(2) / 40
            laws.append(np.array([log_ndtr(-z), log_ndtr(z) + log_ndtr(g), log_ndtr(z) + log_ndtr(-g)]))
        costs = []
        for other in laws[1:]:
            for p, q in ((laws[0], other), (other, laws[0])):
                d, o = p - q, orders[:, None]
                costs.append(
                    np.log1p((np.exp(q) * (np.expm1(o * d) - o * np.expm1(d))).sum(axis=1)) / (orders - 1)
                )
        total += np.max(costs, axis=0)
    np.testing.assert_allclose(found, total, rtol=1e-6, atol=1e-9)
    assert (found >= total * (1 - 1e-10)).all()
