"""Convolution and pooling of images, in the ways that compilers handle well; pure functions, no net.

Images are [batch, height, width, channels]. Which way is taken where is the nets' business (`models`).
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

_TOGETHER = 64  # records, on all devices, whose share of a kernel's gradient is computed at once
_PLACES = ((0, 0), (0, 1), (1, 0), (1, 1))  # of the pixels of a 2 x 2 block


def patches(
    inputs: Float[Array | np.ndarray, "b h w c"], size: int, stride: int = 1
) -> Float[Array, "b i j k"]:
    """The `size` x `size` surroundings of each pixel (zeros outside), as one long channel axis.

    >>> import jax.numpy as jnp
    >>> patches(jnp.ones((2, 6, 5, 3)), 3, 2).shape
    (2, 3, 3, 27)
    """
    height, width = inputs.shape[1:3]
    low, pads = size // 2, []
    for extent in (height, width):
        whole = max((-(-extent // stride) - 1) * stride + size - extent, 0)
        pads.append((whole // 2, whole - whole // 2) if stride > 1 else (low, size - 1 - low))
    padded = jnp.pad(inputs, ((0, 0), *pads, (0, 0)))
    rows, columns = -(-height // stride), -(-width // stride)
    shifted = [
        padded[:, i : i + (rows - 1) * stride + 1 : stride, j : j + (columns - 1) * stride + 1 : stride]
        for i in range(size)
        for j in range(size)
    ]
    return jnp.concatenate(shifted, axis=-1)


def planes(
    inputs: Float[Array | np.ndarray, "b h w c"], kernel: Float[Array, "k f"], size: int
) -> Float[Array, "b h w f"]:
    """The product of a kernel and patches whose channels are whole planes of all pixels of all images.

    Accelerators copy planes at the speed of their memory, and `patches` pixel by pixel: on an H100 a step of
    the small CNN takes two thirds to five sixths of the time. CPUs are faster with `patches`.

    >>> planes(jnp.ones((2, 6, 5, 3)), jnp.ones((27, 4)), 3).shape
    (2, 6, 5, 4)
    """
    batch, height, width, channels = inputs.shape
    low, high = size // 2, size - 1 - size // 2
    padded = jnp.pad(jnp.transpose(inputs, (3, 0, 1, 2)), ((0, 0), (0, 0), (low, high), (low, high)))
    moved = [padded[:, :, i : i + height, j : j + width] for i in range(size) for j in range(size)]
    seen = jnp.concatenate(moved).reshape(size * size * channels, -1)
    return (kernel.T @ seen).reshape(-1, batch, height, width).transpose(1, 2, 3, 0)


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def pooled(
    inputs: Float[Array, "b h w c"], bias: Float[Array, " c"], least: float = -np.inf, at_once: bool = False
) -> Float[Array, "b i j c"]:
    """The maxima of 2 x 2 blocks plus a bias, and no less than `least` (0 is relu); an odd edge is dropped.

    The gradient goes to the first of equal maxima, and nowhere where `least` is returned. Being a rule of its
    own, it serves reverse differentiation only. `at_once` writes the gradients of a block's four pixels
    together, as suits accelerators.

    >>> pooled(jnp.arange(8.0).reshape(1, 2, 4, 1), jnp.array([-6.0]), 0.0).ravel().tolist()
    [0.0, 1.0]
    """
    first, second, third, fourth = _quarters(inputs)
    return jnp.maximum(jnp.maximum(jnp.maximum(first, second), jnp.maximum(third, fourth)) + bias, least)


def _quarters(inputs: Array) -> list[Array]:
    """The four pixels of each block, row by row."""
    height, width = (extent // 2 * 2 for extent in inputs.shape[1:3])
    return [inputs[:, i:height:2, j:width:2] for i, j in _PLACES]


def _pooled_forward(
    inputs: Array, bias: Array, least: float, at_once: bool
) -> tuple[Array, tuple[Array, Array, Array]]:
    # The same by a reduction, which XLA on a CPU does not fuse with the sum of taps before it: the loops of
    # the gradient would each compute that sum once more.
    batch, height, width, channels = inputs.shape
    even = inputs[:, : height // 2 * 2, : width // 2 * 2]
    blocks = even.reshape(batch, height // 2, 2, width // 2, 2, channels)
    outputs = jnp.maximum(blocks.max((2, 4)) + bias, least)
    return outputs, (inputs, bias, outputs)


def _pooled_backward(
    least: float, at_once: bool, kept: tuple[Array, Array, Array], gradient: Array
) -> tuple[Array, Array]:
    inputs, bias, outputs = kept
    gradient = jnp.where(outputs > least, gradient, 0).astype(inputs.dtype)
    if at_once:
        # Without the barriers each of the four pixels computes anew what its block has.
        gradient = lax.optimization_barrier(gradient)
        winner = lax.optimization_barrier(_first_largest(*_quarters(inputs)).astype(jnp.int8))
        return _at_blocks(winner, gradient, inputs.shape), gradient.sum((0, 1, 2)).astype(bias.dtype)
    gradient = gradient[:, :, :, None]
    winner = _first_largest(*_quarters(inputs))[:, :, :, None]
    batch, height, width, channels = inputs.shape
    pulled = jnp.zeros((), inputs.dtype)
    for row in (0, 1):
        two = jnp.where(winner == jnp.array([[2 * row], [2 * row + 1]]), gradient, 0)  # beside each other
        part = two.reshape(batch, height // 2, width // 2 * 2, channels)
        # Zeros go between rows. The sum of both is one loop, which no reader of it computes once more.
        down, across = (row, 1 - row + height % 2, 1), (0, width % 2, 0)
        pulled += lax.pad(part, jnp.zeros((), part.dtype), ((0, 0, 0), down, across, (0, 0, 0)))
    # From the pixels and not from their blocks: an array with two readers is computed once, before both.
    return pulled, pulled.sum((0, 1, 2)).astype(bias.dtype)


def _at_blocks(winner: Array, gradient: Array, shape: tuple[int, ...]) -> Array:
    """Images of this shape with each gradient at the pixel of its block that has won, and 0 elsewhere."""
    batch, height, width, channels = shape
    each = jnp.where(winner[..., None] == jnp.arange(4, dtype=jnp.int8), gradient[..., None], 0)
    blocks = each.reshape(batch, height // 2, width // 2, channels, 2, 2).transpose(0, 1, 4, 2, 5, 3)
    even = blocks.reshape(batch, height // 2 * 2, width // 2 * 2, channels)
    return jnp.pad(even, ((0, 0), (0, height % 2), (0, width % 2), (0, 0)))


def _first_largest(first: Array, second: Array, third: Array, fourth: Array) -> Array:
    """The number, from 0, of the first of the largest of four.

    Comparisons of the four with each other say so, and never one with their maximum: XLA may compute pixels
    and maxima anew in each fused loop, with other rounding, and none would be equal.
    """
    above = jnp.maximum(first, second) >= jnp.maximum(third, fourth)
    return jnp.where(above, jnp.where(first >= second, 0, 1), jnp.where(third >= fourth, 2, 3))


pooled.defvjp(_pooled_forward, _pooled_backward)


@jax.custom_vjp
def sum_of_taps(inputs: Array, kernel: Array) -> Array:
    """A convolution of grey images as one sum over the kernel's places, which is one fused loop.

    On a CPU 11 times as fast forward as `lax.conv` with 3 x 3 places; backward is `lax.conv`'s own.
    """
    size, (height, width) = kernel.shape[0], inputs.shape[1:3]
    low, high = size // 2, size - 1 - size // 2
    # Without the barrier XLA reads the middle place from before the padding. Where inputs are one step's part
    # of an array, that made the loop seven times slower.
    padded = lax.optimization_barrier(jnp.pad(inputs[..., 0], ((0, 0), (low, high), (low, high))))
    total = jnp.zeros((), inputs.dtype)
    for i in range(size):
        for j in range(size):
            total = total + padded[:, i : i + height, j : j + width, None] * kernel[i, j, 0]
    return total


def convolve(inputs: Array, kernel: Array, stride: int = 1) -> Array:
    """A convolution with zeros outside, by the backend's own routine."""
    layout = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(inputs, kernel, (stride, stride), "SAME", dimension_numbers=layout)


