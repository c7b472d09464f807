"""The sanitised figure against every histogram written out: bound, smoothness, noise, coverage."""

import itertools
import json
import math
import random
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest

from experiments import sensitivity_2018
from pate_jax import accounting
from pate_jax.accounting import curves, exact, smooth
from pate_jax.accounting.bounds import leading_counts
from pate_jax.accounting.bounds.leading_counts import vote_grid
from pate_jax.accounting.bounds.moved_vote import GaussianVote, excess
from pate_jax.errors import PateError
from pate_jax.mechanisms import (
    ConfidentDiscreteGaussian,
    ConfidentGNMax,
    DiscreteGaussianMax,
    GNMax,
    InteractiveGNMax,
    LNMax,
    Noise,
    laws,
)

SHARED = Path(__file__).parents[2] / "../shared/data"
WITHOUT = smooth.Plan(4.0, 0.05, 5.0)


def histograms(teachers, classes):
    for cuts in itertools.combinations(range(teachers + classes - 1), classes - 1):
        ends = (-1, *cuts, teachers + classes - 1)
        yield [b - a - 1 for a, b in itertools.pairwise(ends)]


CASES = [
    (GNMax(2.0), 12, 2, 4.0),
    (GNMax(1.5), 12, 3, 4.0),
    (GNMax(4.0), 12, 4, 9.0),
    (GNMax(1.0), 7, 4, 1.5),
    (DiscreteGaussianMax(2.0), 10, 3, 4.0),
    (ConfidentGNMax(7, 2.0, 1.5), 12, 3, 3.0),
    (ConfidentGNMax(9, 3.0, 2.0), 9, 4, 2.0),
    (ConfidentGNMax(6, 2.0, 2.0), 12, 2, 5.0),
    (ConfidentDiscreteGaussian(7, 3.0, 2.0), 11, 4, 4.0),
    (ConfidentDiscreteGaussian(12, 2.0, 1.0), 12, 2, 2.0),
]


@pytest.mark.parametrize(("mechanism", "teachers", "classes", "order"), CASES)
def test_bounds_the_exact_cost_of_every_histogram(mechanism, teachers, classes, order):
    votes = np.array(list(histograms(teachers, classes)))
    bound = _costs(mechanism, votes, order, beta=1e6)
    true = exact.rdp(mechanism, votes, [order])[:, 0]
    assert np.all(bound >= true * (1 - 1e-9))
    assert bound.sum() <= 2.5 * true.sum()


def _costs(mechanism, votes, order, beta):
    """The released cost of each histogram; at a huge beta the bound itself."""
    boxes = leading_counts.costs(mechanism, np.array([order]), int(votes[0].sum()), votes.shape[1])
    return smooth.smooth_costs(boxes, -np.sort(-votes, axis=1)[:, :2], beta)[0]


@pytest.mark.parametrize(("mechanism", "teachers", "classes", "order"), CASES)
@pytest.mark.parametrize("beta", [0.02, 0.2, 1.0])
def test_no_vote_moves_the_logarithm_by_more_than_beta(mechanism, teachers, classes, order, beta):
    """All neighbours of all histograms, and hence every path of any length."""
    votes = np.array(list(histograms(teachers, classes)))
    logs = np.log(_costs(mechanism, votes, order, beta))
    apart = np.abs(votes[:, None, :] - votes[None, :, :]).sum(axis=2) // 2
    change = np.abs(logs[:, None] - logs[None, :])
    assert np.all(change[apart == 1] <= beta * (1 - smooth.ROUNDING) + 1e-12)
    assert np.all(change <= beta * apart + 1e-12)


def test_one_vote_in_every_query_moves_the_sum_no_further():
    mechanism, plan = GNMax(1.5), WITHOUT
    votes = np.array(list(histograms(5, 3)))
    apart = np.abs(votes[:, None, :] - votes[None, :, :]).sum(axis=2) // 2
    logs = np.log(_costs(mechanism, votes, plan.order, plan.beta))
    single = np.exp(logs)
    pairs = np.array(list(itertools.product(range(len(votes)), repeat=2)))
    sums = np.log(single[pairs[:, 0]] + single[pairs[:, 1]])
    near = np.maximum(
        apart[pairs[:, None, 0], pairs[None, :, 0]], apart[pairs[:, None, 1], pairs[None, :, 1]]
    )
    assert np.abs(sums[:, None] - sums[None, :])[near <= 1].max() <= plan.beta
    found = smooth.smooth_sum(mechanism, votes[[3, 7]], plan)
    assert found == pytest.approx(single[3] + single[7], rel=1e-12)


