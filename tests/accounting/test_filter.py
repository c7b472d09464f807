"""The filter: what it allows never composes to more than the budget, by brute force and by enumeration."""

import math
from fractions import Fraction
from functools import lru_cache

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from pate_jax.accounting import curves, filter
from pate_jax.accounting.bounds.worst_case import index_curve
from pate_jax.accounting.curves import sampler_slack
from pate_jax.accounting.data_independent import worst_case
from pate_jax.accounting.filter import NOTHING, Cost
from pate_jax.errors import PateError
from pate_jax.mechanisms import ConfidentDiscreteGaussian, DiscreteGaussianMax, GNMax, LNMax, PermuteAndFlip
from pate_jax.mechanisms.codec import from_dict, to_dict

SIZE = {"teachers": 100, "classes": 10}
MECHANISMS = [
    GNMax(sigma=20.0),
    DiscreteGaussianMax(sigma=20.0),
    LNMax(scale=15.0),
    PermuteAndFlip(scale=15.0),
    ConfidentDiscreteGaussian(threshold=80, sigma_threshold=60, sigma=16),
]


def converted(order, rdp, delta):
    """The tight conversion, in arbitrary precision."""
    with mpmath.workdps(40):
        a, d = mpmath.mpf(order), mpmath.mpf(delta)
        return mpmath.mpf(rdp) + mpmath.log(1 - 1 / a) - (mpmath.log(d) + mpmath.log(a)) / (a - 1)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda mechanism: type(mechanism).__name__)
@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-5), (2.0, 1e-5), (8.0, 1e-8)])
def test_the_most_that_fits_stays_within_the_budget(mechanism, epsilon, delta):
    found = filter.plan(mechanism, **SIZE, epsilon=epsilon, delta=delta)
    each = filter.cost(mechanism, **SIZE, order=found.order)
    most = found.affords(NOTHING, each)
    curve = float(index_curve(mechanism, SIZE["teachers"], SIZE["classes"], [found.order])[0])
    slack = sampler_slack(mechanism, most, SIZE["classes"])
    inner = mpmath.mpf(delta) - (1 + mpmath.e**epsilon) * mpmath.mpf(slack)
    assert most >= 1
    assert converted(found.order, mpmath.mpf(curve) * most, inner) <= epsilon
    assert converted(found.order, mpmath.mpf(curve) * (most + 1), delta) > epsilon  # nothing is wasted
    orders = [*curves.default_orders(), found.order]
    worst, _ = worst_case(mechanism, [100] * most, delta, classes=10, orders=orders, slack=slack)
    assert worst.epsilon <= epsilon


@pytest.mark.parametrize("mechanism", MECHANISMS[:2])
def test_where_cost_is_linear_one_order_loses_nothing(mechanism):
    """zCDP: rho at all orders at once affords no more than the order of the plan."""
    size = {**SIZE, "rule": "counts"}
    found = filter.plan(mechanism, **size, epsilon=2.0, delta=1e-5)
    most = found.affords(NOTHING, filter.cost(mechanism, **size, order=found.order))
    orders = curves.default_orders()
    best = curves.epsilon(orders, orders / 20.0**2 * (most + 1), 1e-5).epsilon
    assert best > 2.0


@lru_cache
def plan_of(epsilon):
    return filter.plan(MECHANISMS[0], **SIZE, epsilon=epsilon, delta=1e-5)


@lru_cache
def cost_of(index, order):
    """One question's cost as the filter takes it, and as the curves and laws have it."""
    mechanism = MECHANISMS[index]
    curve = float(index_curve(mechanism, SIZE["teachers"], SIZE["classes"], [order])[0])
    slack = sampler_slack(mechanism, 1, SIZE["classes"])
    return filter.cost(mechanism, **SIZE, order=order), Fraction(curve), Fraction(slack)


@given(
    epsilon=st.sampled_from([0.5, 1.0, 2.0, 6.0]),
    choices=st.lists(st.tuples(st.integers(0, 4), st.integers(1, 40)), min_size=1, max_size=12),
)
def test_any_history_of_mechanisms_stays_within_the_budget(epsilon, choices):
    """Somebody asks any mechanism any number of times, as long as the filter lets them."""
    delta, found = 1e-5, plan_of(epsilon)
    total, rdp, slack = NOTHING, Fraction(0), Fraction(0)
    for index, wanted in choices:
        each, curve, stray = cost_of(index, found.order)
        asked = min(wanted, found.affords(total, each))
        total = total.plus(each.times(asked))
        rdp, slack = rdp + asked * curve, slack + asked * stray
    assert found.allows(total) and total.rdp >= rdp and total.slack >= slack
    inner = mpmath.mpf(delta) - (1 + mpmath.e**epsilon) * mpmath.mpf(float(slack))
    assert converted(found.order, mpmath.mpf(rdp.numerator) / rdp.denominator, inner) <= epsilon


