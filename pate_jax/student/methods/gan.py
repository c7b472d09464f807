"""PATE-G as published: a generator whose images the student tells from public ones (Salimans et al. 2016).

The student has K logits; class K+1, "generated", has logit 0. Its loss is cross-entropy on the answers and
telling real from generated on public images; the generator matches the mean of the student's last hidden
layer. Both take their step at once, each with the other held fixed.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from pate_jax import models
from pate_jax.models import Model
from pate_jax.student.methods import losses
from pate_jax.student.methods.head import features, logits_of
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
