"""A student that learns from public labels too is at least as good as either source alone, and says so."""

import jax
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from pate_jax import crowd
from pate_jax.aggregate import Answers
from pate_jax.data.dataset import Preprocessing
from pate_jax.errors import PateError
from pate_jax.models import spaces
from pate_jax.student import PublicInputs, Ridge, fit, labelled, sums

RULE = np.array([0.9, -0.7, 0.5, 0.4, -0.3, 0.2])
OFF = np.array([0.3, 0, 0, -0.3, 0, 0.2])
AS_IS = Preprocessing((0.0,), (1.0,))


def rows(count, seed, rule=RULE):
    """Inputs, and labels that a logistic rule draws."""
    random = np.random.default_rng(seed)
    inputs = random.normal(size=(count, len(RULE))).astype(np.float32)
    return inputs, (inputs @ rule + random.logistic(size=count) > 0.5).astype(int)


def public(inputs):
    return PublicInputs(inputs, AS_IS, 2, ("no", "yes"))


def of_rule(inputs, rule):
    """A student whose logits are those of a rule, as a classifier of sums has them."""
    space = spaces.learn("identity", inputs)
    scaling = crowd.scaling(space, space.coordinates(inputs), length=1000, power=0.0, constant=0.1)
    vectors = crowd.vectors(scaling, space.coordinates(inputs)) / 1000
    kernel = np.linalg.lstsq(vectors, np.stack([-inputs @ rule, inputs @ rule], 1), rcond=None)[0]
    return sums.of_head(public(inputs), space, scaling, kernel)


def missed(student, inputs, labels):
    """Mean negative log-likelihood."""
    return float(-np.log(student(inputs)[np.arange(len(labels)), labels]).mean())


@pytest.mark.long
@pytest.mark.parametrize("private", [RULE + OFF, 3 * RULE, -RULE, 0 * RULE])
def test_it_is_as_good_as_the_better_of_both(private):
    """The student as it was is slightly wrong, far too sure, wrong, or says nothing."""
    inputs, labels = rows(300, 1)
    unseen = rows(4000, 2)
    before = of_rule(inputs, private)
    after = labelled.learned(before, inputs, labels)
    alone = fit(jax.random.key(0), public(inputs), Answers(labels, np.ones(300, bool)), Ridge())
    best = min(missed(before, *unseen), missed(alone, *unseen))
    assert missed(after.student, *unseen) < best + 0.005
    share = np.mean(after.student(unseen[0]).argmax(1) == unseen[1])
    assert abs(share - after.right) < 0.07 and after.right >= after.alone - 0.02


def test_the_last_layer_is_that_of_logistic_regression():
    inputs, labels = rows(400, 3)
    found = labelled._fitted(np.zeros((400, 2)), inputs.astype(np.float64), labels, 0.01, False)
    # two columns of weights that mirror one another: their difference has half of the penalty
    known = LogisticRegression(C=2 / (0.01 * 400), tol=1e-10, max_iter=1000).fit(inputs, labels)
    assert np.allclose(found.kernel[:, 1] - found.kernel[:, 0], known.coef_[0], atol=1e-3)
    assert np.isclose(found.bias[1] - found.bias[0], known.intercept_[0], atol=1e-3)


def test_a_student_that_public_labels_confirm_keeps_its_slope():
    inputs, labels = rows(3000, 4)
    logits = np.stack([-inputs @ RULE / 2, inputs @ RULE / 2], 1).astype(np.float64)
    found = labelled._fitted(logits, inputs.astype(np.float64), labels, 1.0, True)
    assert abs(found.slope - 1) < 0.1 and np.abs(found.kernel).max() < 0.02
    assert abs(found.bias[1] - found.bias[0] + 0.5) < 0.1


def test_students_of_answers_learn_too_and_are_saved_as_before(tmp_path):
    inputs, labels = rows(300, 5)
    wrong = Answers(np.where(np.arange(80) % 3, labels[:80], 1 - labels[:80]), np.ones(80, bool))
    before = fit(jax.random.key(1), public(inputs), wrong, Ridge())
    after = labelled.learned(before, inputs, labels).student
    assert after.description == before.description and after.temperature == 1
    unseen = rows(2000, 6)
    assert missed(after, *unseen) < missed(before, *unseen)
    after.save(tmp_path)
    assert np.array_equal(type(after).load(tmp_path)(inputs), after(inputs))


@pytest.mark.parametrize("labels", [np.arange(40) % 2, np.zeros(60, int)])
def test_too_few_labels_are_refused(labels):
    with pytest.raises(PateError, match=f"{len(labels)} public labels"):
        labelled.check(labels)
