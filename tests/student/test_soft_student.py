"""Students of soft answers: what smoothing knows of noise, weighted closed forms, and every method."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.kernel_ridge import KernelRidge as SklearnKernelRidge
from sklearn.linear_model import Ridge as SklearnRidge
from test_student_methods import CLASSES, leaves, pictures, public

from pate_jax.aggregate import Answers, answer, of_histograms, seeded_key, soft_answers
from pate_jax.crowd.shares import of_counts
from pate_jax.data.dataset import AS_STORED
from pate_jax.errors import PateError
from pate_jax.mechanisms import GaussianHistogram
from pate_jax.mechanisms.crowds import NeighbourCounts
from pate_jax.student import PublicInputs, fit, methods, named, smoothing
from pate_jax.student.calibration import negative_log_likelihood, temperature
from pate_jax.student.lesson import Lesson, lesson
from pate_jax.student.methods import METHODS, nets, ridge
from pate_jax.student.settings import KINDS, names

smoothed = partial(smoothing.smoothed, image=True)
SHARES = np.array([0.5, 0.3, 0.15, 0.05])


def noisy_shares(count, random):
    """Truth around known shares with variance 0.02, noise of two known sizes, and both together."""
    truth = SHARES + random.normal(size=(count, 4)) * 0.02**0.5
    deviation = np.where(np.arange(count) % 3 == 0, 0.4, 0.1)
    return truth, deviation, truth + random.normal(size=truth.shape) * deviation[:, None]


def test_shares_and_variance_of_the_truth_are_found_under_noise():
    _, deviation, given_shares = noisy_shares(4000, np.random.default_rng(0))
    shares, spread = smoothing.truth(given_shares, deviation**2)
    np.testing.assert_allclose(shares, SHARES, atol=0.01)
    assert abs(spread - 0.02) < 0.001
    found, signal = smoothed(given_shares, deviation), 0.02 / (0.02 + deviation**2)
    np.testing.assert_allclose(found.weights, signal / signal.mean(), rtol=0.05)


def test_targets_are_the_chances_of_classes_to_be_the_label_of_the_truth():
    """Among answers with about the same target, that share has the class as its most probable one."""
    truth, deviation, given_shares = noisy_shares(20000, np.random.default_rng(0))
    targets, right = smoothed(given_shares, deviation).targets, truth.argmax(1)
    for low in (0.1, 0.3, 0.5, 0.7, 0.9):
        there = (targets >= low) & (targets < low + 0.1)
        hits = (np.arange(4) == right[:, None])[there]
        assert there.sum() > 200
        assert abs(hits.mean() - targets[there].mean()) < 4 * (0.25 / there.sum()) ** 0.5


def noisy_distributions(truth, deviation, random):
    """With noise of this deviation in each number, which leaves the sum of a row as it is."""
    classes = truth.shape[1]
    noise = random.normal(size=truth.shape)
    noise = (noise - noise.mean(1, keepdims=True)) * (classes / (classes - 1)) ** 0.5
    return truth + noise * deviation[:, None]


def missed(guess, truth):
    """Mean squared distance of probabilities from the true ones."""
    return ((guess - truth) ** 2).sum(1).mean()


def test_targets_of_tables_are_the_best_linear_guess_of_the_truth_where_none_is_near_0():
    random, usual = np.random.default_rng(0), np.array([0.4, 0.35, 0.25])
    truth = noisy_distributions(np.tile(usual, (4000, 1)), np.full(4000, 0.05), random)
    deviation = np.where(np.arange(4000) % 3 == 0, 0.1, 0.02)
    seen = noisy_distributions(truth, deviation, random)
    found = smoothing.smoothed(seen, deviation, image=False).targets
    signal = 0.05**2 / (0.05**2 + deviation**2)
    np.testing.assert_allclose(found, usual + signal[:, None] * (seen - usual), atol=0.02)
    for other in (0.25, 4.0):  # less and more variance of the truth are worse
        wrong = other * 0.05**2 / (other * 0.05**2 + deviation**2)
        assert missed(found, truth) < missed(usual + wrong[:, None] * (seen - usual), truth)


@pytest.mark.parametrize(("classes", "noise", "part"), [(100, 0.09, 0.5), (100, 0.02, 1.0), (10, 0.1, 0.5)])
def test_of_many_classes_the_one_that_stands_out_is_kept_and_the_noise_of_all_others_is_not(
    classes, noise, part
):
    """The squared miss is near the best that any belief in what is seen would give, and far below all seen.

    Probabilities in place of shares were taken for nothing but noise, and students learned nothing.
    """
    random = np.random.default_rng(1)
    labels = random.integers(0, classes, 400)
    truth = 0.6 * np.eye(classes)[labels] + 0.4 * random.dirichlet(np.full(classes, 0.2), 400)
    deviation = np.full(400, noise)
    seen = noisy_distributions(truth, deviation, random)
    for image in (False, True):
        found = smoothing.smoothed(seen, deviation, image=image).targets
        np.testing.assert_allclose(found.sum(1), 1, atol=1e-5)
        assert (found >= 0).all() and (found.argmax(1) == labels).mean() > 0.97
    found = smoothing.smoothed(seen, deviation, image=False).targets
    usual = seen.mean(0)
    best = min(
        missed(smoothing.nearest_probabilities(usual + share * (seen - usual)), truth)
        for share in np.linspace(0, 1, 101)
    )
    assert missed(found, truth) < 1.05 * best and missed(found, truth) < part * missed(seen, truth)


@given(st.integers(2, 6), st.integers(0, 2**31))
def test_no_probabilities_are_nearer_than_the_nearest(classes, seed):
    random = np.random.default_rng(seed)
    values = random.normal(size=(3, classes)) * 10 ** random.uniform(-2, 1)
    found = smoothing.nearest_probabilities(values)
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-9)
    assert (found >= 0).all()
    others = random.dirichlet(np.full(classes, 0.3), 300)
    others = np.concatenate([others, np.eye(classes), 0.99 * found + 0.01 * others[:3]])
    for value, near in zip(values, found, strict=True):
        assert ((others - value) ** 2).sum(1).min() >= ((near - value) ** 2).sum() - 1e-9


def test_chances_are_those_of_random_draws():
    random = np.random.default_rng(4)
    guess, deviation = random.dirichlet(np.ones(5), 6), random.uniform(0.01, 0.5, 6)
    drawn = (guess[:, None] + random.normal(size=(6, 40000, 5)) * deviation[:, None, None]).argmax(2)
    seen = np.stack([(drawn == label).mean(1) for label in range(5)], 1)
    np.testing.assert_allclose(smoothing.chances(guess, deviation), seen, atol=0.01)


def test_answers_without_noise_are_their_labels_and_pure_noise_says_nothing():
    random = np.random.default_rng(1)
    exact = smoothed(random.dirichlet(np.ones(3), 7), np.zeros(7))
    assert set(exact.targets.ravel()) == {0.0, 1.0}
    np.testing.assert_array_equal(exact.weights, 1)
    deviation = np.r_[np.full(4000, 0.05), np.full(10, 50.0)]
    mixed = smoothed(
        1 / 3 + deviation[:, None] * random.normal(size=(4010, 3)) + 0.1 * np.eye(3)[np.arange(4010) % 3],
        deviation,
    )
    assert np.abs(mixed.targets[4000:] - 1 / 3).max() < 0.1 and mixed.weights[4000:].max() < 1e-3


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
    monkeypatch.setattr(ridge, "_PENALTIES", np.array([share]))
    line = ridge.weighted_least_squares(features @ features.T, targets, weights)
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
    whole = ridge.weighted_least_squares(alike, targets, weights)
    few = ridge.of_few_examples(alike, alike, targets, weights)
    for one, other in zip(few, whole, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


def ridge_lesson(soft, count=40):
    """Features of images of three kinds, and a lesson with their labels or with sure soft answers."""
    random = np.random.default_rng(6)
    labels = random.integers(0, CLASSES, count).astype(np.int32)
    features = jnp.asarray(2 * np.eye(CLASSES, 7)[labels] + random.normal(size=(count, 7)), jnp.float32)
    answers = soft_answers(np.eye(CLASSES)[labels], np.zeros(count)) if soft else Answers(labels, labels >= 0)
    return features, lesson(public(np.zeros((count, 8, 8, 1), np.uint8)), answers)


def test_sure_soft_answers_are_labels_to_the_ridge_student_bit_for_bit():
    one, other = (ridge._line(*ridge_lesson(soft)) for soft in (False, True))
    for left, right in zip(one, other, strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.long
def test_a_student_of_many_soft_answers_holds_some_of_their_images(monkeypatch):
    features, given_lesson = ridge_lesson(True)
    whole = ridge._line(features, given_lesson)
    monkeypatch.setattr(ridge, "_HELD", 20)
    few = ridge._line(features, given_lesson)
    np.testing.assert_array_equal(ridge.examples(given_lesson), np.arange(0, 40, 2))
    assert few.kernel.shape == (20, CLASSES) and few.unseen.shape == whole.unseen.shape
    assert (few.unseen.argmax(1) == whole.unseen.argmax(1)).mean() > 0.9


@pytest.mark.parametrize(
    "method",
    [pytest.param(name, marks=pytest.mark.long if name in ("ridge", "tandem") else ()) for name in METHODS],
)
@pytest.mark.long
def test_an_answer_that_is_nothing_but_noise_has_no_influence(method):
    """Every method takes soft answers, and what a hopelessly noisy one says changes nothing."""
    images, labels = pictures(60)
    net = "own_nets:BatchNormed" if method == "own" else "mlp"
    small = {"steps": 3, "batch_size": 16, "devices": 1, "net": net, "maps": (4,), "shift": 0}
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


@pytest.mark.long
def test_soft_answers_and_labels_teach_a_net_alike_where_they_say_the_same():
    images, labels = pictures(60)
    config = named("supervised", net="mlp", steps=4, batch_size=8, devices=1, label_smoothing=0.0)
    hard = Answers(labels[:30], np.ones(30, bool))
    soft = soft_answers(0.7 * np.eye(CLASSES)[labels[:30]] + 0.3 / CLASSES, np.zeros(30))
    one, other = (fit(jax.random.key(1), public(images), each, config) for each in (hard, soft))
    for left, right in zip(leaves(one), leaves(other), strict=True):
        np.testing.assert_allclose(left, right, atol=1e-5)
    best = temperature(np.log(one(images[:30])), labels[:30])
    assert one.temperature == 1 and other.temperature == pytest.approx(max(1, best), rel=0.02)


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
    with pytest.raises(PateError, match=r"shares \[5, 2\].*5 queries of 3 classes"):
        fit(jax.random.key(0), public(images), soft, named("ridge"))


@pytest.mark.long
def test_soft_answers_are_worth_more_than_their_labels():
    """Answers whose noise differs: weights and smoothing tell the good ones from the bad ones."""
    random = np.random.default_rng(5)
    images, labels = pictures(40)
    test_images, test_labels = pictures(600, seed=9)
    deviation = np.where(np.arange(40) % 2, 0.1, 1.5)
    found = []
    for _ in range(3):
        given_shares = np.eye(CLASSES)[labels] + random.normal(size=(40, CLASSES)) * deviation[:, None]
        given_shares = np.maximum(given_shares, 1e-3)
        soft = soft_answers(given_shares / given_shares.sum(1, keepdims=True), deviation)
        hard = Answers(soft.labels, soft.answered)
        students = [fit(jax.random.key(1), public(images), each, named("ridge")) for each in (hard, soft)]
        found.append([each.accuracy(test_images, test_labels) for each in students])
    assert np.mean(found, 0)[1] > np.mean(found, 0)[0] + 0.01


def test_the_ridge_student_of_a_table_is_weighted_ridge_regression(monkeypatch):
    random = np.random.default_rng(11)
    features, targets = random.normal(size=(90, 7)) * np.arange(1, 8), random.random(size=(90, 3))
    weights = random.exponential(size=90)
    weights /= weights.mean()
    monkeypatch.setattr(ridge, "_PENALTIES", np.array([0.5]))
    line = ridge.of_features(features, targets, weights)
    centred = features - (weights[:, None] * features).mean(0)
    penalty = 0.5 * (weights[:, None] * centred**2).sum() / 90
    oracle = SklearnRidge(penalty).fit(features, targets, sample_weight=weights)
    np.testing.assert_allclose(line.kernel, oracle.coef_.T, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(line.bias, oracle.intercept_, rtol=1e-9)


def told(chances, deviation=0.02):
    """Noisy answers of two classes."""
    noise = deviation * np.random.default_rng(13).normal(size=len(chances))
    shares = np.stack([1 - chances - noise, chances + noise], 1)
    return soft_answers(np.clip(shares, 0, 1), np.full(len(chances), deviation), shares)


def of_rows(rows, soft):
    """The ridge student of a table, by name and in use."""
    pool = PublicInputs(rows, AS_STORED, 2, ("no", "yes"))
    return fit(jax.random.key(0), pool, soft, named("ridge"))


@pytest.mark.parametrize("hard", [False, True])
def test_the_ridge_student_of_a_table_holds_rows_where_answers_are_bent_and_none_where_they_are_linear(hard):
    rows = np.random.default_rng(12).uniform(-1, 1, size=(900, 3)).astype(np.float32)
    asked, others = rows[:300], rows[300:]
    for bent in (False, True):
        seen = 2 * rows[:, 0] * rows[:, 1] if bent else (rows[:, 0] - rows[:, 2]) / 2
        soft = told(0.5 + 0.45 * seen[:300])
        if hard:
            soft = Answers(soft.labels, soft.answered)
        student = of_rows(asked, soft)
        agreed = (student(others).argmax(1) == (seen[300:] > 0)).mean()
        assert agreed > (0.85 if hard else 0.93)
        if not hard:
            assert student.description["name"] == ("rows" if bent else "table")
        if student.description["name"] == "rows":
            np.testing.assert_array_equal(student.parameters["examples"], asked)


def test_a_table_of_many_classes_is_learned_from_noisy_counts():
    """60 clusters, one class each: most counts are noise around 0, and four answers tell of each class."""
    random, classes = np.random.default_rng(15), 60
    middles = 3 * random.normal(size=(classes, 12))

    def drawn(count):
        labels = np.arange(count) % classes
        return (middles[labels] + random.normal(size=(count, 12))).astype(np.float32), labels

    rows, labels = drawn(240)
    release = NeighbourCounts(240, classes, votes=1, sigma=6.0)
    votes = np.stack([random.multinomial(40, 0.7 * np.eye(classes)[one] + 0.3 / classes) for one in labels])
    noisy = np.rint(votes + release.sigma * random.normal(size=votes.shape)).astype(np.int64)
    found = of_counts(noisy, release)
    soft = soft_answers(found.probabilities, found.deviation, found.linear)
    assert 0.9 < (np.asarray(soft.labels) == labels).mean() < 1
    pool = PublicInputs(rows, AS_STORED, classes, tuple(map(str, range(classes))))
    student = fit(jax.random.key(0), pool, soft, named("ridge"))
    others, truth = drawn(600)
    assert student.accuracy(others, truth) > 0.9


def test_a_held_row_is_no_more_than_nearness_to_it_and_least_squares(monkeypatch):
    """The student beside the closed form of scikit-learn, with one penalty and one reach."""
    monkeypatch.setattr(ridge, "_PENALTIES", np.array([0.1]))
    monkeypatch.setattr(ridge, "_REACHES", (1.0,))
    rows = np.random.default_rng(12).uniform(-1, 1, size=(60, 2)).astype(np.float32)
    labels = (rows[:, 0] * rows[:, 1] > 0).astype(np.int32)
    student = of_rows(rows, Answers(labels, labels >= 0))
    gaps = ((rows[:, None] - rows) ** 2).sum(2)
    reach = np.median(gaps[gaps > 1e-6])
    assert float(student.parameters["reach"]) == pytest.approx(reach, rel=1e-5)
    alike = np.exp(-gaps / reach)
    middle = alike - alike.mean(0) - alike.mean(1, keepdims=True) + alike.mean()
    penalty = 0.1 * np.trace(middle) / 60
    centred = np.eye(2)[labels] - np.eye(2)[labels].mean(0)
    found = SklearnKernelRidge(alpha=penalty, kernel="precomputed").fit(middle, centred)
    wanted = middle @ found.dual_coef_ + np.eye(2)[labels].mean(0)
    raised = np.exp(ridge._LOUD * wanted / student.temperature)
    np.testing.assert_allclose(student(rows), raised / raised.sum(1, keepdims=True), atol=1e-3)


def test_a_table_of_equal_rows_and_one_of_many_rows_have_students_too(monkeypatch):
    equal = of_rows(np.ones((30, 4), np.float32), told(np.linspace(0.1, 0.7, 30)))
    assert equal.description["name"] == "table" and np.isfinite(equal(np.ones((2, 4)))).all()
    monkeypatch.setattr(ridge, "_HELD", 40)
    rows = np.random.default_rng(14).uniform(-1, 1, size=(200, 2)).astype(np.float32)
    student = of_rows(rows, told(0.5 + 0.45 * np.sign(rows[:, 0] * rows[:, 1])))
    np.testing.assert_array_equal(student.parameters["examples"], rows[::5])
    assert (student(rows).argmax(1) == (rows[:, 0] * rows[:, 1] > 0)).mean() > 0.9


def test_targets_of_whole_histograms_are_chances_around_what_others_let_expect():
    random = np.random.default_rng(0)
    expected = random.dirichlet(np.ones(4), 20000)
    truth = expected + random.normal(size=expected.shape) * 0.02**0.5
    deviation = np.full(len(truth), 0.4)
    seen = truth + 0.4 * random.normal(size=truth.shape)
    soft = smoothed(seen, deviation)._replace(plain=seen, noise=deviation)
    targets, right = smoothing.informed(soft, expected, image=True).targets, truth.argmax(1)
    for low in (0.1, 0.3, 0.5, 0.7, 0.9):
        there = (targets >= low) & (targets < low + 0.1)
        hits = (np.arange(4) == right[:, None])[there]
        assert there.sum() > 200 and abs(hits.mean() - targets[there].mean()) < 0.03
    assert smoothing.informed(smoothed(seen, deviation), expected, image=True).plain is None


def test_least_squares_learns_rows_of_whole_histograms_unshrunk():
    random, mechanism = np.random.default_rng(1), GaussianHistogram(30.0)
    inputs = random.normal(size=(60, 3)).astype(np.float32)
    votes = np.stack([random.multinomial(50, [0.5, 0.3, 0.2]) for _ in range(40)])
    given = of_histograms(answer(mechanism, votes, key=seeded_key(2)).counts, mechanism, 50)
    told = lesson(PublicInputs(inputs, AS_STORED, 3, ("a", "b", "c")), given)
    rows = told.soft.plain - told.soft.plain.mean(0)
    np.testing.assert_allclose(rows, given.shares - np.asarray(given.shares).mean(0), atol=1e-6)
    assert (told.soft.plain < 0).any() and told.part(np.arange(5)).soft.plain.shape == (5, 3)
    shrunk = told._replace(soft=smoothing.Soft(told.soft.targets, told.soft.weights))
    assert not np.allclose(ridge.left_out(0, told), ridge.left_out(0, shrunk))


def test_a_net_of_images_learns_the_surest_half_of_many_whole_histograms(monkeypatch):
    """By sorting each label's answers; few answers are all learned, and tables learn all of them."""
    random, learned = np.random.default_rng(3), []
    monkeypatch.setattr(nets, "trainer", lambda _: lambda config, keys, lesson, exam: [lesson])
    monkeypatch.setattr(ridge, "left_out", lambda seed, lesson: lesson.soft.plain)
    for count, shape in ((400, (4, 4, 1)), (40, (4, 4, 1)), (400, (5,))):
        shares = random.dirichlet(np.ones(3), count)
        shown = PublicInputs(np.zeros((count, *shape), np.float32), AS_STORED, 3, ("a", "b", "c"))
        plain, noise = shares.astype(np.float32), np.full(count, 0.01)
        soft = smoothing.Soft(plain, np.ones(count, np.float32), plain, noise)
        given = Lesson(shown, np.arange(count, dtype=np.int32), shares.argmax(1).astype(np.int32), soft)
        learned.append(methods._net(None)(None, jax.random.key(0)[None], given)[0].rows)
        if len(learned) == 1:
            ahead = np.sort(shares, 1)[:, 2] - np.sort(shares, 1)[:, 1]
            for label in range(3):
                own = np.flatnonzero(given.labels == label)
                wanted = own[ahead[own] >= np.sort(ahead[own])[len(own) // 2]]
                np.testing.assert_array_equal(np.intersect1d(learned[0], own), wanted)
    assert [len(rows) for rows in learned[1:]] == [40, 400]
