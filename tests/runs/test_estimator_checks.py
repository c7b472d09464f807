"""scikit-learn's own checks of an estimator, on `PateClassifier`."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from pate_jax import PateClassifier

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore::pate_jax.PateWarning"),
]


class WithPublicInputs(PateClassifier):
    """The checks call `fit(X, y)`: public inputs of the same kind are made of X, by a little noise."""

    def fit(self, X, y):
        return super().fit(X, y, X_public(X))


def X_public(X):
    """Numbers near those of X; complex and sparse ones stay as they are, for `fit` to refuse."""
    if hasattr(X, "toarray") or np.asarray(X).dtype.kind == "c":
        return X
    numbers = np.asarray(X, float)
    return numbers + np.random.default_rng(0).normal(0, 1e-3, numbers.shape)


NOT_OURS = {"check_dataframe_column_names_consistency": "columns with names are read by name, in any order"}


@parametrize_with_checks([WithPublicInputs(epsilon=30.0)], expected_failed_checks=lambda estimator: NOT_OURS)
def test_scikit_learn_finds_nothing(estimator, check):
    check(estimator)
