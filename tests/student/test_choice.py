"""The choice of a student's method: scores that are right in the mean, the paired rule, and who decides."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pate_jax import models
from pate_jax.aggregate import Answers, soft_answers
from pate_jax.crowd.shares import of_counts
from pate_jax.data.dataset import AS_STORED
from pate_jax.mechanisms.crowds import NeighbourCounts
from pate_jax.student import Auto, FixMatch, PublicInputs, Ridge, Vat, choice, choose
from pate_jax.student.choice import Trial, better, difference, weighted
from pate_jax.student.lesson import Learned
from pate_jax.student.methods import METHODS

KEY = jax.random.key(3)


def table(rows, classes=2, seed=0):
    """Inputs whose first columns say the label, and labels."""
    inputs = np.random.default_rng(seed).normal(size=(rows, 4)).astype(np.float32)
    public = PublicInputs(inputs, AS_STORED, classes, tuple("abcde"[:classes]))
    return public, inputs[:, :classes].argmax(1).astype(np.int32)


def hard(labels):
    return Answers(labels, np.ones(len(labels), bool))


def test_agreement_with_noisy_labels_is_accuracy_less_a_known_part():
    """With a share e of labels replaced by any class: (1 - e) accuracy + e / classes, in the mean."""
    random, classes, wrong = np.random.default_rng(0), 3, 0.4
    truth = random.integers(0, classes, 500)
    said = np.where(random.random(500) < 0.8, truth, (truth + 1) % classes)
    scores = []
    for _ in range(300):
        replaced = random.random(500) < wrong
        noisy = np.where(replaced, random.integers(0, classes, 500), truth)
        told = np.eye(classes)[noisy]
        scores.append(weighted(told[np.arange(500), said], np.ones(500)))
    means, errors = np.array(scores).T
    wanted = (1 - wrong) * (said == truth).mean() + wrong / classes
    assert abs(means.mean() - wanted) < 4 * means.std() / 300**0.5
    assert 0.7 < errors.mean() / means.std() < 1.5  # it also counts which inputs were drawn, so it is above


def test_noisy_shares_have_the_truth_for_mean_though_probabilities_are_shrunk():
    """Counts of neighbours: linear shares are right in the mean where the probabilities are not."""
    random, queries, classes = np.random.default_rng(1), 60, 3
    release = NeighbourCounts(queries, classes, votes=1, sigma=60.0)
    votes = np.stack([random.multinomial(200, each) for each in random.dirichlet([9, 6, 3], queries)])
    truth, said = votes / 200, votes.argmax(1)
    unbiased, shrunk = [], []
    for _ in range(400):
        noisy = np.rint(votes + random.normal(size=votes.shape) * release.sigma).astype(np.int64)
        found = of_counts(noisy, release)
        for scores, shares in ((unbiased, found.linear), (shrunk, found.probabilities)):
            scores.append(weighted(shares[np.arange(queries), said], np.ones(queries))[0])
    wanted = truth[np.arange(queries), said].mean()
    error = np.std(unbiased) / 20
    assert abs(np.mean(unbiased) - wanted) < 4 * error < abs(np.mean(shrunk) - wanted)


def test_the_standard_error_is_that_of_weighted_means():
    random = np.random.default_rng(2)
    weights = random.exponential(size=400)
    found = [weighted(random.normal(size=400), weights) for _ in range(400)]
    means, errors = np.array(found).T
    assert 0.9 < errors.mean() / means.std() < 1.1


@given(st.integers(2, 40), st.integers(0, 2**31))
def test_differences_are_paired_on_the_answers_that_judge_both(count, seed):
    random = np.random.default_rng(seed)
    one = Trial("one", np.arange(count), random.random(count))
    some = np.sort(random.permutation(count)[: max(1, count // 2)])
    other = Trial("other", some, one.scores[some] + 0.25)
    weights = random.exponential(size=count) + 0.1
    mean, error = difference(other, one, weights)
    assert mean == pytest.approx(0.25) and error < 1e-9  # though the scores themselves vary
    assert better(other, one, weights) and not better(one, other, weights)
    assert not better(one, one, weights)


def test_a_costlier_method_is_taken_only_if_it_is_clearly_better():
    random = np.random.default_rng(0)

    def trial(method, right):
        return Trial(method, np.arange(100), random.permutation(np.arange(100) < right).astype(float))

    cases = {(80, 82, 70): "ridge", (60, 80, 82): "supervised", (60, 62, 90): "vat", (80, 70, 60): "ridge"}
    for right, wanted in cases.items():
        trials = [trial(*each) for each in zip(choice.TABLES, right, strict=True)]
        found = choice._best(Auto(steps=7), trials, np.ones(100))
        assert found.config.method == wanted
        assert [each["score"] for each in found.comparison] == [each / 100 for each in right]
        assert [each["answers"] for each in found.comparison] == [100] * 3


def test_folds_hold_each_answer_out_once_and_are_the_same_at_every_call():
    for count in (20, 21, 22):
        folds = list(choice._folds(KEY, count))
        assert np.array_equal(np.sort(np.concatenate([held for _, held in folds])), np.arange(count))
        assert all(not set(seen) & set(held) for seen, held in folds)
        assert len({len(seen) for seen, _ in folds}) == 1
        again = list(choice._folds(KEY, count))
        assert all(np.array_equal(*pair) for pair in zip(folds[0], again[0], strict=True))
        assert not np.array_equal(folds[0][1], next(iter(choice._folds(jax.random.key(4), count)))[1])


def test_no_method_sees_the_answers_that_judge_it(monkeypatch):
    """A net whose judges have other labels is the same net; ridge's are left out by its own tests."""
    public, labels = table(66)
    lessons = []

    def learn(config, keys, lesson, exam):
        lessons.append(lesson)
        assert exam is None or not set(lesson.rows) & set(exam.rows)
        return linear(config, keys, lesson, exam)

    monkeypatch.setattr(choice, "NETS", {"supervised": learn, "vat": learn})
    monkeypatch.setattr(choice, "_CLEARLY", np.inf)
    chosen = choose(KEY, public, hard(labels), Auto(steps=8))
    assert [each["method"] for each in chosen.comparison] == ["ridge", "supervised", "vat"]
    held = [held for _, held in choice._folds(KEY, 66)] * 2
    assert len(lessons) == 6
    for lesson, out in zip(lessons, held, strict=True):
        assert not set(lesson.rows) & set(out) and len(lesson.rows) + len(out) == 66


