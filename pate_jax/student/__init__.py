"""Students: trained on public inputs and noisy answers only, so nothing here costs any privacy."""

from typing import TYPE_CHECKING

from pate_jax.system.exports import on_demand

if TYPE_CHECKING:
    from pate_jax.student.choice import Choice, choose
    from pate_jax.student.lesson import PublicInputs
    from pate_jax.student.methods import check, fit, fit_many
    from pate_jax.student.methods.own import fit_net
    from pate_jax.student.selection import select
    from pate_jax.student.serving import Student
    from pate_jax.student.settings import (
        Auto,
        FixMatch,
        Gan,
        Linear,
        Own,
        Ridge,
        StudentConfig,
        Supervised,
        Tandem,
        Vat,
        from_dict,
        named,
        with_method,
    )
    from pate_jax.student.several import Students
    from pate_jax.student.spaces import space

__all__ = [
    "Auto",
    "Choice",
    "FixMatch",
    "Gan",
    "Linear",
    "Own",
    "PublicInputs",
    "Ridge",
    "Student",
    "StudentConfig",
    "Students",
    "Supervised",
    "Tandem",
    "Vat",
    "check",
    "choose",
    "fit",
    "fit_many",
    "fit_net",
    "from_dict",
    "named",
    "select",
    "space",
    "with_method",
]

_HOMES = {
    **dict.fromkeys(__all__, "settings"),
    **dict.fromkeys(("check", "fit", "fit_many"), "methods"),
    "select": "selection",
    **dict.fromkeys(("Choice", "choose"), "choice"),
    "fit_net": "methods.own",
    "PublicInputs": "lesson",
    "Student": "serving",
    "Students": "several",
    "space": "spaces",
}
__getattr__ = on_demand(__name__, _HOMES)
