"""The statement: what it shows, what it charges, and what it refuses to let out."""

import dataclasses
import inspect
import json
import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pate_jax import accounting
from pate_jax.accounting import curves as slacks
from pate_jax.accounting import figures, filter, smooth, stable_statement
from pate_jax.accounting.curves import Epsilon
from pate_jax.accounting.party_statement import party_statement
from pate_jax.aggregate import interactive
from pate_jax.errors import PateError
from pate_jax.mechanisms import (
    BY_NAME,
    ConfidentDiscreteGaussian,
    ConfidentGNMax,
    GNMax,
    InteractiveGNMax,
)
from pate_jax.mechanisms.descriptions import scales

SHARED = Path(__file__).parents[2] / "../shared/data"
MECHANISM = ConfidentGNMax(60, 40.0, 10.0)
VOTES = np.random.default_rng(5).multinomial(100, [0.8, 0.1, 0.1], size=30)
ANSWERED = np.arange(30) % 3 > 0


@pytest.fixture(scope="module")
def made():
    return accounting.statement(MECHANISM, VOTES, ANSWERED, 1e-5, private=True)


def test_json_has_what_was_promised(made):
    found = json.loads(json.dumps(made.to_dict(), allow_nan=False))
    assert list(found["figures"]) == ["exact", "pld", "published", "data_independent", "sanitised"]
    for name, figure in found["figures"].items():
        assert {"epsilon", "order", "status"} <= set(figure)
        wanted = "publishable" if name in ("data_independent", "sanitised") else "sensitive"
        assert figure["status"] == wanted
    assert (found["asked"], found["answered"], found["delta"], found["relation"]) == (30, 20, 1e-5, "party")
    assert found["figures"]["exact"]["epsilon"] < found["figures"]["data_independent"]["epsilon"]


def test_nothing_sensitive_is_publishable(made):
    released = (
        json.dumps(made.publishable()) + made.text(publishable_only=True) + made.html(publishable_only=True)
    )
    released += made.model_card_line()
    assert "sensitive" not in released
    for name in ("exact", "pld", "published"):
        value = made.figures[name].epsilon
        assert name not in made.publishable()["figures"]
        assert value is None or (f"{value:.4f}" not in released and repr(value) not in released)
    for entry in made.sums.values():
        assert f"{entry['epsilon']:.4f}" not in released


def test_text_and_html_mark_every_sensitive_figure(made):
    rows = [line for line in made.text().splitlines() if re.match(r"  (exact|data-indep|sanit)", line)]
    assert rows[0].startswith("  data-indep") and rows[0].endswith("publishable")
    assert len(rows) == 3 and all(line.endswith("sensitive") for line in rows[1:])
    assert "paper" not in made.text() and "paper" not in made.html()
    assert made.papers_text().splitlines()[0].startswith("  papers' own (not a guarantee)")
    assert all("sensitive" in line for line in made.papers_text().splitlines() if line.startswith("  p"))
    assert made.html().count("<strong>sensitive</strong>") == 2
    assert "<script" not in made.html() and "http" not in made.html()


def test_headline_charges_the_argmax_for_every_query_asked(made):
    none = accounting.statement(MECHANISM, VOTES, np.zeros(30, bool), 1e-5, private=True, pld=False)
    assert none.headline.epsilon == made.headline.epsilon
    worst = accounting.worst_case(MECHANISM, [100] * 30, 1e-5, classes=VOTES.shape[1])[0].epsilon
    assert made.headline.epsilon == pytest.approx(worst, rel=1e-6)
    assert "all 30 queries asked" in made.model_card_line()


def test_a_printed_epsilon_is_rounded_up(made):
    printed = float(re.search(r"\(([\d.]+), 1e-05\)", made.model_card_line()).group(1))
    assert made.headline.epsilon <= printed <= made.headline.epsilon + 1e-4


@pytest.mark.parametrize(
    "makes", [accounting.statement, accounting.crowd_statement, stable_statement, party_statement]
)
def test_whether_the_noise_was_private_is_never_taken_for_granted(makes):
    """The accountant does not see the keys."""
    private = inspect.signature(makes).parameters["private"]
    assert (private.kind, private.default) == (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty)


def test_users_are_named():
    found = accounting.statement(GNMax(10.0), VOTES, None, 1e-5, relation="user", private=True, pld=False)
    assert "one user" in found.model_card_line() and found.to_dict()["relation"] == "user"


def test_a_filter_publishes_its_budget():
    budget = filter.plan(MECHANISM, teachers=100, classes=3, epsilon=9.5, delta=1e-5)
    found = accounting.statement(MECHANISM, VOTES, ANSWERED, 1e-5, budget=budget, adaptive=True, private=True)
    assert found.headline.epsilon == 9.5 and "budget" in found.model_card_line()
    assert found.figures["exact"].note == figures.HISTORY
    assert found.smallest == "data_independent"


