"""Sanitised limits of a run: recorded before they are shown, added up, checked."""

import json
import math
import random
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from commands import call
from test_budget import begin, go_on

from pate_jax import accounting
from pate_jax.accounting import curves, smooth
from pate_jax.audit import verify
from pate_jax.errors import PateError
from pate_jax.mechanisms import DiscreteGaussianMax
from pate_jax.runs import chain, limits, stages
from pate_jax.runs.release import check
from pate_jax.runs.report import run_pages
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
        own = smooth.spread(lines[cost - 1]["confidence"], cost)
        value = lines[cost - 1]["value"] + smooth.quantile(plan.law, own)
        total = math.exp(value * plan.grid) + sum(plan.order / (2 * one.noise**2) for one in plans[:cost])
        assert figure.epsilon == pytest.approx(curves.epsilon([plan.order], [total], DELTA).epsilon, rel=1e-5)
    assert "its own release" in first.note and "all 2 releases" in second.note and "95%" in second.note


def test_no_later_draw_states_more_confidence_than_an_earlier_one(run):
    account(run, 0.9)
    assert "confidence 90%" in account(run, 0.99).figures["sanitised"].note


def test_whoever_draws_until_content_has_a_limit_that_holds_as_often_as_it_says():
    """The smallest of ten draws is below the truth in under 1% of 2,000 attempts, and not in hardly any."""
    generator, plan, entries = random.Random(5), smooth.Plan(6.0, 0.05, 3.0), []
    quantile, truth, least = lru_cache(smooth.quantile), math.log(0.01), []

    def logarithm(mechanism, shape, drawn, delta, confidence, last):
        return (drawn[-1].value + quantile(plan.law, last)) * plan.grid

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(smooth.secrets, "randbits", generator.getrandbits)
        patch.setattr(smooth, "smooth_sum", lambda *_: math.exp(truth))
        patch.setattr(smooth, "limit", logarithm)
        patch.setattr(accounting, "plan", lambda *_: plan)
        patch.setattr(limits.chain, "records", lambda *_: entries)
        patch.setattr(limits.chain, "Writer", lambda _: Written(entries))
        for _ in range(2000):
            entries.clear()
            draws = (limits.draw(Path("votes"), SHARP, np.array([[5, 1]]), DELTA, 0.99) for _ in range(10))
            least.append(min(draws))
    below = np.mean(np.array(least) < truth)
    assert 0.005 < below < 0.0145  # one per cent times the first ten shares is 0.0094


class Written:
    """A record of limits in memory."""

    def __init__(self, entries):
        self.entries = entries

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def add(self, kind, line):
        self.entries.append(line)


def test_draws_of_a_votes_file_are_recorded_beside_it_and_add_up(tmp_path, capsys):
    path = tmp_path / "votes.npy"
    np.save(path, np.tile([52, 5, 3], (40, 1)))
    command = ["account", path, "discrete-gaussian", "--sigma", 12, "--no-pld", "--sanitise"]
    for number, said in ((1, "its own release"), (2, "all 2 releases")):
        assert call(*command) == 0
        shown = capsys.readouterr()
        assert said in shown.out and "votes.npy.limits.jsonl" in shown.err
        assert len(chain.read(limits.beside(path))) == number
    assert call(*command[:-1]) == 0  # of which the limit may be of another mechanism
    assert "sanitised" not in capsys.readouterr().out


def test_a_limit_leaves_and_stays_until_the_next_one(run):
    figure = account(run, 0.99).figures["sanitised"]
    published = storage.read_json(run.public_statement, "statement")
    assert published["figures"]["sanitised"]["epsilon"] == figure.epsilon
    assert "the release of the sanitised figure apart" in published["charged"]
    check.check(run.release)
    assert not verify.of_run(run).of("failed")
    assert account(run).figures["sanitised"] == figure
    assert len(chain.read(run.limits)) == 1


def test_the_best_guess_says_that_a_limit_is_apart(run):
    """A limit is a release of its own (here of mu above 0.1), which the curve does not hold."""
    apart = "the release of the sanitised figure apart"
    before, after = (replace(account(run, sure), private=True) for sure in (None, 0.99))
    assert apart not in before.trade_off.words + run_pages.promised(before)
    assert after.trade_off.words == f"{before.trade_off.words}; {apart}"
    assert f"sees everything that is released, {apart}, who" in run_pages.promised(after)
    assert f"All releases together: {after.trade_off.words}." in after.text()
    published = storage.read_json(run.public_statement, "statement")
    assert published["trade_off"]["in_words"].endswith(apart)


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
    chain.append(
        run.limits,
        {"kind": "limit", "value": 1.5, "order": 4.0, "beta": 0.1, "noise": 5.0, "confidence": 0.99},
    )
    with pytest.raises(PateError, match=r"line 1 of .*limits.jsonl has value=1.5"):
        account(run)
