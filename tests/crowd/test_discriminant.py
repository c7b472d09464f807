"""The discriminant of fitted shares: Fisher's, told by nothing but their covariance and usual values."""

import numpy as np
import pytest

from pate_jax.crowd import classifier, discriminant
from pate_jax.mechanisms.crowds import ClassSums

RANDOM = np.random.default_rng(0)


def gaussians(size, means, chances):
    """Points of classes that are normal around their means, with one covariance."""
    labels = RANDOM.choice(len(means), size, p=chances)
    mix = np.array([[1.0, 0.3], [0.0, 1.2]])
    return means[labels] + RANDOM.normal(size=(size, 2)) @ mix, labels


def fishers(points, labels, seen):
    """Linear discriminant analysis by the book."""
    classes = np.unique(labels)
    means = np.array([points[labels == one].mean(0) for one in classes])
    chances = np.array([(labels == one).mean() for one in classes])
    within = sum(np.cov(points[labels == one].T, bias=True) * chances[one] for one in classes)
    back = np.linalg.inv(within)
    logits = seen @ back @ means.T - ((means @ back) * means).sum(1) / 2 + np.log(chances)
    likely = np.exp(logits - logits.max(1, keepdims=True))
    return likely / likely.sum(1, keepdims=True)


@pytest.mark.parametrize("chances", [(1 / 3, 1 / 3, 1 / 3), (0.6, 0.3, 0.1)])
def test_it_is_linear_discriminant_analysis_of_the_inputs_themselves(chances):
    points, labels = gaussians(4000, np.array([[-1.0, 0.0], [0.0, 0.6], [1.0, -0.3]]), chances)
    wide = np.column_stack([np.ones(len(points)), points])
    shares = wide @ np.linalg.lstsq(wide, np.eye(3)[labels], rcond=None)[0]
    made = discriminant.discriminant(np.cov(shares.T, bias=True), shares.mean(0))
    np.testing.assert_allclose(made.probabilities(shares), fishers(points, labels, points), atol=1e-5)


def sums_of(labels, vectors, classes):
    return np.stack([vectors[labels == one].sum(0) for one in range(classes)]).astype(np.int64)


def of_ordered(classes, size=6000):
    """Vectors, and classes in the order of one of their directions; with a constant entry."""
    places = RANDOM.normal(size=(size, 4))
    labels = (places[:, 0] > np.quantile(places[:, 0], np.arange(1, classes) / classes)[:, None]).sum(0)
    return np.column_stack([np.rint(places * 20), np.full(size, 25)]).astype(np.int64), labels


def test_middle_classes_are_named():
    vectors, labels = of_ordered(5)
    release = ClassSums(classes=5, directions=5, length=100, sigma=50.0)
    noisy = sums_of(labels, vectors, 5) + np.rint(RANDOM.normal(size=(5, 5)) * 50).astype(np.int64)
    model = classifier.fit(noisy, release, vectors, len(labels))
    by_share = model.probabilities(vectors).argmax(1)
    judged = model.judged(vectors).argmax(1)
    assert (by_share == labels).mean() < 0.6 and (by_share == 1).mean() < 0.05
    assert (judged == labels).mean() > 0.75 and (judged == 1).mean() > 0.1


def test_two_classes_are_judged_by_their_shares():
    vectors, labels = of_ordered(2)
    release = ClassSums(classes=2, directions=5, length=100, sigma=50.0)
    each = sums_of(labels, vectors, 2)
    model = classifier.fit(each[1:] - each[:1], release, vectors, len(labels))
    assert model.discriminant is None
    np.testing.assert_array_equal(model.judged(vectors), model.probabilities(vectors))


@pytest.mark.parametrize("constant", [0, 25])
def test_noise_alone_and_classes_that_nobody_has_give_probabilities(constant):
    vectors = of_ordered(3, size=40)[0][:, : 5 if constant else 4]
    release = ClassSums(classes=3, directions=vectors.shape[1], length=100, sigma=5000.0)
    for noisy in (np.rint(RANDOM.normal(size=release.shape) * 5000), np.zeros(release.shape)):
        found = classifier.fit(noisy.astype(np.int64), release, vectors, 40).judged(vectors)
        assert np.isfinite(found).all() and np.allclose(found.sum(1), 1, atol=1e-5)
