"""The most frequent class as a method in one file: about as little as a method can be."""

import math
from collections.abc import Sequence

import numpy as np

from pate_jax.accounting.exact import counts
from pate_jax.crowd import scaling
from pate_jax.data import Part
from pate_jax.mechanisms.crowds import CrowdRelease, HeadCount, NeighbourCounts
from pate_jax.models import spaces
from pate_jax.runs import methods
from pate_jax.runs.ledger import CrowdLine
from pate_jax.runs.methods import OwnMethod
from pate_jax.student import PublicInputs, Student, sums


class Majority(OwnMethod):
    """Every record votes once, for its own label, and the student says how frequent each class is."""

    name = "majority"
    words = (
        "Each record voted for its own label, and random noise was added to the count of every class. The "
        "student gives each class the probability that the noisy counts do, whatever the input."
    )

    def question(self, public: PublicInputs, released: Sequence[CrowdLine]) -> CrowdRelease | None:
        # All releases together may cost mu, the shift of a Gaussian that epsilon and delta allow.
        mu = counts.mu_for(self.promise.epsilon, self.promise.delta)
        if not released:
            return counts.headcount_for(mu, "neighbours")  # first how many voters there are, at a small cost
        sigma = math.sqrt(2) / mu * (1 + 1e-6)  # a changed label takes a vote from one class to another
        return NeighbourCounts(1, public.classes, 1, sigma) if len(released) == 1 else None

    def count(self, private: Part, event: CrowdRelease, released: Sequence[CrowdLine]) -> np.ndarray:
        if isinstance(event, HeadCount):
            return np.array([[len(private.ids)]])
        # One row of counts, one for each class. A changed record moves two of them by one.
        return np.bincount(private.labels, minlength=event.shape[1])[None]

    def lesson(self, public: PublicInputs, released: Sequence[CrowdLine]) -> Student:
        # A linear classifier that ignores its input: all weights are zero but those of the constant.
        space = spaces.learn("identity", public.inputs)
        scale = scaling(space, space.coordinates(public.inputs), length=100, power=0.5, constant=0.25)
        shares = np.maximum(methods.values(released[1])[0], 1)
        kernel = np.zeros((len(space.variances) + 1, public.classes))
        kernel[-1] = np.log(shares / shares.sum()) * scale.length / scale.constant
        return sums.of_head(public, space, scale, kernel)
