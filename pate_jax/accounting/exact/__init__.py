"""The exact law of the noisy argmax, and its exact privacy cost."""

from pate_jax.accounting.exact.renyi import parts, probabilities, rdp

__all__ = [
    "parts",
    "probabilities",
    "rdp",
]
