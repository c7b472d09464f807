"""Noise on a crowd's table: the described one, in every cell, and whole."""

import numpy as np
import pytest
from scipy import stats

from pate_jax.aggregate import noise
from pate_jax.errors import PateError
from pate_jax.mechanisms.crowds import ClassSums, NeighbourCounts


def drawn(release, table=None):
    table = np.zeros(release.shape, np.int64) if table is None else table
    return noise.noisy_table(release, table, key=noise.seeded_key(5)).values


@pytest.mark.parametrize(
    "release",
    [
        NeighbourCounts(300, 7, votes=2, sigma=30.0),
        NeighbourCounts(300, 7, votes=2, sigma=30.0, family="discrete_gaussian"),
        ClassSums(7, 300, length=40, sigma=30.0),
    ],
)
def test_every_cell_has_the_described_noise_and_no_scale_beside_it(release):
    found = drawn(release)
    chance = {
        factor: stats.kstest((found + 0.0).ravel() + JITTER[: found.size], "norm", (0, 30.0 * factor)).pvalue
        for factor in (2 / 3, 1, 3 / 2)
    }
    assert chance[1] > 0.01 and max(chance[2 / 3], chance[3 / 2]) < 1e-9
    along = np.corrcoef(found)[np.triu_indices(len(found), 1)]
    assert np.abs(along * np.sqrt(found.shape[1])).max() < 5.5, "rows share no noise"


JITTER = np.random.default_rng(1).random(5000) - 0.5  # makes whole numbers continuous again


def test_the_table_is_added_exactly_however_large_it_is():
    release = ClassSums(3, 4, length=1000, sigma=5.0)
    table = np.arange(12).reshape(3, 4) * (1 << 40)
    found = drawn(release, table)
    assert found.dtype == np.int64
    assert np.array_equal(found - table, drawn(release))


def test_what_is_no_table_of_the_release_is_refused():
    release = NeighbourCounts(3, 4, votes=1, sigma=5.0)
    for wrong in ([[0] * 3] * 4, [[0.0] * 4] * 3, [[False] * 4] * 3):
        with pytest.raises(PateError, match="for a release of whole numbers"):
            drawn(release, wrong)
    with pytest.raises(PateError, match="not a typed JAX key"):
        noise.noisy_table(release, np.zeros((3, 4), np.int64), key=7)
