"""Convolution and pooling against JAX's own, forward, backward and twice backward."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pate_jax.models import convolution

pytestmark = pytest.mark.long


def cases(values):
    """The first is always tried, the others among the long tests."""
    return [values[0], *(pytest.param(*value, marks=pytest.mark.long) for value in values[1:])]


@pytest.mark.parametrize(("size", "stride"), cases([(3, 2), (1, 1), (1, 2), (3, 1), (5, 1), (5, 2)]))
def test_patches_are_the_convolution(size, stride):
    inputs = jax.random.normal(jax.random.key(0), (2, 7, 8, 3))
    kernel = jax.random.normal(jax.random.key(1), (size, size, 3, 4))
    layout = ("NHWC", "HWIO", "NHWC")
    expected = jax.lax.conv_general_dilated(
        inputs, kernel, (stride, stride), "SAME", dimension_numbers=layout
    )
    found = convolution.patches(inputs, size, stride) @ kernel.reshape(-1, 4)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_max_pool_takes_maxima_and_drops_odd_edges():
    inputs = jnp.arange(30.0).reshape(1, 5, 6, 1)
    assert convolution.max_pool(inputs)[0, :, :, 0].tolist() == [[7, 9, 11], [19, 21, 23]]


def test_the_gradient_of_max_pool_goes_to_the_greatest_and_to_the_first_of_equals():
    inputs = jnp.array([[3.0, 1.0, 5.0, 5.0, 9.0], [2.0, 0.0, 5.0, 4.0, 9.0], [8.0] * 5])[None, :, :, None]
    found = jax.vjp(convolution.max_pool, inputs)[1](jnp.array([2.0, 7.0]).reshape(1, 1, 2, 1))[0]
    assert found[0, :, :, 0].tolist() == [[2, 0, 7, 0, 0], [0, 0, 0, 0, 0], [0] * 5]


@pytest.mark.long
def test_pooled_relu_is_relu_of_maxima_and_so_is_its_gradient():
    inputs = jax.random.normal(jax.random.key(4), (5, 7, 8, 3)).at[0].set(0).at[1].add(-3)
    inputs = inputs.at[2].set(1.5)  # all equal: to the first
    weights = jax.random.normal(jax.random.key(5), (5, 3, 4, 3))

    def apart(x):
        return jax.nn.relu(convolution.max_pool(x))

    assert jnp.array_equal(convolution.pooled_relu(inputs), apart(inputs))
    found, wanted = (
        jax.grad(lambda x, pooled=pooled: (pooled(x) * weights).sum())(inputs)
        for pooled in (convolution.pooled_relu, apart)
    )
    assert jnp.array_equal(found, wanted)
    assert not found[0].any() and jnp.array_equal(found[2, :6:2, ::2], weights[2])


def test_the_gradient_of_max_pool_is_that_of_the_maxima_where_none_are_equal():
    inputs = jax.random.normal(jax.random.key(0), (3, 6, 8, 5))
    weights = jax.random.normal(jax.random.key(1), (3, 3, 4, 5))
    blocks = lambda x: x.reshape(3, 3, 2, 4, 2, 5).max((2, 4))  # noqa: E731
    found = jax.grad(lambda x: (convolution.max_pool(x) * weights).sum())(inputs)
    np.testing.assert_array_equal(found, jax.grad(lambda x: (blocks(x) * weights).sum())(inputs))


def _grey(height: int, width: int):
    keys = jax.random.split(jax.random.key(0), 3)
    inputs = jax.random.normal(keys[0], (2, height, width, 1))
    kernel = jax.random.normal(keys[1], (3, 3, 1, 4))
    return inputs, kernel, jax.random.normal(keys[2], (2, height, width, 4))


@pytest.mark.parametrize(
    "shape", [(7, 8), *(pytest.param(shape, marks=pytest.mark.long) for shape in [(1, 5), (28, 3)])]
)
def test_the_sum_of_taps_is_the_convolution(shape):
    inputs, kernel, gradient = _grey(*shape)
    found, pulled = jax.vjp(convolution.sum_of_taps, inputs, kernel)
    expected, wanted = jax.vjp(convolution.convolve, inputs, kernel)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    for one, other in zip(pulled(gradient), wanted(gradient), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.long
def test_the_sum_of_taps_can_be_differentiated_twice_and_batched():
    inputs, kernel, gradient = _grey(5, 6)

    def steep(form):
        square = lambda x, k: (jnp.sin(form(x, k)) * gradient).sum()  # noqa: E731
        return lambda x: jax.grad(lambda k: (jax.grad(square)(x, k) ** 2).sum())(kernel)

    found, wanted = steep(convolution.sum_of_taps)(inputs), steep(convolution.convolve)(inputs)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    kernels = jnp.stack([kernel, -2 * kernel])
    both = jax.vmap(convolution.sum_of_taps, (None, 0))(inputs, kernels)
    np.testing.assert_allclose(both[1], -2 * both[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("channels", "size"), cases([(2, 3), (1, 1), (1, 3), (1, 5), (2, 1), (2, 5)]))
def test_the_convolution_by_products_is_the_convolution(channels, size):
    keys = jax.random.split(jax.random.key(0), 3)
    inputs = jax.random.normal(keys[0], (2, 7, 6, channels))
    kernel = jax.random.normal(keys[1], (size, size, channels, 4))
    gradient = jax.random.normal(keys[2], (2, 7, 6, 4))
    found, pulled = jax.vjp(convolution.by_products, inputs, kernel)
    expected, wanted = jax.vjp(convolution.convolve, inputs, kernel)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    for one, other in zip(pulled(gradient), wanted(gradient), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
