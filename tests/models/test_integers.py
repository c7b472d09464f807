"""Whole numbers from continuous ones: every number has one, whatever a processor makes of NaN."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from pate_jax.crowd.vectors import bounded
from pate_jax.models import integers

SINGLE = st.floats(width=32, allow_nan=True, allow_infinity=True)


@given(arrays.arrays(np.float32, (3, 4), elements=SINGLE))
def test_only_nan_differs_from_rounding_and_clipping(numbers):
    most = integers.largest(4)
    expected = np.clip(np.round(np.where(np.isnan(numbers), 0, numbers)), -most, most)
    assert np.array_equal(integers.rounded(jnp.asarray(numbers)), expected)


def test_nan_is_gone_before_anything_is_computed_from_it():
    """A conversion of NaN is not defined: one processor has 0 for it, another the least whole number."""
    numbers = jnp.array([[np.nan, 1.4], [np.inf, -np.inf]], jnp.float32)
    with jax.debug_nans(True):
        found = integers.rounded(numbers)
    assert found.tolist() == [[0, 1], [8192, -8192]]


def test_a_vector_with_a_product_that_is_no_number_stays_within_its_length():
    found = bounded(np.array([[0, 3], [5, 1]]), np.array([np.inf, 2.0], np.float32), 10, 0)
    assert found[0].tolist() == [0, 6]
    assert (np.asarray(found) ** 2).sum(1).max() <= 100