def _sum_of_taps_backward(kept: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    return jax.vjp(convolve, *kept)[1](gradient)


sum_of_taps.defvjp(
    lambda inputs, kernel: (sum_of_taps(inputs, kernel), (inputs, kernel)), _sum_of_taps_backward
)


@jax.custom_vjp
def by_products(inputs: Float[Array | np.ndarray, "b h w c"], kernel: Float[Array, "i j c f"]) -> Array:
    """A convolution with zeros outside whose gradients are products of matrices and forward convolutions.

    XLA's own gradients of `lax.conv` are slow in a loop on a CPU: with this rule a step of the small CNN
    takes a 25th of the time, and 0.4 of that with `patches`. A rule of its own: reverse differentiation only.
    """
    if kernel.shape[:3] == (3, 3, 1):
        return sum_of_taps(inputs, kernel)
    return convolve(jnp.asarray(inputs), kernel)


def _by_products_backward(kept: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    inputs, kernel = kept
    size, channels = kernel.shape[0], inputs.shape[3]
    if channels == 1:
        return _grey_pulled(kernel, gradient), _grey_kernel(inputs, gradient, size).reshape(kernel.shape)
    turned = kernel[::-1, ::-1].transpose(0, 1, 3, 2)
    # Blocks of records that stay in the cache: a quarter faster than all of a large batch at once. Each block
    # takes every n-th record, so that devices between which a batch is divided exchange none.
    blocks = _number_of_blocks(len(inputs))
    seen, pulled = (array.reshape(-1, blocks, *array.shape[1:]) for array in (inputs, gradient))
    to_kernel = jnp.zeros_like(kernel)
    for block in range(blocks):
        to_kernel += _to_kernel(seen[:, block], pulled[:, block], size // 2)
    return convolve(gradient, turned), to_kernel


def _number_of_blocks(records: int) -> int:
    """Into how many equal blocks of at most `_TOGETHER` records they fall; 1 where none are equal.

    >>> [_number_of_blocks(records) for records in (24, 64, 80, 192, 97)]
    [1, 1, 2, 3, 1]
    """
    least = -(-records // _TOGETHER)
    return next((count for count in range(least, 2 * least + 1) if records % count == 0), 1)


def _to_kernel(inputs: Array, gradient: Array, reach: int) -> Array:
    """The kernel's gradient, itself a convolution: the records are its channels, the gradient its images.

    The transposes give it the layout that CPU routines are written for: 0.7 of the time of a product of
    matrices for each place of the kernel.
    """
    images, filters = gradient.transpose(3, 1, 2, 0), inputs.transpose(1, 2, 0, 3)
    layout, around = ("NHWC", "HWIO", "NHWC"), (reach, reach)
    found = lax.conv_general_dilated(images, filters, (1, 1), (around, around), dimension_numbers=layout)
    return found[:, ::-1, ::-1].transpose(1, 2, 3, 0)


def _grey_kernel(inputs: Array, gradient: Array, size: int) -> Array:
    """The kernel's gradient of grey images: one product, of all pixels moved to each place of the kernel."""
    low, high, (height, width) = size // 2, size - 1 - size // 2, inputs.shape[1:3]
    padded = jnp.pad(inputs[..., 0], ((0, 0), (low, high), (low, high)))
    moved = [padded[:, i : i + height, j : j + width].ravel() for i in range(size) for j in range(size)]
    return jnp.stack(moved) @ gradient.reshape(-1, gradient.shape[-1])


def _grey_pulled(kernel: Array, gradient: Array) -> Array:
    """What reaches a grey image: each place's share of the gradient, moved back to where it was read."""
    size, (height, width) = kernel.shape[0], gradient.shape[1:3]
    low, high = size // 2, size - 1 - size // 2
    shares = gradient @ kernel.reshape(size * size, -1).T
    padded = jnp.pad(shares, ((0, 0), (high, low), (high, low), (0, 0)))
    total = jnp.zeros(gradient.shape[:3], gradient.dtype)
    for i in range(size):
        for j in range(size):
            top, left = size - 1 - i, size - 1 - j
            total = total + padded[:, top : top + height, left : left + width, i * size + j]
    return total[..., None]


by_products.defvjp(
    lambda inputs, kernel: (by_products(inputs, kernel), (inputs, kernel)), _by_products_backward
)
