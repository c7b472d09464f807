"""The supervised student: cross-entropy on the answered queries, with smoothing and small shifts."""

from __future__ import annotations

import jax.numpy as jnp

from pate_jax.models import Model
from pate_jax.student.methods import losses
from pate_jax.student.methods.views import View, Views
from pate_jax.student.settings import AnyNet
from pate_jax.student.training import Objective


def objective(model: Model, views: Views, config: AnyNet) -> Objective:
    """The loss: `E CE(smoothed answer, p(moved input))`."""
    return _seen(model, views.weak)


def distorted(model: Model, views: Views, config: AnyNet) -> Objective:
    """The same of strongly distorted images: `E CE(smoothed answer, p(distorted input))`."""
    return _seen(model, views.strong)


def _seen(model: Model, view: View) -> Objective:
    def start(key):
        return {"net": model.init(key)}, ()

    def loss(parameters, memory, batch, key):
        logits = model.apply(parameters["net"], view(batch.keys, batch.inputs))
        right = jnp.mean(logits.argmax(-1) == batch.targets.argmax(-1))
        return losses.on_answers(logits, batch.targets, batch.weights), (memory, right)

    return Objective(start, loss, "right")
