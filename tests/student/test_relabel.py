"""The student that corrects answers: who labels what, and what is learned in the end."""

import jax
import numpy as np
import pytest
from test_student_methods import answers_of, leaves, pictures, public

from pate_jax.aggregate import soft_answers
from pate_jax.errors import PateError
from pate_jax.student import Relabel, fit
from pate_jax.student.lesson import Learned, lesson
from pate_jax.student.methods import relabel

CONFIG = Relabel(net="mlp", steps=240, batch_size=16, shift=1, average=0.95, strength=0.3)


def fake_training(monkeypatch, losses):
    """Nets that only note what they were taught; each expects the class of its number everywhere."""
    heard = []

    def train(config, key, given):
        heard.append((config, given))
        return Learned({"number": len(heard) - 1}, {}, 1.0)

    def logs(learned, given):
        return np.log(0.02 + 0.9 * np.eye(4)[np.full(len(given.rows), learned.description["number"])])

    monkeypatch.setattr(relabel, "train", train)
    monkeypatch.setattr(relabel, "logs", logs)
    monkeypatch.setattr(relabel, "surprise", lambda learned, _: losses[learned.description["number"]])
    monkeypatch.setattr(relabel, "calibrated", lambda learned, _: learned)
    return heard


def four_classes(images):
    return public(images)._replace(classes=4, class_names=tuple("abcd"))


@pytest.mark.parametrize("best", [0, 1])
def test_no_answer_is_corrected_by_a_net_that_has_seen_it(monkeypatch, best):
    """Noisy answers become what the net of the other half expects, with the distortions that predict best."""
    images, labels = pictures(31)
    heard = fake_training(monkeypatch, [2.0 - best, 1.5])
    told = soft_answers(np.full((21, 4), 0.25) + 1e-4 * np.eye(4)[labels[:21]], np.full(21, 1.0))
    answers = told._replace(answered=np.arange(21) % 5 > 0)
    relabel.learn(CONFIG, jax.random.key(0)[None], lesson(four_classes(images), answers))
    rows = np.flatnonzero(np.arange(21) % 5)
    taught = [given.rows.tolist() for _, given in heard]
    assert taught == [rows[::2].tolist()] * 2 + [rows[1::2].tolist(), rows.tolist()]
    assert [config.steps for config, _ in heard] == [120, 120, 120, 240]
    strength = heard[0 if heard[0][0].strength == heard[2][0].strength else 1][0].strength
    assert [config.strength for config, _ in heard] == [0.0, CONFIG.strength, strength, strength]
    assert strength == (CONFIG.strength if best == 0 else 0.0)
    last = heard[-1][1]
    assert last.soft is None
    np.testing.assert_array_equal(last.labels[::2], 2)
    np.testing.assert_array_equal(last.labels[1::2], 1 if best == 0 else 0)


def test_labels_are_the_most_probable_by_net_and_answer_together():
    images, _ = pictures(4)
    probabilities = np.array([[0.6, 0.3, 0.1], [0.98, 0.01, 0.01], [0.4, 0.4, 0.2], [0.1, 0.1, 0.8]])
    expected = np.log([[0.2, 0.7, 0.1], [0.1, 0.8, 0.1], [0.3, 0.6, 0.1], [0.3, 0.3, 0.4]])
    given = lesson(public(images), soft_answers(probabilities, np.zeros(4)))
    given = given._replace(soft=given.soft._replace(targets=probabilities))
    assert relabel.corrected(expected, given, 0.0).tolist() == [1, 0, 1, 2]
    sure = lesson(public(images), answers_of(probabilities.argmax(1)))
    assert relabel.corrected(expected, sure, 0.0).tolist() == [0, 0, 0, 2]
    assert relabel.corrected(expected, sure, 0.9).tolist() == [1, 1, 1, 2]


def test_one_answer_cannot_be_halved():
    images, labels = pictures(9)
    with (
        pytest.warns(UserWarning, match="no answer names"),
        pytest.raises(PateError, match="halves the answers, and there are 1: choose the method supervised"),
    ):
        fit(jax.random.key(0), public(images), answers_of(labels[:1]), CONFIG)


@pytest.fixture(scope="module")
def regularly_wrong():
    """Soft answers of a pool in which two of five squares are called bars, among other errors."""
    images, labels = pictures(600)
    random = np.random.default_rng(2)
    wrong = (random.random(600) < 0.1) | ((labels == 2) & (random.random(600) < 0.4))
    said = np.where(wrong, random.integers(0, 2, 600), labels)
    return images, labels, said, soft_answers(0.5 * np.eye(3)[said] + 0.5 / 3, np.full(600, 0.05))


@pytest.mark.long
def test_it_is_right_more_often_than_its_answers_and_no_surer_than_they_agree(regularly_wrong):
    images, labels, said, soft = regularly_wrong
    student = fit(jax.random.key(1), public(images), soft, CONFIG)
    test_images, test_labels = pictures(600, seed=9)
    assert student.accuracy(test_images, test_labels) > (said == labels).mean() + 0.05
    found = student(images)
    assert found.max(1).mean() < (found.argmax(1) == said).mean() + 0.1 and student.temperature >= 1
    again = fit(jax.random.key(1), public(images), soft, CONFIG)
    for left, right in zip(leaves(student), leaves(again), strict=True):
        np.testing.assert_array_equal(left, right)
