"""Calibration never ends over budget, and never with much more noise than needed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pate_jax import accounting
from pate_jax.accounting.calibrate import scaled
from pate_jax.accounting.slack import sampler_slack
from pate_jax.errors import PateError
from pate_jax.mechanisms import (
    ConfidentDiscreteGaussian,
    ConfidentGNMax,
    DiscreteGaussianMax,
    DiscreteLaplaceMax,
    GNMax,
    GumbelMax,
    LNMax,
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


@given(
    st.sampled_from(STARTS), st.floats(0.1, 30.0), st.integers(1, 2000), st.sampled_from([1e-8, 1e-5, 1e-2])
)
def test_never_over_the_target_and_close_to_it(start, target, queries, delta):
    found = accounting.calibrate(start, target, delta, queries=queries, teachers=100, classes=5)
    slack = sampler_slack(found.mechanism, queries, 5)
    spent = accounting.worst_case(found.mechanism, np.full(queries, 100), delta, slack=slack)[0].epsilon
    assert spent == found.epsilon <= target
    less = scaled(found.mechanism, 0.999)
    assert accounting.worst_case(less, np.full(queries, 100), delta, slack=slack)[0].epsilon > target


@pytest.mark.parametrize("noise", ["answer", "test", "both"])
def test_only_the_named_noise_moves(noise):
    start = ConfidentGNMax(60, 40.0, 10.0)
    target = 1.2 * accounting.worst_case(ConfidentGNMax(60, 80.0, 20.0), [100] * 30, 1e-5)[0].epsilon
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
