"""Ramps follow from public columns, rise by what they should, and let sums tell what no line tells."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pate_jax import crowd
from pate_jax.accounting.exact import counts
from pate_jax.crowd import shares
from pate_jax.data import Preprocessing
from pate_jax.models import spaces, table_features
from pate_jax.models.spaces import fronts

RANDOM = np.random.default_rng(8)
FLOATS = st.floats(-(2.0**60), 2.0**60, width=32)
AS_STORED = Preprocessing((0.0,), (1.0,))


@given(
    arrays.arrays(np.float32, (30, 2), elements=FLOATS), arrays.arrays(np.float32, (5, 2), elements=FLOATS)
)
def test_a_ramp_never_falls_and_ends_at_its_height(public, rows):
    known = table_features.ramps_of(public, 0.01)
    for column in range(2):
        rising = np.sort(rows[:, column])[:, None] * np.ones(2, np.float32)
        up = known._replace(column=known.column * 0).of(rising)
        assert np.isfinite(up).all() and (np.diff(up, axis=0) >= 0).all()
        assert (up >= 0).all() and (up <= known.height).all()
    ends = np.stack([public.min(0), public.max(0)])
    low, high = known.of(ends)
    assert (low == 0).all() and np.allclose(high, known.height, rtol=1e-3)


def test_sums_of_ramps_are_the_functions_that_are_straight_between_public_quantiles():
    public = RANDOM.standard_t(3, size=(500, 1))
    known, cuts = (
        table_features.ramps_of(public),
        np.quantile(public, np.linspace(0, 1, 6), method="inverted_cdf"),
    )
    np.testing.assert_allclose(known.start, cuts[:-1], rtol=1e-6)
    bent = np.interp(public[:, 0], cuts, [3.0, -1, 4, 1, -5, 9])
    design = np.column_stack([known.of(public), np.ones(500)])
    found = design @ np.linalg.lstsq(design, bent, rcond=None)[0]
    np.testing.assert_allclose(found, bent, atol=1e-4)


def test_a_row_climbs_by_itself_in_numpy_as_in_jax():
    public = RANDOM.normal(size=(200, 3)).astype(np.float32)
    known, rows = table_features.ramps_of(public), RANDOM.normal(size=(50, 3)).astype(np.float32) * 2
    alone = np.concatenate([known.of(row[None]) for row in rows])
    assert np.array_equal(known.of(rows), alone)
    np.testing.assert_allclose(known.of(jnp.asarray(rows)), alone, atol=1e-6)


@pytest.mark.parametrize(
    ("public", "wanted"),
    [
        (np.ones((50, 2)), 0),  # nothing to climb
        (np.arange(50)[:, None] % 7.0, 0),  # hardly more than categories
        (np.arange(50)[:, None] % 8.0, 5),
        (np.maximum(np.arange(50) - 45, 0.0)[:, None], 0),  # five numbers in all
        (RANDOM.normal(size=(50, 150)), 750),
        (RANDOM.normal(size=(50, 300)), 900),  # three of each, so that they stay below 1,000
        (RANDOM.normal(size=(50, 1001)), 0),
        (np.append(np.arange(1.0, 10), [1.0] * 41)[:, None], 1),  # four stretches have no length
    ],
)
def test_as_many_ramps_as_have_room_and_sense(public, wanted):
    assert len(table_features.ramps_of(public.astype(np.float32)).column) == wanted


def test_sums_tell_a_class_in_the_middle_of_a_column():
    """Without ramps no linear function prefers the middle."""
    table = RANDOM.normal(size=(9000, 4)).astype(np.float32)
    labels = (np.abs(table[:, 2]) < 0.67).astype(int)
    front = fronts.columns_of(table[:1000], AS_STORED)
    right = {}
    for name, each in (("ramps", front), ("none", front._replace(ramps=table_features.NO_RAMPS))):
        space = spaces.space.over(each, table[:1000], 400)
        pool, seen = (space.coordinates(rows) for rows in (table[:1000], table[1000:]))
        plan = crowd.plan("sums", space, pool, voters=8000, classes=2, mu=counts.mu_for(1.0, 1e-5))
        own = crowd.vectors(plan.scaling, seen[:, : len(plan.space.variances)]).astype(np.int64)
        noise = np.random.default_rng(1).normal(size=own.shape[1]) * plan.release.sigma
        noisy = np.rint((2 * labels[1000:] - 1) @ own + noise).astype(np.int64)
        found = shares.of_sums(noisy[None], plan, pool, 8000)
        right[name] = (found.probabilities.argmax(1) == labels[:1000]).mean()
    assert right["none"] < 0.6 and right["ramps"] > 0.9
