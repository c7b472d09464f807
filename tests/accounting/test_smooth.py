"""Smooth sensitivity against every histogram written out, a release's cost against its worst case."""

import itertools
import json
import math
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest

from pate_jax import accounting
from pate_jax.accounting import curves, exact, papers, smooth
from pate_jax.accounting.bounds import gnmax, smooth_bounds
from pate_jax.accounting.slack import sampler_slack, with_slack
from pate_jax.errors import PateError
from pate_jax.mechanisms import ConfidentGNMax, GNMax, InteractiveGNMax, LNMax

SHARED = Path(__file__).parents[2] / "../shared/data"


def histograms(teachers, classes):
    for cuts in itertools.combinations(range(teachers + classes - 1), classes - 1):
        ends = (-1, *cuts, teachers + classes - 1)
        yield [b - a - 1 for a, b in itertools.pairwise(ends)]


def everything(mechanism, teachers, classes, plan):
    """All histograms, their distances, the released sums and the computed smooth sensitivities."""
    votes = np.array(list(histograms(teachers, classes)))
    apart = np.abs(votes[:, None, :] - votes[None, :, :]).sum(axis=2) // 2
    found = [smooth.smooth_sensitivity(mechanism, row[None], plan) for row in votes]
    return votes, apart, np.array([f.value for f in found]), np.array([f.sensitivity for f in found])


CASES = [
    (GNMax(1.5), 9, 2),
    (GNMax(3.0), 14, 2),
    (GNMax(2.0), 7, 3),
    (GNMax(1.0), 5, 4),
    (GNMax(0.2), 6, 3),
    (ConfidentGNMax(6, 2.0, 2.0), 9, 2),
    (ConfidentGNMax(9, 3.0, 2.0), 7, 3),
]


@pytest.mark.parametrize(("mechanism", "teachers", "classes"), CASES)
@pytest.mark.parametrize(("order", "beta"), [(2.0, 0.1), (4.0, 0.05), (8.0, 0.02)])
def test_bounds_the_true_smooth_sensitivity(mechanism, teachers, classes, order, beta):
    plan = smooth.Plan(order, beta, 5.0)
    _, apart, values, found = everything(mechanism, teachers, classes, plan)
    local = np.where(apart <= 1, np.abs(values[:, None] - values[None, :]), 0).max(axis=1)
    true = (np.exp(-beta * apart) * local[None, :]).max(axis=1)
    assert np.all(found >= true * (1 - 1e-12))


def test_is_close_to_the_truth_where_a_vote_is_a_small_step():
    plan = smooth.Plan(6.0, 0.05, 5.0)
    _, apart, values, found = everything(GNMax(12.0), 90, 2, plan)
    local = np.where(apart <= 1, np.abs(values[:, None] - values[None, :]), 0).max(axis=1)
    true = (np.exp(-plan.beta * apart) * local[None, :]).max(axis=1)
    assert np.all(found >= true) and np.all(found <= 1.1 * true)


@pytest.mark.parametrize(("mechanism", "teachers", "classes"), CASES)
def test_is_smooth(mechanism, teachers, classes):
    """The theorem behind the release needs `S(n) <= e^beta S(n')` for neighbours."""
    plan = smooth.Plan(4.0, 0.07, 5.0)
    _, apart, _, found = everything(mechanism, teachers, classes, plan)
    first, second = np.nonzero(apart == 1)
    assert np.all(found[first] <= np.exp(plan.beta) * found[second] * (1 + 1e-12))


@pytest.mark.parametrize(("mechanism", "teachers", "classes"), CASES)
def test_the_released_sum_bounds_the_exact_cost_in_both_directions(mechanism, teachers, classes):
    for order in (2.0, 4.0, 8.0):
        votes, _, values, _ = everything(mechanism, teachers, classes, smooth.Plan(order, 0.02, 5.0))
        assert np.all(exact.rdp(mechanism, votes, [order])[:, 0] <= values * (1 + 1e-9) + 1e-15)


def test_two_queries_at_once():
    mechanism, plan = GNMax(1.5), smooth.Plan(4.0, 0.05, 5.0)
    votes, apart, values, _ = everything(mechanism, 6, 2, plan)
    pairs = list(itertools.product(range(len(votes)), repeat=2))
    distance = np.array([[max(apart[a, c], apart[b, d]) for c, d in pairs] for a, b in pairs])
    sums = np.array([values[a] + values[b] for a, b in pairs])
    local = np.where(distance <= 1, np.abs(sums[:, None] - sums[None, :]), 0).max(axis=1)
    true = (np.exp(-plan.beta * distance) * local[None, :]).max(axis=1)
    for index, (a, b) in enumerate(pairs):
        found = smooth.smooth_sensitivity(mechanism, votes[[a, b]], plan).sensitivity
        assert found >= true[index] * (1 - 1e-12)


