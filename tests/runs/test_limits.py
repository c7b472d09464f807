"""Sanitised limits of a run: recorded before they are shown, added up, checked."""

import json
import math

import pytest
from test_budget import begin, go_on

from pate_jax import accounting
from pate_jax.accounting import curves, smooth
from pate_jax.audit import verify
from pate_jax.errors import PateError
from pate_jax.mechanisms import DiscreteGaussianMax
from pate_jax.runs import chain, stages
from pate_jax.runs.release import check
from pate_jax.system import storage

DELTA, SHARP = 1e-5, DiscreteGaussianMax(12.0)


@pytest.fixture
def run(tmp_path):
    return begin(tmp_path, rows=30, epsilon=None, mechanism=SHARP, split=80)


def account(run, confidence=None):
    with run.writing():
        return stages.account(run, DELTA, False, confidence)


def test_each_call_draws_anew_and_the_costs_add_up(run):
    first, second = account(run, 0.99).figures["sanitised"], account(run, 0.95).figures["sanitised"]
    lines = chain.read(run.limits)
    assert len(lines) == 2 and lines[1]["confidence"] == 0.95
    plans = [accounting.Plan(line["order"], line["beta"], line["noise"]) for line in lines]
    for figure, plan, cost in zip((first, second), plans, (1, 2), strict=True):
        value = lines[cost - 1]["value"] + smooth.quantile(plan.law, lines[cost - 1]["confidence"])
        total = math.exp(value * plan.grid) + sum(plan.order / (2 * one.noise**2) for one in plans[:cost])
        assert figure.epsilon == pytest.approx(curves.epsilon([plan.order], [total], DELTA).epsilon, rel=1e-5)
    assert "its own release" in first.note and "all 2 releases" in second.note and "95%" in second.note


def test_a_limit_leaves_and_stays_until_the_next_one(run):
    figure = account(run, 0.99).figures["sanitised"]
    published = storage.read_json(run.public_statement, "statement")
    assert published["figures"]["sanitised"]["epsilon"] == figure.epsilon
    assert "the release of the sanitised figure apart" in published["charged"]
    check.check(run.release)
    assert account(run).figures["sanitised"] == figure
    assert len(chain.read(run.limits)) == 1


def test_the_check_of_a_run_finds_a_limit_that_was_changed_or_lost(run):
    account(run, 0.99)
    assert not verify.of_run(run).of("failed")
    content = run.limits.read_bytes()
    line = json.loads(content)
    run.limits.write_bytes(content.replace(f'"value": {line["value"]}'.encode(), b'"value": -99999'))
    assert any("limits.jsonl" in str(one) for one in verify.of_run(run).of("failed"))
    run.limits.unlink()
    chain.head_path(run.limits).unlink()
    assert any("sanitised" in str(one) for one in verify.of_run(run).of("failed"))


def test_a_list_that_went_on_has_no_limit(tmp_path):
    run = begin(tmp_path, rows=30)
    with run.writing():
        stages.account(run, None, False, 0.99)
    go_on(run, 5, 30)
    with run.writing():
        later = stages.account(run, None, False)
        assert later.figures["sanitised"].epsilon is None
        assert "the release of the sanitised figure apart" in later.charged  # it was published before
        with pytest.raises(PateError, match=r"asked 2 batches.*without --sanitise"):
            stages.account(run, None, False, 0.99)
    assert len(chain.read(run.limits)) == 1


def test_a_line_that_holds_no_limit_is_refused(run):
    run.limits.parent.mkdir(exist_ok=True)
    chain.append(run.limits, {"value": 1.5, "order": 4.0, "beta": 0.1, "noise": 5.0, "confidence": 0.99})
    with pytest.raises(PateError, match=r"line 1 of .*limits.jsonl holds no sanitised limit"):
        account(run)
