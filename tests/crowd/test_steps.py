"""Gradients in whole numbers: how long one voter's is, whatever it is, and that steps go down the slope."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pate_jax import crowd
from pate_jax.crowd import classifier, rehearsal, step_choice, steps
from pate_jax.mechanisms.crowds import ClassSums
from pate_jax.models import spaces

SEEDS = st.integers(0, 2**32 - 1)


def drawn(seed, records, classes, entries, longest):
    """Vectors of any length up to the longest, labels, and weights of any size."""
    random = np.random.default_rng(seed)
    vectors = random.normal(size=(records, entries)) * random.choice([0.3, 3.0, 300.0], (records, 1))
    size = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors = np.trunc(vectors * np.minimum(1, longest / np.maximum(size, 1e-9))).astype(np.int64)
    weights = random.normal(size=(entries, classes)) * random.choice([1e2, 1e5, 1e8])
    if classes == 2:
        weights[:, 0] = 0
    return vectors, random.integers(0, classes, records), np.rint(weights).astype(np.int64)


@given(SEEDS, st.integers(2, 7), st.integers(1, 12), st.integers(20, 5000), st.integers(20, 8000))
def test_no_record_is_longer_than_the_bound(seed, classes, entries, length, longest):
    release = ClassSums(classes, entries, length, 1e4)
    vectors, labels, weights = drawn(seed, 40, classes, entries, longest)
    for one in range(40):
        own = steps.gradients(vectors[one : one + 1], labels[one : one + 1], None, weights, release)
        assert int((own.astype(object) ** 2).sum()) <= length**2


@given(SEEDS, st.integers(2, 5), st.integers(1, 9), st.integers(20, 5000))
def test_no_user_is_longer_than_the_bound_and_records_of_others_change_nothing(
    seed, classes, entries, length
):
    release = ClassSums(classes, entries, length, 1e4)
    vectors, labels, weights = drawn(seed, 30, classes, entries, 5000)
    users = np.sort(np.random.default_rng(seed).integers(0, 6, 30))
    whole = steps.gradients(vectors, labels, users, weights, release)
    for user in np.unique(users):
        rest = users != user
        left = steps.gradients(vectors[rest], labels[rest], users[rest], weights, release)
        assert int(((whole - left).astype(object) ** 2).sum()) <= length**2


@given(SEEDS, st.integers(2, 7), st.booleans())
def test_a_changed_voter_moves_the_sum_by_twice_the_bound_at_most(seed, classes, by_user):
    release = ClassSums(classes, 8, 900, 1e4)
    vectors, labels, weights = drawn(seed, 30, classes, 8, 3000)
    other, others, _ = drawn(seed + 1, 30, classes, 8, 3000)
    changed, changed_labels = vectors.copy(), labels.copy()
    users = np.arange(30) // 4 if by_user else None
    rows = slice(4, 8) if by_user else slice(3, 4)
    changed[rows], changed_labels[rows] = other[rows], others[rows]
    before = steps.gradients(vectors, labels, users, weights, release)
    after = steps.gradients(changed, changed_labels, users, weights, release)
    assert int(((before - after) ** 2).sum()) <= release.squared_shift("changed")


def test_the_bound_is_nearly_reached():
    release = ClassSums(3, 2, 8000, 1e4)
    own = steps.gradients(np.array([[400, 0]]), np.array([0]), None, np.zeros((2, 3), np.int64), release)
    assert 0.9 * 8000 < np.linalg.norm(own) <= 8000


@given(SEEDS, st.integers(2, 5))
def test_any_order_and_any_blocks_give_the_same_sum(seed, classes):
    release = ClassSums(classes, 7, 500, 1e4)
    vectors, labels, weights = drawn(seed, 50, classes, 7, 3000)
    whole = steps.gradients(vectors, labels, None, weights, release)
    order = np.random.default_rng(seed).permutation(50)
    np.testing.assert_array_equal(
        whole, steps.gradients(vectors[order], labels[order], None, weights, release)
    )
    parts = [
        steps.gradients(vectors[rows], labels[rows], None, weights, release)
        for rows in (slice(0, 13), slice(13, None))
    ]
    np.testing.assert_array_equal(whole, sum(parts))


def test_whole_gradients_are_those_of_softmax_regression():
    """Beside floats: in the mean over records no class and no entry is off by rounding."""
    random = np.random.default_rng(4)
    vectors = np.rint(random.normal(size=(4000, 5)) * 30).astype(np.int64)
    weights = random.normal(size=(5, 4)) * 0.03
    labels = random.integers(0, 4, 4000)
    scores = vectors @ weights
    exact = np.exp(scores - scores.max(1, keepdims=True))
    exact /= exact.sum(1, keepdims=True)
    exact[np.arange(4000), labels] -= 1
    whole = np.rint(weights * 2**steps.FINE).astype(np.int64)
    found = steps.gradients(vectors, labels, None, whole, ClassSums(4, 5, 100_000, 1e4))
    wanted = exact.T @ vectors * steps.ONE
    assert np.abs(found - wanted).max() < 0.02 * np.abs(wanted).max()


def pool(seed=0, classes=3):
    random = np.random.default_rng(seed)
    places = random.normal(size=(900, 8)) * np.linspace(3, 0.5, 8)
    space = spaces.learn("identity", places)
    scores = places @ random.normal(size=(8, classes)) / np.linspace(3, 0.5, 8).mean()
    return space, space.coordinates(places), (3 * scores + random.gumbel(size=scores.shape)).argmax(1)


def test_steps_without_noise_come_near_to_what_softmax_regression_reaches():
    space, seen, labels = pool()
    plan = crowd.plan("sums", space, seen, voters=900, classes=3, mu=30.0)
    first = crowd.vectors(plan.scaling, seen)
    table = np.zeros(plan.release.shape, np.int64)
    np.add.at(table, labels, first)
    model = classifier.fit(table, plan.release, first, 900)
    made = steps.made(space, seen, number=20, directions=8, strength=0.003, voters=900, classes=3, mu=30.0)
    rows = crowd.vectors(made.scaling, seen)
    weights, losses = steps.started(model, first, rows), []
    for _ in range(20):
        told = steps.probabilities(weights, rows)
        losses.append(-np.log(told[np.arange(900), labels]).mean())
        exact = steps.gradients(rows, labels, None, weights, made.release)
        weights = steps.moved(weights, exact, made.rate)
    assert losses[-1] < losses[1] and (told.argmax(1) == labels).mean() > 0.97 * 0.8


def test_more_voters_or_less_noise_take_weaker_whitening_and_no_fewer_steps():
    space, seen, _ = pool()
    found = [step_choice.chosen(space, seen, voters, 3, 0.25) for voters in (300, 1_000, 3_000, 300_000)]
    assert found[0] is None
    there = [one for one in found if one is not None]
    assert len(there) >= 2 and all(one.number >= 4 for one in there)
    assert [one.strength for one in there] == sorted((one.strength for one in there), reverse=True)


def test_few_voters_or_much_noise_take_one_table_and_many_take_steps():
    space, seen, _ = pool()
    few = step_choice.stepped(space, seen, voters=100, classes=3, mu=0.25)
    most = step_choice.stepped(space, seen, voters=1_000_000, classes=3, mu=0.25)
    many = step_choice.stepped(space, seen, voters=100_000, classes=3, mu=0.25, number=5)
    assert few.steps is None and most.steps.number == 20 and many.steps.number == 5
    squares = [(2 * one.length / one.sigma) ** 2 for one in (many.release, *[many.steps.release] * 4)]
    assert sum(squares) <= 0.25**2


def test_a_rehearsal_of_steps_says_the_same_twice_and_takes_users():
    space, seen, labels = pool()
    plan = step_choice.stepped(space, seen, voters=5000, classes=3, mu=0.5, number=3)
    users = np.arange(900) // 3
    for given_users in (None, users):
        found = [rehearsal.rehearse(plan, seen, [labels], 5000, given_users) for _ in range(2)]
        assert found[0] == found[1] and found[0].accuracy > 0.6
