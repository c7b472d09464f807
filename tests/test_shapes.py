"""Shapes in signatures are checked while tests run, and kernels refuse arrays that would broadcast."""

import chex
import jax.numpy as jnp
import numpy as np
import pytest
import shapes
from jaxtyping import TypeCheckError

from pate_jax import aggregate, voting
from pate_jax.aggregate import argmax, noise
from pate_jax.errors import PateError
from pate_jax.mechanisms import DiscreteGaussianMax, GNMax
from pate_jax.student.methods import losses
from pate_jax.voting import counting

ROWS = [[7, 3, 1], [2, 5, 4]]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: losses.entropy(jnp.ones(3)),
        lambda: losses.divergence(jnp.ones((5, 3)), jnp.ones((1, 3))),
        lambda: counting.count(jnp.ones((4, 3)), 2),
        lambda: argmax.place_of(jnp.ones((4, 3)), jnp.ones(3), jnp.ones(1)),
    ],
)
def test_a_wrong_shape_or_type_is_seen_in_tests(wrong):
    with pytest.raises(TypeCheckError):
        wrong()


def test_a_kernel_refuses_noise_that_would_be_shared_by_classes():
    """One row of noise for all classes would broadcast: every class of a query would get the same."""
    source = noise.source(DiscreteGaussianMax(2.0).noise)
    right = argmax.chance(source.family, noise.seeded_key(3), (2, 3), stored=False)
    shared = right._replace(noise=right.noise[:, :1])
    with pytest.raises(AssertionError):
        argmax.labels(source, jnp.array(ROWS).T, shared)


@pytest.mark.parametrize("kind", [list, np.array, jnp.array])
def test_votes_may_be_lists_or_arrays_of_either_library(kind):
    key = noise.seeded_key(5)
    wanted = aggregate.answer(GNMax(2.0), jnp.array(ROWS, jnp.int32), key=key)
    chex.assert_trees_all_equal(aggregate.answer(GNMax(2.0), kind(ROWS), key=noise.seeded_key(5)), wanted)
    chex.assert_trees_all_equal(
        voting.histogram(kind([[0, 1], [0, 0]]), classes=2), jnp.array([[2, 0], [1, 1]])
    )
    with pytest.raises(PateError, match="is wanted"):
        aggregate.answer(GNMax(2.0), kind(ROWS[0]), key=noise.seeded_key(5))


def test_other_shapes_are_checked_however_often_the_same_were():
    right = jnp.ones((5, 3))
    for _ in range(shapes.OFTEN + 5):
        losses.divergence(right, right)
    for wrong in (jnp.ones((1, 3)), jnp.ones((4, 3)), jnp.ones(3), np.ones((5, 3), np.int32)):
        with pytest.raises(TypeCheckError):
            losses.divergence(right, wrong)


def test_functions_that_name_no_shape_are_left_as_they_are():
    assert hasattr(losses.entropy, "__wrapped__") and hasattr(argmax.place_of, "__wrapped__")
    assert not hasattr(noise.is_private, "__wrapped__") and not hasattr(noise.source, "__wrapped__")