@pytest.mark.parametrize(("sigma", "order", "teachers"), [(2.0, 5.0, 25), (90.0, 30.0, 400)])
def test_cells_hold_the_excess_of_every_point_in_them(sigma, order, teachers):
    """At random leads and places, by another rule of quadrature."""
    rng, orders = np.random.default_rng(0), np.array([order])
    grid, vote = vote_grid(Noise("gaussian", sigma), orders), GaussianVote(sigma)
    for start in (0, grid.lead_step, grid.lead_step * int(teachers / 2 / grid.lead_step)):
        cells = grid.cells(start)[0]
        x = rng.uniform(grid.places[0], grid.places[-1], 400)
        lead = (start + rng.integers(0, grid.lead_step, 400)).astype(float)
        cell = np.searchsorted(grid.places, x, side="right") - 1
        law = vote.laws(lead, x)
        for way, forward in enumerate((np.True_, np.False_)):
            true = excess(law.log_q, law.loss, orders, forward).sum(axis=0)
            assert np.all(cells[way, cell] >= true * (1 - 1e-9))
            assert np.sum(cells[way, cell]) <= 1.1 * np.sum(true)


def test_wide_boxes_hold_what_narrow_ones_do(monkeypatch):
    mechanism, orders = ConfidentGNMax(30, 12.0, 8.0), np.array([6.0])
    votes = np.array(list(histograms(60, 3)))
    narrow = _costs(mechanism, votes, 6.0, 1e6)
    monkeypatch.setattr(leading_counts, "SIDE", 12)
    wide = _costs(mechanism, votes, 6.0, 1e6)
    assert len(leading_counts.costs(mechanism, orders, 60, 3).low) < 100
    assert np.all(wide >= narrow * (1 - 1e-12)) and wide.sum() < 3 * narrow.sum()


@pytest.mark.parametrize(
    ("name", "queries", "setting", "most"),
    [("mnist", 640, (200, 150, 40), 1.45), ("adult", 1500, (300, 200, 40), 1.5)],
)
@pytest.mark.long
def test_the_published_votes_are_sanitised_to_the_figures_of_the_documentation(name, queries, setting, most):
    """The plan is the one that `accounting.plan` makes of the public numbers; the noise is at its median."""
    path = SHARED / f"votes/published_{name}_250.npz"
    if not path.exists():
        pytest.skip("no shared data here")
    votes, mechanism = np.load(path)["votes"][:queries], ConfidentGNMax(*setting)
    plan = smooth.Plan(*{"mnist": (14.0, 0.0251, 8.09), "adult": (12.0, 0.0251, 6.63)}[name])
    assert accounting.sanitise(mechanism, votes, 1e-5, plan, drawn=0).epsilon <= most
    true = exact.rdp(mechanism, votes, [plan.order]).sum()
    assert true <= smooth.smooth_sum(mechanism, votes, plan) <= 1.2 * true


def test_the_release_costs_what_the_plan_says():
    """`D_a` of the drawn noise and its shift by one voter's most, summed over the table."""
    plan = smooth.Plan(6.0, 0.05, 1.5)
    table = laws.table(plan.law)
    words = [int.from_bytes(row.astype(">u4").tobytes(), "big") for row in table.words[: table.size]]
    mass = np.diff([0, *(word + 1 for word in words)]) / mp.mpf(2) ** 128
    shift = smooth.STEPS
    moment = sum(p**6 / q**5 for p, q in zip(mass[shift:], mass[:-shift], strict=True) if q * p > 0)
    assert float(mp.log(moment)) / 5 == pytest.approx(plan.cost, rel=1e-6)


def test_what_is_drawn_follows_the_noise(monkeypatch):
    generator, law = random.Random(0), Noise("discrete_gaussian", 30.0)
    monkeypatch.setattr(smooth.secrets, "randbits", generator.getrandbits)
    drawn = np.array([smooth.draw(law) for _ in range(4000)])
    assert abs(drawn.mean()) < 4 * 30 / math.sqrt(4000)
    assert abs(drawn.std() / 30 - 1) < 0.05
    assert np.mean(drawn <= smooth.quantile(law, 0.9)) == pytest.approx(0.9, abs=0.02)
    for confidence in (0.5, 0.9, 0.99, 0.999):
        z = smooth.quantile(law, confidence)
        weights = np.exp(-(np.arange(-400, 401.0) ** 2) / 1800)
        below = weights.cumsum() / weights.sum()
        assert below[z + 400] >= confidence > below[z + 399]


