"""A lone leader that loses a vote: the law of the best of the others, and every histogram, way by way."""

import itertools

import numpy as np
import pytest
from scipy import stats

from pate_jax.accounting.bounds import worst_case
from pate_jax.mechanisms import Noise, ThresholdTest

ORDERS = np.array([1.3, 2.0, 5.0])


def distribution(noise, places):
    """The noise's distribution function, by other means than the accountant's."""
    if noise.family == "gaussian":
        return stats.norm.cdf(places / noise.scale)
    k = np.arange(-400, 401)
    mass = np.exp(-(k**2) / (2 * noise.scale**2))
    return np.append(0, np.cumsum(mass / mass.sum()))[np.clip(places + 401, 0, 801).astype(int)]


def splits(votes, classes):
    """All ways in which so many classes may share at most these votes."""
    ways = itertools.product(range(votes + 1), repeat=classes)
    return np.array([way for way in ways if sum(way) <= votes])


@pytest.mark.parametrize("noise", [Noise("gaussian", 2.5), Noise("discrete_gaussian", 3.0)], ids=str)
@pytest.mark.parametrize("classes", [1, 2, 4])
def test_no_split_of_the_votes_lets_the_best_of_the_others_reach_further(noise, classes):
    places = np.arange(-9, 20)
    for votes in (0, 1, 6):
        room = np.array([[votes]])
        bound = worst_case._best_reaches(noise, places[None, :], room, classes)[0, 0]
        stays = distribution(noise, places[:, None, None] - splits(votes, classes)).prod(axis=2)
        assert np.allclose(bound, 1 - stays.min(axis=1), rtol=1e-9, atol=1e-13)


def winners(noise, votes):
    """The probabilities that each class wins, by equal steps; ties of whole numbers are broken evenly."""
    votes = np.array(votes)
    if noise.family == "gaussian":
        noisy = np.arange(-9 * noise.scale, votes.max() + 9 * noise.scale, noise.scale / 60)
        wins = stats.norm.pdf((noisy - votes[:, None]) / noise.scale)
        below = distribution(noise, noisy - votes[:, None])
        return np.array(
            [(wins[j] * np.delete(below, j, axis=0).prod(axis=0)).sum() / 60 for j in range(len(votes))]
        )
    nodes, weights = np.polynomial.legendre.leggauss(8)  # exact for polynomials of up to eight classes
    noisy, share = np.arange(-60, votes.max() + 60), (nodes[:, None, None] + 1) / 2
    top, low = (distribution(noise, noisy - step - votes[:, None]) for step in (0, 1))
    below = low + share * (top - low)
    return np.array(
        [
            (weights / 2 @ ((top - low)[j] * np.delete(below, j, axis=1).prod(axis=1))).sum()
            for j in range(len(votes))
        ]
    )


def divergence(p, q):
    return np.log(np.sum(p ** ORDERS[:, None] * q ** (1 - ORDERS[:, None]), axis=1)) / (ORDERS - 1)


CASES = [
    (Noise("gaussian", 3.0), 17, 3),
    (Noise("gaussian", 6.0), 16, 5),
    (Noise("discrete_gaussian", 3.0), 17, 4),
    (Noise("discrete_gaussian", 2.0), 14, 3),
]


@pytest.mark.parametrize(("noise", "teachers", "classes"), CASES, ids=str)
def test_no_lone_leader_costs_more_either_way_and_some_come_close(noise, teachers, classes):
    leaders = np.arange((teachers + 1) // 2 + 1, teachers + 1)
    bound = worst_case.lone_leader_costs(noise, leaders, teachers, classes, ORDERS)
    for i, most in enumerate(leaders):
        worst = np.zeros((2, len(ORDERS)))
        for rest in splits(teachers - most, classes - 1):
            if np.any(np.diff(rest[1:]) > 0):
                continue  # the classes that the vote leaves alone are in order
            before, after = (winners(noise, (most - move, rest[0] + move, *rest[1:])) for move in (0, 1))
            worst = np.maximum(worst, [divergence(before, after), divergence(after, before)])
        assert np.all(worst <= bound[:, i])
        assert i or np.all(worst > 0.84 * bound[:, i])


def test_a_leader_s_cost_falls_with_its_votes_and_rises_with_the_classes():
    noise, leaders = Noise("gaussian", 20.0), np.arange(64, 126)
    few, many = (worst_case.lone_leader_costs(noise, leaders, 125, classes, ORDERS) for classes in (3, 50))
    assert np.all(np.diff(many, axis=1) <= 0) and np.all(few <= many)
    assert np.all(many.max(axis=0) <= worst_case.argmax_curve(noise, ORDERS))


@pytest.mark.parametrize("argmax", [(0.0, 0.3), (0.3, 0.0), (0.2, 0.2)])
@pytest.mark.parametrize("reading", [3, 9, 16])
def test_test_and_argmax_are_charged_in_the_same_direction(argmax, reading):
    test, one = ThresholdTest(9, Noise("gaussian", 4.0)), np.array([reading])
    curves = np.array(argmax)[:, None, None] + np.zeros(len(ORDERS))
    passes = stats.norm.cdf((reading - np.arange(2) - 9) / 4.0)
    before, after = (np.array([[p], [1 - p]]) for p in passes)
    moments = [
        (p**ORDERS * q ** (1 - ORDERS) * np.exp(np.outer([cost, 0.0], ORDERS - 1))).sum(axis=0)
        for (p, q), cost in zip([(before, after), (after, before)], argmax, strict=True)
    ]
    cost = np.log(np.max(moments, axis=0)) / (ORDERS - 1)
    assert np.allclose(worst_case._leader_moves(test, curves, one, one, ORDERS), cost, rtol=1e-7)