def linear(config, keys, lesson, exam):
    """In place of nets, which take seconds to compile."""
    return METHODS["ridge"](Ridge(), keys, lesson)


@pytest.mark.parametrize("real", [False, pytest.param(True, marks=pytest.mark.long)])
def test_the_choice_is_the_same_again_and_says_what_it_compared(capsys, monkeypatch, real):
    if not real:
        monkeypatch.setattr(choice, "NETS", {"supervised": linear, "vat": linear})
    public, labels = table(90)
    random = np.random.default_rng(0)
    told = np.eye(2)[labels] * 0.4 + 0.3
    one_way = random.normal(size=90) * 0.2
    answers = soft_answers(told, np.full(90, 0.2), told + np.stack([one_way, -one_way], 1))
    settings = Auto(steps=8, net="table")
    one, two = (choose(KEY, public, answers, settings) for _ in range(2))
    assert one == two
    assert one.comparison[0].keys() == {"method", "score", "error", "answers"}
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2 * (len(one.comparison) + 1)
    assert said[0].startswith("student: ridge agrees with ") and said[-1] == "student: trained by ridge"


def test_a_net_is_judged_no_further_once_it_is_clear_what_it_is_worth(monkeypatch):
    """Worse than the best so far, or better and the last: a third of the answers tells."""

    def wrong(config, keys, lesson, exam):
        return linear(config, keys, lesson._replace(labels=1 - lesson.labels), exam)

    public, labels = table(90)
    monkeypatch.setattr(choice, "NETS", {"supervised": wrong, "vat": linear})
    found = choose(KEY, public, hard(labels))
    assert [each["answers"] for each in found.comparison] == [90, 30, 90]
    good, bad = (Trial("", np.arange(30), (np.arange(30) < right) * 1.0) for right in (28, 9))
    assert choice._is_worse(bad, good, np.ones(30)) and not choice._is_better(bad, good, np.ones(30))
    assert choice._is_better(good, bad, np.ones(30)) and not choice._is_worse(good, bad, np.ones(30))
    assert choice._is_better(good, None, np.ones(30)) and not choice._is_worse(bad, None, np.ones(30))
    assert not choice._is_better(good, good, np.ones(30)) and not choice._is_worse(good, good, np.ones(30))


