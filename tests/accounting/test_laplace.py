"""Pure-DP curves against mpmath and brute force; the 2017 moments with their right guard."""

import itertools
import json
from pathlib import Path

import mp_bounds
import mpmath as mp
import numpy as np
import pytest

from pate_jax import accounting
from pate_jax.accounting import laplace
from pate_jax.mechanisms import LNMax

GOLDENS = Path(__file__).parents[2] / "../shared/data/goldens.json"
ORDERS = np.array([1.001, 1.5, 2.0, 8.0, 40.0, 600.0])
VOTES = [[250, 0], [11, 10], [240, 3, 3, 2, 2], [90, 80, 80], [125, 125], [1, 0], [60, 40, 30, 20, 10]]


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 0.1, 1.0, 10.0, 2000.0])
def test_pure_is_randomised_response(epsilon):
    e = mp.mpf(epsilon)
    yes, no = mp.exp(e) / (1 + mp.exp(e)), 1 / (1 + mp.exp(e))
    for value, order in zip(laplace.pure(epsilon, ORDERS), ORDERS, strict=True):
        assert mp_bounds.close(value, mp_bounds.renyi((yes, no), (no, yes), mp.mpf(order)), rel=1e-11)
        assert value <= min(epsilon, order * epsilon**2 / 2) * (1 + 1e-12)


@pytest.mark.parametrize("eta", [1e-4, 0.01, 0.1, 1.0, 10.0])
def test_bounded_range_is_the_largest_two_point_divergence(eta):
    found = laplace.bounded_range(eta, ORDERS)
    for value, order in zip(found, ORDERS, strict=True):
        best = mp.mpf(0)
        for share in range(1, 400):
            t = mp.mpf(eta) * share / 400
            q = (mp.exp(eta - t) - 1) / (mp.exp(eta) - 1)
            best = max(
                best, mp_bounds.renyi((q * mp.exp(t), (1 - q) * mp.exp(t - eta)), (q, 1 - q), mp.mpf(order))
            )
        assert float(best) <= value <= float(best) * (1 + 3e-3) + 1e-12
        assert value <= min(eta, order * eta**2 / 8) * (1 + 1e-12)


@pytest.mark.parametrize("scale", [0.01, 0.7, 3.0, 50.0, 1e5])
def test_shifted_laplace_equals_quadrature(scale):
    for value, order in zip(laplace.shifted(scale, ORDERS), ORDERS, strict=True):
        a, b = mp.mpf(order), mp.mpf(scale)
        wanted = mp.log(a / (2 * a - 1) * mp.exp((a - 1) / b) + (a - 1) / (2 * a - 1) * mp.exp(-a / b)) / (
            a - 1
        )
        assert float(wanted) * (1 - 1e-13) <= value
        assert value <= float(laplace.pure(1 / scale, np.array([order]))[0])
        assert mp_bounds.close(value, wanted, rel=1e-6, absolute=1e-14 / (order - 1))


def test_a_noisy_histogram_costs_less_than_its_pure_epsilon():
    for scale in [0.1, 1.0, 20.0]:
        found = accounting.rdp(LNMax(scale), [[20, 5]], ORDERS, method="data_independent")[0]
        assert np.all(found <= laplace.pure(2 / scale, ORDERS))
        assert np.all(found <= 2 * laplace.pure(1 / scale, ORDERS))


@pytest.mark.parametrize(("votes", "scale"), list(itertools.product(VOTES, [1e-3, 0.5, 4.0, 20.0, 1e4])))
def test_lnmax_moments_equal_mpmath(votes, scale):
    q = mp_bounds.lnmax_q(votes, scale)
    assert mp_bounds.close(laplace.log_q(np.array([votes]), scale)[0], mp.log(q), rel=1e-13)
    found = laplace.published(np.array([votes]), scale, ORDERS)[0]
    for value, order in zip(found, ORDERS, strict=True):
        wanted = mp_bounds.lnmax_rdp(q, scale, order)
        assert mp_bounds.close(value, wanted, rel=1e-9, absolute=1e-16) and value >= 0


def test_guard_of_theorem_3_is_not_one_half():
    """An 11 to 10 vote: with the guard q < 1/2 the bound would be negative."""
    found = laplace.published(np.array([[11, 10]]), 1.0, np.arange(2.0, 60.0))
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
