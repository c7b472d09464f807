"""Whole noisy histograms as answers: what they cost, what leaves, budgets, repeated inputs and resuming."""

import math
from itertools import product

import numpy as np
import pytest
import scipy.stats

from pate_jax import PateError, accounting, aggregate, voting
from pate_jax.accounting import after_count, calibrate, composition, curves
from pate_jax.accounting.exact import counts, pair
from pate_jax.accounting.exact.pair import Moves
from pate_jax.aggregate import noise
from pate_jax.audit import verify
from pate_jax.audit.attacks import canaries, mechanism, membership, recovery
from pate_jax.audit.attacks.attack import Flags
from pate_jax.mechanisms import DiscreteGaussianMax, GaussianHistogram
from pate_jax.runs import batches, ledger, stages
from pate_jax.runs.answers import load_answers
from pate_jax.runs.directory import RunDirectory
from pate_jax.system import storage

SIGMA, TEACHERS = 12.0, 50
MECHANISM = GaussianHistogram(SIGMA)


def votes(rows, names=None, seed=3):
    drawn = np.random.default_rng(seed).multinomial(TEACHERS, [0.5, 0.3, 0.15, 0.05], size=rows)
    ids = np.array([f"input-{row}" for row in range(rows)] if names is None else names)
    return voting.Votes(drawn.astype(np.int32), ids=ids)


def answered(folder, epsilon=None, more=None):
    """One list and, under a budget, another one that repeats two of its inputs."""
    run = RunDirectory(folder / "run")
    with run.writing():
        batches.adopt(run, votes(20), None, relation="record")
        batches.answer(run, MECHANISM, epsilon, None if epsilon is None else 1e-5)
        if more is not None:
            batches.adopt(run, more, None, more=True)
            batches.answer(run, MECHANISM)
        stages.account(run, 1e-5)
    return run


# ---- what they cost


@pytest.mark.parametrize(("queries", "sigma"), [(1, 1.0), (7, 12.0), (500, 140.0)])
def test_rows_are_one_gaussian_release_by_an_independent_formula(queries, sigma):
    mu = math.sqrt(2 * queries) / sigma
    table = np.zeros((queries, 3), np.int64)
    table[:, 0] = TEACHERS
    found = accounting.statement(GaussianHistogram(sigma), table, None, 1e-5, private=True)
    epsilon = found.headline.epsilon
    normal = scipy.stats.norm.cdf  # the hockey-stick divergence of two Gaussians
    delta = normal(mu / 2 - epsilon / mu) - math.exp(epsilon) * normal(-mu / 2 - epsilon / mu)
    assert delta <= 1e-5 * (1 + 1e-6) and delta > 0.99e-5
    assert found.headline.basis == "Gaussian-DP" and found.figures["exact"].epsilon is None
    assert found.trade_off.mu == pytest.approx(mu) and "whole row of noisy counts" in found.charged


def test_every_change_of_one_teacher_moves_the_rows_by_no_more_than_is_charged():
    """By brute force over all votes of one teacher, before and after, on three queries of three classes."""
    one_hot = np.eye(3, dtype=int)
    ways = [np.concatenate([one_hot[label] for label in labels]) for labels in product(range(3), repeat=3)]
    longest = max(float(np.linalg.norm(before - after)) for before in ways for after in ways)
    assert longest / SIGMA == pytest.approx(composition.gaussian_dp(MECHANISM, 3))


def test_no_rule_charges_a_histogram_as_an_index():
    orders = [2.0, 8.0, 32.0]
    charged = [
        curves.data_independent(MECHANISM, TEACHERS, 4, orders, rule=rule)[0] for rule in ("index", "counts")
    ]
    assert np.allclose(charged, np.array(orders) / SIGMA**2, rtol=1e-9)
    index = curves.data_independent(DiscreteGaussianMax(SIGMA), TEACHERS, 4, orders)[0]
    assert (index < 0.83 * charged[0]).all()


def test_noise_for_an_epsilon_is_that_of_the_closed_form_and_of_calibration():
    mu = counts.mu_for(1.0, 1e-5)
    closed = counts.histogram_for(mu, 400)
    searched = calibrate(MECHANISM, 1.0, 1e-5, queries=400, teachers=250, classes=10)
    assert searched.epsilon <= 1 and closed.sigma == pytest.approx(searched.mechanism.sigma, rel=1e-4)
    table = np.tile([TEACHERS, 0], (400, 1))
    assert accounting.statement(closed, table, None, 1e-5, private=True).headline.epsilon <= 1
    limit = after_count.limit(1.0, 1e-5)
    after = after_count.calibrated(closed, limit, queries=400, teachers=250, classes=10)
    assert closed.sigma < after.sigma < 1.06 * closed.sigma


