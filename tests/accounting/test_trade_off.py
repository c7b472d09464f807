"""The trade-off curve of every kind of statement, against laws that are known by other means."""

import math

import exact_laws
import mpmath
import numpy as np
import pytest
import stable_laws
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pate_jax import accounting
from pate_jax.accounting import composition, filter, stable_statement, trade_off
from pate_jax.accounting.party_statement import party_statement
from pate_jax.accounting.sampled_noise import Training
from pate_jax.accounting.trade_off import Gaussian
from pate_jax.accounting.training_losses import REPLACE, composed
from pate_jax.accounting.training_statement import training_statement
from pate_jax.accounting.tuning import Fixed, NegativeBinomial, Tuned
from pate_jax.audit import accounts
from pate_jax.mechanisms import (
    ConfidentDiscreteGaussian,
    ConfidentGNMax,
    DiscreteGaussianMax,
    DiscreteLaplaceMax,
    GNMax,
    GumbelMax,
    LNMax,
    Noise,
    PermuteAndFlip,
)
from pate_jax.mechanisms.crowds import ClassSums, HeadCount, NeighbourCounts, Score
from pate_jax.mechanisms.shared_votes import SharedVote
from pate_jax.mechanisms.stable import StableAnswers

DELTA = 1e-5
EPSILONS = np.linspace(0, 12, 50)
MECHANISMS = (
    DiscreteGaussianMax(3.0),
    DiscreteLaplaceMax(4.0),
    GNMax(3.0),
    LNMax(4.0),
    GumbelMax(5.0),
    PermuteAndFlip(6.0),
    ConfidentGNMax(4, 3.0, 2.5),
    ConfidentDiscreteGaussian(4, 3.0, 2.5),
)


# ---- exact figures of a pair of laws, as arrays of chances


def hockey(p, q, epsilon):
    return np.maximum(p - math.exp(epsilon) * q, 0).sum()


def guess(p, q):
    return (1 + np.abs(p - q).sum() / 2) / 2


def caught(p, q, level=trade_off.FALSE_ALARMS):
    """True positives of Neyman and Pearson's test, which tosses a coin for one outcome."""
    with np.errstate(divide="ignore", invalid="ignore"):
        order = np.argsort(-np.where(q > 0, p / q, np.inf))
    p, q = p[order], q[order]
    room = level - (np.cumsum(q) - q)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        share = np.where(q > 0, np.clip(room / q, 0, 1), 1.0)
    return float((p * share).sum())


def tables(*laws):
    """The joint law of independent outcomes."""
    found = np.ones(1)
    for law in laws:
        found = np.multiply.outer(found, law).ravel()
    return found


def check(statement, p, q):
    """No pair of neighbours is told apart better than it says, and it says no more than epsilon allows."""
    found, epsilon = statement.trade_off, statement.headline.epsilon
    for first, second in ((p, q), (q, p)):
        assert guess(first, second) <= found.guess + 1e-12
        assert caught(first, second) <= found.caught + 1e-12
        for delta, proved in found.epsilons.items():
            assert proved is None or hockey(first, second, proved) <= delta * (1 + 1e-6) + 1e-13
        if found.gaussian is not None:
            for one in EPSILONS.tolist():
                allowed = math.exp(composition.gaussian_log_delta(found.mu, one)) if found.mu else 0.0
                most = allowed + (1 + math.exp(one)) * found.gaussian.strays
                assert hockey(first, second, one) <= most * (1 + 1e-9) + 1e-13
    if epsilon is not None:
        assert found.guess <= (1 + trade_off.variation(epsilon, statement.delta)) / 2 * (1 + 1e-12)
        assert found.caught <= trade_off.caught(epsilon, statement.delta) * (1 + 1e-12)
        known = found.epsilons.get(statement.delta)
        assert known is None or known <= epsilon


# ---- each kind of statement, on small pairs


def law(mechanism, counts):
    chances = exact_laws.outcomes(mechanism, counts)
    return chances if mechanism.test else chances[1:]


