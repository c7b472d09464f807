"""Students: trained on public inputs and noisy answers only, so nothing here costs any privacy."""

from pate_jax.student.fitting import fit, fit_many
from pate_jax.student.public_inputs import PublicInputs
from pate_jax.student.selection import Bought, ask_in_rounds, select
from pate_jax.student.serving import Student
from pate_jax.student.settings import (
    Auto,
    FixMatch,
    Gan,
    Ridge,
    StudentConfig,
    Supervised,
    Tandem,
    Vat,
    from_dict,
    named,
    not_taken,
    with_method,
)

__all__ = [
    "Auto",
    "Bought",
    "FixMatch",
    "Gan",
    "PublicInputs",
    "Ridge",
    "Student",
    "StudentConfig",
    "Supervised",
    "Tandem",
    "Vat",
    "ask_in_rounds",
    "fit",
    "fit_many",
    "from_dict",
    "named",
    "not_taken",
    "select",
    "with_method",
]
