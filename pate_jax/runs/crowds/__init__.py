"""Runs whose voters are records or users themselves: counted, released with noise, and learned from."""

from pate_jax.runs.crowds.stages import run
from pate_jax.runs.crowds.teachers import Chosen

__all__ = ["Chosen", "run"]
