"""Pipelines of linear teachers and of all crowds, in memory: beside brute force, and beside the runs."""

import re
from functools import cache

import honest_runs
import numpy as np
import pytest
from test_risk import contents

from pate_jax import accounting
from pate_jax.accounting import composition, exact
from pate_jax.accounting.exact import pair
from pate_jax.audit.attacks import membership, replicas, shadows
from pate_jax.audit.attacks.attack import Flags
from pate_jax.audit.attacks.roc import Promise
from pate_jax.audit.attacks.teachers_pipeline import LinearTeachers
from pate_jax.mechanisms import ConfidentGNMax, GNMax
from pate_jax.runs import ledger
from pate_jax.runs.crowds import inputs as crowd_inputs
from pate_jax.runs.crowds import release

DELTA = 1e-5


def teachers(people=30, more=10, number=4, queries=12, mechanism=None, entries=5, seed=0):
    """Linear teachers of people with one or two records each; the last teacher has one person only."""
    random = np.random.default_rng(seed)
    persons = np.sort(np.concatenate([np.arange(people), random.integers(0, people, more)]))
    labels = random.integers(0, 3, len(persons))
    places = (random.normal(size=(len(persons), entries)) + 2 * np.eye(3, entries)[labels]) / 2
    teacher_of = np.arange(people) % (number - 1)
    teacher_of[0] = number - 1
    chosen = mechanism or ConfidentGNMax(2.0, 2.0, 1.5)
    mu = composition.gaussian_dp(chosen, queries)
    promise = Promise(composition.gaussian_epsilon(mu, DELTA), DELTA, mu)
    asked = random.normal(size=(queries, entries))
    return LinearTeachers(
        places, labels, persons, teacher_of, asked, number, 3, 0.1, chosen, promise, people // 10
    )


def trained(made, there):
    """The labels of all teachers, each solved from the records of its own members."""
    found = []
    for teacher in range(made.teachers):
        rows = np.flatnonzero(there[made.persons] & (made.teacher_of[made.persons] == teacher))
        own, wanted = made.entries[rows], np.eye(3)[made.labels[rows]] - 1 / 3
        weights = np.linalg.solve(own.T @ own + made.penalty * np.eye(own.shape[1]), own.T @ wanted)
        scores = np.round(made.asked @ weights, 9)
        found.append(scores.argmax(1) if len(rows) else np.full(len(made.asked), teacher % 3))
    return np.stack(found)


def moved(made, there):
    """The votes that move if each person joins or leaves, from teachers that are trained again."""
    before, found = trained(made, there), set()
    for person in range(len(there)):
        after = trained(made, there ^ (np.arange(len(there)) == person))
        teacher, query = np.nonzero(before != after)
        both = before[teacher, query], after[teacher, query]
        found |= {(person, *move) for move in zip(query, *both, strict=True)}
    return found


@pytest.mark.parametrize("seed", [0, 1])
def test_votes_that_move_are_those_of_teachers_that_are_trained_again(seed):
    made = teachers(seed=seed)
    there = np.random.default_rng(seed).random(30) < 0.5
    there[0] = seed == 0  # alone with its teacher, or joining one without records
    labels, moves = made.labelled(there)
    np.testing.assert_array_equal(labels, trained(made, there))
    assert set(zip(*moves, strict=True)) == moved(made, there) != set()


def test_the_likelihood_ratio_has_the_exact_variation_of_every_pair():
    """How far the two laws of a pair are apart follows from all ratios, and the accountant says it too."""
    made = teachers(queries=1, mechanism=GNMax(2.0))
    there = np.random.default_rng(3).random(30) < 0.5
    labels, moves = made.labelled(there)
    votes = made.votes(labels)
    ratios = np.stack([made.ratios(votes, moves, np.array([answer])) for answer in range(3)])
    laws = np.exp(exact.probabilities(made.mechanism, votes))[0]
    variation = np.abs(laws[:, None] * np.expm1(ratios)).sum(0) / 2
    for person in np.unique(moves.persons):
        rows = [part[moves.persons == person] for part in moves[1:]]
        risk = pair.of_votes(made.mechanism, votes, [pair.Moves(*rows)], DELTA)
        assert variation[person] == pytest.approx(risk.variation[0], rel=1e-3)
    assert (np.delete(variation, moves.persons) < 1e-12).all()


OF_TEACHERS = ["loss", "lira", "lira, offline", "rmia", "answers", "answers, others known"]


@cache
def found(sigma):
    """The figures of all attacks on teachers who promise what noise of scale 300 gives."""
    made = teachers(60, 0, number=3, queries=200, mechanism=GNMax(sigma), entries=60)
    mu = composition.gaussian_dp(GNMax(300.0), 200)
    promise = Promise(composition.gaussian_epsilon(mu, DELTA), DELTA, mu)
    seen = shadows.played(made, 64, seed=5)
    return {one.attack: one for one in membership.attacked(seen, promise, made.released)}


def test_honest_teachers_show_no_more_than_they_promise():
    assert list(found(300.0)) == OF_TEACHERS
    for one in found(300.0).values():
        assert one.holds, one.sentence()


@pytest.mark.parametrize("attack", OF_TEACHERS)
def test_teachers_without_noise_are_found_by_every_attack(attack):
    one, honest = found(0.05)[attack], found(300.0)[attack]
    assert not one.holds and one.auc > honest.auc + 0.05


RUNS = {
    "neighbours": lambda: honest_runs.crowd("neighbours"),
    "users": lambda: honest_runs.crowd("sums", "user"),
    "users in steps": lambda: honest_runs.in_steps("user"),
    "steps": lambda: honest_runs.in_steps(),
}


@pytest.mark.parametrize("name", list(RUNS))
def test_a_crowds_own_pipeline_counts_what_the_run_counted(name):
    opened = crowd_inputs.opened(RUNS[name]())
    made = replicas.of_crowd(opened)
    for step, one in enumerate(made.steps, 1):
        there = np.ones(one.voters, bool)
        np.testing.assert_array_equal(one.table(there), release.load_table(opened.run, step))
    shown = [line.event for line in ledger.releases(opened.run.ledger)]
    promised = accounting.crowd_statement(shown, opened.choice.delta, voters=1, private=True).headline.epsilon
    assert made.promise(opened.choice.delta).epsilon <= promised * (1 + 1e-9)


def test_voters_who_are_held_out_are_in_no_game():
    opened = crowd_inputs.opened(honest_runs.compared())
    made = replicas.of_crowd(opened)
    assert len(made.labels) == (~opened.held_out).sum() < len(opened.held_out)


@pytest.mark.parametrize("name", ["neighbours", "users in steps", "steps"])
def test_attacks_on_a_crowd_leave_its_run_as_it_is(name):
    run = RUNS[name]()
    before = contents(run.root)
    found = membership.ATTACK.attacked(run, Flags(shadows=40)).attacks
    assert [one.attack for one in found][-2:] == ["table", "table, others known"]
    assert all(one.holds for one in found) and before == contents(run.root)


def test_runs_that_cannot_be_repeated_name_what_else_there_is():
    assert re.search(
        r"learn step by step.*pate risk", membership.ATTACK.unfit(honest_runs.whole(7)), re.DOTALL
    )
    assert "votes alone" in membership.ATTACK.unfit(honest_runs.elsewhere())
