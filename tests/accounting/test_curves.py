"""Conversion, the published sums, and what holds for every curve."""

import itertools
import json
import warnings
from functools import partial
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pate_jax import accounting
from pate_jax.accounting import curves
from pate_jax.accounting.inputs import check_votes
from pate_jax.errors import PateError
from pate_jax.mechanisms import (
    ConfidentDiscreteGaussian,
    ConfidentDiscreteLaplace,
    ConfidentGNMax,
    DiscreteGaussianMax,
    DiscreteLaplaceMax,
    GNMax,
    GumbelMax,
    LNMax,
    PermuteAndFlip,
)

GOLDENS = Path(__file__).parents[2] / "../shared/data/goldens.json"
KINDS = [
    LNMax,
    GNMax,
    GumbelMax,
    PermuteAndFlip,
    DiscreteGaussianMax,
    DiscreteLaplaceMax,
    lambda s: ConfidentGNMax(20.5, 3 * s, s),
    lambda s: ConfidentGNMax(400, s, 40.0),
    lambda s: ConfidentDiscreteGaussian(20.5, s, s),
    lambda s: ConfidentDiscreteLaplace(7, 2 * s, s),
]
ORDERS = np.array([1.001, 1.7, 2.0, 14.0, 150.0, 4000.0])


@st.composite
def some_votes(draw):
    classes = draw(st.integers(2, 200))
    teachers = draw(st.integers(1, 5000))
    shares = draw(st.lists(st.floats(0, 1), min_size=3, max_size=3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = [
        rng.multinomial(teachers, np.r_[s, np.full(classes - 1, (1 - s) / (classes - 1))]) for s in shares
    ]
    return np.array(rows)


@given(some_votes(), st.floats(-3, 6), st.sampled_from(KINDS))
def test_curves_of_any_votes(votes, log_scale, kind):
    mechanism = kind(float(10**log_scale))
    order = np.random.default_rng(0).permutation(votes.shape[1])
    for method in ("published", "data_independent"):
        account = partial(accounting.rdp, method=method, rule="counts")
        found = account(mechanism, votes, ORDERS)
        assert found.shape == (3, len(ORDERS)) and found.dtype == np.float64
        assert np.all(np.isfinite(found)) and np.all(found >= 0)
        parts = [account(mechanism, votes[:1], ORDERS)]
        parts += [account(mechanism, votes[1:], ORDERS)]
        np.testing.assert_array_equal(np.concatenate(parts), found)
        shuffled = account(mechanism, votes[:, order], ORDERS)
        np.testing.assert_allclose(shuffled, found, rtol=1e-12)
        figures = [
            accounting.epsilon(ORDERS, found.sum(axis=0), delta, conversion=conversion).epsilon
            for conversion in ("tight", "classic")
            for delta in (1e-12, 1e-5, 0.1)
        ]
        assert figures[0] >= figures[1] >= figures[2] >= 0
        assert all(tight <= classic for tight, classic in zip(figures[:3], figures[3:], strict=True))


@given(st.integers(1, 5000), st.floats(-3, 5), st.floats(0, 1), st.sampled_from(KINDS), st.integers(1, 3000))
def test_worst_case_falls_as_the_noise_grows(teachers, log_scale, more, kind, queries):
    figures = [
        accounting.worst_case(
            kind(float(10**log)), np.full(queries, teachers), 1e-5, classes=9, rule="counts"
        )[0].epsilon
        for log in (log_scale, log_scale + more)
    ]
    assert 0 <= figures[1] <= figures[0] * (1 + 1e-9) + 1e-12 and np.all(np.isfinite(figures))


@given(st.integers(1, 5000), st.floats(-3, 5), st.sampled_from(KINDS))
def test_worst_case_falls_as_delta_grows(teachers, log_scale, kind):
    mechanism = kind(float(10**log_scale))
    figures = [
        accounting.worst_case(mechanism, [teachers] * 20, d, classes=9, rule="counts")[0].epsilon
        for d in (1e-15, 1e-8, 1e-5, 0.01, 0.5)
    ]
    assert all(a >= b * (1 - 1e-9) for a, b in itertools.pairwise(figures))


@pytest.mark.parametrize("kind", [*KINDS, lambda scale: ConfidentGNMax(40, 3 * scale, scale)])
@pytest.mark.long
def test_the_cost_of_an_index_falls_as_noise_or_delta_grows(kind):
    """The same of the curve that is charged, at few scales, for what it takes to search one."""
    spent = [
        [
            accounting.worst_case(kind(scale), [50] * 20, delta, classes=3)[0].epsilon
            for delta in (1e-8, 1e-5, 0.01)
        ]
        for scale in (3.0, 8.0)
    ]
    assert np.all(np.diff(spent, axis=1) <= 0) and np.all(np.diff(spent, axis=0) <= 0)
    older = accounting.worst_case(kind(3.0), [50] * 20, 1e-5, classes=3, rule="counts")[0].epsilon
    assert spent[0][1] <= older


def test_no_teachers_and_an_unknown_rule():
    """Where nobody votes nothing can change; who charges by a rule that there is none of is told so."""
    none, one = (curves.data_independent(GNMax(4.0), [total], 3, [2.0]) for total in (0, 1))
    assert np.array_equal(none, one)
    with pytest.raises(PateError, match=r"rule='votes' must be one of counts, index"):
        curves.data_independent(GNMax(4.0), 9, 3, [2.0], rule="votes")


def test_data_independent_reads_no_histogram():
    one = accounting.rdp(ConfidentGNMax(20, 9.0, 4.0), [[30, 0, 0]], ORDERS, method="data_independent")
    other = accounting.rdp(ConfidentGNMax(20, 9.0, 4.0), [[10, 11, 9]], ORDERS, method="data_independent")
    np.testing.assert_array_equal(one, other)


def test_conversions_equal_mpmath():
    rng = np.random.default_rng(3)
    for _ in range(200):
        order, rdp, delta = (
            1 + 10 ** rng.uniform(-2, 3),
            10 ** rng.uniform(-6, 2),
            10 ** rng.uniform(-15, -0.1),
        )
        a, r, d = mp.mpf(order), mp.mpf(rdp), mp.mpf(delta)
        classic = r - mp.log(d) / (a - 1)
        tight = max(mp.mpf(0), r + mp.log((a - 1) / a) - (mp.log(d) + mp.log(a)) / (a - 1))
        found = [
            accounting.epsilon([order], [rdp], delta, conversion=name).epsilon
            for name in ("classic", "tight")
        ]
        assert found == pytest.approx([float(classic), float(tight)], rel=1e-11, abs=1e-12)


def test_conversion_goldens():
    if not GOLDENS.exists():
        pytest.skip("no shared data here")
    for entry in json.loads(GOLDENS.read_text())["conversions"]:
        one = ([entry["order"]], [entry["rdp"]], entry["delta"])
        assert accounting.epsilon(*one, conversion="classic").epsilon == pytest.approx(
            entry["mironov"], rel=1e-12
        )
        assert accounting.epsilon(*one).epsilon == pytest.approx(entry["cks"], rel=1e-12)
        assert accounting.epsilon(*one).epsilon >= entry["optimal"] - 1e-9


def test_conversion_of_many_curves_at_once():
    curve = np.cumsum(np.full((5, len(ORDERS)), 0.01), axis=0)
    found = accounting.epsilon(ORDERS, curve, 1e-5)
    assert found.epsilon.shape == (5,) and np.all(np.diff(found.epsilon) > 0)
    assert found.epsilon[2] == accounting.epsilon(ORDERS, curve[2], 1e-5).epsilon


def test_published_is_the_expected_sum():
    votes, mechanism = np.array([[240, 10], [130, 120]]), ConfidentGNMax(200, 150, 40)
    parts = accounting.published_parts(mechanism, votes, ORDERS)
    whole = accounting.rdp(mechanism, votes, ORDERS, method="published")
    np.testing.assert_allclose(whole, parts.test + np.exp(parts.log_answered)[:, None] * parts.argmax)


def test_gaussian_figures_are_worth_what_a_mechanism_of_one_shift_costs():
    orders = accounting.default_orders()
    found, basis = accounting.worst_case(GNMax(np.sqrt(2)), [9], 1e-5, classes=3, rule="counts")
    assert basis == "Gaussian-DP"
    assert found.epsilon == pytest.approx(4.3772, abs=1e-4)  # mu = 1
    assert accounting.epsilon(orders, orders / 2, 1e-5).epsilon >= found.epsilon


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: check_votes([[1, -1]]), "below 0"),
        (lambda: check_votes([[0.5, 0.5]]), "whole numbers"),
        (lambda: check_votes([1, 2]), "shape"),
        (lambda: check_votes([[1], [2]]), "two classes"),
        (lambda: check_votes([[1.0, np.nan]]), "whole numbers"),
        (lambda: accounting.epsilon([1.0], [0.1], 1e-5), "above 1"),
        (lambda: accounting.epsilon([2.0], [-0.1], 1e-5), "negative"),
        (lambda: accounting.epsilon([2.0], [np.nan], 1e-5), "NaN"),
        (lambda: accounting.epsilon([2.0, 3.0], [0.1], 1e-5), "orders"),
        (lambda: accounting.epsilon([2.0], [0.1], 0.0), "delta=0.0"),
        (lambda: accounting.epsilon([2.0], [0.1], 1e-5, conversion="best"), "conversion='best'"),
        (lambda: accounting.rdp(GNMax(1.0), [[1, 2]], method="magic"), "method='magic'"),
    ],
)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(PateError, match=message):
        call()


def test_orders_are_float_even_where_whole_numbers_are_passed():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = accounting.rdp(LNMax(1e-3), [[5, 3]], [2, 3], method="data_independent")
    assert np.all(found > 0)
