"""Nets for small photos, as a user of Flax writes them: a wide ResNet and a vision transformer.

They are named like a net of one's own: `--net pate_jax.models.vision:WideResNet --net-args "width=4"`, or
`ensemble.fit(WideResNet(classes=10), ...)`. Neither keeps running statistics.
"""

from __future__ import annotations

from functools import partial

import jax.numpy as jnp
from flax import linen
from jaxtyping import Array, Float

from pate_jax.errors import PateError

_GROUPS = 8  # of GroupNorm
_SPREAD = 0.02  # of a transformer's first places


class WideResNet(linen.Module):
    """A wide residual net (Zagoruyko and Komodakis 2016), with GroupNorm where the paper has BatchNorm.

    WRN-16-4, which is the default, has 2.7 million parameters and 16, 64, 128 and 256 maps.
    """

    classes: int
    depth: int = 16
    width: int = 4

    @linen.compact
    def __call__(self, images: Float[Array, "batch h w c"]) -> Float[Array, "batch classes"]:
        """Logits."""
        blocks, rest = divmod(self.depth - 4, 6)
        if rest or blocks < 1:
            raise PateError(f"depth={self.depth} must be 6 n + 4 with n at least 1: 10, 16, 22, 28 ...")
        flowing = _convolution(16)(images)
        for stage, maps in enumerate((16, 32, 64)):
            for block in range(blocks):
                stride = 2 if stage and not block else 1
                flowing = _Residual(maps * self.width, stride)(flowing)
        flowing = linen.relu(linen.GroupNorm(_GROUPS)(flowing))
        return linen.Dense(self.classes)(jnp.mean(flowing, axis=(1, 2)))


class _Residual(linen.Module):
    """Two convolutions after normalisation, added to the input; a matrix carries it where shapes differ."""

    maps: int
    stride: int

    @linen.compact
    def __call__(self, flowing: Array) -> Array:
        ready = linen.relu(linen.GroupNorm(_GROUPS)(flowing))
        same = flowing.shape[-1] == self.maps and self.stride == 1
        carried = flowing if same else _convolution(self.maps, self.stride, size=1)(ready)
        inner = linen.relu(linen.GroupNorm(_GROUPS)(_convolution(self.maps, self.stride)(ready)))
        return carried + _convolution(self.maps)(inner)


_he = linen.initializers.variance_scaling(2.0, "fan_out", "normal")


def _convolution(maps: int, stride: int = 1, size: int = 3) -> linen.Conv:
    return linen.Conv(maps, (size, size), strides=stride, use_bias=False, kernel_init=_he)


class VisionTransformer(linen.Module):
    """A small vision transformer (Dosovitskiy et al. 2021): patches, places, attention, their mean."""

    classes: int
    patch: int = 4
    length: int = 128
    depth: int = 4
    heads: int = 4
    dropout: float = 0.0

    @linen.compact
    def __call__(
        self, images: Float[Array, "batch h w c"], train: bool = False
    ) -> Float[Array, "batch classes"]:
        """Logits."""
        if images.shape[1] % self.patch or images.shape[2] % self.patch:
            raise PateError(f"patch={self.patch} does not divide images of {list(images.shape[1:3])} pixels")
        sides = (self.patch, self.patch)
        seen = linen.Conv(self.length, sides, strides=sides)(images)
        seen = seen.reshape(len(images), -1, self.length)
        seen = seen + self.param("places", linen.initializers.normal(_SPREAD), seen.shape[1:])
        drop = partial(linen.Dropout, self.dropout, deterministic=not train)
        for _ in range(self.depth):
            attend = linen.MultiHeadDotProductAttention(self.heads)
            seen = seen + drop()(attend(linen.LayerNorm()(seen)))
            inner = linen.gelu(linen.Dense(4 * self.length)(linen.LayerNorm()(seen)))
            seen = seen + drop()(linen.Dense(self.length)(inner))
        return linen.Dense(self.classes)(jnp.mean(linen.LayerNorm()(seen), axis=1))
