"""Many settings over cached votes: what each would answer, how right it would be, and what it would cost.

Votes are made once; no setting trains a teacher again. Every row is a function of the votes it was judged on,
so a choice made from rows on private votes is a cost that no statement covers: judge on public or synthetic
votes.
"""

from typing import TYPE_CHECKING

from pate_jax.system.exports import on_demand

if TYPE_CHECKING:
    from pate_jax.sweep.grid import Grid
    from pate_jax.sweep.pareto import front
    from pate_jax.sweep.runner import SweepConfig, sweep

__all__ = ["Grid", "SweepConfig", "front", "sweep"]

_HOMES = {"Grid": "grid", "SweepConfig": "runner", "front": "pareto", "sweep": "runner"}
__getattr__ = on_demand(__name__, _HOMES)