def test_only_the_last_method_is_trained_no_further_once_it_is_taken(monkeypatch):
    """Its exam has the answers held out, and right labels end it where those of the best so far are wrong."""
    public, labels = table(90)
    folds, said = list(choice._folds(KEY, 90)), []

    def learn(config, keys, lesson, exam):
        assert (exam is None) == (config.method == "supervised")
        if exam is not None:
            assert np.array_equal(exam.rows, folds[len(said)][1])
            right = labels[exam.rows]
            few = np.where(np.arange(len(right)) < 3, right, 1 - right)  # not two standard errors
            said.append([exam.is_clear(each) for each in (right, few, 1 - right)])
        return linear(config, keys, lesson, exam)

    monkeypatch.setattr(choice, "NETS", {"supervised": learn, "vat": learn})
    monkeypatch.setattr(choice.ridge, "left_out", lambda seed, lesson: np.eye(2)[1 - lesson.labels])
    choose(KEY, public, hard(labels))
    assert [each[1:] for each in said] == [[False, False]] * 3  # worse than supervised
    said.clear()
    monkeypatch.setattr(choice, "TABLES", ("ridge", "vat"))
    choose(KEY, public, hard(labels))
    assert said == [[True, False, False]]


def test_where_there_is_nothing_to_compare_a_fixed_rule_is_followed(capsys):
    public, labels = table(60)
    assert choose(KEY, public, hard(labels[:19])) == (Ridge(), [])
    assert "19 answers of 2 classes are too few" in capsys.readouterr().err
    blank = PublicInputs(np.zeros((9, 8, 8, 1), np.uint8), AS_STORED, 2, ("no", "yes"))
    assert choose(KEY, blank, hard(labels[:9]), Auto(steps=3)) == (FixMatch(steps=3), [])
    many = PublicInputs(np.zeros((60, 8, 8, 1), np.uint8), AS_STORED, 2, ("no", "yes"))
    assert choose(KEY, many, hard(labels), Auto(steps=3)) == (FixMatch(steps=3), []), "images of teachers"
    with pytest.warns(UserWarning, match="no answer names class"):
        assert choose(KEY, public, hard(np.ones(40, np.int32))) == (Ridge(), [])
    assert choose(KEY, public, hard(labels), Auto(), independent=False).config.method == "vat"
    soft = soft_answers(np.eye(2)[labels], np.full(60, 0.1))
    assert choose(KEY, public, soft, Auto(), independent=False) == (Ridge(), [])


def test_what_was_chosen_by_hand_is_not_judged(capsys):
    public, labels = table(60)
    assert choose(KEY, public, hard(labels), Vat(steps=3)) == (Vat(steps=3), [])
    assert capsys.readouterr().err == ""


def test_a_method_that_cannot_learn_from_the_inputs_is_left_out_and_that_is_said(capsys, monkeypatch):
    def untrained(config, keys, lesson, exam):
        assert config.steps == 1
        net = models.build("mlp", input_shape=(8, 8, 1), classes=2, hidden=())
        return [Learned(net.description, net.init(key), 1.0) for key in keys]

    monkeypatch.setattr(choice, "NETS", {"fixmatch": untrained})
    blank = np.zeros((40, 8, 8, 1), np.uint8)
    public = PublicInputs(blank, AS_STORED, 2, ("no", "yes"))
    answers = soft_answers(np.eye(2)[np.arange(40) % 2], np.full(40, 0.1))
    found = choose(KEY, public, answers, Auto(steps=3))
    assert found.config.method == "fixmatch" and found.config.steps == 3
    assert "ridge is left out, since" in capsys.readouterr().err
