"""Pure-DP curves against mpmath and brute force; the 2017 moments with their right guard."""

import itertools
import json
from pathlib import Path

import mp_bounds
import mpmath as mp
import numpy as np
import pytest

from pate_jax import accounting
from pate_jax.accounting import curves, exact
from pate_jax.accounting.bounds import noisy_max
from pate_jax.mechanisms import (
    DiscreteGaussianMax,
    DiscreteLaplaceMax,
    GNMax,
    GumbelMax,
    LNMax,
    PermuteAndFlip,
)

DIGITS = mp_bounds.DIGITS

GOLDENS = Path(__file__).parents[2] / "../shared/data/goldens.json"
KINDS = [LNMax, GNMax, GumbelMax, PermuteAndFlip, DiscreteLaplaceMax, DiscreteGaussianMax]
ORDERS = np.array([1.001, 1.5, 2.0, 8.0, 40.0, 600.0])
VOTES = [[250, 0], [11, 10], [240, 3, 3, 2, 2], [90, 80, 80], [125, 125], [1, 0], [60, 40, 30, 20, 10]]


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 0.1, 1.0, 10.0, 2000.0])
def test_pure_is_randomised_response(epsilon):
    e = mp.mpf(epsilon)
    yes, no = mp.exp(e) / (1 + mp.exp(e)), 1 / (1 + mp.exp(e))
    for value, order in zip(noisy_max.pure_curve(epsilon, ORDERS), ORDERS, strict=True):
        assert mp_bounds.close(value, mp_bounds.renyi((yes, no), (no, yes), mp.mpf(order)), rel=1e-11)
        assert value <= min(epsilon, order * epsilon**2 / 2) * (1 + 1e-12)


@pytest.mark.parametrize("eta", [1e-4, 0.01, 0.1, 1.0, 10.0])
def test_bounded_range_is_the_largest_two_point_divergence(eta):
    found = noisy_max.bounded_range(eta, ORDERS)
    pairs = []
    for share in range(1, 200):
        t = mp.mpf(eta) * share / 200
        q = (mp.exp(eta - t) - 1) / (mp.exp(eta) - 1)
        pairs.append(((q * mp.exp(t), (1 - q) * mp.exp(t - eta)), (q, 1 - q)))
    for value, order in zip(found, ORDERS, strict=True):
        best = max(mp_bounds.renyi(*pair, mp.mpf(order)) for pair in pairs)
        assert float(best) <= value <= float(best) * (1 + 6e-3) + 1e-12
        assert value <= min(eta, order * eta**2 / 8) * (1 + 1e-12)


@pytest.mark.parametrize("scale", [0.01, 0.7, 3.0, 50.0, 1e5])
def test_shifted_laplace_equals_quadrature(scale):
    for value, order in zip(noisy_max.shifted(scale, ORDERS), ORDERS, strict=True):
        a, b = mp.mpf(order), mp.mpf(scale)
        wanted = mp.log(a / (2 * a - 1) * mp.exp((a - 1) / b) + (a - 1) / (2 * a - 1) * mp.exp(-a / b)) / (
            a - 1
        )
        assert float(wanted) * (1 - 1e-13) <= value
        assert value <= float(noisy_max.pure_curve(1 / scale, np.array([order]))[0])
        assert mp_bounds.close(value, wanted, rel=1e-6, absolute=1e-14 / (order - 1))


def test_a_noisy_histogram_costs_less_than_its_pure_epsilon():
    for scale in [0.1, 1.0, 20.0]:
        found = accounting.rdp(LNMax(scale), [[20, 5]], ORDERS, method="data_independent")[0]
        assert np.all(found <= noisy_max.pure_curve(2 / scale, ORDERS))
        assert np.all(found <= 2 * noisy_max.pure_curve(1 / scale, ORDERS))


@pytest.mark.parametrize(("votes", "scale"), list(itertools.product(VOTES, [1e-3, 0.5, 4.0, 20.0, 1e4])))
def test_lnmax_moments_equal_mpmath(votes, scale):
    q = mp_bounds.lnmax_q(votes, scale)
    assert mp_bounds.close(noisy_max.laplace_log_q(np.array([votes]), scale)[0], mp.log(q), rel=1e-13)
    found = curves.published_argmax(LNMax(scale), np.array([votes]))(ORDERS)[0]
    for value, order in zip(found, ORDERS, strict=True):
        wanted = mp_bounds.lnmax_rdp(q, scale, order)
        assert mp_bounds.close(value, wanted, rel=1e-9, absolute=1e-16) and value >= 0


