"""Students: trained on public inputs and noisy answers only, so nothing here costs any privacy."""

from pate_jax.student.fitting import fit, fit_many
from pate_jax.student.public_inputs import PublicInputs
from pate_jax.student.selection import Bought, ask_in_rounds, select
from pate_jax.student.serving import Student
from pate_jax.student.settings import StudentConfig

__all__ = [
    "Bought",
    "PublicInputs",
    "Student",
    "StudentConfig",
    "ask_in_rounds",
    "fit",
    "fit_many",
    "select",
]
