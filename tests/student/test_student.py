"""The student's interface: what it learns from, what it refuses, and what is saved of it."""

import jax
import numpy as np
import pytest

from pate_jax.aggregate import Answers
from pate_jax.data import Preprocessing
from pate_jax.errors import PateError
from pate_jax.student import Auto, PublicInputs, Student, Supervised, fit

CLASSES = 3


def table(count, seed=0):
    """Points around three centres: [count, 5] and their classes."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, CLASSES, count).astype(np.int32)
    centres = np.eye(CLASSES, 5) * 4
    return (centres[labels] + random.normal(size=(count, 5))).astype(np.float32), labels


def public(inputs):
    return PublicInputs(inputs, Preprocessing((0.5,), (2.0,)), CLASSES, ("a", "b", "c"))


@pytest.fixture(scope="module")
def learned():
    inputs, labels = table(240)
    answered = np.arange(240) % 3 != 0
    answers = Answers(np.where(answered, labels, -1).astype(np.int32), answered)
    return fit(jax.random.key(5), public(inputs), answers, Auto(steps=150, batch_size=32))


@pytest.mark.long
def test_it_learns_from_the_answered_queries(learned):
    inputs, labels = table(300, seed=1)
    assert learned.accuracy(inputs, labels) > 0.95


@pytest.mark.long
def test_probabilities_sum_to_one_for_any_number_of_inputs(learned):
    for count in (0, 1, 7, 1001):
        found = learned(table(count, seed=2)[0])
        assert found.shape == (count, CLASSES)
        np.testing.assert_allclose(found.sum(1), 1, atol=1e-5)


@pytest.mark.long
def test_random_answers_teach_nothing():
    inputs, _ = table(400)
    test_inputs, test_labels = table(2000, seed=4)
    config = Supervised(steps=60, batch_size=32)
    found = []
    for draw in range(12):  # each cluster is learned as some class, at random: only the mean is at chance
        noise = np.random.default_rng(draw).integers(0, CLASSES, 400).astype(np.int32)
        student = fit(jax.random.key(draw), public(inputs), Answers(noise, np.ones(400, bool)), config)
        found.append(student.accuracy(test_inputs, test_labels))
    assert abs(np.mean(found) - 1 / CLASSES) < 0.17


def test_refused_queries_have_no_influence():
    inputs, labels = table(60)
    answered = np.arange(60) % 2 == 0
    first = np.where(answered, labels, -1).astype(np.int32)
    second = np.where(answered, labels, 2).astype(np.int32)
    config = Auto(steps=10, batch_size=8)
    both = [
        fit(jax.random.key(7), public(inputs), Answers(each, answered), config) for each in (first, second)
    ]
    for left, right in zip(*(jax.tree.leaves(student.parameters) for student in both), strict=True):
        np.testing.assert_array_equal(np.asarray(left), np.asarray(right))


def test_nothing_answered_is_an_error_with_a_remedy():
    inputs, _ = table(10)
    nothing = Answers(np.full(10, -1, np.int32), np.zeros(10, bool))
    with pytest.raises(PateError, match="lower the threshold"):
        fit(jax.random.key(0), public(inputs), nothing, Auto())


@pytest.mark.long
def test_a_saved_student_answers_the_same(learned, tmp_path):
    learned.save(tmp_path / "student")
    again = Student.load(tmp_path / "student")
    inputs = table(50, seed=8)[0]
    np.testing.assert_array_equal(learned(inputs), again(inputs))
    assert again.class_names == ("a", "b", "c")
    assert again.preprocessing == learned.preprocessing


@pytest.mark.long
def test_inputs_of_another_shape_are_refused(learned):
    with pytest.raises(PateError, match=r"\(4,\) each; this student takes \(5,\)"):
        learned(np.zeros((2, 4), np.float32))
