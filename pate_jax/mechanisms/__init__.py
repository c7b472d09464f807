"""Aggregation mechanisms as frozen data, and the exact laws of their noise; imports NumPy at most."""

from pate_jax.mechanisms import descriptions
from pate_jax.mechanisms.codec import to_dict
from pate_jax.mechanisms.descriptions import *  # noqa: F403, which lists the public names

__all__ = [*descriptions.__all__, "to_dict"]
