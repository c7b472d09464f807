"""By what voters are judged: against scikit-learn, and a rare outcome that accuracy hides."""

import numpy as np
import pytest
from sklearn import metrics

from pate_jax.crowd.metric import Metric, named
from pate_jax.crowd.rehearsal import judged
from pate_jax.crowd.roles import Roles
from pate_jax.errors import PateError


@pytest.mark.parametrize("classes", [2, 4])
def test_metrics_are_those_of_scikit_learn(classes):
    random = np.random.default_rng(classes)
    truth = random.integers(classes, size=300)
    said = random.dirichlet(np.ones(classes), 300).round(2) + 0.3 * np.eye(classes)[truth]
    said[:, 0] = np.round(said[:, 0], 1)  # ties
    often = random.integers(0, 4, size=(1, 300)).astype(float)
    own = np.eye(classes)[truth]
    ranked = [int(np.bincount(truth).argmin())] if classes == 2 else range(classes)

    def of(name):
        return Metric(name).weighted(said, truth, often)[0]

    def mean(figure):
        return np.mean([figure(own[:, one], said[:, one], sample_weight=often[0]) for one in ranked])

    best = said.argmax(1)
    assert of("accuracy") == pytest.approx(metrics.accuracy_score(truth, best, sample_weight=often[0]))
    assert of("balanced") == pytest.approx(
        metrics.balanced_accuracy_score(truth, best, sample_weight=often[0])
    )
    assert of("auroc") == pytest.approx(mean(metrics.roc_auc_score))
    assert of("auprc") == pytest.approx(mean(metrics.average_precision_score))


def test_a_rare_outcome_decides_by_rank_where_accuracy_sees_nothing():
    truth = np.array([0] * 95 + [1] * 5)
    constant, ranks = np.tile([0.9, 0.1], (100, 1)), np.stack([1 - (p := 0.3 * truth + 0.1), p], 1)
    roles = Roles(np.zeros(100, int), np.arange(100))

    def expected(said, name):
        return judged([[said, said, said]], [truth], roles, Metric(name))

    assert expected(constant, "accuracy").accuracy == expected(ranks, "accuracy").accuracy
    assert expected(constant, "auroc").accuracy == expected(constant, "auroc").majority == 0.5
    assert expected(ranks, "auroc").accuracy == 1.0
    assert expected(ranks, "auroc").judged == 19, "five rows of the outcome tell little"
    assert expected(constant, "auprc").majority == 0.05


def test_the_outcome_is_the_class_that_is_named():
    said, truth = np.array([[0.6, 0.4], [0.3, 0.7], [0.8, 0.2]]), np.array([0, 0, 1])
    first, second = (Metric("auprc", one).of(said, truth) for one in (0, 1))
    own = metrics.average_precision_score
    assert first == own(truth == 0, said[:, 0]) != second == own(truth == 1, said[:, 1])
    assert named("auprc", "b", ("a", "b")) == Metric("auprc", 1)


@pytest.mark.parametrize("wrong", [{"name": "f2"}, {"positive": "c"}])
def test_what_is_unknown_is_refused_by_name(wrong):
    told = {"name": "auroc", "positive": "a", **wrong}
    with pytest.raises(PateError, match=r"f2.*accuracy, balanced, auroc, auprc|c must be one of a, b"):
        named(**told, class_names=("a", "b"))
