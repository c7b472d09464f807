"""The exact law of the noisy argmax, and its exact privacy cost."""

from pate_jax.accounting.exact.renyi import joint_and_parts, parts, probabilities, rdp

__all__ = [
    "joint_and_parts",
    "parts",
    "probabilities",
    "rdp",
]
