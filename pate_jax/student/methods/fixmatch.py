"""FixMatch (Sohn et al. 2020): what the net is sure of in a moved image, it learns in a distorted one."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from pate_jax.models import Model
from pate_jax.student.methods import losses
from pate_jax.student.methods.views import Views, apart, beside, divided
from pate_jax.student.settings import FixMatch
from pate_jax.student.training import Objective

_REMEMBERED = 0.99  # of the classes' frequencies among the guesses, per step


def objective(model: Model, views: Views, config: FixMatch) -> Objective:
    """The loss: `CE(answers) + weight * E 1[max q >= confidence] CE(argmax q, p(distorted x))`.

    `q = p(moved x)` of any public image, with no gradient; the mean is over all of them, sure or not. The
    classes' frequencies among the guesses are remembered for `alignment`.
    """
    classes = model.description["classes"]

    def start(key):
        return {"net": model.init(key)}, jnp.full(classes, 1 / classes, jnp.float32)

    def look(batch):
        weak_keys, strong_keys = (apart(batch.other_keys, place) for place in range(2))
        if config.distort_answers:
            seen = views.strong(beside(batch.keys, strong_keys), beside(batch.inputs, batch.others))
        else:
            known = views.weak(batch.keys, batch.inputs)
            seen = beside(known, views.strong(strong_keys, batch.others))
        return seen, views.weak(weak_keys, batch.others)

    def loss(parameters, memory, batch, key):
        net, (seen, moved) = parameters["net"], batch.seen
        logits, distorted = divided(model.apply(net, seen), len(batch.inputs), len(batch.others))
        guessing = model.apply(jax.lax.stop_gradient(net), moved)
        guesses = jax.nn.softmax(guessing)
        memory = _REMEMBERED * memory + (1 - _REMEMBERED) * guesses.mean(0)
        pulled = losses.aligned(guesses, memory * classes, config.alignment)
        labels, sure = losses.confident(pulled, config.confidence)
        taught = losses.cross_entropy(distorted, jax.nn.one_hot(labels, classes))
        weight = config.weight or 0.0
        total = losses.on_answers(logits, batch.targets, batch.weights) + weight * (sure * taught).mean()
        return total, (memory, sure.mean())

    return Objective(start, look, loss, "confident")
