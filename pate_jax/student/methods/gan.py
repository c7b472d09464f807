"""PATE-G as published: a generator whose images the student tells from public ones (Salimans et al. 2016).

The student has K logits; class K+1, "generated", has logit 0. Its loss is cross-entropy on the answers and
telling real from generated on public images; the generator matches the mean of the student's last hidden
layer. Both take their step at once, each with the other held fixed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from pate_jax import models
from pate_jax.errors import PateError
from pate_jax.models import Model
from pate_jax.student.methods import losses
from pate_jax.student.methods.views import Views, beside, divided
from pate_jax.student.settings import Gan
from pate_jax.student.training import Objective

_HIDDEN = (256, 512)  # of the generator


def objective(model: Model, views: Views, config: Gan) -> Objective:
    """The losses: `CE(answers) + weight * real_or_generated` and, for the generator, `feature_matching`."""
    shape = tuple(model.description["input_shape"])
    pixels = int(jnp.prod(jnp.array(shape)))
    generator = models.build("mlp", input_shape=(config.latent,), classes=pixels, hidden=_HIDDEN)
    hidden = features(model)
    each_alone = _of_each_alone(hidden)

    def start(key):
        net_key, generator_key = jax.random.split(key)
        return {"net": model.init(net_key), "generator": generator.init(generator_key)}, ()

    def images(parameters, key, count):
        drawn = generator.apply(parameters, jax.random.normal(key, (count, config.latent)))
        return views.plain(255 * jax.nn.sigmoid(drawn.reshape(count, *shape)))

    def look(batch):
        known, real = views.weak(batch.keys, batch.inputs), views.weak(batch.other_keys, batch.others)
        return known, real, batch.other_slots

    def loss(parameters, memory, batch, key):
        net = parameters["net"]
        known, real, slots = batch.seen
        features = hidden(net, beside(known, real))
        logits, on_real = divided(logits_of(net, features), len(known), len(real))
        _, seen = divided(features, len(known), len(real))
        # Each device generates all images and looks at those of its slots: the gradient of some images is
        # smaller than the generator's, which devices would have to add up.
        made = images(parameters["generator"], key, len(real))[slots]
        told, drawn = each_alone(net, made)
        telling = losses.real_or_generated(on_real, logits_of(net, told))
        matching = losses.feature_matching(jax.lax.stop_gradient(seen), drawn)
        right = jnp.mean(logits.argmax(-1) == batch.targets.argmax(-1))
        answers = losses.on_answers(logits, batch.targets, batch.weights)
        return answers + (config.weight or 0.0) * telling + matching, (memory, right)

    return Objective(start, look, loss, "right")


def _of_each_alone(function: Callable) -> Callable:
    """`f(a, b)` twice, computed once: differentiation holds `b` fixed in the first, and `a` in the second."""

    @jax.custom_vjp
    def twice(first, second):
        found = function(first, second)
        return found, found

    def forward(first, second):
        found, pull = jax.vjp(function, first, second)
        return (found, found), pull

    def backward(pull, slopes):
        return pull(slopes[0])[0], pull(slopes[1])[1]

    twice.defvjp(forward, backward)
    return twice


def logits_of(parameters: Any, hidden: Any) -> Any:
    """The logits that the last layer makes of the last hidden layer."""
    last = _last(parameters)
    return hidden @ last["kernel"] + last["bias"]


def features(model: Model) -> Callable[[Any, Any], Any]:
    """`(parameters, inputs) -> last hidden layer` of a net that ends in hidden dense layers.

    It is the same net, in the same form, with a last layer that changes nothing.

    >>> import jax, jax.numpy as jnp
    >>> net = models.build("cnn", input_shape=(8, 8, 1), classes=3)
    >>> parameters, inputs = net.init(jax.random.key(0)), jnp.ones((2, 8, 8, 1))
    >>> hidden = features(net)(parameters, inputs)
    >>> bool(jnp.allclose(logits_of(parameters, hidden), net.apply(parameters, inputs), atol=1e-6))
    True
    """
    about = model.description
    _, defaults = models.NETS.get(about["name"], (None, {}))
    if not about.get("hidden", defaults.get("hidden", ())):
        raise PateError(f"net={about['name']!r} has no hidden dense layer, which gan needs: take cnn or mlp")

    def run(parameters, inputs):
        return model.apply(_without_last(parameters), inputs)

    return run


def _last(parameters: Any) -> Any:
    layers = parameters.get("head", parameters)
    return layers[_name_of_last(layers)]


def _without_last(parameters: Any) -> Any:
    layers = parameters.get("head", parameters)
    name = _name_of_last(layers)
    width = layers[name]["kernel"].shape[0]
    passed = {**layers, name: {"kernel": jnp.eye(width), "bias": jnp.zeros(width)}}
    return {**parameters, "head": passed} if "head" in parameters else passed


def _name_of_last(layers: Any) -> str:
    return max(layers, key=lambda name: int(name.removeprefix("dense")))
