"""Data sets by name or from the user's own files, as NumPy arrays, and their division into shards."""

from pate_jax.data.catalogue import NAMES, SYNTHETIC, load
from pate_jax.data.dataset import Dataset, Part, Preprocessing
from pate_jax.data.own_files import from_files, pool, public_parts

__all__ = [
    "NAMES",
    "SYNTHETIC",
    "Dataset",
    "Part",
    "Preprocessing",
    "from_files",
    "load",
    "pool",
    "public_parts",
]