def divergence(found, scales, votes, depth, total=NOTHING, history=()):
    """Exact sup over events of P - e^epsilon Q for an asker who picks the next question by all answers."""
    log_p, log_q = history[-1] if history else (0.0, 0.0)
    scale = scales[len([one for one in history if one[0] > one[1]]) % len(scales)]
    mechanism = GNMax(scale)
    each = filter.cost(mechanism, teachers=9, classes=2, order=found.order)
    if depth == 0 or found.affords(total, each) < 1:
        return max(0.0, math.exp(log_p) - math.exp(found.epsilon + log_q))
    gaps = [(one - two) / (math.sqrt(2) * scale) for one, two in votes]
    found_sum = 0.0
    for sign in (1, -1):
        step = [float(special.log_ndtr(sign * gap)) for gap in gaps]
        following = (*history, (log_p + step[0], log_q + step[1]))
        found_sum += divergence(found, scales, votes, depth - 1, total.plus(each), following)
    return found_sum


@pytest.mark.parametrize("votes", [((5, 4), (4, 5)), ((6, 3), (5, 4))])
def test_an_asker_who_adapts_gets_no_more_than_delta(votes):
    """All answers of an adaptive interview enumerated: scales follow from answers, the filter ends it."""
    found = filter.plan(GNMax(4.0), teachers=9, classes=2, epsilon=1.0, delta=0.05)
    deltas = [divergence(found, (4.0, 3.0, 6.0), pair, 9) for pair in (votes, votes[::-1])]
    assert 0 <= max(deltas) <= 0.05
    wasteful = filter.Filter(1.0, 0.05, found.order, found.rdp * 30, 1.0)
    assert max(divergence(wasteful, (0.5,), pair, 9) for pair in (votes, votes[::-1])) > 0.05


def test_costs_are_rounded_up():
    one = Cost(0.1, 0.0)
    assert Fraction(one.times(7).rdp) >= 7 * Fraction(0.1)
    assert Fraction(one.plus(Cost(0.2, 0.0)).rdp) >= Fraction(0.1) + Fraction(0.2)


def test_what_is_spent_leaves_less():
    found = filter.plan(GNMax(20.0), **SIZE, epsilon=1.0, delta=1e-5)
    each = filter.cost(GNMax(20.0), **SIZE, order=found.order)
    most = found.affords(NOTHING, each)
    assert [found.affords(each.times(gone), each) for gone in (0, 1, most)] == [most, most - 1, 0]
    assert found.affords(Cost(0.0, 1.0), each) == 0  # the samplers' share is used up


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"epsilon": 0.0}, "budget_epsilon=0"),
        ({"epsilon": math.inf}, "budget_epsilon=inf"),
        ({"delta": 0.0}, "delta=0"),
        ({"epsilon": 0.01}, "does not afford one answer"),
        ({"epsilon": 38.0, "delta": 1e-9}, "alone takes more than this delta"),
    ],
)
def test_a_budget_that_cannot_be_is_refused(changes, said):
    with pytest.raises(PateError, match=said):
        filter.plan(GNMax(20.0), **{**SIZE, "epsilon": 1.0, "delta": 1e-5, **changes})


def test_a_filter_survives_json():
    found = filter.plan(GNMax(20.0), **SIZE, epsilon=1.0, delta=1e-5)
    assert from_dict(filter.Filter, to_dict(found), "budget") == found


@pytest.mark.parametrize(
    "wrong", [{"epsilon": 1.0}, {"rdp": "much"}, {"slack": math.inf}, {"more": 1.0}, None, 3]
)
def test_a_filter_that_was_edited_is_one_sentence(wrong):
    found = filter.plan(GNMax(20.0), **SIZE, epsilon=1.0, delta=1e-5)
    edited = {**to_dict(found), **wrong} if isinstance(wrong, dict) and "epsilon" not in wrong else wrong
    with pytest.raises(PateError, match="budget"):
        from_dict(filter.Filter, edited, "budget")
