"""What an aggregation is, as frozen data, and the exact laws of its noise; NumPy at most."""

from pate_jax.mechanisms import descriptions
from pate_jax.mechanisms.descriptions import *  # noqa: F403, the public names stand there, once

__all__ = descriptions.__all__
