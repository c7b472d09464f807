"""Stable answers against enumeration: every small ensemble, every neighbour, every transcript."""

import itertools
import math
from functools import lru_cache

import mpmath
import numpy as np
import pytest
from stable_laws import patterns

from pate_jax.accounting import stable
from pate_jax.accounting.vote_models import VotesOf
from pate_jax.errors import PateError
from pate_jax.mechanisms import stable as described
from pate_jax.mechanisms.stable import StableAnswers

TEACHERS, QUERIES = 7, 3
SMALL = [StableAnswers(2, 1.5, 2), StableAnswers(1, 4.0, 1), StableAnswers(3, 1.0, 3)]


def transcripts(mechanism, readings):
    """The law of the pattern of answered queries."""
    return patterns(mechanism.threshold, mechanism.scale, mechanism.cutoff, readings)


@lru_cache(maxsize=10_000)
def law_of(mechanism, firsts):
    """The law of the labels, for two classes; `firsts` are the votes for class 0, ties go to class 0."""
    readings = tuple(int(one) for one in described.distance([[n, TEACHERS - n] for n in firsts]))
    winners = [0 if 2 * n >= TEACHERS else 1 for n in firsts]
    return {
        tuple(winner if yes else -1 for winner, yes in zip(winners, pattern, strict=False)): chance
        for pattern, chance in transcripts(mechanism, readings).items()
    }


def worst(mechanism, epsilon):
    """The largest hockey-stick divergence over all ensembles and every change of one voter."""
    largest = 0.0
    for firsts in itertools.product(range(TEACHERS + 1), repeat=QUERIES):
        mine = law_of(mechanism, firsts)
        for moves in itertools.product((-1, 0, 1), repeat=QUERIES):
            other = tuple(n + move for n, move in zip(firsts, moves, strict=True))
            if min(other) < 0 or max(other) > TEACHERS:
                continue
            theirs = law_of(mechanism, other)
            over = sum(max(0.0, p - math.exp(epsilon) * theirs.get(out, 0.0)) for out, p in mine.items())
            largest = max(largest, over)
    return largest


@pytest.mark.parametrize("mechanism", SMALL, ids=str)
def test_no_small_ensemble_and_neighbour_exceed_the_claim_and_some_come_close(mechanism):
    false = mechanism.cutoff * stable.false_answer(mechanism)
    for share in (0.7, 1.1):
        epsilon = stable.epsilon(mechanism, share * false)
        assert math.isinf(epsilon) or worst(mechanism, epsilon) <= share * false
    assert worst(mechanism, epsilon) > 0.6 * share * false


@pytest.mark.parametrize(("scale", "cutoff"), [(1.5, 1), (4.0, 1), (2.5, 2)])
def test_the_pattern_alone_is_pure_and_nearly_costs_what_is_charged(scale, cutoff):
    mechanism = StableAnswers(3, scale, cutoff)
    largest = 0.0
    for readings in itertools.product((0, 1, 5), repeat=2 + cutoff):
        for moves in itertools.product((-1, 1), repeat=2 + cutoff):
            other = tuple(one + move for one, move in zip(readings, moves, strict=True))
            mine, theirs = transcripts(mechanism, readings), transcripts(mechanism, other)
            largest = max(largest, *(abs(math.log(mine[one] / theirs[one])) for one in mine))
    charged = cutoff * stable.epoch_epsilon(mechanism)
    assert 0.6 * charged < largest <= charged


def test_one_changed_added_or_removed_vote_moves_the_distance_by_one_and_no_stable_plurality():
    for counts in itertools.product(range(7), repeat=3):
        near = [counts]
        for a, b in itertools.product(range(3), repeat=2):
            changed = np.array(counts)
            changed[a] -= 1
            near.append(tuple(changed))  # removed
            changed[b] += 1
            near.append(tuple(changed))  # changed
            near.append(tuple(np.array(counts) + np.eye(3, dtype=int)[b]))  # added
        valid = np.array([one for one in near if min(one) >= 0])
        found = described.distance(valid)
        assert abs(found - found[0]).max() <= 1
        if found[0] > 0:
            leads = np.sort(valid, axis=1)
            assert (leads[:, -1] > leads[:, -2]).all()
            assert len(set(valid.argmax(axis=1))) == 1


@pytest.mark.parametrize("mechanism", [*SMALL, StableAnswers(39, 3.0, 1), StableAnswers(40, 0.5, 2)], ids=str)
def test_the_chance_of_a_false_answer_against_fifty_digits(mechanism):
    q, w = mpmath.exp(-1 / mpmath.mpf(mechanism.scale)), mechanism.threshold
    at = lambda t: (1 - q) / (1 + q) * q ** abs(t)  # noqa: E731
    from_on = lambda k: q**k / (1 + q) if k > 0 else 1 - q ** (1 - k) / (1 + q)  # noqa: E731
    reach = math.ceil(w + 120 * mechanism.scale)
    truth = mpmath.fsum(at(t) * from_on(w + t) for t in range(-reach, reach + 1))
    claimed = stable.false_answer(mechanism)
    assert truth <= claimed <= truth * (1 + mpmath.mpf("1e-10"))


