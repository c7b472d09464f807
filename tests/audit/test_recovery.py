"""Votes are rebuilt from answers in other words as likelihood allows, and a free draw is found."""

import itertools

import honest_runs
import numpy as np
import pytest
from test_attacks import seeded

from pate_jax import accounting, voting
from pate_jax.audit.attacks import attack, every, mechanism, recovery, twins
from pate_jax.mechanisms import ConfidentDiscreteGaussian, DiscreteGaussianMax
from pate_jax.runs import ledger

QUIET, TESTED = DiscreteGaussianMax(2.0), ConfidentDiscreteGaussian(5.0, 2.0, 1.5)


def test_a_rebuilt_histogram_is_the_likeliest_of_all():
    outcomes = np.array([30, 240, 90, 40])
    found = recovery.histogram(TESTED, 9, outcomes)
    every_one = np.array([one for one in itertools.product(range(10), repeat=3) if sum(one) == 9])
    likelihood = (outcomes * mechanism.laws(TESTED, every_one)).sum(1)
    assert recovery._likelihood(TESTED, found[None], outcomes)[0] == pytest.approx(
        likelihood.max(), rel=1e-12
    )


def test_many_answers_give_the_votes_away_and_one_does_not():
    votes = np.array([[11, 6, 3], [4, 9, 7]])
    wrong = recovery.rebuilt(QUIET, votes, votes[:, None], key=seeded(5))
    assert wrong[0] > 3 and wrong[-1] <= 2


def test_what_is_asked_again_gets_one_draw_and_a_twin_that_draws_anew_is_found():
    honest = recovery.repeated(TESTED, 12, 3, seed=1)
    assert honest.holds and (honest.differing, honest.charged) == (0, honest.inputs)
    broken = recovery.repeated(TESTED, 12, 3, door=twins.drawn_anew, seed=1)
    assert not broken.holds
    assert broken.differing > 90 and broken.charged == broken.inputs
    assert broken.least > broken.allowed  # it also tells more than one draw may
    paid = broken._replace(charged=broken.inputs * broken.times)
    assert paid.holds


def test_copies_are_near_and_none_is_the_input():
    random = np.random.default_rng(2)
    images = np.zeros((3, 12, 12, 1), np.uint8)
    images[:, 4:8, 4:8] = random.integers(50, 200, (3, 4, 4, 1))
    copies = recovery.near_duplicates(images, 7, random)
    assert copies.shape == (21, 12, 12, 1) and copies.dtype == np.uint8
    assert len({one.tobytes() for one in (*copies, *images)}) == 24
    back = min(
        int(np.abs(np.roll(copies[-1], by, axis=(0, 1)).astype(int) - images[-1]).max())
        for by in itertools.product(range(-2, 3), repeat=2)
    )
    assert back == 1


def test_a_run_of_votes_is_attacked_and_nothing_is_asked_of_it(monkeypatch):
    run = honest_runs.elsewhere()
    before, asked = run.ledger.read_bytes(), []
    fine = recovery.Repeats(100, 20, 0, 100, 0.5, 0.4, 0.51)
    monkeypatch.setattr(recovery, "repeated", lambda *of: fine)  # both are tested above
    monkeypatch.setattr(recovery, "rebuilt", lambda *of, **keys: asked.append(of) or [9.0, 3.0, 2.0, 1.0])
    found = recovery.of_run(run, every.Flags(), key=seeded())
    (_, votes, copies), line = asked[0], next(ledger.lines(run.ledger))
    every_one = voting.load_votes(run.votes).votes
    assert np.array_equal(votes, every_one[recovery.contested(every_one)])
    assert np.array_equal(copies, np.repeat(votes[:, None], 100, axis=1))
    assert found.holds and found.moved is None and run.ledger.read_bytes() == before
    cost, _ = accounting.worst_case(
        line.event.mechanism, [line.event.teachers] * 100, found.delta, classes=line.event.classes
    )
    assert found.rebuilt[2] == recovery.Rebuilt(100, 2.0, pytest.approx(float(cost.epsilon)))
    assert "no draw is free" in found.text() and "SENSITIVE" in found.text()
    broken = found._replace(repeats=fine._replace(differing=3))
    assert "SOME DRAWS ARE FREE" in broken.text() and not broken.to_dict()["repeats"]["holds"]
    assert recovery.ATTACK.unfit(run) is None
    monkeypatch.setattr(attack, "kind_of", lambda run: "crowd")
    assert "the run of a crowd, for which there is no attack recovery" in recovery.ATTACK.unfit(run)


@pytest.mark.long
def test_teachers_are_asked_in_other_words(monkeypatch):
    monkeypatch.setattr(recovery, "ANSWERS", (1, 50))
    found = recovery.of_run(honest_runs.whole(), every.Flags(), key=seeded())
    assert found.holds and found.moved is not None and found.moved < honest_runs.TEACHERS / 2