@settings(max_examples=20, deadline=None)
@given(
    mechanism=st.sampled_from(MECHANISMS),
    votes=st.lists(st.lists(st.integers(0, 6), min_size=3, max_size=3), min_size=1, max_size=3),
)
def test_a_moved_vote_is_told_apart_no_better_than_answers_say(mechanism, votes):
    rows = np.array(votes)
    rows[:, 0] += 1 + rows.sum(1).max() - rows.sum(1)  # all teachers vote, one of them for class 0
    moved = rows + np.array([-1, 1, 0])
    statement = accounting.statement(mechanism, rows, None, DELTA, private=True, pld=False)
    check(statement, *(tables(*(law(mechanism, one) for one in each)) for each in (rows, moved)))


def test_under_a_budget_the_curve_is_that_of_all_that_it_affords():
    mechanism, rows = ConfidentDiscreteGaussian(4, 8.0, 8.0), np.array([[6, 4, 0]] * 2)
    size = {"teachers": 10, "classes": 3}
    budget = filter.plan(mechanism, epsilon=2.0, delta=DELTA, **size)
    each = filter.cost(mechanism, order=budget.order, **size)
    queries = budget.affords(filter.NOTHING, each)
    assert queries > 2
    make = {"private": True, "adaptive": True, "budget": budget, "pld": False}
    found = accounting.statement(mechanism, rows, None, DELTA, **make).trade_off
    whole = accounting.statement(
        mechanism, np.repeat(rows[:1], queries, 0), None, DELTA, private=True, pld=False
    )
    assert found.mu == whole.trade_off.mu and found.guess == pytest.approx(whole.trade_off.guess, rel=1e-3)
    assert found.guess < (1 + trade_off.variation(2.0, DELTA)) / 2


def test_where_the_numbers_of_teachers_differ_the_headline_and_mu_are_all():
    rows = np.array([[6, 4, 0], [5, 4, 0]])
    moved, make = rows + np.array([-1, 1, 0]), {"private": True, "voters_may_sit_out": True}
    found = accounting.statement(GNMax(3.0), rows, None, DELTA, **make)
    check(found, *(tables(*(law(GNMax(3.0), one) for one in each)) for each in (rows, moved)))
    assert found.trade_off.mu == pytest.approx(2 / 3)


def rounded(sigma, shift, reach):
    return cells(np.arange(-reach, reach + 2) - 0.5, shift, sigma)


def cells(edges, mean, sigma):
    """The chances between edges, and of both ends; each side is computed from its own tail."""
    z = (np.concatenate([[-np.inf], edges, [np.inf]]) - mean) / sigma
    return np.where(z[1:] <= 0, np.diff(stats.norm.cdf(z)), -np.diff(stats.norm.sf(z)))


def discrete(sigma, shift, reach):
    x = np.arange(-reach, reach + 1)
    weights = np.exp(-((x - shift) ** 2) / (2 * sigma**2))
    return weights / weights.sum()


@settings(max_examples=10, deadline=None)
@given(
    sigma=st.floats(1.0, 3.0),
    votes=st.integers(1, 2),
    family=st.sampled_from(["rounded_gaussian", "discrete_gaussian"]),
)
def test_a_voter_is_told_apart_no_better_than_a_table_of_counts_says(sigma, votes, family):
    release = NeighbourCounts(queries=4, classes=2, votes=votes, sigma=sigma, family=family)
    statement = accounting.crowd_statement([release], DELTA, voters=9, private=True)
    one = rounded if family == "rounded_gaussian" else discrete
    reach = math.ceil(9 * sigma) + 1
    here, there = one(sigma, 0, reach), one(sigma, 1, reach)
    if family == "rounded_gaussian":
        check(statement, tables(here, there), tables(there, here))  # 2 of the cells that move
        return
    together = here  # losses are linear in the sum of the noises of all moved cells
    for _ in range(2 * votes - 1):
        together = np.convolve(together, here)
    none = np.zeros(2 * votes)
    check(statement, np.append(together, none), np.append(none, together))