def test_guard_of_theorem_3_is_not_one_half():
    """An 11 to 10 vote: with the guard q < 1/2 the bound would be negative."""
    found = curves.published_argmax(LNMax(1.0), np.array([[11, 10]]))(np.arange(2.0, 60.0))
    assert np.all(found > 0) and np.all(found <= 2.0)
    assert accounting.epsilon(np.arange(2.0, 60.0), found[0], 1e-5).epsilon > 0


def test_published_goldens_2017():
    if not GOLDENS.exists():
        pytest.skip("no shared data here")
    votes = {
        name: np.load(GOLDENS.parent / f"votes/published_{name}_250.npz")["votes"]
        for name in ("mnist", "adult")
    }
    checked = 0
    for key, entry in json.loads(GOLDENS.read_text())["lnmax_2017"].items():
        data, noise, delta, moments = (part.split("=")[-1] for part in key.split("|"))
        name, rows = data.split("_")
        if not rows.startswith("first"):
            continue
        orders = np.arange(1, int(moments) + 1) + 1.0
        curve = accounting.rdp(
            LNMax(1 / float(noise)), votes[name][: int(rows[5:])], orders, method="published"
        )
        found = accounting.epsilon(orders, curve.sum(axis=0), float(delta), conversion="classic")
        assert found.epsilon == pytest.approx(entry["eps"], rel=1e-9) and found.order == entry["l"] + 1
        checked += 1
    assert checked >= 20


def test_permute_and_flip_of_two_equal_classes():
    """A moved vote is one step of 2/b; two steps of 1/b, which would be half of it, are not enough."""
    b, p = 20.0, mp.exp(-mp.mpf(2) / 20) / 2
    for order in (2.0, 8.0):
        pair = mp_bounds.renyi((mp.mpf(1) / 2, mp.mpf(1) / 2), (p, 1 - p), mp.mpf(order))
        back = mp_bounds.renyi((p, 1 - p), (mp.mpf(1) / 2, mp.mpf(1) / 2), mp.mpf(order))
        found = accounting.rdp(PermuteAndFlip(b), [[125, 125]], [order], method="exact")[0, 0]
        worst = accounting.rdp(PermuteAndFlip(b), [[125, 125]], [order], method="data_independent")[0, 0]
        assert mp_bounds.close(found, max(pair, back), rel=1e-9)
        assert (
            float(max(pair, back)) <= worst <= 2 / b
            and worst > 2 * noisy_max.pure_curve(1 / b, np.array([order]))[0] * 0.9
        )


@pytest.mark.parametrize(
    "mechanism",
    [kind(scale) for kind in KINDS for scale in (0.7, 4.0)],
)
@pytest.mark.parametrize(("teachers", "classes"), [(7, 2), (5, 3), (4, 4)])
def test_worst_case_covers_every_histogram(mechanism, teachers, classes):
    votes = np.array(
        [n for n in itertools.product(range(teachers + 1), repeat=classes) if sum(n) == teachers]
    )
    orders = np.array([1.05, 2.0, 6.0, 20.0])
    worst = accounting.rdp(mechanism, votes[:1], orders, method="data_independent")[0]
    assert np.all(exact.rdp(mechanism, votes, orders) <= worst * (1 + 1e-9))


def test_q_bounds_what_is_drawn():
    """Monte Carlo: both papers' q against the share of draws that miss the plurality."""
    rng, draws = np.random.default_rng(11), 200_000
    for votes in ([30, 22, 20], [40, 10, 5]):
        counts = np.array([votes])
        for noise, log_q in (
            (rng.normal(0, 9.0, (draws, 3)), noisy_max.gaussian_log_q(counts, 9.0)),
            (rng.laplace(0, 6.0, (draws, 3)), noisy_max.laplace_log_q(counts, 6.0)),
        ):
            missed = (np.argmax(counts + noise, axis=1) != 0).mean()
            spread = 5 * np.sqrt(missed * (1 - missed) / draws)
            assert missed <= np.exp(log_q[0]) + spread
            assert missed >= 0.4 * np.exp(log_q[0]) - spread  # and the bound is not idle
