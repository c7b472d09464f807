"""Records to votes: every record or user a voter, without training."""

from pate_jax.crowd.classifier import Linear
from pate_jax.crowd.neighbours import Queries, counts
from pate_jax.crowd.plan import Kind, Plan, plan, space_kind
from pate_jax.crowd.shares import Shares
from pate_jax.crowd.sums import sums
from pate_jax.crowd.tables import table
from pate_jax.crowd.vectors import Scaling, scaling, vectors
from pate_jax.crowd.voters import Voters, agreeing, voters

__all__ = [
    "Kind",
    "Linear",
    "Plan",
    "Queries",
    "Scaling",
    "Shares",
    "Voters",
    "agreeing",
    "counts",
    "plan",
    "scaling",
    "space_kind",
    "sums",
    "table",
    "vectors",
    "voters",
]