def test_one_person_risks_what_its_own_moved_votes_tell():
    moved = Moves(np.arange(5), np.zeros(5, int), np.ones(5, int))
    found = pair.of_votes(MECHANISM, votes(20).votes, [moved], 1e-5)
    assert found.epsilon[0] == pytest.approx(composition.gaussian_epsilon(math.sqrt(10) / SIGMA, 1e-5))


def test_a_figure_of_the_votes_is_refused_where_the_votes_do_not_matter():
    with pytest.raises(PateError, match="without --sanitise"):
        accounting.plan(MECHANISM, 20, TEACHERS, 4, 1e-5)


# ---- what leaves


def test_every_count_has_the_noise_that_is_charged_and_labels_follow():
    table = np.tile([30, 15, 4, 1], (6000, 1))
    given = aggregate.answer(MECHANISM, table, key=noise.seeded_key(3))
    drawn = np.asarray(given.counts) - table
    cells = np.array([-np.inf, *(np.arange(-24.5, 25, 7)), np.inf])  # whole numbers between them
    law = np.diff(scipy.stats.norm.cdf(cells / SIGMA))
    for column in drawn.T:
        seen = np.histogram(column, np.clip(cells, -1e6, 1e6))[0]
        assert scipy.stats.chisquare(seen, law * len(column)).pvalue > 1e-5
    assert np.abs(np.corrcoef(drawn.T) - np.eye(4)).max() < 0.06
    assert (np.asarray(given.labels) == np.asarray(given.counts).argmax(1)).all() and given.answered.all()


def test_shares_have_no_bias_and_the_deviation_that_is_stated():
    table = np.tile([30, 15, 4, 1], (6000, 1))
    given = aggregate.answer(MECHANISM, table, key=noise.seeded_key(4))
    soft = aggregate.of_histograms(given.counts, MECHANISM, TEACHERS)
    missed = np.asarray(soft.shares) - table / TEACHERS
    assert np.abs(missed.mean(0)).max() < 0.02 and np.allclose(soft.shares.sum(1), 1, atol=1e-5)
    assert missed.std(0) == pytest.approx(np.full(4, float(soft.deviation[0])), rel=0.05)


def test_a_run_under_a_budget_asks_what_it_affords_and_repeats_cost_nothing(tmp_path):
    names = ["input-3", *(f"more-{row}" for row in range(30)), "input-7"]
    run = answered(tmp_path, epsilon=3.0, more=votes(32, names, seed=5))
    first, second = ledger.read(run.ledger)
    assert first.event.asked == 20 and 0 < second.event.asked < 30
    arrays = storage.read_arrays(run.answers_of(2), "answers")
    assert (arrays["row_counts"][[0, -1]] == ledger.given(first).counts[[3, 7]]).all()
    assert arrays["row_answered"].sum() == second.event.asked + 2 and not arrays["row_counts"][-2].any()
    given = load_answers(run)
    assert (given.counts == np.concatenate([ledger.given(first).counts, ledger.given(second).counts])).all()
    assert given.deviation[0] == pytest.approx(SIGMA / TEACHERS * math.sqrt(3 / 4))
    assert storage.read_json(run.public_statement, "statement")["figures"]["data_independent"]["epsilon"] == 3
    assert verify.of_run(run).of("failed") == []


def test_a_resumed_run_has_the_same_noise_and_never_another(tmp_path):
    run = answered(tmp_path)
    before = run.answers.read_bytes()
    run.answers.unlink()
    with run.writing():
        batches.answer(run, MECHANISM)
    assert run.answers.read_bytes() == before
    run.ledger.rename(tmp_path / "lost")
    with pytest.raises(PateError, match="must not answer again"), run.writing():
        batches.answer(run, MECHANISM)


def test_attacks_on_a_run_of_counts_audit_its_noise_and_refuse_what_weighs_labels(tmp_path):
    run = answered(tmp_path)
    audited = mechanism.of_teachers(run, Flags(draws=100_000)).audits[0]
    assert audited.holds and audited.lower > 0.5 * audited.exact and "a row of counts" in audited.what
    for attack in (canaries, recovery):
        assert "--only mechanism" in attack.ATTACK.unfit(run)
    assert membership.ATTACK.unfit(run) is not None
