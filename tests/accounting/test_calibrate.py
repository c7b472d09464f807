"""Calibration never ends over budget, and never with much more noise than needed."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pate_jax import accounting
from pate_jax.accounting.calibrate import enough_noise, least_noise, scaled
from pate_jax.accounting.curves import sampler_slack
from pate_jax.errors import PateError
from pate_jax.mechanisms import (
    ConfidentDiscreteGaussian,
    ConfidentGNMax,
    DiscreteGaussianMax,
    DiscreteLaplaceMax,
    GNMax,
    GumbelMax,
    LNMax,
    name_of,
)

STARTS = [
    GNMax(1.0),
    LNMax(50.0),
    GumbelMax(0.1),
    DiscreteGaussianMax(5.0),
    DiscreteLaplaceMax(3.0),
    ConfidentGNMax(60, 40.0, 10.0),
    ConfidentDiscreteGaussian(60, 40.0, 10.0),
]


@pytest.mark.parametrize(("target", "queries", "delta"), [(20.0, 30, 1e-5)])
@pytest.mark.parametrize(
    "start",
    [
        pytest.param(one, marks=[] if one in STARTS[1:3] else pytest.mark.long, id=name_of(one))
        for one in STARTS
    ],
)
def test_never_over_the_target_and_close_to_it(start, target, queries, delta):
    found = accounting.calibrate(start, target, delta, queries=queries, teachers=30, classes=5)
    slack = sampler_slack(found.mechanism, queries, 5)
    spent = partial(accounting.worst_case, teachers=[30] * queries, delta=delta, classes=5, slack=slack)
    assert spent(found.mechanism)[0].epsilon == found.epsilon <= target
    assert spent(scaled(found.mechanism, 0.98))[0].epsilon > target


@given(st.sampled_from([GNMax(1.0), LNMax(50.0), GumbelMax(0.1)]), st.floats(0.1, 30.0), st.integers(1, 2000))
def test_the_least_noise_is_found_for_any_curve_that_falls(start, target, queries):
    """By the rule that takes no time; what is searched below is any figure that falls with the noise."""

    def spent(factor):
        totals, noisier = np.full(queries, 100), scaled(start, factor)
        return accounting.worst_case(noisier, totals, 1e-5, classes=5, rule="counts")[0].epsilon

    enough = enough_noise(spent, target, 1e6)
    factor = least_noise(spent, target, enough, 1e-4, 2e-3)
    assert spent(factor) <= target < spent(factor * 0.99)


def test_a_figure_that_jumps_or_rises_never_ends_over_the_target():
    """Steps, and a hump where more noise costs more: what is returned is within the target all the same."""
    for spent in (lambda x: 4.0 // x, lambda x: 1 / x + (2.0 if 1.5 < x < 1.6 else 0.0), lambda x: 0.0):
        factor = least_noise(spent, 1.0, 64.0, 1e-3, 1e-4)
        assert spent(factor) <= 1.0


@pytest.mark.parametrize("noise", ["answer", "test", "both"])
@pytest.mark.long
def test_only_the_named_noise_moves(noise):
    start = ConfidentGNMax(60, 40.0, 10.0)
    target = (
        1.2 * accounting.worst_case(ConfidentGNMax(60, 80.0, 20.0), [100] * 30, 1e-5, classes=5)[0].epsilon
    )
    if noise == "test":
        start = ConfidentGNMax(60, 1.0, 20.0)
    found = accounting.calibrate(start, target, 1e-5, queries=30, teachers=100, classes=5, noise=noise)
    assert found.epsilon <= target
    assert (found.mechanism.sigma == start.sigma) == (noise == "test")
    assert (found.mechanism.sigma_threshold == start.sigma_threshold) == (noise == "answer")


def test_votes_have_no_say():
    """Calibration takes no votes at all: its signature is the proof."""
    import inspect

    assert "votes" not in inspect.signature(accounting.calibrate).parameters


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": 0.0}, "target=0.0"),
        ({"target": float("nan")}, "target=nan"),
        ({"queries": 0}, "queries=0"),
        ({"delta": 2.0}, "delta=2.0"),
        ({"noise": "test"}, "noise='test'"),
        ({"delta": 1e-17, "queries": 10_000, "target": 1.0}, "cannot be met"),
    ],
)
def test_the_impossible_is_refused_by_name(change, message):
    call = {"target": 1.0, "delta": 1e-5, "queries": 10, "teachers": 100, "classes": 5} | change
    with pytest.raises(PateError, match=message):
        accounting.calibrate(GNMax(1.0), **call)


def test_a_noise_that_cannot_reach_the_target_alone_is_refused():
    with pytest.raises(PateError, match="cannot be met"):
        accounting.calibrate(
            ConfidentGNMax(60, 40.0, 0.5), 0.5, 1e-5, queries=100, teachers=100, classes=5, noise="test"
        )