def test_a_budget_that_does_not_afford_what_was_asked_is_refused():
    of = {"teachers": 100, "classes": 3}
    budget = filter.plan(MECHANISM, **of, epsilon=2.0, delta=1e-5)
    most = budget.affords(filter.NOTHING, filter.cost(MECHANISM, **of, order=budget.order))
    votes = np.repeat(VOTES[:1], most + 1, axis=0)
    assert (
        accounting.statement(MECHANISM, votes[1:], None, 1e-5, budget=budget, private=True).headline.epsilon
        == 2.0
    )
    with pytest.raises(PateError, match=f"budget.epsilon=2 does not afford {most + 1} queries"):
        accounting.statement(MECHANISM, votes, None, 1e-5, budget=budget, private=True)
    with pytest.raises(PateError, match="delta=1e-06 is not that of the budget"):
        accounting.statement(MECHANISM, votes[1:], None, 1e-6, budget=budget, private=True)


def test_an_adaptive_mechanism_has_no_data_dependent_guarantee():
    mechanism = InteractiveGNMax(20, 30.0, 10.0, 0.9)
    shares = np.full(VOTES.shape, 1 / 3)
    found = interactive.with_history(
        accounting.statement(mechanism, VOTES, None, 1e-5, private=True), VOTES, shares
    )
    assert found.figures["exact"].note == figures.HISTORY and found.figures["pld"].epsilon is None
    assert found.smallest == "data_independent"


def test_published_is_never_claimed_as_a_guarantee(made):
    assert "no guarantee" in made.figures["published"].note
    assert made.figures["published"].status == "sensitive"


def test_sanitised_takes_its_place():
    plan = accounting.plan(MECHANISM, 30, 100, 3, 1e-5)
    sanitised = accounting.sanitise(MECHANISM, VOTES, 1e-5, plan)
    state = partial(accounting.statement, MECHANISM, VOTES, ANSWERED, 1e-5, pld=False, private=True)
    found = state(sanitised=sanitised)
    assert found.publishable()["figures"]["sanitised"]["epsilon"] == sanitised.epsilon
    own = accounting.Plan(plan.order, plan.beta, plan.noise, from_private_votes=True)
    kept = accounting.sanitise(MECHANISM, VOTES, 1e-5, own)
    found = state(sanitised=kept)
    assert "sanitised" not in found.publishable()["figures"]


def test_the_samplers_error_is_paid_for():
    calls = []

    def curve(delta):
        calls.append(delta)
        return Epsilon(1.0 + 1e-3 * np.log(1 / delta), 2.0)

    for slack in (0.0, 1e-20, 1e-12, 1e-7, 1e-6):
        found = slacks.with_slack(curve, 1e-5, slack)
        assert calls[-1] + (1 + np.exp(found.epsilon)) * slack <= 1e-5
    assert slacks.with_slack(curve, 1e-5, 3e-6).epsilon == np.inf
    assert slacks.with_slack(lambda delta: Epsilon(1e4, 2.0), 1e-5, 1e-30).epsilon == np.inf


def test_no_finite_epsilon_is_said_and_not_printed_as_a_number():
    found = accounting.statement(GNMax(10.0), VOTES, None, 1e-17, private=True)
    assert found.headline.epsilon is None and found.model_card_line().startswith("No finite epsilon")
    json.dumps(found.to_dict(), allow_nan=False)
    assert "none" in found.text() and "none" in found.html()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"answered": np.ones(29, bool)}, "answered of shape"),
        ({"answered": np.ones(30)}, "booleans"),
        ({"delta": 0.0}, "delta=0.0"),
        ({"relation": "house"}, "relation='house'"),
        ({"votes": VOTES - 100}, "below 0"),
    ],
)
def test_bad_input_is_refused_by_name(change, message):
    call = {
        "mechanism": GNMax(5.0),
        "votes": VOTES,
        "answered": ANSWERED,
        "delta": 1e-5,
        "private": True,
    } | change
    with pytest.raises(PateError, match=message):
        accounting.statement(**call)


@pytest.mark.parametrize(
    ("name", "queries", "setting", "published", "joint", "pld", "least"),
    [
        ("mnist", 640, (200, 150, 40), 1.9988, 0.923, 0.930, 0.828),
        ("adult", 1500, (300, 200, 40), 1.6782, 0.958, 0.960, 0.858),
    ],
)
@pytest.mark.long
def test_figures_to_meet(name, queries, setting, published, joint, pld, least):
    path = SHARED / f"votes/published_{name}_250.npz"
    if not path.exists():
        pytest.skip("no shared data here")
    votes = np.load(path)["votes"][:queries]
    found = accounting.statement(ConfidentGNMax(*setting), votes, None, 1e-5, pld=True, private=True)
    assert found.sums["published_expected_classic"]["epsilon"] == pytest.approx(published, abs=1e-4)
    assert least <= found.figures["exact"].epsilon <= joint
    assert least <= found.figures["pld"].epsilon <= pld
    assert found.sums["exact_expected"]["epsilon"] <= (0.947 if name == "mnist" else 0.977)


