"""The nets of teachers and students, as pure functions; the only room that imports Flax."""

from typing import TYPE_CHECKING

from pate_jax.system.exports import on_demand

if TYPE_CHECKING:
    from pate_jax.models.flax_nets import Model, Net, model_of
    from pate_jax.models.layers import CONVOLUTIONS, Form, tempered_sigmoid
    from pate_jax.models.linear import on_space
    from pate_jax.models.nets import NETS, build, in_form, on_patches

__all__ = [
    "CONVOLUTIONS",
    "NETS",
    "Form",
    "Model",
    "Net",
    "build",
    "in_form",
    "model_of",
    "on_patches",
    "on_space",
    "tempered_sigmoid",
]

_LAYERS = dict.fromkeys(("CONVOLUTIONS", "Form", "tempered_sigmoid"), "layers")
_FORM = dict.fromkeys(("Model", "Net", "model_of"), "flax_nets")
_HOMES = {**dict.fromkeys(__all__, "nets"), **_FORM, **_LAYERS, "on_space": "linear"}
__getattr__ = on_demand(__name__, _HOMES)
