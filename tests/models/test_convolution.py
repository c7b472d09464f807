"""Convolution and pooling against JAX's own, forward, backward and twice backward."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_teachers as tiny

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
    patches = jax.jit(convolution.patches, static_argnums=(1, 2))
    found = patches(inputs, size, stride) @ kernel.reshape(-1, 4)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@partial(jax.jit, static_argnums=0)
def pulled(function, gradient, *given):
    """What a function gives, and its gradients, by one program."""
    found, pull = jax.vjp(function, *given)
    return found, pull(gradient)


@pytest.mark.parametrize(("size", "channels"), cases([(3, 2), (5, 1), (1, 3), (2, 2)]))
def test_planes_are_patches_and_their_gradients_too(size, channels):
    inputs = jax.random.normal(jax.random.key(0), (2, 7, 8, channels))
    kernel = jax.random.normal(jax.random.key(1), (size * size * channels, 4))
    weights = jax.random.normal(jax.random.key(2), (2, 7, 8, 4))
    ways = (
        lambda x, k: (convolution.planes(x, k, size) * weights).sum(),
        lambda x, k: ((convolution.patches(x, size) @ k) * weights).sum(),
    )
    found, wanted = (jax.jit(jax.value_and_grad(way, argnums=(0, 1)))(inputs, kernel) for way in ways)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4), found, wanted)


def test_pooling_takes_maxima_of_blocks_and_drops_odd_edges():
    inputs = jnp.arange(30.0).reshape(1, 5, 6, 1)
    found = convolution.pooled(inputs, jnp.array([-10.0]), 0.0)
    assert found[0, :, :, 0].tolist() == [[0, 0, 1], [9, 11, 13]]
    assert convolution.pooled(inputs, jnp.array([-10.0]))[0, 0, :, 0].tolist() == [-3, -1, 1]


@pytest.mark.parametrize("at_once", [False, True])
def test_the_gradient_of_pooling_goes_to_the_greatest_and_to_the_first_of_equals(at_once):
    inputs = jnp.array([[3.0, 1.0, 5.0, 5.0, 9.0], [2.0, 0.0, 5.0, 4.0, 9.0], [8.0] * 5])[None, :, :, None]
    gradient = jnp.array([2.0, 7.0]).reshape(1, 1, 2, 1)
    any_of = lambda x, b: convolution.pooled(x, b, at_once=at_once)  # noqa: E731
    to_inputs, to_bias = pulled(any_of, gradient, inputs, jnp.zeros(1))[1]
    assert to_inputs[0, :, :, 0].tolist() == [[2, 0, 7, 0, 0], [0, 0, 0, 0, 0], [0] * 5]
    assert to_bias.tolist() == [9]
    above = lambda x, b: convolution.pooled(x, b, 4.0, at_once)  # noqa: E731
    least = pulled(above, gradient, inputs, jnp.zeros(1))[1]
    assert least[0][0, 0, :, 0].tolist() == [0, 0, 7, 0, 0] and least[1].tolist() == [7]


@pytest.mark.parametrize("shape", [(3, 7, 8, 5), pytest.param((2, 2, 9, 1), marks=pytest.mark.long)])
@pytest.mark.parametrize("least", [0.0, -np.inf])
@pytest.mark.parametrize("at_once", [False, True])
def test_pooling_and_its_gradients_are_those_of_maxima_where_none_are_equal(shape, least, at_once):
    batch, height, width, channels = shape
    keys = jax.random.split(jax.random.key(4), 3)
    inputs, bias = jax.random.normal(keys[0], shape), jax.random.normal(keys[1], (channels,))
    weights = jax.random.normal(keys[2], (batch, height // 2, width // 2, channels))

    def plain(x, b):
        pixels = [x[:, i : height // 2 * 2 : 2, j : width // 2 * 2 : 2] for i in (0, 1) for j in (0, 1)]
        return jnp.maximum(jnp.stack(pixels).max(0) + b, least)

    pool = jax.jit(lambda x, b: convolution.pooled(x, b, least, at_once))
    np.testing.assert_array_equal(pool(inputs, bias), jax.jit(plain)(inputs, bias))
    found, wanted = (
        jax.jit(jax.grad(lambda x, b, one=one: (one(x, b) * weights).sum(), argnums=(0, 1)))(inputs, bias)
        for one in (pool, plain)
    )
    np.testing.assert_array_equal(found[0], wanted[0])
    np.testing.assert_allclose(found[1], wanted[1], rtol=1e-5, atol=1e-5)
    several = jax.jit(jax.vmap(pool, (0, None)))(jnp.stack([inputs, -inputs]), bias)
    np.testing.assert_array_equal(several[1], pool(-inputs, bias))


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
    found, pulls = pulled(convolution.sum_of_taps, gradient, inputs, kernel)
    expected, wanted = pulled(convolution.convolve, gradient, inputs, kernel)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    for one, other in zip(pulls, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.long
def test_the_sum_of_taps_can_be_differentiated_twice_and_batched():
    inputs, kernel, gradient = _grey(5, 6)

    def steep(form):
        square = lambda x, k: (jnp.sin(form(x, k)) * gradient).sum()  # noqa: E731
        return jax.jit(lambda x: jax.grad(lambda k: (jax.grad(square)(x, k) ** 2).sum())(kernel))

    found, wanted = steep(convolution.sum_of_taps)(inputs), steep(convolution.convolve)(inputs)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    kernels = jnp.stack([kernel, -2 * kernel])
    both = jax.jit(jax.vmap(convolution.sum_of_taps, (None, 0)))(inputs, kernels)
    np.testing.assert_allclose(both[1], -2 * both[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("channels", "size"), cases([(2, 3), (1, 1), (1, 3), (1, 5), (2, 1), (2, 5)]))
def test_the_convolution_by_products_is_the_convolution(channels, size):
    keys = jax.random.split(jax.random.key(0), 3)
    inputs = jax.random.normal(keys[0], (2, 7, 6, channels))
    kernel = jax.random.normal(keys[1], (size, size, channels, 4))
    gradient = jax.random.normal(keys[2], (2, 7, 6, 4))
    found, pulls = pulled(convolution.by_products, gradient, inputs, kernel)
    expected, wanted = pulled(convolution.convolve, gradient, inputs, kernel)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    for one, other in zip(pulls, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_devices_that_divide_the_records_exchange_sums_alone():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("records",))
    divided, whole = (
        jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes)) for axes in (["records"], [])
    )
    inputs = jax.random.normal(jax.random.key(0), (192, 6, 5, 4))
    kernel = jax.random.normal(jax.random.key(1), (3, 3, 4, 8))

    def loss(kernel, inputs):
        return (convolution.by_products(inputs, kernel) ** 2).sum()

    program = jax.jit(jax.grad(loss), in_shardings=(whole, divided), out_shardings=whole)
    text = program.lower(kernel, inputs).compile().as_text()
    assert [name for name in tiny.COLLECTIVES if f" {name}(" in text] == ["all-reduce"]
    expected = jax.jit(jax.grad(lambda kernel: (convolution.convolve(inputs, kernel) ** 2).sum()))(kernel)
    np.testing.assert_allclose(program(kernel, inputs), expected, rtol=1e-3, atol=1e-2)
