"""Probabilities that can be believed follow from fitted shares and public inputs, without a label."""

import numpy as np
import pytest
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression

from pate_jax.student.calibration import logistic


@pytest.mark.parametrize(("factor", "shift"), [(1.0, 0.0), (2.0, -3.0), (0.5, 1.0), (4.0, -1.0)])
def test_the_logistic_of_fitted_shares_is_that_of_the_labels(factor, shift):
    random = np.random.default_rng(1)
    features = np.c_[random.normal(size=(40_000, 4)), np.ones(40_000)]
    truth = expit(factor * features[:, 0] + features[:, 1] / 2 + shift)
    labels = (random.random(40_000) < truth).astype(float)
    line = np.linalg.lstsq(features, labels, rcond=None)[0]
    shares = features @ line  # what sums tell of the labels, and some of it is beyond 0 and 1
    offset, slope = logistic(shares, np.cov(shares, labels, ddof=0)[0, 1])
    wanted = LogisticRegression(C=np.inf, tol=1e-8).fit(shares[:, None], labels)
    assert slope == pytest.approx(wanted.coef_.item(), rel=0.03)
    assert offset == pytest.approx(wanted.intercept_.item(), abs=0.05 + 0.03 * abs(wanted.intercept_.item()))
    said = expit(offset + slope * shares)
    parts = np.array_split(np.argsort(said), 10)
    assert max(abs(said[part].mean() - labels[part].mean()) for part in parts) < 0.04


def test_shares_that_say_nothing_and_shares_that_are_apart_have_a_finite_logistic():
    assert logistic(np.full(50, 0.2), 0.0) == pytest.approx((logit(0.2), 0))
    offset, slope = logistic(np.repeat([0.0, 1.0], 50), 0.25)
    assert slope > 5 and abs(expit(offset + slope) - 1) < 0.01
    offset, slope = logistic(np.repeat([-0.4, 1.4], [90, 10]), 0.3)  # noise has made them too far apart
    assert np.isfinite([offset, slope]).all()
