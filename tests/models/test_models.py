"""Every net: pure, rebuilt from its description, the same in every form, and blind to the rest of a batch."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny_teachers as tiny

from pate_jax import models
from pate_jax.errors import PateError

SHAPES = {"mlp": (6, 7, 1), "table": (11,), "cnn": (9, 8, 1), "pate2017": (8, 9, 2), "resnet": (7, 8, 3)}
SHAPES["sums"], SHAPES["tutorial"], SHAPES["patches"], SHAPES["tandem"] = (
    (11,),
    (8, 8, 1),
    (7, 8, 2),
    (7, 8, 2),
)
SHAPES["papernot2021"], SHAPES["head"], SHAPES["rows"] = (15, 14, 2), (11,), (11,)
SMALL = {
    "papernot2021": {"maps": (2, 3), "hidden": 4},
    "mlp": {"hidden": (5,)},
    "table": {"hidden": (6, 4)},
    "cnn": {"maps": (2, 3), "hidden": (4,)},
    "pate2017": {"maps": (3, 2), "hidden": (5, 4)},
    "resnet": {"maps": (8, 16)},
    "tutorial": {"maps": (2, 3), "hidden": (4,)},
    "sums": {"directions": 3},
    "head": {"directions": 3},
    "rows": {"examples": 5},
    "patches": {"kinds": 5, "size": 3, "cells": 2, "examples": 4},
    "tandem": {"kinds": 5, "size": 3, "cells": 2, "examples": 4, "maps": (2, 3), "hidden": (4,)},
}

OF_VECTORS = {"low": -9, "high": 9, "steps": 10}  # with others, whole coordinates are those of all rows
USUAL = {"sums": OF_VECTORS, "head": OF_VECTORS, "rows": {"reach": 100}}


def make(name, **changes):
    settings = {**SMALL[name], **changes}
    model = models.build(name, input_shape=SHAPES[name], classes=4, **settings)
    inputs = np.random.default_rng(2).normal(size=(3, *SHAPES[name])).astype(np.float32)
    params = tiny.weights(model)
    for leaf, value in USUAL.get(name, {}).items():
        params[leaf] = np.full_like(params[leaf], value)
    return model, jax.tree.map(jnp.asarray, params), jnp.asarray(inputs)


@pytest.mark.long
@pytest.mark.parametrize("name", models.NETS)
def test_a_net_is_rebuilt_from_its_description(name):
    model, params, inputs = make(name)
    again = models.build(**json.loads(json.dumps(model.description)))
    logits = jax.jit(model.apply)(params, inputs)
    assert logits.shape == (3, 4)
    assert logits.dtype == jnp.float32
    assert np.array_equal(jax.jit(again.apply)(params, inputs), logits)
    assert all(isinstance(step.key, str) for path, _ in jax.tree.leaves_with_path(params) for step in path)


DEAR = {"cnn", "pate2017", "resnet", "patches", "head"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name in DEAR else ()) for name in models.NETS]
)
def test_no_record_of_a_batch_sees_another(name):
    model, params, inputs = make(name)
    apply, moved = jax.jit(model.apply), np.concatenate([inputs[:1], inputs[1:] * -5])
    before, after = (np.asarray(apply(params, each)) for each in (inputs, moved))
    np.testing.assert_array_equal(before[0], after[0])
    assert np.isfinite(before).all() and (before[1:] != after[1:]).any(axis=1).all()


@pytest.mark.long
@pytest.mark.parametrize("name", ["cnn", "pate2017", "resnet"])
def test_forms_of_convolution_agree_and_so_do_their_gradients(name):
    model, params, inputs = make(name)

    def loss(apply):
        found = jax.jit(jax.value_and_grad(lambda p: (apply(p, inputs) ** 2).sum()))(params)
        return jax.tree.leaves(found)

    wanted = loss(model.apply)
    for form in ("patches", "planes", "products"):
        other = models.in_form(model, models.Form(form))
        assert other.description == model.description
        for one, two in zip(wanted, loss(other.apply), strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-3, atol=1e-3, err_msg=form)


@pytest.mark.long
def test_bfloat16_computes_with_float32_parameters():
    model, params, inputs = make("cnn")
    half = models.in_form(model, models.Form("patches", "bfloat16"))
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("float32")}
    gradient = jax.jit(jax.grad(lambda p: half.apply(p, inputs).sum()))(params)
    assert {leaf.dtype for leaf in jax.tree.leaves(gradient)} == {jnp.dtype("float32")}
    found, wanted = (jax.jit(one.apply)(params, inputs) for one in (half, model))
    difference = jnp.abs(found - wanted).max()
    assert 0 < difference < 0.2


def test_tempered_sigmoid_is_its_formula():
    x = jnp.linspace(-4, 4, 9)
    expected = 1.5 / (1 + np.exp(-0.7 * x)) - 0.25
    np.testing.assert_allclose(models.tempered_sigmoid(x, 1.5, 0.7, 0.25), expected, rtol=1e-5)
    np.testing.assert_allclose(models.tempered_sigmoid(x), np.tanh(x), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("activation", ["relu", "tanh", "tempered_sigmoid"])
@pytest.mark.long
def test_activations_give_different_nets(activation):
    model, params, inputs = make("table", activation=activation)
    relu = make("table")[0]
    assert model.description["activation"] == activation
    found, other = (jax.jit(one.apply)(params, inputs) for one in (model, relu))
    assert np.array_equal(found, other) == (activation == "relu")


@pytest.mark.long
def test_settings_of_the_tempered_sigmoid_reach_the_net_and_its_description():
    one, params, inputs = make("table", activation="tempered_sigmoid", scale=1.0)
    two = make("table", activation="tempered_sigmoid")[0]
    assert one.description["scale"] == 1.0
    assert not np.array_equal(one.apply(params, inputs), two.apply(params, inputs))


def test_a_net_of_your_own_keeps_its_form():
    own = models.Model(lambda key: {}, lambda params, inputs: inputs, {"about": "mine"})
    assert models.in_form(own, models.Form("patches", "bfloat16")) is own


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "vgg"}, "net='vgg'"),
        ({"name": "cnn", "input_shape": (9,)}, "input_shape="),
        ({"name": "cnn", "input_shape": (3, 9, 1)}, "too small"),
        ({"classes": 1}, "classes=1"),
        ({"activation": "gelu"}, "activation='gelu'"),
        ({"scale": 3.0}, "scale"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(arguments, message):
    with pytest.raises(PateError, match=message):
        models.build(**{"name": "mlp", "input_shape": (9, 9, 1), "classes": 4, **arguments})