@settings(max_examples=10, deadline=None)
@given(length=st.integers(1, 4), sigma=st.floats(2.0, 6.0), number=st.floats(2.0, 6.0))
def test_a_voter_is_told_apart_no_better_than_sums_and_scores_say(length, sigma, number):
    releases = [ClassSums(2, 1, length, sigma), HeadCount(number), Score(number)]
    statement = accounting.crowd_statement(releases, DELTA, voters=9, private=True)
    reach = math.ceil(9 * max(sigma, number)) + 2 * length
    moved = rounded(sigma, 2 * length, reach), rounded(sigma, 0, reach)
    check(statement, *moved)
    scored = tables(rounded(number, 1, reach), rounded(number, 0, reach))
    check(statement, scored, tables(rounded(number, 0, reach), rounded(number, 1, reach)))
    mus = 2 * length / sigma, math.sqrt(2) / number, math.hypot(length / sigma, 1 / number)
    assert statement.trade_off.mu == pytest.approx(max(mus))


@settings(max_examples=15, deadline=None)
@given(sigma=st.floats(4.0, 9.0), parties=st.integers(2, 4), tested=st.booleans())
def test_a_voter_is_told_apart_no_better_than_parties_say(sigma, parties, tested):
    """Whoever knows one share sees the rest of them; two counts move at each of two queries."""
    more = {"threshold": 3.0, "sigma_threshold": sigma} if tested else {}
    opened = "answers" if tested else "counts"
    vote = SharedVote("teachers", opened, parties, sigma, 3, queries=1, **more)
    statement = party_statement(vote, DELTA, private=True)
    share = vote.noise.share.scale
    reach = math.ceil(9 * share) + 1
    noise = discrete(share, 0, reach)
    together = noise
    for _ in range(parties - 2):
        together = np.convolve(together, noise)
    here, there = np.append(together, 0.0), np.append(0.0, together)
    check(statement, tables(here, there), tables(there, here))


def test_a_table_of_sums_among_parties_costs_its_whole_length():
    vote = SharedVote("sums", "counts", 3, 30.0, 2, length=10)
    statement = party_statement(vote, DELTA, private=True)
    noise = discrete(vote.noise.share.scale, 0, 400)
    together = np.convolve(noise, noise)
    check(statement, np.append(together, np.zeros(20)), np.append(np.zeros(20), together))
    assert statement.trade_off.mu == pytest.approx(20 / (30 * math.sqrt(2 / 3)), rel=1e-4)


@pytest.mark.parametrize("rate", [0.3, 1.0])
@pytest.mark.parametrize("multiplier", [1.0, 3.0])
def test_a_record_is_told_apart_no_better_than_two_steps_say(rate, multiplier):
    training = Training(rate, 2, multiplier)
    inner = DELTA * 0.99
    added, changed = composed((training,), inner), composed((training,), inner, REPLACE)
    statement = training_statement(training, max(added, changed), added, DELTA, private=True)
    edges = np.linspace(-9 * multiplier - 1, 9 * multiplier + 1, 600)
    without, with_it, other = (cells(edges, mean, multiplier) for mean in (0, 1, -1))
    joins, opposite = ((1 - rate) * without + rate * moved for moved in (with_it, other))
    check(statement, tables(joins, joins), tables(opposite, opposite))
    check(statement, tables(joins, joins), tables(without, without))
    assert statement.trade_off.mu is None


@settings(max_examples=15, deadline=None)
@given(
    readings=st.lists(st.integers(2, 9), min_size=1, max_size=3),
    moves=st.lists(st.sampled_from([-1, 1]), min_size=3, max_size=3),
    cutoff=st.integers(1, 2),
)
def test_a_vote_is_told_apart_no_better_than_a_stable_list_says(readings, moves, cutoff):
    mechanism = StableAnswers(threshold=4, scale=2.0, cutoff=cutoff)
    size = {"asked": len(readings), "answered": 0, "teachers": 50, "classes": 3}
    statement = stable_statement(mechanism, 0.5, private=True, **size)
    near = tuple(reading + move for reading, move in zip(readings, moves, strict=False))
    found = [stable_laws.patterns(4, 2.0, cutoff, each) for each in (tuple(readings), near)]
    names = sorted(set(found[0]) | set(found[1]))
    check(statement, *(np.array([one.get(name, 0.0) for name in names]) for one in found))
    assert statement.trade_off.mu is None


