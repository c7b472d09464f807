"""The accountant: what the answers cost, in NumPy float64 on the host; never imports JAX."""

from typing import TYPE_CHECKING, Any

from pate_jax.accounting.curves import Epsilon, Parts, default_orders, epsilon, published_parts, rdp
from pate_jax.accounting.statement import Figure, Statement, statement

if TYPE_CHECKING:
    from pate_jax.mechanisms import Mechanism

__all__ = [
    "Epsilon",
    "Figure",
    "Parts",
    "Statement",
    "default_orders",
    "epsilon",
    "pld_epsilon",
    "published_parts",
    "rdp",
    "statement",
]


def pld_epsilon(mechanism: "Mechanism", votes: Any, delta: float) -> float:
    """Epsilon of a fixed list by privacy-loss distributions; sensitive, a function of the votes."""
    from pate_jax.accounting import pld

    return pld.epsilon(mechanism, votes, delta)
