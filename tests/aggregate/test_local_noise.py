"""Local noise as it is drawn: its law, unbiased counts, and how right answers are."""

import numpy as np
import pytest
from scipy import stats

from experiments import local_noise
from pate_jax.accounting import local as figures
from pate_jax.aggregate import fresh_key, seeded_key
from pate_jax.aggregate import local as drawing
from pate_jax.errors import PateError
from pate_jax.mechanisms import local

DRAWS = 20_000


def voters(questions, count, classes, accuracy, seed):
    """True classes and the labels of voters who are right with this chance, wrong evenly."""
    random = np.random.default_rng(seed)
    true = random.integers(0, classes, questions)
    wrong = (true + random.integers(1, classes, (count, questions))) % classes
    return true, np.where(random.random((count, questions)) < accuracy, true, wrong)


@pytest.mark.parametrize("kind", local.BY_NAME.values(), ids=local.BY_NAME)
def test_drawn_values_have_the_law_of_their_table_and_no_other(kind):
    classes, label = 4, 2
    sent = drawing.send(kind(classes, 2.0), np.full(DRAWS, label), key=seeded_key(5))
    if kind is local.OneHotNoise:
        sent = sent @ (1 << np.arange(classes))  # all bits as one value: they must be independent
    values = np.bincount(sent, minlength=16 if kind is local.OneHotNoise else 0)
    for epsilon, fits in ((2.0, True), (1.0, False), (4.0, False)):
        chances = law(kind(classes, epsilon), label)
        p = stats.chisquare(values, chances * DRAWS).pvalue
        assert (p > 1e-4) == fits


@pytest.mark.parametrize("kind", local.BY_NAME.values(), ids=local.BY_NAME)
def test_named_noise_has_the_same_law_and_no_other(kind):
    classes, label = 4, 2
    names = [f"answer {at}" for at in range(DRAWS)]
    for epsilon, fits in ((2.0, True), (1.0, False), (4.0, False)):
        sent = drawing.send_named(kind(classes, 2.0), np.full(DRAWS, label), names, secret=bytes(32))
        if kind is local.OneHotNoise:
            sent = sent @ (1 << np.arange(classes))
        chances = law(kind(classes, epsilon), label)
        values = np.bincount(sent, minlength=len(chances))
        assert (stats.chisquare(values, chances * DRAWS).pvalue > 1e-4) == fits


def test_noise_of_other_names_and_other_secrets_is_independent():
    mechanism, labels = local.RandomisedResponse(4, 1.0), np.full(DRAWS, 1)
    names = [f"answer {at}" for at in range(DRAWS)]
    first = drawing.send_named(mechanism, labels, names, secret=bytes(32))
    for mark, secret in (("x", bytes(32)), ("", b"1" * 32)):
        other = drawing.send_named(mechanism, labels, [name + mark for name in names], secret=secret)
        table = np.zeros((4, 4), int)
        np.add.at(table, (first, other), 1)
        assert stats.chi2_contingency(table).pvalue > 1e-4
    with pytest.raises(PateError, match="secret has 3 bytes"):
        drawing.send_named(mechanism, labels, names, secret=b"123")


def law(mechanism, label):
    rows = np.array(local.channel(mechanism), float) / local.WORDS
    if not local.is_bits(mechanism):
        return rows[label]
    chances = np.ones(16)
    for place in range(4):
        chances *= rows[int(place == label)][np.arange(16) >> place & 1]
    return chances


@pytest.mark.parametrize("kind", local.BY_NAME.values(), ids=local.BY_NAME)
def test_estimates_of_counts_are_unbiased(kind):
    mechanism, classes = kind(3, 2.0), 3
    labels = np.repeat(np.arange(classes), (30, 50, 20))
    many = np.tile(labels[:, None], (1, 1000))  # 1,000 questions with the same votes
    counted = drawing.counts(mechanism, drawing.send(mechanism, many, key=seeded_key(2)))
    found = drawing.estimates(mechanism, counted, np.full(1000, 100))
    error = found.std(axis=0) / np.sqrt(1000)
    assert np.all(np.abs(found.mean(axis=0) - (30, 50, 20)) < 4.5 * error)
    assert np.all(error < 2)  # so that a bias of a few votes would show


def test_few_loud_answers_beat_many_soft_ones_and_the_plan_finds_them():
    """100 questions, 250 voters of 84% accuracy, pure epsilon 8 for each voter."""
    true, labels = voters(100, 250, 10, 0.84, seed=1)
    planned = figures.plan(
        "randomised-response", classes=10, questions=100, voters=250, budget=8.0, accuracy=0.84
    )
    assert planned.answers_each == 2 and planned.mechanism.epsilon == 4.0
    right = {}
    for each in (100, 2):
        mechanism = local.RandomisedResponse(10, 8.0 / each)
        sent = drawing.send(mechanism, labels, key=seeded_key(7))
        place = (np.arange(100) - each * np.arange(250)[:, None]) % 100
        counted = drawing.counts(mechanism, np.where(place < each, sent, drawing.MISSING))
        assert counted.sum() == 250 * each
        right[each] = (drawing.answers(mechanism, counted) == true).mean()
    assert right[100] < 0.3 and right[2] > 0.9
    assert abs(right[2] - planned.right) < 0.06


@pytest.mark.parametrize(("name", "epsilon"), [("randomised-response", 2.0), ("one-hot", 1.0)])
def test_the_expected_accuracy_is_that_of_a_simulation(name, epsilon):
    mechanism = local.make(name, 6, epsilon)
    true, labels = voters(2000, 15, 6, 0.8, seed=3)
    counted = drawing.counts(mechanism, drawing.send(mechanism, labels, key=seeded_key(4)))
    right = (drawing.answers(mechanism, counted) == true).mean()
    assert abs(right - figures.expected(mechanism, 15, 0.8)) < 0.05


def test_truncated_geometric_noise_on_class_numbers_is_far_worse_than_randomised_response():
    true, labels = voters(60, 250, 10, 0.84, seed=6)
    right = {}
    for kind in (local.TruncatedGeometric, local.RandomisedResponse):
        mechanism = kind(10, 1.0)
        sent = drawing.send(mechanism, labels, key=seeded_key(8))
        right[kind] = (drawing.answers(mechanism, drawing.counts(mechanism, sent)) == true).mean()
    assert right[local.TruncatedGeometric] < 0.5 and right[local.RandomisedResponse] > 0.97


def test_fresh_keys_give_different_noise_and_one_key_the_same():
    mechanism, labels = local.RandomisedResponse(10, 1.0), np.zeros(200, int)
    once, again = (drawing.send(mechanism, labels, key=seeded_key(1)) for _ in range(2))
    fresh = [drawing.send(mechanism, labels, key=fresh_key()) for _ in range(2)]
    assert np.array_equal(once, again) and not np.array_equal(*fresh)


@pytest.mark.parametrize(
    ("labels", "message"),
    [(np.array([0, 3]), "0 to 3"), (np.array([-1, 0]), "-1 to 0"), (np.array([0.5]), "float64")],
)
def test_labels_that_are_no_classes_are_refused(labels, message):
    with pytest.raises(PateError, match=message):
        drawing.send(local.RandomisedResponse(3, 1.0), labels, key=seeded_key(1))


def test_the_experiment_says_how_right_answers_are():
    trial = local_noise.Trial(questions=20, voters=50, answers=(1, 20), repeats=2)
    found = list(local_noise.rows(trial))
    assert [row["answers"] for row in found] == [1, 20] * 3
    assert found[0]["right"] > found[1]["right"] and found[0]["epsilon"] == 8.0
