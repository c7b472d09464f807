"""What bad records can change: certificates beside the worst voters, and trials beside runs made anew."""

import itertools
import math
import shutil
from typing import NamedTuple

import honest_runs
import numpy as np
import pytest

from pate_jax import ensemble, voting
from pate_jax.audit.attacks import poisoned, poisoned_crowds, poisoning
from pate_jax.audit.attacks.poisoned import PoisonedSteps
from pate_jax.audit.attacks.poisoned_crowds import PoisonedCrowd
from pate_jax.audit.attacks.poisoned_teachers import PoisonedTeachers
from pate_jax.audit.attacks.poisoning import Trigger
from pate_jax.crowd import classifier, shares, tables
from pate_jax.crowd.steps import moved, started
from pate_jax.crowd.vectors import vectors
from pate_jax.mechanisms.crowds import ClassSums, NeighbourCounts
from pate_jax.runs import inputs
from pate_jax.runs.crowds import inputs as crowd_inputs
from pate_jax.runs.crowds import release
from pate_jax.runs.crowds.steps import load_noisy
from pate_jax.runs.directory import RunDirectory

LENGTH, VOTERS = 100, 400


class Small(NamedTuple):
    """Sums of a small crowd, and the rule by which they are read."""

    vectors: np.ndarray
    labels: np.ndarray
    release: ClassSums
    noisy: np.ndarray
    pool: np.ndarray
    known: classifier.Pool
    rule: poisoned_crowds.Rule


