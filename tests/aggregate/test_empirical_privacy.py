"""What neighbouring histograms reveal, measured: never more than the exact laws say, and less is caught.

For each outcome the chance under either histogram is known between two Clopper and Pearson limits, so
the likelihood ratio is at least the lower limit of one over the upper limit of the other. A mechanism whose
ratio is certainly above the exact one draws other noise than it says.
"""

import exact_laws
import numpy as np
import pytest
from scipy import stats

from pate_jax import aggregate
from pate_jax.aggregate import interactive, noise
from pate_jax.mechanisms import (
    ConfidentDiscreteGaussian,
    ConfidentDiscreteLaplace,
    ConfidentGNMax,
    DiscreteGaussianMax,
    DiscreteLaplaceMax,
    GNMax,
    GumbelMax,
    InteractiveGNMax,
    LNMax,
    PermuteAndFlip,
)

COUNTS, NEIGHBOUR = [6, 5, 3, 1], [5, 6, 3, 1]
DRAWS = 60_000  # the shape of test_aggregate.py, and sizes of tables that occur there: compiled for both
DOUBT = 1e-6  # chance that one limit does not hold


def frequencies(labels) -> np.ndarray:
    """How often each of refused, 0, 1, .. came out."""
    return np.bincount(np.asarray(labels) + 1, minlength=len(COUNTS) + 1)


def certain_loss(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """For each outcome, what the logarithm of the likelihood ratio is at least."""
    least = stats.beta.ppf(DOUBT, left, left.sum() - left + 1)
    most = stats.beta.isf(DOUBT, right + 1, right.sum() - right)
    with np.errstate(divide="ignore"):
        return np.where(left > 0, np.log(np.nan_to_num(least)) - np.log(most), -np.inf)


def excess(left, right, law_left, law_right) -> float:
    """The largest amount by which a measured loss is certainly above the exact one, in both directions."""
    with np.errstate(divide="ignore", invalid="ignore"):
        exact = np.log(law_left) - np.log(law_right)
    there = (law_left > 0) & (law_right > 0)
    forward = certain_loss(left, right)[there] - exact[there]
    backward = certain_loss(right, left)[there] + exact[there]
    return float(max(forward.max(), backward.max()))


def measured(mechanism, counts, seed, student=None) -> np.ndarray:
    votes, key = np.tile(np.asarray(counts, np.int32), (DRAWS, 1)), noise.seeded_key(seed)
    if student is None:
        labels, answered, *_ = aggregate.answer(mechanism, votes, key=key)
    else:
        labels, answered, *_ = interactive.answer(mechanism, votes, np.tile(student, (DRAWS, 1)), key=key)
    return frequencies(np.where(answered, labels, -1))


MECHANISMS = [
    LNMax(2.0),
    GNMax(2.0),
    GumbelMax(2.0),
    PermuteAndFlip(2.0),
    DiscreteGaussianMax(2.0),
    DiscreteLaplaceMax(1.2),
    ConfidentGNMax(7, 3.0, 2.0),
    ConfidentDiscreteGaussian(7, 1.5, 2.0),
    ConfidentDiscreteLaplace(7, 3.0, 3.0),
]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
def test_measured_losses_never_exceed_the_exact_ones(mechanism):
    laws = [exact_laws.outcomes(mechanism, counts) for counts in (COUNTS, NEIGHBOUR)]
    counts = [measured(mechanism, counts, seed) for seed, counts in enumerate((COUNTS, NEIGHBOUR))]
    assert excess(*counts, *laws) <= 0
    assert excess(*counts, *laws) > -0.25  # and they are close, or nothing was measured


def test_the_interactive_mechanism_too():
    mechanism = InteractiveGNMax(2.0, 3.0, 2.0, 0.9)
    student = np.array([0.3, 0.4, 0.2, 0.1], np.float32)
    pairs = []
    for seed, counts in enumerate((COUNTS, NEIGHBOUR)):
        lead = float(max(n - sum(counts) * p for n, p in zip(counts, student, strict=True)))
        pairs.append(
            (measured(mechanism, counts, seed, student), exact_laws.outcomes(mechanism, counts, lead))
        )
    (left, law_left), (right, law_right) = pairs
    assert -0.25 < excess(left, right, law_left, law_right) <= 0


def half_the_noise(counts, generator):
    return (counts + generator.normal(0, 1.0, (DRAWS, len(COUNTS)))).argmax(1)


def truncated_to_integers(counts, generator):
    noisy = np.tile(np.asarray(counts), (DRAWS, 1))
    noisy += generator.laplace(0, 2.0, noisy.shape).astype(noisy.dtype)
    return noisy.argmax(1)


def one_key_for_all_classes(counts, generator):
    return (counts + generator.normal(0, 2.0, (DRAWS, 1))).argmax(1)


def one_key_for_all_queries(counts, generator):
    return (counts + np.tile(generator.normal(0, 2.0, len(COUNTS)), (DRAWS, 1))).argmax(1)


@pytest.mark.parametrize(
    "broken, claimed",
    [
        (half_the_noise, GNMax(2.0)),
        (truncated_to_integers, LNMax(2.0)),
        (one_key_for_all_classes, GNMax(2.0)),
        (one_key_for_all_queries, GNMax(2.0)),
    ],
)
def test_broken_mechanisms_are_caught(broken, claimed):
    laws = [exact_laws.outcomes(claimed, counts) for counts in (COUNTS, NEIGHBOUR)]
    counts = [
        frequencies(broken(counts, np.random.default_rng(seed)))
        for seed, counts in ((3, COUNTS), (4, NEIGHBOUR))
    ]
    assert excess(*counts, *laws) > 0.02
