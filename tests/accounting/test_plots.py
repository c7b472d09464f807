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


@pytest.mark.long
@pytest.mark.parametrize("mechanism", [GNMax(8.0), ConfidentGNMax(60, 30.0, 8.0)])
def test_svg_is_whole_repeatable_and_marked(mechanism):
    first, second = (plots.every(mechanism, VOTES, 1e-5) for _ in range(2))
    assert first == second
    for picture in first:
        assert picture.startswith(b"<?xml") and picture.rstrip().endswith(b"</svg>")
        assert b"sensitive" in picture


@pytest.mark.long
def test_png_too_and_nothing_else():
    pictures = plots.every(GNMax(8.0), VOTES, 1e-5, image="png")
    assert all(picture.startswith(b"\x89PNG") for picture in pictures)
    with pytest.raises(PateError, match="image='gif'"):
        plots.every(GNMax(8.0), VOTES, 1e-5, image="gif")


def test_split_adds_up_to_epsilon():
    from pate_jax import accounting

    mechanism = ConfidentGNMax(60, 30.0, 8.0)
    curves = {name: accounting.rdp(mechanism, VOTES, method=name) for name in plots.NAMES}
    for name, row in plots.split_figures(curves, mechanism, VOTES, 1e-5).items():
        found = accounting.epsilon(accounting.default_orders(), curves[name].sum(axis=0), 1e-5).epsilon
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
