"""The last layer of a net and what comes into it, found in the tree of parameters; no net is changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pate_jax import models
from pate_jax.errors import PateError
from pate_jax.models import Model


def logits_of(parameters: Any, hidden: Any) -> Any:
    """The logits that the last layer makes of the last hidden layer."""
    last = _last(parameters)
    return hidden @ last["kernel"] + last["bias"]


def features(model: Model) -> Callable[[Any, Any], Any]:
    """`(parameters, inputs) -> last hidden layer` of a net that ends in hidden dense layers.

    It is the same net without its last layer, on the same parameters.

    >>> import jax, jax.numpy as jnp
    >>> net = models.build("cnn", input_shape=(8, 8, 1), classes=3)
    >>> parameters, inputs = net.init(jax.random.key(0)), jnp.ones((2, 8, 8, 1))
    >>> hidden = features(net)(parameters, inputs)
    >>> bool(jnp.allclose(logits_of(parameters, hidden), net.apply(parameters, inputs), atol=1e-6))
    True
    """
    about = dict(model.description)
    _, defaults = models.NETS.get(about["name"], (None, {}))
    sizes = tuple(about.get("hidden", defaults.get("hidden", ())))
    if not sizes:
        raise PateError(f"net={about['name']!r} has no hidden dense layer, which gan needs: take cnn or mlp")
    about.update(hidden=sizes[:-1], classes=sizes[-1])
    body = models.build(**about)
    activation = models.activation_function(about["activation"])

    def run(parameters, inputs):
        return activation(body.apply(_without_last(parameters), inputs))

    return run


def _last(parameters: Any) -> Any:
    layers = parameters.get("head", parameters)
    return layers[max(layers, key=lambda name: int(name.removeprefix("dense")))]


def _without_last(parameters: Any) -> Any:
    layers = parameters.get("head", parameters)
    last = max(layers, key=lambda name: int(name.removeprefix("dense")))
    kept = {name: layer for name, layer in layers.items() if name != last}
    return {**parameters, "head": kept} if "head" in parameters else kept
