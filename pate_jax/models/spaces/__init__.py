"""What public inputs alone teach: maps from inputs to vectors, which cost nothing."""

from pate_jax.models.spaces.space import Kind, Space, learn

__all__ = ["Kind", "Space", "learn"]
