"""Students of soft answers: what smoothing knows of noise, weighted closed forms, and every method."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_student_methods import CLASSES, leaves, pictures, public

from pate_jax.aggregate import Answers, soft_answers
from pate_jax.errors import PateError
from pate_jax.student import fit, named
from pate_jax.student.calibration import negative_log_likelihood, temperature
from pate_jax.student.lesson import lesson
from pate_jax.student.methods import METHODS, least_squares, ridge
from pate_jax.student.settings import KINDS, names
from pate_jax.student.smoothing import smoothed

SHARES = np.array([0.5, 0.3, 0.15, 0.05])


def noisy_shares(count, random):
    """Truth around known shares with variance 0.02, noise of two known sizes, and both together."""
    truth = SHARES + random.normal(size=(count, 4)) * 0.02**0.5
    deviation = np.where(np.arange(count) % 3 == 0, 0.4, 0.1)
    return truth, deviation, truth + random.normal(size=truth.shape) * deviation[:, None]


def test_smoothing_is_the_best_linear_guess_of_the_truth():
    truth, deviation, given_shares = noisy_shares(4000, np.random.default_rng(0))
    found = smoothed(given_shares, deviation)
    signal = 0.02 / (0.02 + deviation**2)
    best = SHARES + signal[:, None] * (given_shares - SHARES)
    np.testing.assert_allclose(found.targets, best, atol=0.04)
    np.testing.assert_allclose(found.weights, signal / signal.mean(), rtol=0.05)

    def miss(guess):
        return ((guess - truth) ** 2).mean()

    assert miss(found.targets) < 1.01 * miss(best)
    for other in (0.5, 2.0):  # half and twice the variance of the truth are worse
        wrong = other * 0.02 / (other * 0.02 + deviation**2)
        assert miss(found.targets) < miss(SHARES + wrong[:, None] * (given_shares - SHARES))


def test_answers_without_noise_stay_as_they_are_and_pure_noise_says_nothing():
    random = np.random.default_rng(1)
    exact = smoothed(random.dirichlet(np.ones(3), 7), np.zeros(7))
    np.testing.assert_allclose(exact.targets, exact.probabilities, atol=1e-7)
    np.testing.assert_array_equal(exact.weights, 1)
    nothing = smoothed(1 / 3 + 0.1 * random.normal(size=(5000, 3)), np.full(5000, 0.1))
    assert np.abs(nothing.targets - 1 / 3).max() < 0.03


@given(st.integers(1, 9), st.integers(2, 5), st.integers(0, 2**31))
def test_targets_are_distributions_and_weights_fall_with_the_deviation(answers, classes, seed):
    random = np.random.default_rng(seed)
    deviation = np.sort(random.exponential(size=answers))
    found = smoothed(random.dirichlet(np.ones(classes), answers), deviation)
    np.testing.assert_allclose(found.targets.sum(1), 1, atol=1e-5)
    assert (found.targets >= -1e-6).all() and (np.diff(found.weights) <= 1e-6).all()
    np.testing.assert_allclose(found.weights.mean(), 1, atol=1e-5)


@pytest.mark.parametrize("share", [1e-3, 0.3])
def test_weighted_least_squares_solves_the_normal_equations_and_leaves_one_out(monkeypatch, share):
    random = np.random.default_rng(0)
    features, targets = random.normal(size=(19, 30)), random.dirichlet(np.ones(3), 19)
    weights = random.exponential(size=19)
    weights /= weights.mean()
    monkeypatch.setattr(least_squares, "_PENALTIES", np.array([share]))
    line = least_squares.weighted_least_squares(features @ features.T, targets, weights)
    middle = weights @ features / 19
    penalty = share * (weights[:, None] * (features - middle) ** 2).sum() / 19

    def solved(rows):
        """Scores of any features, by gradient zero of the penalised weighted squares over these rows."""
        of = weights[rows, None]
        middle, mean = (
            (of * features[rows]).sum(0) / of.sum(),
            (of * targets[rows]).sum(0) / of.sum(),
        )
        centred = features[rows] - middle
        system = centred.T @ (of * centred) + penalty * np.eye(30)
        found = np.linalg.solve(system, centred.T @ (of * (targets[rows] - mean)))
        return lambda seen: (seen - middle) @ found + mean

    other = random.normal(size=(7, 30))
    found = other @ features.T @ line.kernel + line.bias
    np.testing.assert_allclose(found, solved(np.arange(19))(other), atol=1e-10)
    for row in range(19):
        rest = np.flatnonzero(np.arange(19) != row)
        np.testing.assert_allclose(line.unseen[row], solved(rest)(features[row]), atol=1e-10)


def test_few_examples_that_are_all_answers_are_the_whole_form():
    random = np.random.default_rng(2)
    features, targets = random.normal(size=(23, 40)), random.dirichlet(np.ones(3), 23)
    weights = random.uniform(0.5, 1.5, 23)
    weights /= weights.mean()
    alike = features @ features.T
    whole = least_squares.weighted_least_squares(alike, targets, weights)
    few = least_squares.of_few_examples(alike, alike, targets, weights)
    for one, other in zip(few, whole, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


def test_sure_soft_answers_are_labels_to_the_ridge_student_bit_for_bit():
    images, labels = pictures(60)
    kept = public(images)
    hard = Answers(labels[:30], np.ones(30, bool))
    soft = soft_answers(np.eye(CLASSES)[labels[:30]], np.zeros(30))
    one, other = (fit(jax.random.key(1), kept, each, named("ridge")) for each in (hard, soft))
    for left, right in zip(leaves(one), leaves(other), strict=True):
        np.testing.assert_array_equal(left, right)
    assert one.temperature == other.temperature


def test_a_student_of_many_soft_answers_holds_some_of_their_images(monkeypatch):
    images, labels = pictures(60)
    monkeypatch.setattr(ridge, "_HELD", 20)
    soft = soft_answers(0.8 * np.eye(CLASSES)[labels] + 0.2 / CLASSES, np.full(60, 0.05))
    student = fit(jax.random.key(1), public(images), soft, named("ridge"))
    assert student.shapes()["examples"] == (20, 8, 8, 1)
    assert student.accuracy(images, labels) > 0.8


@pytest.mark.parametrize(
    "method",
    [pytest.param(name, marks=pytest.mark.long if name in ("ridge", "tandem") else ()) for name in METHODS],
)
def test_an_answer_that_is_nothing_but_noise_has_no_influence(method):
    """Every method takes soft answers, and what a hopelessly noisy one says changes nothing."""
    images, labels = pictures(60)
    small = {"steps": 3, "batch_size": 16, "devices": 1, "net": "mlp", "maps": (4,), "shift": 0}
    small = {name: value for name, value in small.items() if name != "maps" or method == "tandem"}
    config = named(method, **{name: value for name, value in small.items() if name in names(KINDS[method])})
    deviation = np.where(np.arange(30) == 4, 1e4, 0.1)
    told = 0.7 * np.eye(CLASSES)[labels[:30]] + 0.1
    turned = told.copy()
    turned[4] = np.roll(told[4], 1)
    one, other = (
        fit(jax.random.key(1), public(images), soft_answers(each, deviation), config)
        for each in (told, turned)
    )
    for left, right in zip(leaves(one), leaves(other), strict=True):
        np.testing.assert_allclose(left, right, atol=1e-4, rtol=1e-4)


def test_soft_answers_and_labels_teach_a_net_alike_where_they_say_the_same():
    images, labels = pictures(60)
    config = named("supervised", net="mlp", steps=4, batch_size=8, devices=1, label_smoothing=0.3)
    hard = Answers(labels[:30], np.ones(30, bool))
    soft = soft_answers(0.7 * np.eye(CLASSES)[labels[:30]] + 0.3 / CLASSES, np.zeros(30))
    one, other = (fit(jax.random.key(1), public(images), each, config) for each in (hard, soft))
    for left, right in zip(leaves(one), leaves(other), strict=True):
        np.testing.assert_allclose(left, right, atol=1e-5)


def test_refused_soft_answers_have_no_influence():
    images, labels = pictures(60)
    soft = soft_answers(0.7 * np.eye(CLASSES)[labels[:30]] + 0.1, np.full(30, 0.1))
    soft = soft._replace(answered=np.arange(30) % 3 > 0)
    kept = lesson(public(images), soft)
    assert len(kept.rows) == 20 and len(kept.soft.targets) == 20
    np.testing.assert_array_equal(kept.rows, np.flatnonzero(np.arange(30) % 3 > 0))


def test_the_temperature_makes_soft_answers_most_likely():
    random = np.random.default_rng(3)
    logits, weights = 3 * random.normal(size=(50, 4)), random.exponential(size=50)
    wanted = np.exp(logits / 2.5 + 0.3 * random.normal(size=(50, 4)))
    wanted /= wanted.sum(1, keepdims=True)
    found = temperature(logits, wanted, weights)

    def surprise(heat):
        logs = logits / heat - np.log(np.exp(logits / heat).sum(1, keepdims=True))
        return -(weights[:, None] * wanted * logs).sum() / weights.sum()

    assert abs(negative_log_likelihood(logits, wanted, weights) - surprise(1.0)) < 1e-12
    assert surprise(found) <= min(surprise(found * 1.05), surprise(found / 1.05)) + 1e-9


def test_probabilities_of_other_classes_are_refused():
    images, _ = pictures(12)
    soft = soft_answers(np.full((5, 2), 0.5), np.zeros(5))
    with pytest.raises(PateError, match=r"probabilities \[5, 2\].*5 queries of 3 classes"):
        fit(jax.random.key(0), public(images), soft, named("ridge"))


@pytest.mark.long
def test_soft_answers_are_worth_more_than_their_labels():
    """Answers whose noise differs: weights and smoothing tell the good ones from the bad ones."""
    random = np.random.default_rng(5)
    images, labels = pictures(300)
    test_images, test_labels = pictures(600, seed=9)
    deviation = np.where(np.arange(300) % 2, 0.1, 0.8)
    found = []
    for _ in range(3):
        given_shares = np.eye(CLASSES)[labels] + random.normal(size=(300, CLASSES)) * deviation[:, None]
        given_shares = np.maximum(given_shares, 1e-3)
        soft = soft_answers(given_shares / given_shares.sum(1, keepdims=True), deviation)
        hard = Answers(soft.labels, soft.answered)
        students = [fit(jax.random.key(1), public(images), each, named("ridge")) for each in (hard, soft)]
        found.append([each.accuracy(test_images, test_labels) for each in students])
    assert np.mean(found, 0)[1] > np.mean(found, 0)[0] + 0.01
