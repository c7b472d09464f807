"""What a pool that stands for the voters adds to the noise of sums, and what is gained by knowing it."""

import numpy as np
import pytest

from pate_jax.crowd import classifier
from pate_jax.mechanisms.crowds import ClassSums

WIDE, VOTERS, LENGTH = 20, 20_000, 1000
SCALES = np.geomspace(1.0, 0.2, WIDE) / 4


def test_a_pool_that_stands_for_the_voters_adds_noise_of_the_variance_that_is_said():
    """Where `y = b x`, without other noise: the mean of `y x` less `e b` along the axes of the pool."""
    random, found, said = np.random.default_rng(0), np.zeros(WIDE), np.zeros(WIDE)
    moment, size = np.diag(SCALES**2), 1000
    for _ in range(400):
        weights, pool = random.normal(size=WIDE) / SCALES, random.normal(size=(size, WIDE)) * SCALES
        _, axes = np.linalg.eigh(pool.T @ pool / size)
        values, along = np.diag(axes.T @ moment @ axes), axes.T @ weights  # of inputs that taught no axes
        found += (axes.T @ moment @ weights - values * along) ** 2
        said += values * (values * along**2).sum() / size
    assert 0.9 < found.sum() / said.sum() < 1.03  # of 20 axes and 1,000 inputs; 0.96 is 1 / (1 + 20 / 1000)^2
    assert np.all((found / said > 0.7) & (found / said < 1.3))


@pytest.mark.parametrize(("strong", "better"), [(4, 0.4), (10, 0.8), (20, 1.2)])
def test_of_a_small_pool_weights_are_believed_less_and_are_nearer_to_the_truth(strong, better):
    """Against the same rule for an endless pool: much, where few directions matter, and hardly else."""
    random, release = np.random.default_rng(1), ClassSums(2, WIDE, LENGTH, sigma=1.0)
    missed = {60: 0.0, 10**12: 0.0}
    for _ in range(25):
        weights = (
            np.where(np.arange(WIDE) < strong, random.normal(size=WIDE), 0) / SCALES / np.sqrt(strong) / 5
        )
        private, public, new = (random.normal(size=(size, WIDE)) * SCALES for size in (VOTERS, 60, 2000))
        signs = np.where(random.random(VOTERS) < 0.5 + private @ weights, 1, -1)
        noisy = np.rint(signs @ np.rint(private * LENGTH)).astype(np.int64)[None]
        pool = classifier.measured(np.rint(public * LENGTH).astype(np.int64), LENGTH)
        for number in missed:
            model = classifier.of_pool(noisy, release, pool._replace(number=number), VOTERS)
            shares = model.linear(np.rint(new * LENGTH).astype(np.int64))[:, 1]
            missed[number] += np.mean((shares - 0.5 - new @ weights) ** 2)
    assert missed[60] < better * missed[10**12]
