"""Soft answers: what they hold, what is refused, and that they pass through JAX's transforms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pate_jax import aggregate
from pate_jax.errors import PateError
from pate_jax.mechanisms import GNMax

ROWS = np.array([[0.7, 0.2, 0.1], [0.0, 0.5, 0.5], [0.1, 0.1, 0.8], [0.3, 0.4, 0.3]], np.float32)
DEVIATION = np.array([0.1, 0.0, 0.3, 0.2], np.float32)


@given(st.integers(1, 7), st.integers(2, 6), st.integers(0, 2**31))
def test_labels_are_the_most_probable_classes_and_all_queries_are_answered(queries, classes, seed):
    rows = np.random.default_rng(seed).dirichlet(np.ones(classes), queries)
    found = aggregate.soft_answers(rows, np.linspace(0, 1, queries))
    np.testing.assert_array_equal(found.labels, rows.astype(np.float32).argmax(1))
    assert found.answered.all() and found.labels.dtype == jnp.int32
    np.testing.assert_array_equal(found.probabilities, rows.astype(np.float32))
    np.testing.assert_array_equal(found.shares, found.probabilities)  # unless others are given
    below = rows + np.where(np.arange(classes) == 0, -2.0, 2.0 / (classes - 1))
    np.testing.assert_array_equal(
        aggregate.soft_answers(rows, np.ones(queries), below).shares, below.astype(np.float32)
    )


@pytest.mark.parametrize(
    ("shares", "told"),
    [
        ([[0.7, 0.4]], "shares row 0 is .* add up to 1"),
        ([[np.nan, 0.5]], "shares row 0"),
        ([[0.5, 0.3, 0.2]], r"shares \[1, 3\]"),
    ],
)
def test_shares_that_make_no_probabilities_are_refused(shares, told):
    with pytest.raises(PateError, match=told):
        aggregate.soft_answers(np.array([[0.5, 0.5]]), np.array([0.1]), np.array(shares))


def test_they_are_a_pytree_that_jit_and_vmap_take():
    plain = aggregate.soft_answers(ROWS, DEVIATION)
    jitted = jax.jit(aggregate.soft_answers)(ROWS, DEVIATION)
    stacked = jax.vmap(aggregate.soft_answers)(np.stack([ROWS, ROWS[::-1]]), np.stack([DEVIATION] * 2))
    assert len(jax.tree.leaves(plain)) == 5 and stacked.probabilities.shape == (2, 4, 3)
    for one, other, many in zip(*map(jax.tree.leaves, (plain, jitted, stacked)), strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(one, many[0])


def test_teachers_answers_have_no_probabilities():
    votes = np.array([[9, 1], [2, 8], [5, 5]])
    found = aggregate.answer(GNMax(1.0), votes, key=aggregate.seeded_key(0))
    assert found.probabilities is None and found.deviation is None and len(jax.tree.leaves(found)) == 2


@pytest.mark.parametrize(
    ("rows", "deviation", "told"),
    [
        ([[0.7, 0.2]], [0.1], "row 0 is .* no distribution"),
        ([[0.5, 0.5], [1.2, -0.2]], [0.1, 0.1], "row 1 is"),
        ([[np.nan, 1.0]], [0.1], "row 0 is"),
        ([[0.5, 0.5]], [-0.5], r"deviation\[0\]=-0.5 must be"),
        ([[0.5, 0.5]], [np.inf], r"deviation\[0\]=inf must be"),
        ([[0.5, 0.5]], [0.1, 0.1], r"\[1, 2\], shares \[1, 2\] and deviation \[2\] do not fit"),
        ([0.5, 0.5], [0.1, 0.1], "one deviation for each query"),
    ],
)
def test_what_is_no_distribution_is_refused(rows, deviation, told):
    with pytest.raises(PateError, match=told):
        aggregate.soft_answers(np.array(rows), np.array(deviation))
