"""The nets of teachers and students, as pure functions; the only room that imports Flax."""

from pate_jax.models.nets import CONVOLUTIONS, NETS, Form, Model, build, in_form, on_patches, tempered_sigmoid

__all__ = [
    "CONVOLUTIONS",
    "NETS",
    "Form",
    "Model",
    "build",
    "in_form",
    "on_patches",
    "tempered_sigmoid",
]
