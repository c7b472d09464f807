"""The nets of teachers and students, as pure functions; the only room that imports Flax."""

from typing import TYPE_CHECKING

from pate_jax.system.exports import on_demand

if TYPE_CHECKING:
    from pate_jax.models.nets import (
        CONVOLUTIONS,
        NETS,
        Form,
        Model,
        build,
        in_form,
        on_patches,
        tempered_sigmoid,
    )

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

__getattr__ = on_demand(__name__, dict.fromkeys(__all__, "nets"))