def test_the_same_order_on_votes_that_everybody_has():
    """A mirror image of the figures to meet: published above tight above exact; one neighbour below all."""
    votes = smooth.example_votes(200, 250, 10)
    found = accounting.statement(ConfidentGNMax(200, 150, 40), votes, None, 1e-5, private=True)
    sums, shown = found.sums, found.figures
    assert sums["published_expected_classic"]["epsilon"] > sums["published_expected"]["epsilon"]
    assert shown["published"].epsilon > sums["exact_expected"]["epsilon"]
    assert shown["exact"].epsilon < shown["data_independent"].epsilon
    moved = votes.copy()
    moved[:, 0] -= 1
    moved[:, 1] += 1
    here, there = (_outcomes(found_votes) for found_votes in (votes, moved))
    floor = _concrete_epsilon(here, there, 1e-5)
    assert 0 < floor <= min(shown["exact"].epsilon, shown["pld"].epsilon)


def _outcomes(votes):
    """Probabilities of {refused, answered}: a coarsening, so what it shows is a lower bound."""
    from scipy.stats import norm

    p = norm.cdf((votes.max(axis=1) - 200) / 150)
    return np.stack([1 - p, p], axis=1)


def _concrete_epsilon(here, there, delta):
    """Monte Carlo, on the safe side: the epsilon that one neighbour shows through the tests alone."""
    rng = np.random.default_rng(0)
    answered = rng.random((20_000, len(here))) < here[:, 1]
    loss = np.where(answered, np.log(here[:, 1] / there[:, 1]), np.log(here[:, 0] / there[:, 0])).sum(axis=1)
    grid = np.linspace(0, 1, 200)
    return max((e for e in grid if np.maximum(1 - np.exp(e - loss), 0).mean() > 3 * delta), default=0.0)


@settings(max_examples=12)
@given(st.sampled_from(list(BY_NAME.values())), st.floats(-1, 3), st.integers(2, 6), st.integers(1, 300))
def test_no_statement_holds_nonsense(kind, log_scale, classes, teachers):
    fields = [field.name for field in dataclasses.fields(kind)]
    chosen = {"threshold": teachers / 2, "student_confidence": 0.9}
    scale = max(float(10**log_scale), scales(kind.family)[0])
    mechanism = kind(**{name: chosen.get(name, scale) for name in fields})
    votes = np.random.default_rng(teachers).multinomial(teachers, np.full(classes, 1 / classes), size=3)
    found = accounting.statement(mechanism, votes, None, 1e-5, private=True)
    if not mechanism.votes_suffice:
        found = interactive.with_history(found, votes, np.full(votes.shape, 1 / classes))
    for figure in found.figures.values():
        assert figure.epsilon is None or (np.isfinite(figure.epsilon) and figure.epsilon >= 0)
    exact, worst = found.figures["exact"].epsilon, found.figures["data_independent"].epsilon
    assert worst is None or exact is None or exact <= worst * 1.2  # worst case may compose better than Renyi
    json.dumps(found.to_dict(), allow_nan=False)


PUBLISHED_SETS = [
    (ConfidentGNMax(200, 150, 40), 640, 250, 10, 2.00),
    (ConfidentGNMax(300, 200, 40), 1500, 250, 2, 2.35),
    (GNMax(40.0), 500, 250, 10, 2.83),
    (ConfidentDiscreteGaussian(100, 75, 20), 500, 125, 10, 3.75),
]


@pytest.mark.parametrize(("mechanism", "asked", "teachers", "classes", "most"), PUBLISHED_SETS)
def test_the_publishable_figures_of_published_settings(mechanism, asked, teachers, classes, most):
    """As a user meets them, in a statement; if all noisy counts were charged, they were a sixth higher."""
    votes = np.zeros((asked, classes), np.int64)
    votes[:, 0] = teachers
    now = accounting.statement(mechanism, votes, None, 1e-5, pld=False, private=True)
    totals = [teachers] * asked
    of_counts, _ = accounting.worst_case(mechanism, totals, 1e-5, classes=classes, rule="counts")
    assert 0.8 * most < now.headline.epsilon <= most < of_counts.epsilon
    assert accounting.Statement.from_dict(now.publishable()).publishable() == now.publishable()