@pytest.mark.parametrize(("budget", "cutoff"), [(1.0, 1), (0.5, 4), (2.0, 30), (1.0, 150)])
def test_a_calibrated_list_keeps_to_its_budget_and_costs_what_its_epochs_cost(budget, cutoff):
    found = stable.calibrate(budget, 1e-5, cutoff)
    spent = stable.epsilon(found, 1e-5)
    assert 0.9 * budget < spent <= budget
    assert stable.epsilon(found, 1e-5, queries=10) <= spent
    lower = StableAnswers(found.threshold - 2, found.scale, cutoff)
    assert stable.epsilon(lower, 1e-5) > budget


def test_every_epoch_is_charged():
    one, many = StableAnswers(60, 3.0, 1), StableAnswers(60, 3.0, 5)
    assert stable.epsilon(one, 1e-5) == pytest.approx(1.0, rel=1e-4)
    assert stable.epsilon(many, 1e-5) == pytest.approx(5.0, rel=1e-4)
    assert stable.epsilon(StableAnswers(600, 30.0, 100), 1e-3) < 10 * 0.65


def test_the_least_distance_is_what_a_simulation_finds():
    mechanism = StableAnswers(39, 3.0, 1)
    least = stable.least_distance(mechanism, 200)
    random = np.random.default_rng(5)
    q = math.exp(-1 / 3)
    drawn = random.geometric(1 - q, (2, 4000, 201)) @ np.eye(201, dtype=int)
    drawn = drawn[0] - drawn[1]
    lasting = [
        (reading + drawn[:, 1:] >= 39 + drawn[:, :1]).all(axis=1).mean() for reading in (least, least - 3)
    ]
    assert lasting[0] == pytest.approx(0.9, abs=0.03)
    assert lasting[1] < 0.87


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: StableAnswers(0, 3.0, 1), "threshold=0"),
        (lambda: StableAnswers(40, 0.0, 1), "scale=0.0"),
        (lambda: StableAnswers(40, 3.0, True), "cutoff=True"),
        (lambda: described.distance([[1.5, 2.0]]), "votes of shape"),
        (lambda: described.distance([[3, -1]]), "-1"),
        (lambda: stable.calibrate(-1.0, 1e-5, 1), "budget=-1"),
        (lambda: stable.calibrate(0.001, 1e-5, 1000), "cutoff=1000"),
        (lambda: stable.epsilon(StableAnswers(40, 3.0, 1), 0.0), "delta=0.0"),
        (lambda: stable.slack(StableAnswers(40, 3.0, 1), -1), "queries=-1"),
        (lambda: stable.least_distance(StableAnswers(40, 3.0, 1), 10, 1.0), "chance=1.0"),
    ],
)
def test_bad_input_is_named(make, named):
    with pytest.raises(PateError, match=named):
        make()


# ---- what `pate plan` says of them, on votes whose share of doubtful queries is known

GOAL = {"shard": 240, "classes": 2, "budget": 1.0, "delta": 1e-5}


def votes(doubtful, teachers=250, queries=400):
    counts = np.tile([teachers, 0], (queries, 1))
    counts[:doubtful] = [teachers // 2, teachers - teachers // 2]
    return [VotesOf("made", counts, np.zeros(queries, np.int64), 240)]


@pytest.mark.parametrize(("doubtful", "answers"), [(0, 2000), (4, 99), (40, 9)])
def test_a_list_ends_after_as_many_queries_as_the_share_of_doubtful_ones_says(doubtful, answers):
    found = stable.outlook(votes(doubtful), teachers=250, queries=2000, **GOAL)
    assert found.mechanism.cutoff == 1
    assert found.unstable == pytest.approx(doubtful / 400)
    assert found.answers == pytest.approx(answers, rel=1e-6)
    said = found.text(250, worth=80)
    assert ("fewer" if answers < 80 else "more") in said
    assert found.flags in said
    assert found.flags.startswith("stable-answers --cutoff 1 --threshold 39 --scale 3.0")


def test_few_teachers_never_answer_and_the_sentence_says_so():
    found = stable.outlook(votes(0, teachers=60), teachers=60, queries=2000, **GOAL)
    assert found.mechanism is None
    assert found.to_dict()["flags"] == ""
    assert "hardly ever answer" in found.text(60, worth=10)


@pytest.mark.parametrize("budget", [1e-6, 1e-3, 30.0, 1e6])
def test_no_budget_of_a_plan_is_refused_and_none_is_exceeded(budget):
    goal = {**GOAL, "budget": budget}
    found = stable.outlook(votes(4), teachers=250, queries=2000, **goal)
    assert (found.mechanism is None) == (budget < 0.01)
    if found.mechanism is not None:
        assert stable.epsilon(found.mechanism, 1e-5, 2000) <= budget
        assert found.answers > 90
        assert stable.epsilon(found.mechanism, 1e-5) <= budget  # as a run checks it