def test_local_sensitivity_is_taken_within_and_not_at_a_distance():
    votes = np.array([[60, 40], [99, 1]])
    found = smooth.smooth_sensitivity(GNMax(5.0), votes, smooth.Plan(4.0, 0.05, 5.0))
    assert np.all(np.diff(found.by_distance) >= 0)


def test_class_order_does_not_matter():
    votes = np.array([[3, 60, 20, 17], [50, 25, 20, 5]])
    plan = smooth.Plan(4.0, 0.05, 5.0)
    one = smooth.smooth_sensitivity(GNMax(5.0), votes, plan)
    other = smooth.smooth_sensitivity(GNMax(5.0), votes[:, ::-1], plan)
    assert one.value == pytest.approx(other.value) and one.sensitivity == pytest.approx(other.sensitivity)
    assert one.sensitivity > 0


def test_strong_consensus_does_not_underflow():
    votes = np.array([[250, 0], [248, 2]])
    for sigma in [1e-3, 0.1, 4.0, 40.0, 1e3, 1e5]:
        found = smooth.smooth_sensitivity(GNMax(sigma), votes, smooth.Plan(14.0, 0.02, 5.0))
        assert np.isfinite(found.value) and found.value >= 0 and found.sensitivity >= 0
        assert np.all(np.isfinite(found.by_distance))


def test_conditions_hold_at_the_published_settings():
    for order, classes in [(14.0, 10), (15.5, 2)]:
        table = smooth_bounds.cells(40.0, classes, 250, order, both_directions=False)
        assert table.monotone and table.unimodal


def test_greedy_and_equal_gaps_both_bound_and_greedy_is_no_larger(monkeypatch):
    votes = np.random.default_rng(0).multinomial(60, [0.7, 0.2, 0.05, 0.05], size=20)
    plan = smooth.Plan(6.0, 0.05, 5.0)
    greedy = smooth.smooth_sensitivity(GNMax(6.0), votes, plan)
    monkeypatch.setattr(smooth_bounds, "_GREEDY", 0)
    equal = smooth.smooth_sensitivity(GNMax(6.0), votes, plan)
    assert np.all(greedy.by_distance <= equal.by_distance * (1 + 1e-12))


def gaussian_renyi(order, mean, first, second):
    """`D_a(N(mean, first^2) || N(0, second^2))` by quadrature."""
    a, mean, s, t = map(mp.mpf, (order, mean, first, second))

    def density(x, centre, scale):
        return mp.exp(-((x - centre) ** 2) / (2 * scale**2)) / (scale * mp.sqrt(2 * mp.pi))

    with mp.workdps(30):
        reach = 60 * max(s, t) + abs(mean)
        whole = mp.quad(
            lambda x: density(x, mean, s) ** a * density(x, 0, t) ** (1 - a), mp.linspace(-reach, reach, 40)
        )
        return float(mp.log(whole) / (a - 1))


@pytest.mark.parametrize(
    ("order", "beta", "noise"), [(2.0, 0.1, 3.0), (14.0, 0.02, 6.0), (14.0, 0.46 / 14, 6.2328)]
)
def test_release_cost_is_the_worst_case(order, beta, noise):
    claimed = smooth.release_cost(order, beta, noise)
    costs = []
    for ratio in (-beta, -beta / 2, 0.0, beta / 2, beta):
        first, second = noise, noise * np.exp(ratio)  # in units of the smooth sensitivity of one side
        costs.append(gaussian_renyi(order, min(1.0, np.exp(ratio)), first, second))
    assert max(costs) <= claimed * (1 + 1e-9)
    assert max(costs) == pytest.approx(claimed, rel=1e-6)


def test_the_published_release_cost_falls_below_the_worst_case():
    assert smooth.published_release_cost(14.0, 0.46 / 14, 6.2328) == pytest.approx(0.5174, abs=1e-3)
    assert smooth.release_cost(14.0, 0.46 / 14, 6.2328) == pytest.approx(1.59, abs=0.01)


def test_a_plan_reads_no_private_votes_and_a_tuned_one_stays_sensitive():
    mechanism, votes = ConfidentGNMax(20, 15.0, 8.0), np.array([[28, 1, 1]] * 40)
    public = smooth.plan(mechanism, 40, 30, 3, 1e-5)
    assert accounting.sanitise(mechanism, votes, 1e-5, public).status == "publishable"
    own = smooth.plan_for(mechanism, votes, 1e-5, from_private_votes=True)
    assert accounting.sanitise(mechanism, votes, 1e-5, own).status == "sensitive"


