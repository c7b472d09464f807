"""What scikit-learn gives to an estimator, and stand-ins for it where it is not installed.

scikit-learn is no dependency: without it an estimator can be fitted, asked and scored all the same. With it,
the estimator is one of its own, for `clone`, `Pipeline`, `cross_val_score` and the rest.
"""

from __future__ import annotations

import inspect
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from pate_jax.errors import PateError

if TYPE_CHECKING or find_spec("sklearn") is None:

    class NotFittedError(ValueError, AttributeError):
        """Raised by an estimator that is asked before it was fitted."""

    class DataConversionWarning(UserWarning):
        """Says that labels were given in another form than the wanted one."""

    class Base:
        """Parameters and accuracy of a classifier, as scikit-learn has them."""

        def get_params(self, deep: bool = True) -> dict[str, Any]:
            """The parameters by name; `deep` is for estimators that hold others."""
            names = list(inspect.signature(type(self).__init__).parameters)[1:]
            return {name: getattr(self, name) for name in names}

        def set_params(self, **params: Any) -> Self:
            """Replace parameters."""
            known = self.get_params()
            for name, value in params.items():
                if name not in known:
                    raise PateError(f"{name} is no parameter of {self}; they are {', '.join(known)}")
                setattr(self, name, value)
            return self

        def score(self, X: Any, y: Any) -> float:
            """The share of rows whose predicted label is the given one."""
            return float(np.mean(self.predict(X) == np.asarray(y)))  # type: ignore[attr-defined]

        def __repr__(self) -> str:
            return f"{type(self).__name__}()"

else:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.exceptions import DataConversionWarning as DataConversionWarning
    from sklearn.exceptions import NotFittedError as NotFittedError

    class Base(ClassifierMixin, BaseEstimator):
        """A classifier of scikit-learn that also takes words."""

        def __sklearn_tags__(self) -> Any:
            tags = super().__sklearn_tags__()
            tags.input_tags.string = tags.input_tags.categorical = True
            return tags


class NotFitted(NotFittedError, PateError):
    """An estimator was asked before it was fitted."""