@pytest.mark.parametrize("law", [NegativeBinomial(1.0, 0.2), NegativeBinomial(0.0, 0.3), Fixed(3)])
def test_a_voter_is_told_apart_no_better_than_a_choice_says(law):
    """The winner's number is published: the largest of as many as the law says, of one mean."""
    mu = 0.3
    tuned = Tuned(law, mu, law.candidates if isinstance(law, Fixed) else 3)
    release = Score(sigma=1 / mu * 1.001)
    statement = accounting.crowd_statement([release], DELTA, voters=9, private=True, tuned=tuned)
    x = np.append(np.linspace(-9, 9, 40_001), np.inf)
    winner = [np.diff(of_largest(law, stats.norm.cdf(x, mean)), prepend=0.0) for mean in (0.0, mu / 1.001)]
    check(statement, *winner)
    assert (statement.trade_off.mu is None) == isinstance(law, NegativeBinomial)


def of_largest(law, below):
    """The distribution function of the largest of a random number: its probability generating function."""
    if isinstance(law, Fixed):
        return below**law.candidates
    rest = (1 - law.gamma) * below
    if law.shape == 0:
        return np.log1p(-rest) / math.log(law.gamma)
    return ((1 - rest) ** -law.shape - 1) / (law.gamma**-law.shape - 1)


# ---- figures by other means


@pytest.mark.parametrize("mu", [0.01, 0.2681, 1.0, 3.5])
def test_the_figures_of_gaussians_are_those_of_sixty_digits(mu):
    sigma = 100 / mu
    statement = accounting.crowd_statement(
        [ClassSums(2, 1, length=50, sigma=sigma)], DELTA, voters=9, private=True
    )
    found = statement.trade_off
    with mpmath.workdps(60):
        exact = mpmath.mpf(100) / mpmath.mpf(sigma)
        half = mpmath.ncdf(exact / 2)
        level = mpmath.findroot(lambda z: mpmath.ncdf(z) - mpmath.mpf(1) / 1000, -3.09)
        power = mpmath.ncdf(exact + level)
        assert 0 <= found.guess - half < 1e-10 and 0 <= found.caught - power < 1e-10
        assert 0 <= found.mu - exact < 1e-10
        for delta, epsilon in found.epsilons.items():
            spent = mpmath.ncdf(exact / 2 - epsilon / exact)
            spent -= mpmath.exp(epsilon) * mpmath.ncdf(-exact / 2 - epsilon / exact)
            assert delta * (1 - 1e-4) < spent <= delta


def test_a_test_that_is_played_guesses_as_often_as_the_statement_allows():
    random, draws = np.random.default_rng(7), 400_000
    release, number = ClassSums(3, 2, length=6, sigma=20.0), HeadCount(20.0)
    statement = accounting.crowd_statement([release, number], DELTA, voters=9, private=True)
    member = random.random(draws) < 0.5
    moved = np.where(member, 6, -6)  # two contents of one voter, as far apart as they can be
    seen = np.rint(moved + random.normal(0, 20.0, draws))
    right = ((seen > 0) == member) * (seen != 0) + 0.5 * (seen == 0)
    error = right.std() / math.sqrt(draws)
    assert statement.trade_off.guess - 4 * error < right.mean() < statement.trade_off.guess + 4 * error
    cut = np.quantile(seen[~member], 0.999)
    assert (seen[member] > cut).mean() < statement.trade_off.caught * 1.3


def test_the_figures_of_a_published_run_are_below_what_epsilon_alone_allows():
    statement = accounting.crowd_statement([ClassSums(2, 1, 100, 746.0)], DELTA, voters=9, private=True)
    assert statement.headline.epsilon == pytest.approx(1.0, abs=1e-3)
    told = statement.text()
    assert "right at most 55.4% of the time" in told and "0.239%" in told and "mu 0.2681" in told
    assert trade_off.percent((1 + trade_off.variation(1.0, DELTA)) / 2) == "73.2%"


