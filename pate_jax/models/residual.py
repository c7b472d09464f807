"""A small residual net for colour images."""

from __future__ import annotations

from functools import partial

from flax import nnx

from pate_jax.models.layers import Convolution, Layered, dense


class ResidualBlock(nnx.Module):
    """GroupNorm, activation, 3 x 3 convolution, twice, beside a shortcut (pre-activation)."""

    def __init__(self, inputs, outputs, stride, activation, form, rngs):
        conv = partial(Convolution, form=form, rngs=rngs)
        norm = partial(nnx.GroupNorm, num_groups=8, rngs=rngs)
        self.norm0, self.norm1, self.activation = norm(inputs), norm(outputs), activation
        self.conv0, self.conv1 = conv(inputs, outputs, 3, stride=stride), conv(outputs, outputs, 3)
        self.projects = stride > 1 or inputs != outputs
        if self.projects:
            self.shortcut = conv(inputs, outputs, 1, stride=stride)

    def __call__(self, inputs):
        """The block's output, smaller by its stride."""
        flowing = self.activation(self.norm0(inputs))
        kept = self.shortcut(flowing) if self.projects else inputs
        flowing = self.conv0(flowing)
        return kept + self.conv1(self.activation(self.norm1(flowing)))


class ResidualNet(Layered):
    """A small residual net with GroupNorm for colour images: a stem and one block per entry of `maps`."""

    def __init__(self, inputs, classes, activation, form, rngs, *, maps: tuple[int, ...]):
        self.depth, self.activation = len(maps), activation
        self.stem = Convolution(inputs[-1], maps[0], 3, form=form, rngs=rngs)
        for layer, outputs in enumerate(maps):
            before, stride = (maps[layer - 1], 2) if layer else (maps[0], 1)
            setattr(self, f"block{layer}", ResidualBlock(before, outputs, stride, activation, form, rngs))
        self.norm = nnx.GroupNorm(maps[-1], num_groups=8, rngs=rngs)
        self.head = dense(maps[-1], classes, form=form, rngs=rngs, last=True)

    def hidden(self, inputs):
        """The mean over each map."""
        flowing = self.stem(inputs)
        for layer in range(self.depth):
            flowing = getattr(self, f"block{layer}")(flowing)
        return self.activation(self.norm(flowing)).mean(axis=(1, 2))

    def last(self, features):
        """Logits."""
        return self.head(features)
