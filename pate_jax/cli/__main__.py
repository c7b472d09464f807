"""`python -m pate_jax.cli` is `pate`."""

from pate_jax.cli import main

main()
