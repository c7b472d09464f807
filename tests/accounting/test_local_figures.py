"""The cost of noisy answers against enumeration of everything that a voter can send."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from pate_jax.accounting import local as figures
from pate_jax.errors import PateError
from pate_jax.mechanisms import local

ORDERS = np.array([1.3, 2.0, 7.5, 64.0])


def rows(mechanism):
    """The law [class, everything that can be sent]."""
    of = np.array(local.channel(mechanism), float) / local.WORDS
    if not local.is_bits(mechanism):
        return of
    size = mechanism.classes
    sent = np.array(list(itertools.product((0, 1), repeat=size)))
    return np.array([of[(np.arange(size) == true).astype(int), sent].prod(axis=1) for true in range(size)])


@pytest.mark.parametrize("kind", local.BY_NAME.values(), ids=local.BY_NAME)
@pytest.mark.parametrize(("classes", "epsilon"), [(2, 1.0), (4, 3.0), (4, 0.2)])
def test_the_curve_bounds_every_pair_of_classes_and_is_exact_where_it_says_so(kind, classes, epsilon):
    mechanism = kind(classes, epsilon)
    law = rows(mechanism)
    exact = np.max(
        [
            np.log((p[:, None] ** ORDERS * q[:, None] ** (1 - ORDERS)).sum(axis=0)) / (ORDERS - 1)
            for p, q in itertools.permutations(law, 2)
        ],
        axis=0,
    )
    claimed = figures.rdp(mechanism, ORDERS)
    assert np.all(exact <= claimed * (1 + 1e-12))
    if kind is not local.TruncatedGeometric:
        np.testing.assert_allclose(claimed, exact, rtol=1e-7)


@pytest.mark.parametrize("kind", local.BY_NAME.values(), ids=local.BY_NAME)
@pytest.mark.parametrize("delta", [1e-3, 1e-5])
def test_several_answers_cost_no_less_than_their_enumeration(kind, delta):
    mechanism, answers = kind(3, 0.4), 3
    law = rows(mechanism)
    worst = 0.0
    for p, q in itertools.permutations(law, 2):
        many = [p, q]
        for _ in range(answers - 1):
            many = [np.multiply.outer(each, one).ravel() for each, one in zip(many, (p, q), strict=True)]
        low, high = 0.0, answers * 0.4 + 1
        for _ in range(50):
            middle = (low + high) / 2
            over = np.maximum(many[0] - math.exp(middle) * many[1], 0).sum() > delta
            low, high = (middle, high) if over else (low, middle)
        worst = max(worst, high)
    claimed = figures.spent(mechanism, answers, delta)
    assert worst <= claimed * (1 + 1e-9) <= answers * 0.4 * (1 + 1e-9)


def test_without_a_delta_epsilons_add_up_and_many_answers_cost_less_with_one():
    mechanism = local.RandomisedResponse(10, 0.1)
    assert figures.spent(mechanism, 200) == pytest.approx(20.0, rel=1e-12)
    assert figures.spent(mechanism, 200) >= 200 * local.log_ratio(mechanism)
    assert figures.spent(mechanism, 200, 1e-5) < 4
    assert figures.spent(mechanism, 0, 1e-5) == 0


def test_no_more_answers_are_counted_than_are_asked_for():
    mechanism = local.RandomisedResponse(5, 0.5)
    assert [figures.affords(mechanism, 1e300, 0.0, (), most) for most in (0, 1, 5, 8)] == [0, 1, 5, 8]
    assert [figures.affords(mechanism, 2.0, 0.0, (), most) for most in (3, 4, 5)] == [3, 4, 4]


def test_answers_of_two_mechanisms_cost_no_less_than_their_enumeration():
    first, second = local.RandomisedResponse(3, 0.7), local.OneHotNoise(3, 0.5)
    worst = 0.0
    for i, j in itertools.permutations(range(3), 2):
        p, q = (np.multiply.outer(rows(first)[at], rows(second)[at]).ravel() for at in (i, j))
        over = [np.maximum(p - math.exp(epsilon) * q, 0).sum() for epsilon in np.arange(0, 1.3, 1e-3)]
        worst = max(worst, 1e-3 * int(np.argmax(np.array(over) <= 0.02)))
    assert worst - 1e-3 <= figures.together([(first, 1), (second, 1)], 0.02) < 1.2


@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize("answers", [1, 3, 40])
def test_the_loudest_answers_keep_the_budget_and_leave_nothing(answers, delta):
    found = figures.loudest("one-hot", 5, answers, 2.0, delta)
    assert figures.spent(found, answers, delta) <= 2.0
    assert figures.spent(local.make("one-hot", 5, found.epsilon * 1.001), answers, delta) > 2.0


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_a_budget_decides_how_many_answers_and_never_how_loud(delta):
    mechanism = local.RandomisedResponse(5, 0.3)
    for budget, used in itertools.product((0.2, 1.0, 7.0), (0, 2)):
        before = [(mechanism, used)]
        more = figures.affords(mechanism, budget, delta, before)
        if more:
            assert figures.together([*before, (mechanism, more)], delta) <= budget
        assert figures.spent(mechanism, used + more + 1, delta) > budget


@pytest.mark.parametrize(("budget", "best"), [(8.0, "randomised-response"), (1.0, "one-hot")])
def test_a_plan_without_a_mechanism_takes_the_better_one(budget, best):
    settings = {"classes": 30, "questions": 12, "voters": 300, "budget": budget}
    named = [figures.plan(name, **settings) for name in ("randomised-response", "one-hot")]
    assert figures.plan(**settings) == max(named, key=lambda one: one.right)
    assert figures.plan(**settings).mechanism.name == best


def test_a_plan_for_many_answers_at_a_delta_is_no_worse_than_the_pure_one():
    settings = {"classes": 4, "questions": 50, "voters": 500, "budget": 1.0}
    pure = figures.plan("randomised-response", **settings)
    with_delta = figures.plan("randomised-response", **settings, delta=1e-5)
    assert with_delta.right >= pure.right - 1e-9
    assert figures.spent(with_delta.mechanism, with_delta.answers_each, 1e-5) <= 1.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: figures.loudest("one-hot", 5, 0, 1.0), "answers=0"),
        (lambda: figures.loudest("one-hot", 5, 10, math.inf), "budget=inf"),
        (lambda: figures.loudest("one-hot", 5, 10**6, 1.0), "answer fewer questions"),
        (lambda: figures.spent(local.OneHotNoise(5, 1.0), -1), "answers=-1"),
        (lambda: figures.plan("one-hot", classes=5, questions=0, voters=3, budget=1.0), "questions=0"),
        (
            lambda: figures.plan("one-hot", classes=5, questions=3, voters=3, budget=1.0, accuracy=0.0),
            "accuracy=0",
        ),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(call, message):
    with pytest.raises(PateError, match=message):
        call()


def losses(mechanism, answers):
    """Every privacy loss of answers about two classes, and how probable it is."""
    right = np.arange(answers + 1)
    return (2 * right - answers) * mechanism.epsilon, binom.pmf(
        right, answers, 1 / (1 + math.exp(-mechanism.epsilon))
    )


def delta_where_answers_choose(first, seconds, epsilon):
    """The exact delta at `epsilon` if the first answers decide which of several votes comes next."""
    there, chance = losses(*first)
    over = []
    for second in seconds:
        loss, probable = losses(*second)
        left = np.minimum(epsilon - there[:, None] - loss, 0)
        over.append((probable * -np.expm1(left)).sum(axis=1))
    return float((chance * np.max(over, axis=0)).sum())


def test_votes_that_are_planned_after_seeing_answers_stay_within_the_budget():
    """Each sum would do by itself; the worse of two votes, which answers choose, takes twice the delta."""
    budget, delta = 5.353710258248387, 1e-5
    kind = local.RandomisedResponse
    first, loud, soft = (
        kind(2, each) for each in (0.09812302613728836, 1.041427505013939, 0.052233072216386706)
    )
    before = [(first, 37)]
    by_smallest = [(loud, 3), (soft, 392)]
    assert all(figures.together([*before, each], delta) <= budget for each in by_smallest)
    assert delta_where_answers_choose(before[0], by_smallest, budget) > 1.7 * delta
    kept = [(each, figures.affords(each, budget, delta, before)) for each in (loud, soft)]
    assert 0 < kept[0][1] <= 3 and 0 < kept[1][1] < 392
    assert delta_where_answers_choose(before[0], kept, budget) <= delta


@given(
    st.lists(st.tuples(st.floats(0.02, 2.0), st.integers(1, 60)), min_size=1, max_size=4),
    st.floats(0.5, 8.0),
    st.sampled_from([0.0, 1e-9, 1e-5]),
)
def test_a_filter_sums_costs_and_is_never_above_the_plain_sum_where_it_takes_that(votes, budget, delta):
    given_votes = [(local.RandomisedResponse(3, epsilon), answers) for epsilon, answers in votes]
    spent = [figures.accumulated(given_votes[:count], budget, delta) for count in range(1, len(votes) + 1)]
    assert spent[-1] >= figures.together(given_votes, delta) * (1 - 1e-9)
    assert spent[1:] == sorted(spent[1:])
    more = figures.affords(given_votes[0][0], budget, delta, given_votes)
    if more:
        assert figures.accumulated([*given_votes, (given_votes[0][0], more)], budget, delta) <= budget
