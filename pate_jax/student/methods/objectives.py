"""What nets minimise over answers and public inputs.

`supervised` is cross-entropy on the answered queries, with smoothing and small shifts. In virtual adversarial
training (`vat`, Miyato et al. 2018) no public input's answer may hang on a small change. In `fixmatch` (Sohn
et al. 2020) the net learns in a distorted image what it is sure of in a moved one.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp

from pate_jax.models import Model
from pate_jax.student.methods import losses
from pate_jax.student.methods.views import Views, apart, beside, divided
from pate_jax.student.settings import FixMatch, Supervised, Vat
from pate_jax.student.training import Objective

_REMEMBERED = 0.99  # of the classes' frequencies among FixMatch's guesses, per step


def supervised(model: Model, views: Views, config: Supervised) -> Objective:
    """The loss: `E CE(smoothed answer, p(moved input))`."""

    def start(key):
        return {"net": model.init(key)}, ()

    def look(batch):
        return views.weak(batch.keys, batch.inputs)

    def loss(parameters, memory, batch, key):
        logits = model.apply(parameters["net"], batch.seen)
        right = jnp.mean(logits.argmax(-1) == batch.targets.argmax(-1))
        return losses.on_answers(logits, batch.targets, batch.weights), (memory, right)

    return Objective(start, look, loss, "right")


def vat(model: Model, views: Views, config: Vat) -> Objective:
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


def fixmatch(model: Model, views: Views, config: FixMatch) -> Objective:
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
