"""Queries of equal sorted histograms are accounted for once: the same figures, in less memory."""

import functools
import tracemalloc

import numpy as np
import pytest

from pate_jax import accounting
from pate_jax.accounting import curves, exact, figures
from pate_jax.accounting.curves import sampler_slack, with_slack
from pate_jax.accounting.exact import groups, pld
from pate_jax.aggregate import interactive
from pate_jax.errors import PateError
from pate_jax.mechanisms import ConfidentGNMax, GNMax, GumbelMax, InteractiveGNMax

RANDOM = np.random.default_rng(8)
FEW = RANDOM.multinomial(50, [0.6, 0.2, 0.15, 0.05], size=6)
VOTES = RANDOM.permuted(FEW[RANDOM.integers(0, 6, 25)], axis=1)  # classes in any order
ANSWERED = RANDOM.random(25) < 0.6
TESTED = ConfidentGNMax(30, 12.0, 6.0)


def test_each_histogram_is_there_once_with_its_numbers(monkeypatch):
    monkeypatch.setattr(groups, "_ROWS", 16)
    found = groups.distinct(VOTES, ANSWERED)
    rows = [tuple(sorted(row, reverse=True)) for row in VOTES.tolist()]
    assert [tuple(row) for row in found.votes.tolist()] == sorted(set(rows))
    for row, asked, answered in zip(found.votes.tolist(), found.asked, found.among[0], strict=True):
        same = np.array([one == tuple(row) for one in rows])
        assert (asked, answered) == (same.sum(), (same & ANSWERED).sum())


@functools.cache
def one_by_one(mechanism, method):
    """The curve of all queries, each for itself."""
    orders = curves.default_orders()
    return sum(accounting.rdp(mechanism, [row], orders, method=method)[0] for row in VOTES)


@pytest.mark.parametrize("part", [4, 1 << 14])
@pytest.mark.parametrize("mechanism", [TESTED, GNMax(6.0), GumbelMax(9.0)], ids=str)
def test_figures_are_the_sums_over_all_queries(mechanism, part, monkeypatch):
    """Against every query for itself, summed here."""
    monkeypatch.setattr(figures, "PART", part)
    made = accounting.statement(mechanism, VOTES, ANSWERED, 1e-5, private=True)
    orders = curves.default_orders()

    def epsilon(curve):
        slack = sampler_slack(mechanism, *VOTES.shape)
        return with_slack(lambda inner: curves.epsilon(orders, curve, inner), 1e-5, slack).epsilon

    for name in ("exact", "published"):
        curve = one_by_one(mechanism, name)
        assert made.figures[name].epsilon == pytest.approx(epsilon(curve), rel=1e-9)
    test, argmax, log_answered = exact.parts(mechanism, VOTES, orders)
    for kind, weight in (("expected", np.exp(log_answered)), ("realised", ANSWERED)):
        curve = (test + weight[:, None] * argmax).sum(axis=0)
        assert made.sums[f"exact_{kind}"]["epsilon"] == pytest.approx(epsilon(curve), rel=1e-9)
    worst = accounting.worst_case(mechanism, [50] * 25, 1e-5, classes=VOTES.shape[1], slack=made.slack)[
        0
    ].epsilon
    assert made.headline.epsilon == pytest.approx(worst, rel=1e-9)
    assert (made.asked, made.answered, made.teachers) == (25, ANSWERED.sum(), 50)
    assert made.figures["pld"].epsilon == pytest.approx(pld.epsilon(mechanism, VOTES, 1e-5), rel=1e-4)


def test_the_students_opinion_tells_queries_apart():
    mechanism = InteractiveGNMax(20, 12.0, 6.0, 0.9)
    opinions = np.random.default_rng(1).dirichlet(np.ones(4), size=25)
    made = interactive.with_history(
        accounting.statement(mechanism, VOTES, ANSWERED, 1e-5, private=True), VOTES, opinions
    )
    orders = curves.default_orders()
    curve = interactive.rdp(mechanism, VOTES, opinions, orders).sum(0)
    found = curves.epsilon(orders, curve, 1e-5).epsilon
    assert made.figures["exact"].epsilon == pytest.approx(found, rel=1e-4)


@pytest.mark.long
def test_many_queries_need_the_memory_of_the_different_ones():
    """One curve for each of 200,000 queries would hold 176 MB, and a statement needs several."""
    random = np.random.default_rng(2)
    votes = random.permuted(FEW[random.integers(0, 6, 200_000)].astype(np.int32), axis=1)
    tracemalloc.start()
    try:
        made = accounting.statement(TESTED, votes, None, 1e-5, pld=False, private=True)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert made.asked == 200_000 and peak < 120e6


def many(sharp, classes, queries=200):
    random = np.random.default_rng(classes)
    first = random.beta(*sharp, size=queries)
    shares = np.concatenate(
        [first[:, None], (1 - first)[:, None] * random.dirichlet(np.ones(classes - 1), queries)], 1
    )
    return random.multinomial(250, shares / shares.sum(axis=1, keepdims=True))


@pytest.mark.long
def test_losses_are_composed_only_where_they_may_give_less():
    """Many classes mix many moves and lose; two classes win. What is left out would have been larger."""
    losing, winning = many((2, 2), 10), many((20, 1), 2, 600)
    assert len(groups.distinct(losing, np.ones(200, bool)).votes) > 2 * figures.SAMPLE
    left_out = accounting.statement(GNMax(40.0), losing, None, 1e-4, private=True)
    assert left_out.figures["pld"].note == figures.LEFT_OUT and left_out.figures["pld"].epsilon is None
    whole = accounting.statement(GNMax(40.0), losing, None, 1e-4, pld=True, private=True).figures
    assert whole["pld"].epsilon >= left_out.figures["exact"].epsilon == whole["exact"].epsilon
    made = accounting.statement(GNMax(40.0), winning, None, 1e-4, private=True).figures
    assert made["pld"].epsilon < made["exact"].epsilon
    assert (
        accounting.statement(GNMax(40.0), winning[:20], None, 1e-4, pld=False, private=True)
        .figures["pld"]
        .epsilon
        is None
    )


def test_composing_in_portions_changes_next_to_nothing(monkeypatch):
    whole = pld.epsilon(TESTED, VOTES, 1e-5)
    monkeypatch.setattr(pld, "WAITING", 3)
    assert pld.epsilon(TESTED, VOTES, 1e-5) == pytest.approx(whole, rel=1e-4)


def test_rows_of_unequal_totals_are_refused_unless_the_caller_answers_for_them():
    votes = VOTES.copy()
    votes[5, np.argmax(votes[5])] -= 1
    with pytest.raises(PateError, match="row 5 sums to 49, row 0 to 50: each teacher must vote once"):
        accounting.statement(TESTED, votes, None, 1e-5, private=True)
    made = accounting.statement(TESTED, votes, None, 1e-5, voters_may_sit_out=True, private=True)
    assert made.teachers == 0 and made.headline.epsilon is not None
    with pytest.raises(PateError, match="cover no query"):
        accounting.statement(TESTED, votes[:0], None, 1e-5, private=True)


def test_nothing_is_realised_before_anything_was_answered():
    asked = accounting.statement(TESTED, VOTES, None, 1e-5, private=True)
    assert not [name for name in asked.sums if "realised" in name] and "realised" not in asked.papers_text()
    known = accounting.statement(TESTED, VOTES, ANSWERED, 1e-5, private=True)
    assert {"published_realised", "exact_realised"} <= set(known.sums) and "realised" in known.papers_text()
