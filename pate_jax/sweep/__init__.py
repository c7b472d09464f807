"""Many settings together: teachers, nets, queries, noise and students; what each gives, and what it costs.

Teachers are trained once and vote once on each list of queries; all noise settings share these votes.
Every row is a function of the votes it was judged on, so a choice made from rows on private votes is a cost
that no statement covers: judge on public or synthetic votes.
"""

from typing import TYPE_CHECKING

from pate_jax.system.exports import on_demand

if TYPE_CHECKING:
    from pate_jax.sweep.grid import Grid
    from pate_jax.sweep.pareto import front
    from pate_jax.sweep.runner import sweep
    from pate_jax.sweep.settings import SweepConfig

__all__ = ["Grid", "SweepConfig", "front", "sweep"]

_HOMES = {"Grid": "grid", "SweepConfig": "settings", "front": "pareto", "sweep": "runner"}
__getattr__ = on_demand(__name__, _HOMES)
