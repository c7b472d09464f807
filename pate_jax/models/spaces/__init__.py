"""What public inputs alone teach: maps from inputs to vectors, which cost nothing."""

from pate_jax.models.spaces.space import Description, Kind, Learned, Space, effort, learn

__all__ = ["Description", "Kind", "Learned", "Space", "effort", "learn"]
