"""The best of a random number of candidates: against another library, and against its exact law."""

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import rdp as other_library
from scipy import stats

from pate_jax.accounting import curves, tuning
from pate_jax.accounting.tuning import Fixed, NegativeBinomial, Poisson
from pate_jax.errors import PateError

ORDERS = curves.default_orders()
LAWS = [
    NegativeBinomial(1.0, 0.1),
    NegativeBinomial(0.0, 0.05),
    NegativeBinomial(0.5, 0.02),
    NegativeBinomial(-0.5, 0.01),
    Poisson(1.0),
    Poisson(20.0),
]


@pytest.mark.parametrize("law", [one for one in LAWS if getattr(one, "shape", 0) >= 0], ids=str)
@pytest.mark.parametrize("sigma", [2.0, 8.0])
def test_the_epsilon_is_that_of_another_library(law, sigma):
    shape = math.inf if isinstance(law, Poisson) else law.shape
    event = dp_accounting.dp_event.RepeatAndSelectDpEvent(
        dp_accounting.GaussianDpEvent(sigma), law.mean, shape
    )
    theirs = other_library.RdpAccountant(orders=ORDERS).compose(event).get_epsilon(1e-6)
    mine = curves.epsilon(ORDERS, tuning.best_of(law, ORDERS, ORDERS / (2 * sigma**2)), 1e-6).epsilon
    none = math.exp(-law.mean) / 10 if isinstance(law, Poisson) else 0.0  # they leave out that outcome
    assert theirs * (1 - 1e-6) <= mine <= theirs * (1 + 1e-6) + none


def generating(law, at):
    """E[at^K]."""
    if isinstance(law, Poisson):
        return np.exp(law.mean * (at - 1))
    kept = 1 - (1 - law.gamma) * at
    if law.shape == 0:
        return np.log(kept) / math.log(law.gamma)
    return (kept**-law.shape - 1) / (law.gamma**-law.shape - 1)


def of_the_best(law, chances):
    """The exact law of the best of K outcomes, the worst outcome first; then that of none."""
    below = generating(law, np.append(0.0, np.cumsum(chances)).clip(max=1.0))
    return np.append(np.diff(below), below[0])


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_exact_law_of_the_best_never_exceeds_the_bound_and_comes_near(law):
    near = 0.0
    for first, second in (
        ([0.5, 0.5], [0.62, 0.38]),
        ([0.98, 0.02], [0.96, 0.04]),
        ([0.9, 0.1], [0.88, 0.12]),
    ):
        pairs = [(np.array(first), np.array(second)), (np.array(second), np.array(first))]
        one = np.max([divergence(*pair) for pair in pairs], axis=0)
        bound = tuning.best_of(law, ORDERS, one)
        exact = np.max([divergence(*(of_the_best(law, side) for side in pair)) for pair in pairs], axis=0)
        assert np.all(exact <= bound * (1 + 1e-9) + 1e-12)
        near = max(near, float(np.max(exact / bound)))
    assert near > 0.25


def divergence(p, q):
    held = p > 0
    logs = ORDERS[:, None] * np.log(p[held]) + (1 - ORDERS)[:, None] * np.log(q[held])
    return np.maximum(np.logaddexp.reduce(logs, axis=1) / (ORDERS - 1), 0.0)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_law_has_its_mean_and_generating_function(law):
    chances = tuning.law(law)
    numbers = np.arange(len(chances))
    assert chances @ numbers == pytest.approx(law.mean, rel=1e-9)
    assert chances @ 0.7**numbers == pytest.approx(float(generating(law, 0.7)), rel=1e-9)


def test_numbers_are_drawn_by_the_law():
    law = Poisson(4.0)
    places = (np.arange(2000) + 0.5) / 2000
    drawn = [tuning.number_at(law, place) for place in places]
    np.testing.assert_array_equal(drawn, stats.poisson(4.0).ppf(places))
    assert tuning.number_at(Fixed(7), 0.3) == 7


@pytest.mark.parametrize("shape", [-0.5, 0.0, 1.0, 3.0])
def test_a_law_of_a_wished_mean_has_it(shape):
    assert tuning.negative_binomial(17.0, shape).mean == pytest.approx(17.0, rel=1e-8)


def test_a_fixed_number_is_charged_as_all_of_them_and_a_bare_number_is_refused():
    one = ORDERS / 200
    np.testing.assert_allclose(tuning.best_of(Fixed(12), ORDERS, one), 12 * one)
    with pytest.raises(PateError, match="repetitions=12 is no law"):
        tuning.best_of(12, ORDERS, one)


def test_the_best_of_a_fixed_number_costs_nearly_as_much_as_all_of_them():
    """A rare outcome that is the best, and twice as frequent for a neighbour."""
    p, q, number = np.array([1 - 1e-6, 1e-6]), np.array([1 - 2e-6, 2e-6]), 1000
    one = np.maximum(divergence(p, q), divergence(q, p))
    best = [np.array([side[0] ** number, 1 - side[0] ** number]) for side in (p, q)]
    fixed = np.maximum(divergence(*best), divergence(best[1], best[0]))
    charged = tuning.best_of(Fixed(number), ORDERS, one)
    assert np.all(fixed <= charged * (1 + 1e-9))
    assert np.max(fixed / charged) > 0.9


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: NegativeBinomial(-1.0, 0.1), "shape=-1.0"),
        (lambda: NegativeBinomial(1.0, 1.0), "gamma=1.0"),
        (lambda: Poisson(0.5), "mean=0.5"),
        (lambda: Fixed(0), "candidates=0"),
        (lambda: tuning.best_of(Poisson(2.0), ORDERS, [0.1]), "rdp of shape"),
        (lambda: tuning.number_at(Poisson(2.0), 1.0), "chance=1.0"),
        (lambda: tuning.negative_binomial(0.5), "mean=0.5"),
    ],
)
def test_bad_input_is_named(make, named):
    with pytest.raises(PateError, match=named):
        make()