def sums(classes, constant, seed=0):
    """Vectors of nearly full length, whose class is seen in their first entries."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, classes, VOTERS)
    drawn = random.normal(size=(VOTERS + 60, 7)) * [5, 4, 3, 2, 2, 1, 1]
    drawn[np.arange(VOTERS), labels] += 6.0
    drawn *= (LENGTH - 25) / np.linalg.norm(drawn, axis=1, keepdims=True)
    if constant:
        drawn = np.concatenate([drawn, np.full((len(drawn), 1), 40.0)], 1)
    vectors = np.trunc(drawn).astype(np.int64)
    release = ClassSums(classes, vectors.shape[1], LENGTH, 300.0)
    known, pool = classifier.measured(vectors[VOTERS:], LENGTH), vectors[VOTERS:]
    table = added(vectors[:VOTERS], labels, release)
    noisy = table + np.rint(300 * random.normal(size=table.shape)).astype(np.int64)
    rule = poisoned_crowds.of_sums(noisy, release, known, VOTERS, pool, by_user=False)
    return Small(vectors[:VOTERS], labels, release, noisy, pool, known, rule)


def added(vectors, labels, release):
    """The sums of each class."""
    each = np.stack([vectors[labels == kind].sum(0) for kind in range(release.classes)])
    return each if release.classes > 2 else each[1:] - each[:1]


@pytest.mark.parametrize(("classes", "constant"), [(3, True), (3, False), (2, True)])
def test_a_held_rule_gives_the_labels_of_the_classifier(classes, constant):
    made = sums(classes, constant)
    said = classifier.of_pool(made.noisy, made.release, made.known, VOTERS).probabilities(made.pool)
    scores = np.maximum(made.rule.scores(made.noisy) + 1 / classes, 0)
    np.testing.assert_allclose(scores / scores.sum(1, keepdims=True), said, atol=1e-6)
    assert len(set(said.argmax(1).tolist())) == classes


def test_a_user_may_move_a_lead_by_more_than_a_record_and_no_further_than_is_said():
    """Its table has opposite parts in two classes, and the opposite ones once its contents change."""
    made = sums(3, True)
    settings = made.noisy, made.release, made.known, VOTERS, made.pool
    record, user = (poisoned_crowds.of_sums(*settings, by_user=by_user) for by_user in (False, True))
    np.testing.assert_allclose(user.reach, math.sqrt(2) * record.reach)
    longest = 0.0
    for query, along in enumerate(user.functional):
        part = along / np.linalg.norm(along) * LENGTH / math.sqrt(2)
        table = np.stack([part, -part, 0 * part])
        assert np.linalg.norm(table) <= LENGTH * (1 + 1e-9)
        scores = user.scores(made.noisy + table)[query] - user.scores(made.noisy - table)[query]
        longest = max(longest, (scores[0] - scores[1]) / user.reach[query])
    assert 0.999 < longest <= 1 + 1e-9


@pytest.mark.parametrize("classes", [3, 2])
def test_the_worst_voters_change_a_label_and_one_fewer_than_certified_do_not(classes):
    """Each of them had the vector along h(x) in the top class, and has it in the next one now."""
    made = sums(classes, True)
    rule, noisy, tried = made.rule, made.noisy, 0
    most, scores = rule.withstood(noisy), rule.scores(noisy)
    for query in np.flatnonzero((most >= 2) & (most < 60)):
        top, rival = np.argsort(scores[query])[::-1][:2]
        along = rule.functional[query] / np.linalg.norm(rule.functional[query]) * LENGTH
        side = np.zeros((classes, len(along)))
        side[top], side[rival] = -along, along
        one = side if classes > 2 else 2 * side[1:]  # of two classes there is the difference only
        for bad in (most[query], most[query] + 1):
            after = rule.scores(noisy + bad * one)[query]
            held = after[top] > np.delete(after, top).max()
            assert held == (bad <= most[query]), "the worst voters and the certificate disagree"
            tried += 1
    assert tried >= 20


def test_no_voters_change_a_label_that_is_certified_against_them():
    """Other vectors and other labels, at random and of the records that tell most."""
    made = sums(3, True)
    vectors, labels, rule, noisy, release = made.vectors, made.labels, made.rule, made.noisy, made.release
    random, most, first = np.random.default_rng(1), rule.withstood(noisy), rule.scores(noisy).argmax(1)
    for query in range(len(most)):
        told = vectors @ rule.functional[query] / LENGTH
        for bad in (3, 30):
            who = np.argsort(-np.where(labels == first[query], told, -np.inf))[:bad]
            after = labels.copy()
            after[who] = random.integers(0, 3, bad)
            moved = noisy - added(vectors, labels, release) + added(vectors, after, release)
            changed = rule.scores(moved).argmax(1) != first
            assert not (changed & (most >= bad)).any()


def test_flipped_labels_that_tell_most_are_as_few_as_brute_force_finds():
    random = np.random.default_rng(4)
    for _ in range(40):
        told, labels, lead = random.normal(size=6), random.integers(0, 3, 6), random.uniform(1, 6)
        own = [
            max(_difference(told[i], labels[i]) - _difference(told[i], new) for new in range(3))
            for i in range(6)
        ]
        sizes = [
            size
            for size in range(1, 7)
            if any(sum(own[i] for i in who) >= lead for who in itertools.combinations(range(6), size))
        ]
        assert poisoned_crowds.fewest(lead, poisoned_crowds.gains(told, labels, 0, 1)) == min(
            sizes, default=np.inf
        )


def _difference(told, label):
    """What a voter adds to the lead of class 0 over class 1."""
    return told * (int(label == 0) - int(label == 1))


def test_labels_of_counts_withstand_so_many_voters_and_no_more():
    """Each changes its one vote at a query in every way, at every query by itself."""
    noisy = np.array([[9, 2, 1], [3, 3, 8], [5, 4, 3], [-1, 7, 6], [2, 9, 1]])
    release = NeighbourCounts(5, 3, votes=1, sigma=1.0)
    rule = poisoned_crowds.of_counts(noisy, release)
    most, first = rule.withstood(noisy), shares.of_counts(noisy, release).probabilities.argmax(1)
    np.testing.assert_array_equal(rule.scores(noisy).argmax(1), first)
    cell = np.eye(3, dtype=int)
    moves = [cell[b] - cell[a] for a, b in itertools.permutations(range(3), 2)]
    for query, label in enumerate(first):
        for bad in (most[query], most[query] + 1):
            flips = False
            for steps in itertools.combinations_with_replacement(moves, bad):
                after = noisy.copy()
                after[query] += np.sum(steps, axis=0, dtype=int)
                scores = rule.scores(after)[query]
                flips |= bool(scores[label] <= np.delete(scores, label).max() + 1e-12)
            assert flips == (bad > most[query]), "all voters and the certificate disagree"


def of_crowd(voters, by):
    return PoisonedCrowd(crowd_inputs.opened(honest_runs.crowd(voters, by)))


@pytest.mark.parametrize(("voters", "by"), [("sums", "record"), ("neighbours", "user")])
def test_a_poisoned_table_is_that_of_a_crowd_with_these_records(voters, by):
    made = of_crowd(voters, by)
    bad = np.unique(made.of)[[1, 4, 7]]
    people, rows = made.people, np.flatnonzero(np.isin(made.of, bad))
    marked, labels = people.inputs.copy(), people.labels.copy()
    marked[rows, 1:] = made.crowd.dataset.public.inputs.max(0)[1:]
    labels[rows] = 0
    again = tables.table(made.plan, people._replace(inputs=marked, labels=labels))
    np.testing.assert_array_equal(tables.table(made.plan, people) + made._moved("backdoor", rows), again)


@pytest.mark.parametrize(("voters", "by"), [("sums", "record"), ("neighbours", "user")])
def test_trials_of_a_crowd_keep_to_their_certificate(voters, by):
    found = poisoned.of_crowd(honest_runs.crowd(voters, by))
    assert found.holds and len(found.trials) == (4 if by == "record" else 2)
    assert {one.poison for one in found.trials} == {"label flips", "backdoor"}
    assert all(one.flipped <= one.may_flip for one in found.trials)
    assert "withstand" in found.text() and "WRONG" not in found.text()


@pytest.mark.parametrize("by", ["record", "user"])
def test_poisoned_steps_are_those_of_a_crowd_with_these_records_and_the_same_noise(by):
    made = PoisonedSteps(crowd_inputs.opened(honest_runs.in_steps(by)))
    np.testing.assert_array_equal(made.poisoned("label flips", np.zeros(0, np.int64)), made.told)
    rows = np.flatnonzero(np.isin(made.of, np.unique(made.of)[::3]))
    people, steps = made._both("label flips", rows)[1], made.made
    labels = made.people.labels.copy()
    labels[rows] = (labels[rows] + 1) % 3
    np.testing.assert_array_equal(people.labels, labels[rows])
    everybody = made.people._replace(labels=labels)
    exact = [release.load_table(made.crowd.run, step) for step in (1, 2, 3)]
    noise = [load_noisy(made.crowd.run, step)[1] - one for step, one in enumerate(exact, 1)]
    noisy = tables.table(made.plan, everybody) + noise[0]
    model = shares.classifier_of(noisy, made.plan, made.crowd.pool, made.crowd.weight(noisy))
    weights = started(
        model, vectors(made.plan.scaling, made.crowd.pool), vectors(steps.scaling, made.last.pool)
    )
    for one in noise[1:]:
        step = made.crowd.at(2).plan._replace(weights=weights)
        weights = moved(weights, tables.table(step, everybody) + one, steps.rate)
    np.testing.assert_array_equal(made.poisoned("label flips", rows), weights)


def test_trials_of_a_run_in_steps_certify_nothing_and_say_what_bad_voters_did():
    found = poisoned.of_crowd(honest_runs.in_steps())
    assert found.holds and not found.targeted and found.tables[0].shares[1] == 0
    assert all(one.may_flip == 1 for one in found.trials) and found.trials[-1].student is not None
    assert found.trials[0].flipped <= found.trials[1].flipped <= 1


def test_a_trigger_is_a_corner_of_images_and_three_columns_of_tables():
    image = np.zeros((2, 12, 16, 1), np.uint8)
    on = Trigger.of(np.full_like(image, 200)).on(image)
    assert (on[:, -2:, -2:] == 200).all() and on.sum() == 2 * 4 * 200 and image.sum() == 0
    columns = Trigger.of(np.arange(10.0).reshape(2, 5)).on(np.zeros((1, 5)))
    assert columns.tolist() == [[0, 0, 7, 8, 9]]


@pytest.mark.long
def test_poisoned_teachers_vote_as_those_of_a_data_set_with_these_records(tmp_path, monkeypatch):
    run = RunDirectory(shutil.copytree(honest_runs.whole(7).root, tmp_path / "run"))
    made = PoisonedTeachers(inputs.open(run))
    found = list(made.trials())
    assert len(found) == 4 and not sum(one.broken for one in found)
    units = made._tried[0][2]
    bad = np.concatenate([made.removals.rows[name] for name in units])
    part, opened = made.inputs.dataset.private, made.inputs
    labels = part.labels.copy()
    labels[bad] = (labels[bad] + 1) % 3
    preprocessing, key = opened.dataset.preprocessing, opened.teacher_key
    again = ensemble.fit(
        opened.net, preprocessing, part.inputs, labels, opened.shards, key=key, config=opened.teacher
    )
    votes = voting.histogram(ensemble.predict(opened.net, preprocessing, again, made.asked), 3)
    before = made.removals.votes.votes
    changed = [
        set(np.flatnonzero(one == one.max())) != {leader}
        for one, leader in zip(np.asarray(votes)[: len(before)], before.argmax(1), strict=True)
    ]
    assert found[0].flipped == pytest.approx(np.mean(changed))
    assert found[0].may_flip == pytest.approx((poisoning.withstood(before) < 1).mean())
    kept = sorted(path.name for path in run.poisoning.glob("*.npz"))
    monkeypatch.setattr(PoisonedTeachers, "_trained", None)  # nothing is trained twice
    assert [one._replace(student=None) for one in PoisonedTeachers(inputs.open(run)).trials()] == [
        one._replace(student=None) for one in found
    ]
    assert len(kept) == 4
