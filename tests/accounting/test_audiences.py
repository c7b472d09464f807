"""The figures of each audience against laws that are enumerated from the shares themselves."""

import itertools
import math

import numpy as np
import pytest

from pate_jax.accounting import parties, party_curves
from pate_jax.errors import PateError
from pate_jax.mechanisms.shared_votes import SharedVote

DELTA = 1e-5


def sum_of_shares(scale: float, shares: int) -> np.ndarray:
    """The law of a sum of discrete Gaussians around its middle, by convolution."""
    x = np.arange(-int(14 * scale) - 2, int(14 * scale) + 3)
    one = np.exp(-(x**2) / (2 * scale**2))
    whole = one = one / one.sum()
    for _ in range(shares - 1):
        whole = np.convolve(whole, one)
    return whole


def argmax_law(counts, noise: np.ndarray) -> np.ndarray:
    """P[class j is the largest noisy count], ties at random, by enumeration."""
    reach, classes = len(noise) // 2, len(counts)
    low, high = min(counts) - reach - 1, max(counts) + reach + 1
    mass = np.zeros((classes, high - low + 1))
    for j, count in enumerate(counts):
        mass[j, count - reach - low : count + reach - low + 1] = noise
    below = np.cumsum(mass, axis=1) - mass
    nodes, weights = np.polynomial.legendre.leggauss(4)
    between = below[:, None] + (nodes[None, :, None] + 1) / 2 * mass[:, None]
    rivals = [np.delete(between, j, axis=0).prod(axis=0) for j in range(classes)]
    return np.array([(weights / 2) @ (mass[j] * rivals[j]).sum(axis=1) for j in range(classes)])


def answer_law(counts, offsets, vote: SharedVote, shares: int, test_offset: int = 0) -> np.ndarray:
    """P[refused, 1, .., C] for an observer who knows what the other shares add."""
    noise = sum_of_shares(vote.noise.share.scale, shares)
    law = argmax_law(np.add(counts, offsets), noise)
    if vote.test_noise is None:
        return np.append(0.0, law)
    of_test = sum_of_shares(vote.test_noise.share.scale, shares)
    x = np.arange(len(of_test)) - len(of_test) // 2
    passed = of_test[max(counts) + test_offset + x >= vote.threshold].sum()
    return np.append(1 - passed, passed * law)


def renyi(p, q, order: float) -> float:
    keep = (p > 0) & (q > 0)
    both = [math.log((a[keep] ** order * b[keep] ** (1 - order)).sum()) for a, b in ((p, q), (q, p))]
    return max(both) / (order - 1)


def hockey_stick_epsilon(p, q, delta: float) -> float:
    """The least epsilon with `sum max(0, p - e^eps q) <= delta`, by bisection."""
    low, high = 0.0, 60.0
    for _ in range(60):
        middle = (low + high) / 2
        over = np.maximum(0, p - math.exp(middle) * q).sum()
        low, high = (middle, high) if over > delta else (low, middle)
    return high


def moved(counts, a: int, b: int, by: int = 1) -> list[int]:
    out = list(counts)
    out[a] -= by
    out[b] += by
    return out


@pytest.mark.parametrize(("sigma", "cells"), [(2.0, 1), (2.0, 3), (3.7, 2)])
def test_the_closed_form_of_unit_shifts_agrees_with_enumeration(sigma, cells):
    noise = sum_of_shares(sigma, 1)
    before, after = np.append(noise, 0.0), np.append(0.0, noise)
    p, q = before, after
    for _ in range(cells - 1):
        p, q = np.multiply.outer(p, before).ravel(), np.multiply.outer(q, after).ravel()
    exact = hockey_stick_epsilon(p, q, 1e-3)
    assert exact <= party_curves.unit_epsilon(sigma, cells, 1e-3) * (1 + 1e-9) < exact * (1 + 1e-6)


