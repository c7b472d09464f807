"""The last layer of a net and what comes into it, found in the tree of parameters; no net is changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from pate_jax import models
from pate_jax.errors import PateError
from pate_jax.models import Model


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
