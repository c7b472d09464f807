"""PATE-G as published: a generator whose images the student tells from public ones (Salimans et al. 2016).

The student has K logits; class K+1, "generated", has logit 0. Its loss is cross-entropy on the answers and
telling real from generated on public images; the generator matches the mean of the student's last hidden
layer. Both take their step at once, each with the other held fixed.
"""

from __future__ import annotations

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

    def start(key):
        net_key, generator_key = jax.random.split(key)
        return {"net": model.init(net_key), "generator": generator.init(generator_key)}, ()

    def images(parameters, key, count):
        drawn = generator.apply(parameters, jax.random.normal(key, (count, config.latent)))
        return views.plain(255 * jax.nn.sigmoid(drawn.reshape(count, *shape)))

    def look(batch):
        return views.weak(batch.keys, batch.inputs), views.weak(batch.other_keys, batch.others)

    def loss(parameters, memory, batch, key):
        net, held = parameters["net"], jax.lax.stop_gradient(parameters["net"])
        made = images(parameters["generator"], key, len(batch.others))
        known, real = batch.seen
        counts = len(known), len(real), len(made)
        features = hidden(net, beside(known, real, jax.lax.stop_gradient(made)))
        logits, _, on_made = divided(logits_of(net, features), *counts)
        _, seen, _ = divided(features, *counts)
        telling = losses.real_or_generated(logits_of(net, seen), on_made)
        matching = losses.feature_matching(jax.lax.stop_gradient(seen), hidden(held, made))
        right = jnp.mean(logits.argmax(-1) == batch.targets.argmax(-1))
        answers = losses.on_answers(logits, batch.targets, batch.weights)
        return answers + (config.weight or 0.0) * telling + matching, (memory, right)

    return Objective(start, look, loss, "right")
