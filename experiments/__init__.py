"""Experiments: named frozen configs and one thin script each. `pate_jax` never imports this package."""
