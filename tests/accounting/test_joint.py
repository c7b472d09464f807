"""What events cost together: one figure, at most what they cost one by one, and exact for Gaussians."""

import mpmath as mp
import pytest
from hypothesis import given, strategies

from pate_jax.accounting import costs, curves, sampled_noise, tuning
from pate_jax.accounting.answers_statement import headline
from pate_jax.accounting.costs import BestOf, Tables, Trained
from pate_jax.accounting.exact import counts
from pate_jax.mechanisms import DiscreteGaussianMax, GaussianHistogram, GNMax, LNMax
from pate_jax.mechanisms.crowds import ClassSums, HeadCount, Score
from pate_jax.mechanisms.events import Answers
from pate_jax.mechanisms.stable import StableAnswers

DELTA = 1e-5
COUNT, SUMS = HeadCount(sigma=20.0), ClassSums(classes=3, directions=4, length=100, sigma=2000.0)
MECHANISMS = [GNMax(40.0), DiscreteGaussianMax(40.0), LNMax(20.0), GaussianHistogram(60.0)]


def of(mechanism, asked=50, teachers=250):
    return Answers(mechanism, teachers, 10, asked)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda one: one.name)
def test_answers_of_one_mechanism_are_one_list_whoever_asked_them(mechanism):
    assert costs.epsilon([of(mechanism)], DELTA) == headline(of(mechanism), DELTA).epsilon
    assert (
        costs.epsilon([of(mechanism, 20), of(mechanism, 30)], DELTA) == headline(of(mechanism), DELTA).epsilon
    )


def test_releases_of_crowds_have_their_own_figure():
    assert costs.epsilon([COUNT, SUMS], DELTA) == counts.worst([COUNT, SUMS], DELTA)


def test_a_voter_may_vote_in_one_run_and_be_held_out_in_another():
    """It moves the table of the first by mu 0.1, and the score of the second by 1/10."""
    first, second = ClassSums(classes=3, directions=4, length=100, sigma=2000.0), Score(sigma=10.0)
    wanted = exact(mp.sqrt(2) / 10, DELTA)
    assert wanted <= costs.epsilon([first, second], DELTA) <= wanted * (1 + 1e-5)
    with_answers = [first, second, of(GaussianHistogram(60.0))]
    wanted = exact(mp.sqrt(mp.mpf("0.02") + mp.mpf(1) / 36), DELTA)
    assert wanted <= costs.epsilon(with_answers, DELTA) <= wanted * (1 + 1e-5)


def exact(mu, delta):
    """Epsilon of mu-Gaussian differential privacy, with 40 digits."""
    with mp.workdps(40):
        mu = mp.mpf(mu)

        def excess(epsilon):
            first, second = mp.ncdf(mu / 2 - epsilon / mu), mp.ncdf(-mu / 2 - epsilon / mu)
            return first - mp.exp(epsilon) * second - mp.mpf(delta)

        return float(mp.findroot(excess, (0, 20), solver="bisect", maxsteps=100, tol=1e-40))


def test_gaussian_releases_of_several_kinds_compose_exactly():
    """Whole histograms move by sqrt(2 Q), a table by its mu: together they are one Gaussian."""
    histograms, table = of(GaussianHistogram(60.0)), Tables(0.2, "sums")
    wanted = exact(mp.sqrt(mp.mpf(2) * 50 / 3600 + mp.mpf("0.04")), DELTA)
    assert wanted <= costs.epsilon([histograms, table], DELTA) <= wanted * (1 + 1e-5)
    one = ClassSums(classes=3, directions=4, length=100, sigma=2000.0, family="rounded_gaussian")
    mu = counts.worst_mu([one])
    found = costs.epsilon([histograms, table, one], DELTA)
    assert found == pytest.approx(exact(mp.sqrt(mp.mpf(1) / 36 + mp.mpf("0.04") + mu**2), DELTA), rel=1e-5)


EVENTS = [
    *(of(mechanism) for mechanism in MECHANISMS),
    COUNT,
    SUMS,
    Tables(0.2, "sums"),
    Trained(sampled_noise.Training(0.01, 500, 2.0), 1000),
]


@given(
    strategies.lists(strategies.sampled_from(EVENTS), min_size=2, max_size=4),
    strategies.sampled_from([1e-6, DELTA]),
)
def test_together_costs_no_less_than_each_and_no_more_than_all_added(events, delta):
    together = costs.epsilon(events, delta)
    alone = [costs.epsilon([event], delta / len(events)) for event in events]
    assert together <= sum(alone) * (1 + 1e-6), "basic composition is a bound too"
    for dropped in range(len(events)):
        fewer = [event for place, event in enumerate(events) if place != dropped]
        assert costs.epsilon(fewer, delta) <= together * (1 + 1e-9)


def test_a_stable_list_and_a_choice_of_settings_add_up_by_their_curves():
    stable = of(StableAnswers(threshold=200, scale=8.0, cutoff=2))
    chosen = BestOf(tuning.Tuned(tuning.NegativeBinomial(1.0, 0.1), mu=0.1, settings=3))
    orders = curves.default_orders()
    for event in (stable, chosen):
        added = costs.curve(event, orders) + costs.curve(of(GNMax(40.0)), orders)
        wanted = curves.epsilon(orders, added, DELTA).epsilon
        assert wanted <= costs.epsilon([event, of(GNMax(40.0))], DELTA) <= wanted * (1 + 1e-4)


def test_what_strays_further_than_delta_has_no_figure():
    assert costs.epsilon([of(GNMax(40.0)), Tables(0.2, "sums")], 1e-300) is None
