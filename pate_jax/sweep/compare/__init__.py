"""Many methods over the same records: which one serves data best at an epsilon.

ground          what all methods share: records, public pool, test rows, delta, and what is made of them once
contender       what a method is, what it needs beside epsilon, and what it brings
teachers, crowds, dpsgd, local_votes, local_sums, references
                the methods
contenders      all of them, by name
cells           one method at one epsilon, measured
comparison      all of it at one epsilon: the table and the sentence that follow from the cells

Every method states its epsilon for the same relation, one record whose contents change (or which is left
out), and is judged on the same test rows. All noise here has a seed, so nothing that is trained here may be
released, and the figures are functions of the private records.
"""

from typing import TYPE_CHECKING

from pate_jax.system.exports import on_demand

if TYPE_CHECKING:
    from pate_jax.sweep.compare.contender import Contender, Needs, Outcome
    from pate_jax.sweep.compare.contenders import CONTENDERS, named
    from pate_jax.sweep.compare.ground import Draw, Ground

__all__ = ["CONTENDERS", "Contender", "Draw", "Ground", "Needs", "Outcome", "named"]

_HOMES = {
    "CONTENDERS": "contenders",
    "Contender": "contender",
    "Draw": "ground",
    "Ground": "ground",
    "Needs": "contender",
    "Outcome": "contender",
    "named": "contenders",
}
__getattr__ = on_demand(__name__, _HOMES)
