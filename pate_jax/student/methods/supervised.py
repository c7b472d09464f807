"""The supervised student: cross-entropy on the answered queries, with smoothing and small shifts."""

from __future__ import annotations

import jax.numpy as jnp

from pate_jax.models import Model
from pate_jax.student.methods import losses
from pate_jax.student.methods.views import Views
from pate_jax.student.settings import Supervised
from pate_jax.student.training import Objective


def objective(model: Model, views: Views, config: Supervised) -> Objective:
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
