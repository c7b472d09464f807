"""Means of many classes from clusters of the pool: where classes are clusters, and nowhere else."""

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from pate_jax.crowd import classifier, plan, rehearsal
from pate_jax.crowd.classifier import Clusters
from pate_jax.crowd.vectors import Scaling, vectors
from pate_jax.data.dataset import AS_STORED
from pate_jax.mechanisms.crowds import ClassSums
from pate_jax.models import spaces
from pate_jax.student import PublicInputs, sums

CLASSES, DIRECTIONS, LENGTH, VOTERS = 30, 12, 200, 9000


def test_shares_fill_rows_and_columns_as_the_only_such_matrix_does():
    random = np.random.default_rng(0)
    scores, wanted = random.normal(size=(6, 9)) * 3, random.dirichlet(np.ones(9)) * 6
    found = classifier.balanced(scores, wanted)
    np.testing.assert_allclose(found.sum(1), 1, atol=1e-12)
    np.testing.assert_allclose(found.sum(0), wanted, atol=1e-4)
    ratio = np.log(found) - scores  # a row's number plus a column's
    np.testing.assert_allclose(ratio - ratio[:, :1] - ratio[:1] + ratio[0, 0], 0, atol=1e-9)


def test_the_likelihood_is_that_of_a_mixture_of_normal_sums():
    random = np.random.default_rng(1)
    found = Clusters(random.normal(size=(5, 3)), random.dirichlet(np.ones(5)), 0.04)
    given, noise, voters = random.normal(size=(4, 3)) * 30, 7.0, 120
    each, cover = voters / 4, noise**2 + voters / 4 * 0.04
    direct = sum(
        logsumexp(
            [
                np.log(share) + multivariate_normal.logpdf(one, each * mean, cover * np.eye(3))
                for mean, share in zip(found.means, found.shares, strict=True)
            ]
        )
        for one in given
    )
    _, likely, _ = classifier.assigned(given, noise, found, voters)
    assert likely == pytest.approx(direct + 4 * 3 / 2 * np.log(2 * np.pi))  # which is left out of both


def drawn(sigma, by):
    """Vectors of classes that are clusters, or of labels that are linear functions, and their noisy sums."""
    random = np.random.default_rng(3)
    centres = random.normal(size=(CLASSES, DIRECTIONS))
    centres *= 0.7 * LENGTH / np.linalg.norm(centres, axis=1, keepdims=True)
    kinds = [random.integers(0, CLASSES, count) for count in (2000, VOTERS, 1500)]
    turn = random.normal(size=(DIRECTIONS, CLASSES))

    def part(kind):
        seen = np.rint(centres[kind] + random.normal(size=(len(kind), DIRECTIONS)) * 12)
        seen *= np.minimum(1, 0.97 * LENGTH / np.linalg.norm(seen, axis=1, keepdims=True))
        labels = (
            kind
            if by == "clusters"
            else (seen @ turn + random.normal(size=(len(kind), CLASSES)) * 90).argmax(1)
        )
        return np.column_stack([np.rint(seen).astype(int), np.full(len(kind), 40)]), labels

    (public, _), (private, labels), (tested, truth) = map(part, kinds)
    table = np.zeros((CLASSES, DIRECTIONS + 1), np.int64)
    np.add.at(table, labels, private)
    noisy = table + np.rint(random.normal(size=table.shape) * sigma).astype(int)
    release = ClassSums(CLASSES, DIRECTIONS + 1, LENGTH, sigma)
    return classifier.fit(noisy, release, public, VOTERS), tested, truth


def right(model, tested, truth):
    return float((model.judged(tested).argmax(1) == truth).mean())


def test_classes_that_are_clusters_are_told_apart_beneath_the_noise():
    model, tested, truth = drawn(12_000.0, "clusters")
    assert model.head is not None
    now, before = right(model, tested, truth), right(model._replace(head=None), tested, truth)
    assert 1 - now < 0.6 * (1 - before) and now > 0.8
    assert model.probabilities(tested).sum(1) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("sigma", [500.0, 12_000.0])
def test_labels_that_are_no_clusters_are_left_to_the_usual_classifier(sigma):
    assert drawn(sigma, "linear")[0].head is None


def test_the_student_says_what_the_head_does():
    pool = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    space, scaling = spaces.learn("identity", pool), Scaling(np.ones(3, np.float32), 100, 20)
    seen = vectors(scaling, space.coordinates(pool))
    head = np.random.default_rng(1).normal(size=(4, 5))
    model = classifier.Linear(np.zeros((4, 5)), 100, np.zeros((4, 3)), 1.0, head=head)
    student = sums.of_sums(PublicInputs(pool, AS_STORED, 5, tuple("abcde")), space, scaling, model)
    np.testing.assert_allclose(student(pool), model.probabilities(seen), atol=1e-5)


def test_a_rehearsal_expects_what_clusters_bring(monkeypatch):
    """Runs of many classes are planned by it; it had known nothing of them."""
    random, classes = np.random.default_rng(5), 60
    kinds = random.integers(0, classes, 3000)
    pool = random.normal(size=(classes, 8))[kinds] * 4 + random.normal(size=(3000, 8))
    space = spaces.learn("identity", pool.astype(np.float32))
    places = space.coordinates(pool.astype(np.float32))
    made = plan("sums", space, places, voters=VOTERS, classes=classes, mu=0.05)
    now = rehearsal.rehearse(made, places, [kinds], VOTERS).accuracy
    monkeypatch.setattr(classifier, "LEAST", classes + 1)
    assert rehearsal.rehearse(made, places, [kinds], VOTERS).accuracy < now - 0.06
