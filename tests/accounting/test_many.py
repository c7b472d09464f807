"""Many settings at once: every figure is the one that the setting alone gets, from the same votes."""

import math

import numpy as np
import pytest

from pate_jax import accounting
from pate_jax.accounting import papers
from pate_jax.accounting.curves import least, with_slack
from pate_jax.accounting.many import exact_many, many
from pate_jax.errors import PateError
from pate_jax.mechanisms import (
    ConfidentDiscreteGaussian,
    ConfidentGNMax,
    DiscreteGaussianMax,
    GNMax,
    GumbelMax,
    InteractiveGNMax,
    LNMax,
    PermuteAndFlip,
    laws,
)

SETTINGS = [
    GNMax(20.0),
    ConfidentGNMax(60, 30.0, 15.0),
    LNMax(20.0),
    ConfidentGNMax(90, 50.0, 15.0),
    DiscreteGaussianMax(12.0),
    ConfidentDiscreteGaussian(70, 25.0, 12.0),
    GumbelMax(15.0),
    PermuteAndFlip(15.0),
    GNMax(1e-2),
]
ASKED = [40, 25, 40, 10, 40, 33, 7, 7, 40]


@pytest.fixture(scope="module")
def votes():
    """Clear ones, close ones and a unanimous one, with repetitions up to the order of classes."""
    random = np.random.default_rng(0)
    rows = [random.multinomial(100, random.dirichlet([0.3, 0.3, 0.3])) for _ in range(30)]
    return np.array([*rows, *(row[::-1] for row in rows[:9]), [0, 100, 0]])


def test_figures_are_those_of_each_setting_alone(votes):
    found = many(SETTINGS, votes, 1e-5, queries=ASKED)
    for place, (setting, number) in enumerate(zip(SETTINGS, ASKED, strict=True)):
        papers = accounting.published(setting, votes[:number], 1e-5)
        stated = accounting.statement(setting, votes[:number], None, 1e-5, private=True, pld=False)
        headline = stated.headline
        np.testing.assert_allclose(found.published[place], papers.epsilon, rtol=1e-12)
        np.testing.assert_allclose(found.published_order[place], papers.order, rtol=1e-12)
        np.testing.assert_allclose(found.answered[place], papers.answered, rtol=1e-12)
        np.testing.assert_allclose(
            found.data_independent[place],
            math.inf if headline.epsilon is None else headline.epsilon,
            rtol=1e-12,
        )
        assert headline.epsilon is None or found.basis[place] == headline.basis


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_figures_of_one_setting_are_the_least_over_every_order(votes, setting):
    """Summed here query by query, at all orders: what leaves orders out and merges queries must agree."""
    grid = np.arange(2.0, 102.0) if isinstance(setting, LNMax) else papers.orders_2018()
    parts = accounting.published_parts(setting, votes, grid)
    summed = parts.test.sum(0) + np.exp(parts.log_answered) @ parts.argmax
    one = accounting.published(setting, votes, 1e-5)
    classic = accounting.epsilon(grid, summed, 1e-5, conversion="classic")
    at = list(grid).index(one.order)
    np.testing.assert_allclose([one.epsilon, one.order], [classic.epsilon, classic.order], rtol=1e-12)
    np.testing.assert_allclose(one.epsilon_tight, accounting.epsilon(grid, summed, 1e-5).epsilon, rtol=1e-12)
    np.testing.assert_allclose(one.test, parts.test[:, at].sum(), rtol=1e-12)
    np.testing.assert_allclose(one.test + one.argmax + one.delta, one.epsilon, rtol=1e-12)
    orders = accounting.default_orders()
    curve = accounting.rdp(setting, votes, method="data_independent").sum(0)
    slack = laws.delta_slack(setting, len(votes), 3)
    proved, basis = accounting.worst_case(setting, [100] * len(votes), 1e-5, classes=3, slack=slack)
    renyi = with_slack(lambda delta: accounting.epsilon(orders, curve, delta), 1e-5, slack)
    assert proved.epsilon <= renyi.epsilon * (1 + 1e-12)
    if basis == "renyi, worst case":
        np.testing.assert_allclose(proved.epsilon, renyi.epsilon, rtol=1e-12)


@pytest.mark.long
def test_exact_figures_are_valid_and_hardly_above_the_whole_grid(votes):
    settings, asked = SETTINGS[:6], ASKED[:6]
    found = exact_many(settings, votes, 1e-5, queries=asked)
    for setting, number, one in zip(settings, asked, found, strict=True):
        whole = accounting.statement(setting, votes[:number], None, 1e-5, private=True).to_dict()["figures"][
            "exact"
        ]
        assert whole["epsilon"] * (1 - 1e-9) <= one.epsilon <= whole["epsilon"] * 1.005


def test_orders_left_out_cannot_be_the_best():
    random = np.random.default_rng(1)
    orders = np.geomspace(1.01, 1e4, 700)
    extra = 11.5 / (orders - 1)
    for _ in range(50):
        rising = np.cumsum(random.exponential(size=(3, 700)) ** 4, axis=1) * 10.0 ** random.uniform(-6, 0)
        value, at = least(lambda places, rising=rising: rising[:, places], extra)
        np.testing.assert_array_equal(value, (rising + extra).min(axis=1))
        np.testing.assert_array_equal(value, (rising + extra)[np.arange(3), at])


@pytest.mark.parametrize(
    ("settings", "queries", "message"),
    [
        ([GNMax(1.0)], [3, 4], "2 entries for 1"),
        ([GNMax(1.0)], [41], "queries=41"),
        ([GNMax(1.0)], [0], "queries=0"),
        ([InteractiveGNMax(5.0, 3.0, 2.0, 0.9)], None, "interactive"),
    ],
)
def test_what_cannot_be_accounted_for_is_refused(votes, settings, queries, message):
    with pytest.raises(PateError, match=message):
        many(settings, votes, 1e-5, queries=queries)
