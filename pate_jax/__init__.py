"""Private learning with teacher ensembles (PATE): the public names, each loaded when first used.

The rooms, in the order in which data flows. Which may import which is a contract in pyproject.toml.

errors      PateError: bad input in one sentence
system      the machine: files written whole, locks, devices, topologies, progress, exit codes
mechanisms  what an aggregation is, and the exact laws of its noise; NumPy at most
data        records in, disjoint shards out
models      nets as pure functions; the only room that imports Flax
ensemble    shards to labels: all teachers as one program; the only room that names pmap
voting      labels to votes: the door for teachers that are not ours
aggregate   votes, a mechanism and a key to answers: the only room that draws noise
accounting  votes and a mechanism to figures, statements and plans; never JAX
student     public inputs and answers to a student that serves itself
runs        one run on disk: settings, ledger, budget and stages, what is released, what is reported
audit       what somebody else can check
sweep       many settings over the same votes
cli         `pate`
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "ConfidentDiscreteGaussian": "mechanisms",
    "ConfidentGNMax": "mechanisms",
    "GNMax": "mechanisms",
    "LNMax": "mechanisms",
    "PateError": "errors",
    "RunConfig": "runs.settings",
    "Student": "student",
    "answer": "aggregate",
    "fresh_key": "aggregate",
    "load_votes": "voting",
    "run": "runs.pipeline",
    "save_votes": "voting",
    "statement": "accounting",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"pate_jax.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'pate_jax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
