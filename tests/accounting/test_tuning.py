"""The privacy profile of the best of a random number of candidates: by exact laws, and another library."""

import math
from functools import partial

import dp_accounting
import numpy as np
import pytest
from dp_accounting import rdp as other_library
from scipy import optimize, special, stats
from test_repetitions import of_the_best

from pate_jax.accounting import composition, tuning
from pate_jax.accounting.tuning import Fixed, NegativeBinomial, Tuned, negative_binomial
from pate_jax.errors import PateError
from pate_jax.mechanisms.codec import from_dict, to_dict

LAWS = [NegativeBinomial(1.0, 0.1), NegativeBinomial(0.0, 0.05), NegativeBinomial(-0.5, 0.01)]
EPSILONS = np.linspace(0.0, 4.0, 41)


def slope(law, at):
    """The derivative of E[at^K], from the chances of each K and not from a closed form."""
    chances = tuning.law(law)
    numbers = np.arange(1, len(chances))
    return (chances[1:] * numbers * np.power.outer(np.asarray(at), numbers - 1)).sum(-1)


def stick(p, q, epsilon):
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_exact_delta_of_the_best_never_exceeds_the_bound_and_comes_near(law):
    near = 0.0
    for first, second in (
        ([0.5, 0.5], [0.62, 0.38]),
        ([0.999, 0.001], [0.997, 0.003]),
        ([0.9, 0.0999, 0.0001], [0.9099, 0.09, 0.0001]),
        ([0.9, 0.1, 0.0], [0.88, 0.119, 0.001]),
        ([1 - 3e-6, 3e-6], [1 - 1e-6, 1e-6]),
    ):
        p, q = np.array(first), np.array(second)
        pairs = [(p, q), (q, p)]

        def profile(epsilon, pairs=pairs):
            return math.log(max(stick(*pair, epsilon) for pair in pairs) + 1e-300)

        bests = [(of_the_best(law, one), of_the_best(law, other)) for one, other in pairs]
        for epsilon in EPSILONS:
            exact = max(stick(*pair, epsilon) for pair in bests)
            bound = math.exp(tuning.log_delta(law, profile, epsilon))
            assert exact <= bound * (1 + 1e-9) + 1e-11
            near = max(near, exact / bound if exact > 1e-8 else 0.0)
    assert near > 0.95


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("best_is", [1, -1])
def test_gaussian_candidates_with_the_worst_score_stay_below_the_figure(law, best_is):
    """The score is the output itself: large ones win, or small ones; both neighbours."""
    mu, delta = 0.5, 1e-4
    figure = Tuned(law, mu, 2).epsilon(delta)
    places = np.linspace(-9, 9, 20_001)
    for first, second in ((0.0, mu), (mu, 0.0)):
        p, q = (stats.norm.pdf(places, mean) for mean in (first, second))
        ranks = [
            stats.norm.cdf(best_is * places, best_is * mean) for mean in (first, second)
        ]  # the chance of an output that is worse
        a, b = (density * slope_of(law, rank) for density, rank in zip((p, q), ranks, strict=True))
        assert abs(np.trapezoid(a, places) - 1) < 1e-4

        def exact(epsilon, a=a, b=b):
            return float(np.trapezoid(np.maximum(a - math.exp(epsilon) * b, 0), places))

        assert exact(figure) <= delta
        if (best_is, first) == (1, mu):
            assert exact(0.6 * figure) > delta  # the figure is not far above the truth


def slope_of(law, at):
    """The closed form of `slope`, for many places."""
    kept = law.gamma + (1 - law.gamma) * (1 - at)
    return law.mean * (law.gamma / kept) ** (1 + law.shape)


def test_the_slope_has_its_closed_form():
    for law in LAWS:
        np.testing.assert_allclose(slope(law, [0.1, 0.9, 1.0]), slope_of(law, np.array([0.1, 0.9, 1.0])))


def gaussian_delta(mu, epsilon):
    return special.ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon) * special.ndtr(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_figure_is_that_of_the_derivation(law):
    """Its two terms, each by another search."""
    mu, delta = 0.3, 1e-5
    one = optimize.brentq(lambda epsilon: gaussian_delta(mu, epsilon) - delta / law.mean, 0, 5)
    at = np.linspace(0, 2, 4001)
    rare, rest = gaussian_delta(mu, at), 1 - law.gamma
    ratios = np.maximum(1 + rest / law.gamma * rare, law.gamma + rest * (np.exp(at) + rare))
    wished = one + (1 + law.shape) * math.log(ratios.min())
    assert Tuned(law, mu, 2).epsilon(delta) == pytest.approx(wished, rel=1e-3)


@pytest.mark.parametrize("mean", [4.0, 10.0])
@pytest.mark.parametrize("shape", [0.0, 1.0])
def test_it_lies_between_one_candidate_and_the_renyi_bound_of_another_library(mean, shape):
    law, mu, delta = negative_binomial(mean, shape), 0.2, 1e-5
    event = dp_accounting.dp_event.RepeatAndSelectDpEvent(
        dp_accounting.GaussianDpEvent(1 / mu), law.mean, shape
    )
    orders = list(np.geomspace(1.5, 400, 60))
    theirs = other_library.RdpAccountant(orders=orders).compose(event).get_epsilon(delta)
    mine = Tuned(law, mu, 3).epsilon(delta)
    assert 1.2 * composition.gaussian_epsilon(mu, delta) < mine < 0.9 * theirs


def test_a_ratio_bounds_every_rank():
    """At each chance x of a better outcome, with the largest x' that a Gaussian allows."""
    mu = 0.7
    x = stats.norm.cdf(np.linspace(-8, 8, 4001))
    other = stats.norm.cdf(np.linspace(-8, 8, 4001) + mu)
    for law in LAWS:
        exact = np.log((law.gamma + (1 - law.gamma) * other) / (law.gamma + (1 - law.gamma) * x)).max()
        found = tuning.log_ratio(law, partial(composition.gaussian_log_delta, mu))
        exact *= 1 + law.shape
        assert exact <= found <= exact * (1 + 1e-4)


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 8.0])
def test_candidates_get_what_noise_the_whole_choice_needs(epsilon):
    found = tuning.tuned_for(LAWS[0], 3, epsilon, 1e-5)
    assert 0.999 * epsilon < found.epsilon(1e-5) <= epsilon
    assert from_dict(Tuned, to_dict(found), "tuned") == found


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Tuned(LAWS[0], 0.0, 3), "mu=0.0"),
        (lambda: Tuned(LAWS[0], 0.1, 0), "settings=0"),
        (lambda: Tuned(Fixed(1), 0.1, 5), "candidates=1 of 5 settings"),
        (lambda: from_dict(Tuned, {"mu": 0.1}, "tuned"), "tuned takes"),
        (lambda: tuning.tuned_for(LAWS[0], 3, 1e-9, 1e-5), "too little"),
    ],
)
def test_bad_input_is_named(make, named):
    with pytest.raises(PateError, match=named):
        make()