@pytest.mark.parametrize(("colluding", "absent"), [(0, 0), (1, 0), (2, 1), (1, 2)])
def test_opened_counts_cost_each_audience_what_its_unknown_shares_leave(colluding, absent):
    vote = SharedVote("teachers", "counts", 5, 8.0, 3, queries=1, colluding=colluding, absent=absent)
    unknown = {"outsiders": 5 - absent, "one party": 4 - absent}
    unknown["2 parties together"] = 3 - absent
    found = parties.audiences(vote, DELTA)
    assert len(found) == 2 + (colluding == 2)
    assert math.isclose(parties.worst(vote, DELTA), max(one.epsilon for one in found))
    for one in found:
        noise = sum_of_shares(8.0 / math.sqrt(5 - colluding - absent), unknown[one.name])
        before, after = np.append(noise, 0.0), np.append(0.0, noise)
        exact = hockey_stick_epsilon(
            np.multiply.outer(before, after).ravel(), np.multiply.outer(after, before).ravel(), DELTA
        )
        assert one.shares == unknown[one.name]
        assert exact * (1 - 1e-9) <= one.epsilon < exact * 1.001


def test_a_party_that_cannot_collude_is_still_charged_for_the_share_it_knows():
    outsiders, party = parties.audiences(SharedVote("teachers", "counts", 4, 8.0, 3), DELTA)
    assert party.shares == 3 and party.epsilon > 1.1 * outsiders.epsilon


@pytest.mark.parametrize("test", [{}, {"threshold": 12.0, "sigma_threshold": 10.0}], ids=["plain", "test"])
def test_answers_cost_no_more_than_claimed_whatever_noise_an_observer_knows(test):
    vote = SharedVote("teachers", "answers", 4, 6.0, 3, colluding=2, voters_of_parties=(5,) * 4, **test)
    orders = np.array([1.5, 3.0, 8.0])
    bounds = {shares: party_curves.rdp(vote, shares, orders) for shares in (2, 3)}
    random, ratios = np.random.default_rng(3), []
    cases = [((20, 0, 0), (-10, 10, -40)), ((10, 10, 0), (0, 0, -40)), ((0, 0, 20), (0, 0, -60))]
    cases += [(random.multinomial(20, [0.4, 0.3, 0.3]), random.integers(-12, 13, 3)) for _ in range(6)]
    for (counts, offsets), shares in itertools.product(cases, bounds):
        a, b = int(np.argmax(counts)), int(np.argmin(counts))
        for test_offset in (-6, 40):
            laws = [
                answer_law(each, offsets, vote, shares, test_offset)
                for each in (list(counts), moved(counts, a, b))
            ]
            ratios.append([renyi(*laws, order) for order in orders] / bounds[shares])
    assert np.max(ratios) <= 1
    assert np.max(ratios) > 0.95  # the bound is not idle


