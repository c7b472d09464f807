"""A wide ResNet and a vision transformer: their sizes, what they refuse, and that they are teachers."""

import jax
import numpy as np
import pytest
import tiny_teachers as tiny

from pate_jax import ensemble, models
from pate_jax.errors import PateError
from pate_jax.models import identity
from pate_jax.models.vision import VisionTransformer, WideResNet


def parameters(net, shape):
    variables = jax.eval_shape(net.init, jax.random.key(0), jax.ShapeDtypeStruct((1, *shape), np.float32))
    return sum(leaf.size for leaf in jax.tree.leaves(variables))


def of_the_paper(depth, width, classes):
    """Weights of a wide ResNet by its table: convolutions, two numbers a map of each GroupNorm, a head."""
    blocks, found, maps = (depth - 4) // 6, 9 * 3 * 16, 16
    for stage in (16, 32, 64):
        for _ in range(blocks):
            wide = stage * width
            found += 9 * maps * wide + 9 * wide * wide + 2 * maps + 2 * wide
            found += maps * wide if maps != wide else 0  # the shortcut
            maps = wide
    return found + 2 * maps + (maps + 1) * classes


@pytest.mark.parametrize(("depth", "width"), [(16, 4), (10, 1), (22, 2)])
def test_a_wide_resnet_has_the_papers_parameters(depth, width):
    assert parameters(WideResNet(10, depth, width), (32, 32, 3)) == of_the_paper(depth, width, 10)
    assert round(of_the_paper(16, 4, 10) / 1e6, 2) == 2.75


def test_a_transformer_has_the_parameters_that_its_layers_have():
    each = 4 * (32 * 32 + 32) + 2 * 2 * 32 + 2 * 4 * 32 * 32 + 5 * 32
    whole = (16 * 3 + 1) * 32 + 64 * 32 + 2 * each + 2 * 32 + 33 * 7
    assert parameters(VisionTransformer(7, length=32, depth=2), (32, 32, 3)) == whole


@pytest.mark.parametrize(
    ("net", "words"),
    [
        (WideResNet(3, depth=15), "depth=15 must be 6 n"),
        (VisionTransformer(3, patch=5), "patch=5 does not divide"),
    ],
)
def test_sizes_that_make_no_net_are_refused(net, words):
    with pytest.raises(PateError, match=words):
        models.model_of(net, (32, 32, 3))


NETS = {
    "wide": ("pate_jax.models.vision:WideResNet", "depth=10, width=1"),
    "transformer": ("pate_jax.models.vision:VisionTransformer", "length=8, depth=1, heads=2, dropout=0.1"),
}


@pytest.mark.long
@pytest.mark.parametrize("name", NETS)
def test_they_learn_as_teachers_and_keep_apart_on_eight_devices(name):
    net = identity.net_named(*NETS[name], (8, 8, 1), 3)
    (images, labels), cut = tiny.images(records=240), tiny.shards((80, 80, 80))
    changed = images.copy()
    changed[cut.rows[1]] = 255 - changed[cut.rows[1]]
    settings = {"epochs": 12, "batch_size": 16, "learning_rate": 0.05, "devices": 8, "width": 1}
    before, after = (
        ensemble.fit(
            net,
            tiny.Same(255.0),
            inputs,
            labels,
            cut,
            key=jax.random.key(3),
            config=tiny.config("cnn", augment="none", **settings),
        )
        for inputs in (images, changed)
    )
    moved = (tiny.leaves(before.params) != tiny.leaves(after.params)).any(1)
    assert moved.tolist() == [False, True, False]
    asked, truth = tiny.images(records=100, seed=5)
    assert (ensemble.predict(net, tiny.Same(255.0), before, asked) == truth).mean() > 0.8
