"""Students: trained on public inputs and noisy answers only, so nothing here costs any privacy."""

from pate_jax.student.fitting import fit, fit_many
from pate_jax.student.interface import PublicInputs
from pate_jax.student.serving import Student
from pate_jax.student.settings import StudentConfig

__all__ = ["PublicInputs", "Student", "StudentConfig", "fit", "fit_many"]
