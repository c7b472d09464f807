"""Students: trained on public inputs and noisy answers only, so nothing here costs any privacy."""

from pate_jax.student.interface import PublicInputs, Student, StudentConfig, fit

__all__ = ["PublicInputs", "Student", "StudentConfig", "fit"]
