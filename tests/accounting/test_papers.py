"""The papers' own figures: the published votes where they are at hand, a mirror image of them where not."""

import json
from pathlib import Path

import mp_bounds
import mpmath as mp
import numpy as np
import pytest

from experiments import sensitivity_2018
from pate_jax import accounting
from pate_jax.accounting import papers, smooth
from pate_jax.mechanisms import ConfidentGNMax, GNMax, LNMax

DIGITS = mp_bounds.DIGITS

SHARED = Path(__file__).parents[2] / "../shared/data"


def test_published_figures_of_2018():
    if not (SHARED / "goldens.json").exists():
        pytest.skip("no shared data here")
    for name, entry in json.loads((SHARED / "goldens.json").read_text())["confident_gnmax"].items():
        setting, wanted = entry["setting"], entry["published_expected"]
        votes = np.load(SHARED / f"votes/published_{name}_250.npz")["votes"][: setting["queries"]]
        mechanism = ConfidentGNMax(setting["T"], setting["s1"], setting["s2"])
        found = accounting.published(mechanism, votes, setting["delta"])
        assert found.epsilon == pytest.approx(wanted["eps"], rel=1e-9) and found.order == wanted["order"]
        assert found.answered == pytest.approx(wanted["answered"], rel=1e-9)
        assert found.test == pytest.approx(wanted["rdp_thr_at_opt"], rel=1e-9)
        assert found.argmax == pytest.approx(wanted["rdp_gnmax_at_opt"], rel=1e-9)
        assert found.epsilon_tight == pytest.approx(wanted["eps_cks"][0], rel=1e-9)
        independent = entry["data_independent_expected"]["eps"]
        assert found.epsilon_data_independent == pytest.approx(independent, rel=1e-9)
        printed = papers.published_text(mechanism, votes, setting["delta"])
        assert f"{wanted['eps']:.4f}" in printed


def example(queries=12):
    return smooth.example_votes(queries, 90, 4)


def test_the_same_sum_in_mpmath():
    """A mirror image of the published figures on votes that everybody has."""
    votes, mechanism, delta = example(), ConfidentGNMax(70, 50.0, 15.0), 1e-5
    orders = [2.0, 5.5, 14.0, 30.0]
    best = mp.inf
    for order in orders:
        total = mp.mpf(0)
        for row in votes:
            p = mp_bounds.normal_tail((70 - mp.mpf(int(max(row)))) / 50)
            total += mp_bounds.theorem6(min(p, 1 - p), mp.sqrt(2) * 50, order)
            total += p * mp_bounds.theorem6(mp_bounds.gnmax_q(row, 15.0), 15.0, order)
        best = min(best, total + mp.log(1 / mp.mpf(delta)) / (order - 1))
    curve = accounting.rdp(mechanism, votes, orders, method="published").sum(axis=0)
    found = accounting.epsilon(orders, curve, delta, conversion="classic").epsilon
    assert mp_bounds.close(found, best, rel=1e-9)


def test_lnmax_takes_whole_moments():
    found = papers.published(LNMax(20.0), example(), 1e-5)
    assert found.order == int(found.order) and found.answered == 12
    assert found.epsilon <= found.epsilon_data_independent


def test_the_parts_add_up():
    found = papers.published(ConfidentGNMax(70, 50.0, 15.0), example(), 1e-5)
    assert found.epsilon == pytest.approx(found.test + found.argmax + found.delta)
    assert found.epsilon_tight <= found.epsilon <= found.epsilon_data_independent


def test_the_scripts_smooth_sensitivity_runs_on_any_votes():
    found = sensitivity_2018.smooth_sensitivity(GNMax(15.0), example(), 8.0)
    assert 0.3 <= found["beta"] * 8 <= 0.495 and found["sensitivity"] > 0