@pytest.mark.parametrize("scale", [0.4, 1.0, 3.0, 40.0])
def test_a_unit_of_discrete_noise_is_no_more_than_its_mu(scale):
    """By sixty digits, as far as the noise goes with a chance above 1e-40, and further than its table."""
    mu = composition.unit_mu(Noise("discrete_gaussian", scale))
    assert 1 / scale <= mu < (1 + 1 / (12 * scale**2) + 0.05 * (scale < 1)) / scale
    with mpmath.workdps(60):
        reach = math.ceil(14 * scale)
        weights = [mpmath.exp(-mpmath.mpf(k * k) / (2 * mpmath.mpf(scale) ** 2)) for k in range(2 * reach)]
        whole = 2 * mpmath.fsum(weights) - 1
        step = max(1, reach // 12)
        for k in range(1, reach, step):
            at, before = (mpmath.fsum(weights[abs(one) :]) / whole for one in (k, k - 1))
            z = mpmath.sqrt(2) * mpmath.erfinv(1 - 2 * before)
            assert mpmath.ncdf(-(z + mpmath.mpf(mu))) <= at


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 5.0, 40.0])
def test_a_pure_epsilon_has_the_mu_of_its_total_variation(epsilon):
    mu = composition.pure_mu(epsilon)
    half = math.tanh(epsilon / 2)
    assert trade_off.gaussian_variation(mu) == pytest.approx(half, rel=1e-9)
    p = np.array([1.0, math.exp(-epsilon)]) / (1 + math.exp(-epsilon))
    for one in np.linspace(0, 1.5 * epsilon, 50).tolist():
        assert hockey(p, p[::-1], one) <= math.exp(composition.gaussian_log_delta(mu, one)) * (1 + 1e-9)


def test_no_mu_is_stated_of_noise_that_is_too_wide_to_look_at():
    assert composition.unit_mu(Noise("discrete_gaussian", 149_000.0), 10**7) is None
    assert composition.unit_mu(Noise("discrete_laplace", 2.0)) is None
    wide = ClassSums(2, 1, length=3_000_000, sigma=140_000.0, family="discrete_gaussian")
    found = accounting.crowd_statement([wide], DELTA, voters=9, private=True).trade_off
    assert found.mu is None and found.guess <= 1 and "no mu of Gaussian" in found.words


def test_what_strays_counts_against_every_figure():
    strays = 1e-4
    found = trade_off.of(lambda delta: math.inf, DELTA, Gaussian(0.5, strays))
    assert found.guess >= stats.norm.cdf(0.25) + strays
    assert found.caught >= stats.norm.cdf(0.5 + stats.norm.ppf(1e-3 + strays)) + strays
    assert found.epsilons == dict.fromkeys(trade_off.DELTAS)  # less than what strays


@given(
    epsilon=st.one_of(st.just(math.inf), st.floats(0, 800)),
    delta=st.floats(1e-12, 0.9),
    level=st.floats(1e-6, 0.5),
)
def test_what_one_epsilon_allows_is_reached_by_its_worst_pair(epsilon, delta, level):
    """Kairouz, Oh and Viswanath's pair of four outcomes has every (epsilon, delta) test."""
    finite = min(epsilon, 700.0)
    top = 1 / (1 + math.exp(-finite))
    p = np.array([delta, (1 - delta) * top, (1 - delta) * (1 - top), 0.0])
    assert trade_off.variation(epsilon, delta) == pytest.approx(np.abs(p - p[::-1]).sum() / 2, abs=1e-12)
    assert trade_off.caught(epsilon, delta, level) == pytest.approx(caught(p, p[::-1], level), abs=1e-9)


# ---- a statement that was edited


@pytest.mark.parametrize("field", ["mu", "strays", "guess", "caught", "in_words", "epsilon"])
def test_a_figure_that_was_changed_by_hand_is_found(field):
    crowd = accounting.crowd_statement([HeadCount(9.0)], DELTA, voters=9, private=True)
    answers = accounting.statement(DiscreteGaussianMax(40.0), [[9, 1, 0]] * 3, None, DELTA, private=True)
    for statement in (crowd, answers):
        body = statement.publishable()
        again = accounting.Statement.from_dict(body)
        assert all(one.outcome == "passed" for one in accounts.coherent(body, again.publishable()))
        old = body["trade_off"][field]
        new = (
            old.replace("5", "4")
            if field == "in_words"
            else {"1e-05": 0.1}
            if field == "epsilon"
            else old / 2
        )
        edited = {**body, "trade_off": {**body["trade_off"], field: new}}
        again = accounting.Statement.from_dict(edited)
        assert any("trade_off" in one.text for one in accounts.coherent(edited, again.publishable()))
