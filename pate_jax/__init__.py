"""Private learning with teacher ensembles (PATE): the public names, each loaded when first used.

The rooms, in the order in which data flows. A contract in pyproject.toml says which may import which.

errors      PateError: bad input in one sentence; PateWarning
system      the machine: files written whole, locks, devices, topologies, progress, exit codes
mechanisms  descriptions of aggregations, and the exact laws of their noise; NumPy at most
data        data sets, and their division into disjoint shards
models      nets as pure functions, the only room that imports Flax; spaces learned from public inputs
ensemble    from shards to labels: all teachers as one program; the only room that names pmap
crowd       from records to tables of votes or sums: every record or user a voter, without training
voting      from labels to votes, also for teachers trained elsewhere
aggregate   from votes, a mechanism and a key to answers: the room that draws the noise of answers
accounting  from votes and a mechanism to figures, statements and plans; never JAX
baselines   other ways to learn from the same records, for comparison: DP-SGD
parties     from votes of several owners to what they open together, and nothing else
student     from public inputs and answers to a student that serves itself
runs        one run on disk: settings, ledger, budget and stages, the release and the reports
audit       checks that other people can make
sweep       many settings over the same votes, and many methods over the same records
cli         `pate`
"""

from typing import TYPE_CHECKING

from pate_jax.system.exports import on_demand

if TYPE_CHECKING:
    from pate_jax.accounting import statement
    from pate_jax.aggregate import answer, fresh_key
    from pate_jax.errors import PateError, PateWarning
    from pate_jax.mechanisms import ConfidentDiscreteGaussian, ConfidentGNMax, GNMax, LNMax
    from pate_jax.runs.estimator import PateClassifier
    from pate_jax.runs.own_data import run
    from pate_jax.runs.settings import RunConfig
    from pate_jax.student import Student
    from pate_jax.voting import load_votes, save_votes

__version__ = "0.1.0"
__all__ = [
    "ConfidentDiscreteGaussian",
    "ConfidentGNMax",
    "GNMax",
    "LNMax",
    "PateClassifier",
    "PateError",
    "PateWarning",
    "RunConfig",
    "Student",
    "answer",
    "fresh_key",
    "load_votes",
    "run",
    "save_votes",
    "statement",
]

_HOMES = {
    **dict.fromkeys(("ConfidentDiscreteGaussian", "ConfidentGNMax", "GNMax", "LNMax"), "mechanisms"),
    **dict.fromkeys(("answer", "fresh_key"), "aggregate"),
    **dict.fromkeys(("load_votes", "save_votes"), "voting"),
    **dict.fromkeys(("PateError", "PateWarning"), "errors"),
    "PateClassifier": "runs.estimator",
    "RunConfig": "runs.settings",
    "Student": "student",
    "run": "runs.own_data",
    "statement": "accounting",
}
__getattr__ = on_demand(__name__, _HOMES)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