def test_the_limit_covers_the_truth_as_often_as_it_says(monkeypatch):
    """10,000 draws: 99% cover the sum that is released, and at least so many the exact cost below it."""
    mechanism, plan, generator = GNMax(12.0), smooth.Plan(6.0, 0.05, 3.0), random.Random(1)
    votes = np.tile([52, 5, 3], (200, 1))
    votes[::3] = [35, 20, 5]
    total = smooth.smooth_sum(mechanism, votes, plan)
    monkeypatch.setattr(smooth.secrets, "randbits", generator.getrandbits)
    drawn, times = np.unique([smooth.draw(plan.law) for _ in range(10_000)], return_counts=True)
    monkeypatch.setattr(smooth, "smooth_sum", lambda *_: total)
    limits = np.array([
        accounting.sanitise(mechanism, votes, 1e-5, plan, drawn=int(value)).epsilon for value in drawn
    ])  # fmt: skip

    def epsilon(sum_of_costs):
        return curves.epsilon([plan.order], [sum_of_costs + plan.cost], 1e-5).epsilon

    exactly = exact.rdp(mechanism, votes, [plan.order]).sum()
    covered = [times[limits >= epsilon(cost)].sum() / 10_000 for cost in (total, exactly)]
    assert 0.988 <= covered[0] <= 0.993
    assert covered[1] >= 0.99


def test_a_higher_confidence_is_a_higher_limit_and_the_grid_is_public():
    mechanism, votes, plan = GNMax(8.0), [[28, 1, 1]] * 40, smooth.Plan(6.0, 0.05, 2.0)
    found = [
        accounting.sanitise(mechanism, votes, 1e-5, plan, confidence=share, drawn=0)
        for share in (0.5, 0.99, 0.999)
    ]
    assert found[0].epsilon < found[1].epsilon < found[2].epsilon
    assert "at most" in found[1].note and "99%" in found[1].note and "99.9%" in found[2].note
    extra = curves.conversion_cost(np.array([plan.order]), 1e-5)[0] + plan.cost
    for one in found:
        steps = math.log(one.epsilon - extra) / plan.grid
        assert steps == pytest.approx(round(steps), abs=1e-4)


def test_without_a_choice_the_noise_is_fresh():
    mechanism, votes, plan = GNMax(8.0), [[28, 1, 1]] * 40, smooth.Plan(6.0, 0.05, 2.0)
    assert len({accounting.sanitise(mechanism, votes, 1e-5, plan).epsilon for _ in range(6)}) > 1


def test_a_plan_reads_no_private_votes_and_a_tuned_one_stays_sensitive():
    mechanism, votes = ConfidentGNMax(20, 15.0, 8.0), np.array([[28, 1, 1]] * 40)
    public = smooth.plan(mechanism, 40, 30, 3, 1e-5)
    assert accounting.sanitise(mechanism, votes, 1e-5, public).status == "publishable"
    own = smooth.plan_for(mechanism, votes, 1e-5, from_private_votes=True)
    assert accounting.sanitise(mechanism, votes, 1e-5, own).status == "sensitive"


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


def test_the_published_release_cost_falls_below_the_worst_case():
    """Two Gaussians whose scales differ by `e^beta` and whose means differ by the smaller sensitivity."""
    order, beta, noise = 14.0, 0.46 / 14, 6.2328
    true = gaussian_renyi(order, math.exp(-beta), noise, noise * math.exp(-beta))
    assert sensitivity_2018.release_cost(order, beta, noise) == pytest.approx(0.5174, abs=1e-3)
    assert true == pytest.approx(1.59, abs=0.01)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: smooth.Plan(14.0, 1.5, 1.0), "beta=1.5"),
        (lambda: smooth.Plan(1.0, 0.1, 1.0), "order=1.0"),
        (lambda: smooth.Plan(2.0, 0.1, 0.0), "noise=0.0"),
        (lambda: smooth.smooth_sum(LNMax(1.0), [[3, 2]], WITHOUT), "laplace noise of scale 1.0"),
        (lambda: smooth.smooth_sum(InteractiveGNMax(1, 1.0, 1.0, 0.9), [[3, 2]], WITHOUT), "adaptive"),
        (lambda: smooth.smooth_sum(GNMax(4.0), [[3, 2], [3, 3]], WITHOUT), "totals from 5 to 6"),
        (lambda: smooth.smooth_sum(GNMax(1.0), [[3, 2]], WITHOUT), "order=4 is above 3 times"),
        (lambda: smooth.plan(GNMax(0.6), 5, 10, 2, 1e-5), "at least 1"),
        (lambda: accounting.sanitise(GNMax(4.0), [[3, 2]], 1e-5, WITHOUT, confidence=99), "confidence=99"),
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
        found = sensitivity_2018.smooth_sensitivity(mechanism, votes, wanted["order"])
        assert found["beta"] == pytest.approx(wanted["opt_beta"], rel=1e-12)
        assert found["sensitivity"] == pytest.approx(wanted["opt_SS"], rel=1e-9)
        assert found["noise"] == pytest.approx(wanted["opt_sigma_ss"], rel=1e-9)
        assert found["cost"] == pytest.approx(wanted["opt_gnss_rdp"], rel=1e-9)
