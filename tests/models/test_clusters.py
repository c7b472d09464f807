"""The steps of k-means and orthogonal iteration, beside plain loops and full decompositions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pate_jax.models import clusters
from pate_jax.system import eigen


@given(
    st.integers(1, 40),
    st.integers(1, 9),
    st.integers(1, 5),
    st.sampled_from(["f4", "f8"]),
    st.integers(0, 2**32),
)
def test_each_point_goes_to_its_nearest_centre_and_each_centre_to_its_points(
    number, wanted, wide, dtype, seed
):
    random = np.random.default_rng(seed)
    points, centres = (random.integers(-99, 99, (rows, wide)).astype(dtype) for rows in (number, wanted))
    kinds = clusters.nearest(points, centres)
    gaps = ((points[:, None] - centres) ** 2).sum(-1)
    np.testing.assert_array_equal(kinds, gaps.argmin(1))  # whole numbers: no rounding decides
    moved = clusters.middles(points, kinds, centres)
    assert moved.dtype == centres.dtype
    for kind, (one, before) in enumerate(zip(moved, centres, strict=True)):
        mine = points[kinds == kind].astype(np.float64)
        np.testing.assert_allclose(one, mine.mean(0) if len(mine) else before, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("turns", [1, 2, 8])
def test_factors_between_turns_change_no_direction(turns):
    random = np.random.default_rng(0)
    rows = random.normal(size=(300, 40)) * 0.8 ** np.arange(40)
    start = random.normal(size=(40, 6))
    wanted = start
    for _ in range(turns):
        wanted = np.linalg.qr(rows.T @ (rows @ wanted))[0]
    found = eigen.leading(rows, start, turns)
    np.testing.assert_allclose(found.T @ found, np.eye(6), atol=1e-12)
    np.testing.assert_allclose(np.abs((found * wanted).sum(0)), 1, atol=1e-9)


def test_iteration_ends_at_the_strongest_directions_and_survives_rows_of_zeros():
    random = np.random.default_rng(1)
    rows = random.normal(size=(200, 12)).astype(np.float32) * 0.5 ** np.arange(12, dtype=np.float32)
    found = eigen.leading(rows, random.normal(size=(12, 3)), 30)
    strongest = np.linalg.svd(rows)[2][:3]
    np.testing.assert_allclose(np.abs((found.T * strongest).sum(1)), 1, atol=1e-4)
    assert np.isfinite(eigen.leading(np.zeros_like(rows), random.normal(size=(12, 3)), 3)).all()