@pytest.mark.parametrize("test", [{}, {"threshold": 17.0, "sigma_threshold": 6.0}], ids=["plain", "test"])
@pytest.mark.parametrize(("classes", "absent"), [(2, 0), (3, 0), (2, 1), (3, 1)])
def test_answers_cost_outsiders_no_more_than_claimed(test, classes, absent):
    """Also where a party with its six or seven votes is absent."""
    number = {"voters_of_parties": (7, 6, 7), "colluding": 1, "absent": absent}
    vote = SharedVote("teachers", "answers", 3, 5.0, classes, **number, **test)
    orders, random, present = np.array([1.5, 3.0, 8.0]), np.random.default_rng(1), 3 - absent
    bound, ratios = party_curves.rdp(vote, present, orders, offset=False), []
    for votes in (20,) if not absent else (14, 13):
        sure, close = np.eye(classes, dtype=int)[0] * votes, np.eye(classes, dtype=int)[:2].sum(axis=0)
        close = close * (votes // 2) + np.eye(classes, dtype=int)[0] * (votes % 2)
        for counts in (sure, close, *random.multinomial(votes, [1 / classes] * classes, 3)):
            first, second, *_, last = np.argsort(-counts)[[0, 1, -1]]
            for a, b in ((first, last), (first, second), (second, first)):
                if a != b and counts[a]:
                    after = moved(counts, a, b)
                    laws = [answer_law(each, (0,) * classes, vote, present) for each in (counts, after)]
                    ratios.append([renyi(*laws, order) for order in orders] / bound)
    assert 0.75 < np.max(ratios) <= 1


def test_outsiders_figure_holds_too_where_nobody_stays_away():
    """More noise on a test that hardly ever passes lets more close races through, so it can cost more."""
    settings = {"classes": 3, "colluding": 1, "absent": 2, "threshold": 40, "sigma_threshold": 6.0}
    vote = SharedVote("teachers", "answers", 5, 6.0, voters_of_parties=(2,) * 5, **settings)
    orders = np.array([1.5, 3.0, 8.0])
    claim = party_curves.rdp(vote, 3, orders, offset=False)
    for shares, teachers in ((3, 6), (4, 8), (5, 10)):
        counts, nothing = [teachers // 2, teachers // 2, 0], np.zeros(3, int)
        laws = (answer_law(one, nothing, vote, shares) for one in (counts, moved(counts, 0, 1)))
        first, second = laws
        exact = np.array([renyi(first, second, order) for order in orders])
        assert (exact <= claim).all(), (shares, exact, claim)


def test_a_party_who_knows_its_noise_can_learn_more_than_the_figure_of_an_outsider():
    """Outsiders know that counts add up to the number of teachers; a known share breaks this."""
    vote = SharedVote(
        "teachers",
        "answers",
        4,
        6.0,
        3,
        colluding=1,
        voters_of_parties=(10,) * 4,
        threshold=39.0,
        sigma_threshold=8.0,
    )
    orders = np.array([4.0])
    naive = party_curves.rdp(vote, 3, orders, offset=False)
    counts = [30, 10, 0]
    laws = [answer_law(each, (-10, 10, -40), vote, 3, 24) for each in (counts, moved(counts, 0, 1))]
    assert naive < renyi(*laws, 4.0) <= party_curves.rdp(vote, 3, orders)


@pytest.mark.parametrize("test", [{}, {"threshold": 10.0, "sigma_threshold": 4.0}], ids=["plain", "test"])
def test_neighbours_answers_cover_a_vote_that_leaves_one_query_for_another(test):
    sigma = 9.0 if test else 6.0
    vote = SharedVote("neighbours", "answers", 3, sigma, 3, queries=9, votes=1, colluding=1, **test)
    bound, ratios = party_curves.rdp(vote, 2, [3.0])[0], []
    random = np.random.default_rng(5)
    pairs = [([9, 2, 1], [9, 1, 2]), *random.integers(0, 9, (8, 2, 3)).tolist()]
    for pair in pairs:
        total = 0.0
        for counts, by in zip(pair, (-1, 1), strict=True):
            laws = [answer_law(each, (0, 0, 0), vote, 2) for each in (counts, [counts[0] + by, *counts[1:]])]
            total += renyi(*laws, 3.0)
        ratios.append(total / bound)
    assert (0.8 if test else 0.5) < max(ratios) <= 1


def test_a_whole_party_as_the_unit_covers_all_its_voters_at_once():
    vote = SharedVote("teachers", "counts", 3, 30.0, 3, colluding=1, voters_of_parties=(4, 6, 5))
    noise = sum_of_shares(vote.noise.share.scale, 2)
    shift = np.zeros(6)
    before, after = np.append(noise, shift), np.append(shift, noise)
    one = renyi(before, after, 2.0)
    claimed = party_curves.rdp(vote, 2, [2.0], group=parties.group_size(vote, "party"))[0]
    assert 2 * one <= claimed * (1 + 1e-9) and claimed < 2 * one * 1.01
    assert parties.worst(vote, DELTA, unit="party") > 4 * parties.worst(vote, DELTA)
    for unit in ("record", "user"):
        assert parties.worst(vote, DELTA, unit=unit) == parties.worst(vote, DELTA)


def test_neighbours_of_a_party_may_all_vote_at_the_same_queries():
    """Six voters with two votes each: both directions of the worst table of moved counts."""
    vote = SharedVote(
        "neighbours",
        "answers",
        3,
        60.0,
        3,
        queries=9,
        votes=2,
        voters_of_parties=(6, 1, 1),
        threshold=10.0,
        sigma_threshold=50.0,
    )
    order = 2.0
    moved_counts = 2 * 2 * 6**2  # two cells lose six votes each, and two others gain six
    tests = 4 * 6**2
    exact = order * moved_counts / (2 * 60.0**2) + order * tests / (2 * 50.0**2)
    claimed = party_curves.rdp(vote, 3, [order], group=6)[0]
    assert math.isclose(claimed, exact, rel_tol=1e-9) and claimed >= exact


@pytest.mark.parametrize(
    "vote",
    [
        SharedVote("neighbours", "counts", 3, 40.0, 10, queries=50, votes=2, colluding=1),
        SharedVote("sums", "counts", 3, 40.0, 3, directions=8, length=20, colluding=1, absent=1),
        pytest.param(
            SharedVote("teachers", "answers", 3, 9.0, 5, queries=20, threshold=20.0, sigma_threshold=18.0),
            marks=pytest.mark.long,
        ),
        pytest.param(
            SharedVote("teachers", "answers", 3, 40.0, 5, queries=20, colluding=1),
            marks=pytest.mark.long,  # searches a worst case for each scale that it tries
        ),
    ],
    ids=["neighbours", "sums", "teachers and a test", "teachers"],
)
def test_the_noise_found_for_a_target_keeps_it_for_every_audience_and_is_not_idle(vote):
    found = parties.least_noise(vote, 1.0, DELTA)
    assert parties.worst(found, DELTA) <= 1.0
    assert parties.worst(parties.with_noise(found, found.sigma * 0.99), DELTA) > 1.0


def test_the_cost_under_a_filter_is_that_of_the_audience_that_learns_most():
    vote = SharedVote("teachers", "counts", 4, 8.0, 3, queries=5)
    exact = 3.0 * 2 * 5 / (2 * 8.0**2 * 3 / 4)
    assert exact <= parties.cost(vote, 3.0).rdp < exact * (1 + 1e-6)
    assert parties.cost(vote, 3.0).slack == parties.slack(vote) > 0


def test_outsiders_gain_from_a_threshold_and_absent_parties_take_little_of_it():
    settings = {"voters_of_parties": (20,) * 4, "threshold": 75.0, "sigma_threshold": 8.0, "queries": 50}
    all_there = SharedVote("teachers", "answers", 4, 6.0, 3, **settings)
    fewer = SharedVote("teachers", "answers", 4, 6.0, 3, absent=1, **settings)
    here, gone = (parties.audiences(vote, DELTA)[0] for vote in (all_there, fewer))
    assert here.shares == 4 and gone.shares == 3
    assert gone.noise == pytest.approx(here.noise) and gone.epsilon >= here.epsilon
    assert parties.audiences(fewer, DELTA)[1].epsilon > 1.2 * gone.epsilon


def test_the_distance_of_secure_comparisons_is_paid_for_as_the_protocol_states_it():
    from pate_jax.parties import engine

    assert 2.0**-engine.SECURITY <= parties.COMPARISON
    counts, answers = (
        SharedVote("teachers", opened, 3, 40.0, 10, queries=50) for opened in ("counts", "answers")
    )
    comparisons = 50 * (2 * 10 - 1)  # tournaments of the counts and of the noisy counts, and the test
    ties = 50 * math.comb(10, 2) * 2.0**-128
    assert parties.slack(answers) - parties.slack(counts) >= comparisons * parties.masked(answers) + ties


@pytest.mark.parametrize(("members", "colluding"), [(3, 1), (4, 1), (5, 2)])
def test_a_masked_comparison_shows_no_more_than_is_charged_for(members, colluding):
    """The opened number is enumerated, as those see it who know all parts of the mask but one."""
    bits, security = 3, 7
    sets = math.comb(members, colluding)
    part = 1 << max(0, (2**security // sets).bit_length() - 1)  # the range of one part, as MPyC draws it
    laws = np.zeros((2**bits, (part + 3) << bits))
    for row, difference in enumerate(range(-(2 ** (bits - 1)), 2 ** (bits - 1))):
        for low, high in itertools.product(range(2**bits), range(part)):
            laws[row, difference + 2**bits + low + (high << bits)] += 1 / part / 2**bits
    apart = max(np.abs(one - two).sum() / 2 for one, two in itertools.combinations(laws, 2))
    vote = SharedVote("teachers", "answers", members, 40.0, 10, colluding=colluding)
    charged = parties.masked(vote) / parties.COMPARISON * 2.0**-security
    assert 2.0**-security < apart <= charged


def test_bad_arguments_are_refused_by_name():
    vote = SharedVote("teachers", "counts", 3, 40.0, 3)
    with pytest.raises(PateError, match="needs voters_of_parties"):
        parties.audiences(vote, DELTA, unit="party")
    with pytest.raises(PateError, match="unit='dog'"):
        parties.audiences(vote, DELTA, unit="dog")
    with pytest.raises(PateError, match="delta"):
        parties.audiences(vote, 0.0)
    with pytest.raises(PateError, match="target=0"):
        parties.least_noise(vote, 0, DELTA)
    with pytest.raises(PateError, match="shares=4"):
        parties.epsilon(vote, 4, DELTA)