def test_sanitised_figures_scatter_around_the_sum():
    mechanism, votes = GNMax(8.0), np.array([[28, 1, 1]] * 40)
    plan = smooth.Plan(6.0, 0.05, 2.0)
    low, middle, high = (
        accounting.sanitise(mechanism, votes, 1e-5, plan, normal=z).epsilon for z in (-1, 0, 1)
    )
    spread = smooth.smooth_sensitivity(mechanism, votes, plan).sensitivity * plan.noise
    near = pytest.approx(spread, abs=plan.grid)
    assert middle - low == near and high - middle == near
    drawn = {accounting.sanitise(mechanism, votes, 1e-5, plan).epsilon for _ in range(5)}
    assert len(drawn) == 5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: smooth.Plan(14.0, 0.5, 1.0), "beta=0.5"),
        (lambda: smooth.Plan(1.0, 0.1, 1.0), "order=1.0"),
        (lambda: smooth.smooth_sensitivity(LNMax(1.0), [[3, 2]], smooth.Plan(2.0, 0.1, 1.0)), "gnmax"),
        (
            lambda: smooth.smooth_sensitivity(
                InteractiveGNMax(1, 1.0, 1.0, 0.9), [[3, 2]], smooth.Plan(2.0, 0.1, 1.0)
            ),
            "adaptive",
        ),
    ],
)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(PateError, match=message):
        call()


def test_published_smooth_sensitivity_goldens():
    if not (SHARED / "goldens.json").exists():
        pytest.skip("no shared data here")
    for name, entry in json.loads((SHARED / "goldens.json").read_text())["confident_gnmax"].items():
        setting, wanted = entry["setting"], entry["smooth_sensitivity"]
        votes = np.load(SHARED / f"votes/published_{name}_250.npz")["votes"][: setting["queries"]]
        mechanism = ConfidentGNMax(setting["T"], setting["s1"], setting["s2"])
        found = papers.smooth_sensitivity_2018(mechanism, votes, wanted["order"])
        assert found["beta"] == pytest.approx(wanted["opt_beta"], rel=1e-12)
        assert found["sensitivity"] == pytest.approx(wanted["opt_SS"], rel=1e-9)
        assert found["noise"] == pytest.approx(wanted["opt_sigma_ss"], rel=1e-9)
        assert found["cost"] == pytest.approx(wanted["opt_gnss_rdp"], rel=1e-9)


def test_cells_hold_theorem_6():
    table = smooth_bounds.cells(5.0, 3, 60, 6.0, both_directions=False)
    votes = np.random.default_rng(1).multinomial(60, [0.8, 0.15, 0.05], size=50)
    log_q = gnmax.log_q(votes, 5.0)
    wanted = gnmax.theorem6(log_q, 5.0, np.array([6.0]))[:, 0]
    found = table.bound[table.of(log_q)]
    assert np.all(found >= wanted * (1 - 1e-12)) and np.all(found <= wanted * 1.02 + 1e-300)


@pytest.mark.long
def test_twelve_thousand_queries_of_150_classes():
    rng = np.random.default_rng(0)
    shares = rng.beta(3, 1, 12_000)
    votes = np.array([rng.multinomial(5000, np.r_[s, np.full(149, (1 - s) / 149)]) for s in shares])
    found = smooth.smooth_sensitivity(GNMax(100.0), votes, smooth.Plan(14.0, 0.02, 8.0))
    assert found.sensitivity > 0 and np.all(np.diff(found.by_distance) >= 0)


def test_what_is_sanitised_is_a_multiple_of_a_public_grid():
    """Rounded up, never by more than the grid, which knows nothing of the votes."""
    mechanism, plan, delta = GNMax(40.0), accounting.Plan(14.0, 0.02, 8.0), 1e-5
    assert (
        math.log2(plan.grid) == round(math.log2(plan.grid)) and plan.cost / 200 < plan.grid <= plan.cost / 100
    )
    slack = sampler_slack(mechanism, 50, 2)
    for winner in (150, 200, 240):
        votes = [[winner, 250 - winner]] * 50
        found = smooth.smooth_sensitivity(mechanism, votes, plan)
        for normal in (-0.7, 0.3, 1.234567):
            made = accounting.sanitise(mechanism, votes, delta, plan, normal=normal)
            whole = max(found.value + normal * found.sensitivity * plan.noise, 0.0)

            def epsilon(noisy):
                return with_slack(
                    lambda inner: curves.epsilon([plan.order], [noisy + plan.cost], inner), delta, slack
                ).epsilon

            steps = math.ceil(whole / plan.grid)
            assert made.epsilon == pytest.approx(epsilon(steps * plan.grid), rel=1e-12)
            assert epsilon(whole) <= made.epsilon <= epsilon(whole + plan.grid)
            assert f"multiple of {plan.grid:g}" in made.note and "float64" in made.note
