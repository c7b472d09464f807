"""Plots: whole pictures, the same each time, and marked as sensitive."""

import subprocess
import sys

import numpy as np
import pytest

from pate_jax.accounting import plots
from pate_jax.errors import PateError
from pate_jax.mechanisms import ConfidentGNMax, GNMax
from pate_jax.runs.report import run_pages

VOTES = np.array([[60, 30, 10], [90, 5, 5], [40, 35, 25], [99, 1, 0]])


def every(mechanism, image="svg"):
    return [
        plots.cumulative(mechanism, VOTES, 1e-5, image=image),
        plots.by_consensus(mechanism, VOTES, image=image),
        plots.split(mechanism, VOTES, 1e-5, image=image),
    ]


@pytest.mark.long
@pytest.mark.parametrize("mechanism", [GNMax(8.0), ConfidentGNMax(60, 30.0, 8.0)])
def test_svg_is_whole_repeatable_and_marked(mechanism):
    first, second = every(mechanism), every(mechanism)
    assert first == second
    for picture in first:
        assert picture.startswith(b"<?xml") and picture.rstrip().endswith(b"</svg>")
        assert b"sensitive" in picture


@pytest.mark.long
def test_all_pictures_at_once_are_those_drawn_one_by_one(monkeypatch):
    mechanism, alone = ConfidentGNMax(60, 30.0, 8.0), every(ConfidentGNMax(60, 30.0, 8.0))
    computed, curves = [], plots._curves
    monkeypatch.setattr(plots, "_curves", lambda *args: computed.append(args) or curves(*args))
    assert [*plots.every(mechanism, VOTES, 1e-5)] == alone
    assert len(computed) == 1


@pytest.mark.long
def test_png_too_and_nothing_else():
    assert all(picture.startswith(b"\x89PNG") for picture in every(GNMax(8.0), image="png"))
    with pytest.raises(PateError, match="image='gif'"):
        plots.split(GNMax(8.0), VOTES, 1e-5, image="gif")


def test_split_adds_up_to_epsilon():
    from pate_jax import accounting

    mechanism = ConfidentGNMax(60, 30.0, 8.0)
    for name, row in plots.split_figures(mechanism, VOTES, 1e-5).items():
        curve = accounting.rdp(mechanism, VOTES, method=name).sum(axis=0)
        found = accounting.epsilon(accounting.default_orders(), curve, 1e-5).epsilon
        assert sum(row.values()) == pytest.approx(found) and min(row.values()) >= 0


@pytest.mark.long
def test_matplotlib_waits_until_a_plot_is_drawn():
    code = (
        "import sys; from pate_jax.accounting import plots; "
        "sys.exit('matplotlib' in sys.modules or 'jax' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_consensus_is_drawn_for_any_votes():
    assert run_pages.consensus(np.array([[5, 0], [2, 3]]), np.array([True, False])).startswith(b"<?xml")
