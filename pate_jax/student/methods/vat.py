"""Virtual adversarial training (Miyato et al. 2018): no public input's answer may hang on a small change."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from pate_jax.models import Model
from pate_jax.student.methods import losses
from pate_jax.student.methods.views import Views, beside, divided
from pate_jax.student.settings import Vat
from pate_jax.student.training import Objective


def objective(model: Model, views: Views, config: Vat) -> Objective:
    """The loss: `CE(answers) + weight * (E KL(p(x) || p(x + r)) + entropy * E H(p(x)))`, x any public input.

    The paper's radius is a length; here it is a share of the pool's spread, so that one value serves data of
    every scale.
    """

    def start(key):
        return {"net": model.init(key)}, ()

    def look(batch):
        return views.weak(beside(batch.keys, batch.other_keys), beside(batch.inputs, batch.others))

    def loss(parameters, memory, batch, key):
        apply = partial(model.apply, parameters["net"])
        held = partial(model.apply, jax.lax.stop_gradient(parameters["net"]))
        counts = len(batch.inputs), len(batch.others)
        _, others = divided(batch.seen, *counts)
        logits, guesses = divided(
            apply(batch.seen), *counts
        )  # the guesses serve the direction and both terms
        random = jax.random.normal(key, others.shape)
        direction = losses.worst_direction(held, others, guesses, random)
        changed = losses.virtual_adversarial(apply, others, guesses, direction, config.radius * batch.scale)
        free = changed.mean() + config.entropy * losses.entropy(guesses).mean()
        right = jnp.mean(logits.argmax(-1) == batch.targets.argmax(-1))
        total = losses.on_answers(logits, batch.targets, batch.weights) + (config.weight or 0.0) * free
        return total, (memory, right)

    return Objective(start, look, loss, "right")
